//! The calls of `proto/task.proto`. Each goes through one gate, which asks who calls, counts the request, and writes the
//! audit record, whatever comes of it; the verbs themselves are one file each.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::audit_log::{AuditLog, Entry};
use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::peer::Peer;
use super::registry::Registry;
use super::stream::OutputStream;
use super::{get_status, list, signal, start, stop, stream, wait};
use crate::error::SysError;
use crate::proto::task_manager as pb;
use crate::task::id::TaskId;

/// The service.
pub struct Service {
    registry: Arc<Registry>,
    audit: AuditLog,
}

impl Service {
    /// Over the tasks of `registry`.
    pub fn new(registry: Arc<Registry>, audit: AuditLog) -> Self {
        Self { registry, audit }
    }

    /// Serves one request: identity, rate, the verb itself, and the audit record.
    async fn serve<T, R, F>(
        &self,
        verb: Verb,
        task: Option<&str>,
        request: Request<T>,
        serve: impl FnOnce(Arc<Registry>, Caller, T) -> F + Send + 'static,
    ) -> Result<Response<R>, Status>
    where
        T: Send + 'static,
        R: Send + 'static,
        F: Future<Output = Result<Served<R>, ApiError>> + Send + 'static,
    {
        let peer = request.extensions().get::<Peer>().cloned();
        let named = task.and_then(|id| id.parse::<TaskId>().ok());
        let caller = self.admit(peer.as_ref());
        let unanswered = Unanswered { audit: self.audit.clone(), peer, verb, task: named, answered: false };
        let registry = Arc::clone(&self.registry);
        let work = async move {
            let result = match caller {
                Ok(caller) => serve(registry, caller, request.into_inner()).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(served) => {
                    unanswered.answer(served.task, "ok", "").await;
                    Ok(Response::new(served.answer))
                }
                Err(error @ ApiError::TooOften { told: true, .. }) => {
                    unanswered.forget();
                    Err(error.into())
                }
                Err(error) => {
                    unanswered.answer(None, &format!("{:?}", error.code()), &error.message()).await;
                    Err(error.into())
                }
            }
        };
        // A client that goes away drops this very future. What it has asked for goes on, and so its record must be written;
        // but nobody waits for somebody who has gone.
        if verb == Verb::Wait {
            return work.await;
        }
        let lost = |_| Err(ApiError::Internal("the request was given up".to_owned()).into());
        tokio::spawn(work).await.unwrap_or_else(lost)
    }

    fn admit(&self, peer: Option<&Peer>) -> Result<Caller, ApiError> {
        let identity = match peer.map(|peer| &peer.identity) {
            Some(Ok(name)) => name,
            Some(Err(why)) => return Err(ApiError::Unauthenticated(why.clone())),
            None => return Err(ApiError::Unauthenticated("the connection has no certificate".to_owned())),
        };
        self.registry.quotas.request(identity)?;
        Ok(Caller::new(identity, &self.registry.config.admins))
    }
}

/// A request whose record is still to be written, and is written even if nobody waits for the answer any more.
struct Unanswered {
    audit: AuditLog,
    peer: Option<Peer>,
    verb: Verb,
    task: Option<TaskId>,
    answered: bool,
}

impl Unanswered {
    async fn answer(mut self, task: Option<TaskId>, outcome: &str, reason: &str) {
        self.answered = true;
        self.task = task.or(self.task);
        report(self.audit.record(&self.entry(outcome, reason)).await);
    }

    /// It stands in the log already.
    fn forget(mut self) {
        self.answered = true;
    }

    fn entry<'a>(&'a self, outcome: &'a str, reason: &'a str) -> Entry<'a> {
        let peer = self.peer.as_ref();
        Entry {
            identity: peer.and_then(|peer| peer.identity.as_deref().ok()),
            peer: peer.map_or(SocketAddr::from(([0, 0, 0, 0], 0)), |peer| peer.address),
            verb: self.verb.name(),
            task: self.task,
            outcome,
            reason,
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.answered {
            report(self.audit.record_now(&self.entry("Cancelled", "the client went away before the answer")));
        }
    }
}

fn report(recorded: Result<(), SysError>) {
    if let Err(error) = recorded {
        tracing::error!(%error, "the audit log cannot be written to");
    }
}

/// An answer, and the task it is about where the request could not name it.
pub struct Served<R> {
    /// The task.
    pub task: Option<TaskId>,
    /// The answer.
    pub answer: R,
}

impl<R> From<R> for Served<R> {
    fn from(answer: R) -> Self {
        Self { task: None, answer }
    }
}

#[tonic::async_trait]
impl pb::task_manager_server::TaskManager for Service {
    type StreamTaskOutputStream = OutputStream;

    async fn start_task(
        &self,
        request: Request<pb::StartTaskRequest>,
    ) -> Result<Response<pb::StartTaskResponse>, Status> {
        self.serve(Verb::Start, None, request, start::start).await
    }

    async fn stop_task(&self, request: Request<pb::StopTaskRequest>) -> Result<Response<pb::StopTaskResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.serve(Verb::Stop, Some(&task), request, stop::stop).await
    }

    async fn get_task_status(
        &self,
        request: Request<pb::TaskStatusRequest>,
    ) -> Result<Response<pb::TaskStatusResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.serve(Verb::GetStatus, Some(&task), request, get_status::get_status).await
    }

    async fn stream_task_output(
        &self,
        request: Request<pb::StreamTaskOutputRequest>,
    ) -> Result<Response<OutputStream>, Status> {
        let task = request.get_ref().task_id.clone();
        self.serve(Verb::Stream, Some(&task), request, stream::stream).await
    }

    async fn list_tasks(
        &self,
        request: Request<pb::ListTasksRequest>,
    ) -> Result<Response<pb::ListTasksResponse>, Status> {
        let asked = request.get_ref();
        let verb = if asked.all_owners || !asked.owner.is_empty() { Verb::ListOthers } else { Verb::List };
        self.serve(verb, None, request, list::list).await
    }

    async fn wait_task(
        &self,
        request: Request<pb::WaitTaskRequest>,
    ) -> Result<Response<pb::TaskStatusResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.serve(Verb::Wait, Some(&task), request, wait::wait).await
    }

    async fn signal_task(
        &self,
        request: Request<pb::SignalTaskRequest>,
    ) -> Result<Response<pb::SignalTaskResponse>, Status> {
        let task = request.get_ref().task_id.clone();
        self.serve(Verb::Signal, Some(&task), request, signal::signal).await
    }
}
