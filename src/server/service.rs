//! The calls of `proto/task.proto`: each goes through the gate to its verb, and the verbs are one file each.

use tonic::{Request, Response, Status};

use super::authorize::Verb;
use super::gate::Gate;
use super::stream::OutputStream;
use super::{body, get_status, list, signal, start, stop, stream, wait};
use crate::proto::task_manager as pb;

/// The service, behind its gate.
pub struct Service(pub Gate);

#[tonic::async_trait]
impl pb::task_manager_server::TaskManager for Service {
    type StreamTaskOutputStream = OutputStream;

    async fn start_task(
        &self,
        request: Request<pb::StartTaskRequest>,
    ) -> Result<Response<pb::StartTaskResponse>, Status> {
        self.0.serve(Verb::Start, None, request, start::start).await
    }

    async fn stop_task(&self, request: Request<pb::StopTaskRequest>) -> Result<Response<pb::StopTaskResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.0.serve(Verb::Stop, Some(&task), request, stop::stop).await
    }

    async fn get_task_status(
        &self,
        request: Request<pb::TaskStatusRequest>,
    ) -> Result<Response<pb::TaskStatusResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.0.serve(Verb::GetStatus, Some(&task), request, get_status::get_status).await
    }

    async fn stream_task_output(
        &self,
        request: Request<pb::StreamTaskOutputRequest>,
    ) -> Result<Response<OutputStream>, Status> {
        let task = request.get_ref().task_id.clone();
        self.0.serve(Verb::Stream, Some(&task), request, stream::stream).await.map(body::carry)
    }

    async fn list_tasks(
        &self,
        request: Request<pb::ListTasksRequest>,
    ) -> Result<Response<pb::ListTasksResponse>, Status> {
        let asked = request.get_ref();
        let verb = if asked.all_owners || !asked.owner.is_empty() { Verb::ListOthers } else { Verb::List };
        self.0.serve(verb, None, request, list::list).await
    }

    async fn wait_task(
        &self,
        request: Request<pb::WaitTaskRequest>,
    ) -> Result<Response<pb::TaskStatusResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.0.serve(Verb::Wait, Some(&task), request, wait::wait).await
    }

    async fn signal_task(
        &self,
        request: Request<pb::SignalTaskRequest>,
    ) -> Result<Response<pb::SignalTaskResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.0.serve(Verb::Signal, Some(&task), request, signal::signal).await
    }
}
