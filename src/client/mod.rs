//! A client of `taskman-server`, for the command line and for other programs.
//!
//! Identity is the certificate: the server knows who asks from the TLS handshake alone. Connections are TLS 1.3 with a
//! client certificate, and are made again by themselves after they were lost; a lost request is not repeated by itself.
//!
//! ```no_run
//! use std::path::Path;
//! use taskman::client::{Client, Credentials, OutputRequest, StartTaskRequest, outcome};
//!
//! # async fn example() -> Result<(), taskman::client::ClientError> {
//! let credentials = Credentials::from_dir(Path::new("/etc/taskman/certs"), "client001")?;
//! let client = Client::connect("localhost:50051", &credentials).await?;
//! let task = client
//!     .start(StartTaskRequest { command: "echo".into(), args: vec!["hello".into()], ..Default::default() })
//!     .await?;
//! let mut output = client.stream(OutputRequest::all(task)).await?;
//! while let Some(chunk) = output.next().await? {
//!     print!("{}", String::from_utf8_lossy(&chunk.bytes));
//! }
//! let ended = client.wait(task, None).await?;
//! println!("{:?}", outcome(&ended));
//! # Ok(())
//! # }
//! ```

mod connect;
mod containment;
mod credentials;
mod error;
mod output;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Code, Request};

pub use crate::proto::task_manager::{
    JobStatus, Limits, ListTasksRequest, ListTasksResponse, OutputSource, StartTaskRequest, StreamEnd,
    TaskStatusResponse, Usage,
};
pub use credentials::Credentials;
pub use error::{ClientError, one_line, steers};
pub use output::{Begin, Chunk, Output, OutputRequest, Places};
pub use status::{outcome, shell_code};

pub use crate::proto::limits::proto_duration;
use crate::proto::task_manager::containment_client::ContainmentClient;
use crate::proto::task_manager::task_manager_client::TaskManagerClient;
use crate::proto::task_manager::{SignalTaskRequest, StopTaskRequest, TaskStatusRequest, WaitTaskRequest};
use crate::task::id::{TaskId, TaskName};

/// A request that is answered at once is given up after this.
const DEADLINE: Duration = Duration::from_secs(60);
/// The largest answer: a page of a thousand tasks with long command lines.
const LARGEST_ANSWER: usize = 64 << 20;

/// A connection to a server. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    tasks: TaskManagerClient<Channel>,
    containment: ContainmentClient<Channel>,
}

impl Client {
    /// Connects to `HOST:PORT`. The host must be a name or address in the server's certificate.
    pub async fn connect(address: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        let channel = connect::channel(address, credentials).await?;
        Ok(Self {
            tasks: TaskManagerClient::new(channel.clone()).max_decoding_message_size(LARGEST_ANSWER),
            containment: ContainmentClient::new(channel).max_decoding_message_size(LARGEST_ANSWER),
        })
    }

    /// Starts a task. It is answered when the command was executed, or could not be.
    ///
    /// With a `client_token` the request may be repeated after a [lost connection](ClientError::Lost): it starts one task.
    pub async fn start(&self, request: StartTaskRequest) -> Result<TaskId, ClientError> {
        let answer = self.tasks.clone().start_task(within(request, DEADLINE)).await?.into_inner();
        id(&answer.task_id)
    }

    /// Asks a task to end: SIGTERM, and a kill of everything after `grace`, or the server's own if none is given; with one of
    /// zero, the kill alone. Of a task that has ended it changes nothing.
    pub async fn stop(&self, task: TaskId, grace: Option<Duration>) -> Result<(), ClientError> {
        let request = StopTaskRequest { task_id: task.to_string(), grace: grace.map(proto_duration) };
        self.tasks.clone().stop_task(within(request, DEADLINE)).await?;
        Ok(())
    }

    /// The id of a task that is named by its beginning.
    pub async fn find(&self, name: &TaskName) -> Result<TaskId, ClientError> {
        match name {
            TaskName::Id(id) => Ok(*id),
            TaskName::Prefix(prefix) => {
                let request = TaskStatusRequest { task_id: prefix.clone() };
                let answer = self.tasks.clone().get_task_status(within(request, DEADLINE)).await?.into_inner();
                id(&answer.task_id)
            }
        }
    }

    /// A task as it is now.
    pub async fn get_status(&self, task: TaskId) -> Result<TaskStatusResponse, ClientError> {
        let request = TaskStatusRequest { task_id: task.to_string() };
        Ok(self.tasks.clone().get_task_status(within(request, DEADLINE)).await?.into_inner())
    }

    /// A task's output.
    pub async fn stream(&self, request: OutputRequest) -> Result<Output, ClientError> {
        Output::open(self.clone(), request).await
    }

    /// One page of tasks, newest first. The next page is asked for with this one's `next_page_token`.
    pub async fn list(&self, request: ListTasksRequest) -> Result<ListTasksResponse, ClientError> {
        Ok(self.tasks.clone().list_tasks(within(request, DEADLINE)).await?.into_inner())
    }

    /// Waits until a task is final, or until `timeout` is over: then the status is that of a running task.
    pub async fn wait(&self, task: TaskId, timeout: Option<Duration>) -> Result<TaskStatusResponse, ClientError> {
        let request = WaitTaskRequest { task_id: task.to_string(), timeout: timeout.map(proto_duration) };
        let request = match timeout {
            Some(timeout) => within(request, timeout.saturating_add(DEADLINE)),
            None => Request::new(request),
        };
        Ok(self.tasks.clone().wait_task(request).await?.into_inner())
    }

    /// Sends a signal, by name or number, to a task's main process.
    pub async fn signal(&self, task: TaskId, signal: &str) -> Result<(), ClientError> {
        let request = SignalTaskRequest { task_id: task.to_string(), signal: signal.to_owned() };
        self.tasks.clone().signal_task(within(request, DEADLINE)).await?;
        Ok(())
    }
}

/// An id that a server has given.
fn id(text: &str) -> Result<TaskId, ClientError> {
    text.parse().map_err(|_| ClientError::Status {
        code: Code::Internal,
        message: format!("the server answered with {text:?}, which is no task id"),
        exit_code: None,
    })
}

fn within<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}
