//! The one gate that every call goes through: it asks who calls, counts the request, and writes the audit record, whatever
//! comes of it.

use std::future::Future;
use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status};

use super::arriving::Held;
use super::audit_log::{AuditLog, Entry};
use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::pace::Place;
use super::peer::Peer;
use super::registry::Registry;
use crate::error::SysError;
use crate::task::id::TaskId;

/// The gate. Clones are the same one.
#[derive(Clone)]
pub struct Gate {
    registry: Arc<Registry>,
    audit: AuditLog,
}

impl Gate {
    /// Over the tasks of `registry`.
    pub fn new(registry: Arc<Registry>, audit: AuditLog) -> Self {
        Self { registry, audit }
    }

    /// Serves one request: identity, rate, the verb itself, and the audit record.
    pub async fn serve<T, R, F>(
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
        let held = request.extensions().get::<Held>().cloned();
        let work = async move {
            let _held = held;
            let result = match caller {
                Ok(caller) => answer(registry, caller, verb, request.into_inner(), serve).await,
                Err(error) => Err(error),
            };
            match result {
                Ok((task, response)) => {
                    unanswered.answer(task, "ok", "").await;
                    Ok(response)
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

/// Has the verb do its work, and counts the answer until the client has taken it.
async fn answer<T, R, F>(
    registry: Arc<Registry>,
    caller: Caller,
    verb: Verb,
    request: T,
    serve: impl FnOnce(Arc<Registry>, Caller, T) -> F,
) -> Result<(Option<TaskId>, Response<R>), ApiError>
where
    F: Future<Output = Result<Served<R>, ApiError>>,
{
    let (quotas, name) = (Arc::clone(&registry.quotas), caller.name.clone());
    let served = serve(registry, caller, request).await?;
    let taken = quotas.answer(&name, served.bytes, verb.may_withhold())?;
    let mut response = Response::new(served.answer);
    Place::keep(taken, response.extensions_mut());
    Ok((served.task, response))
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
            peer: peer.map(|peer| peer.address),
            verb: self.verb.name(),
            task: self.task,
            outcome,
            reason,
            journal: None,
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
    /// What the answer weighs. A stream has a place already.
    pub bytes: usize,
    /// The answer.
    pub answer: R,
}

impl<R: Message> From<R> for Served<R> {
    fn from(answer: R) -> Self {
        Self { task: None, bytes: answer.encoded_len(), answer }
    }
}
