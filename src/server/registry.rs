//! The tasks this server knows: live ones in memory, ended ones in the store.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, watch};

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::health::Health;
use super::link::Link;
use super::metrics::Metrics;
use super::quota::Quotas;
use super::slots::Slots;
use crate::config::Config;
use crate::output::{Log, Outputs, Source};
use crate::store::Store;
use crate::task::id::{TaskId, TaskName};
use crate::task::record::Record;
use crate::task::spec::SpecError;

/// How far a live task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Asked for; nobody but its starter knows of it.
    Starting,
    /// Its command was executed.
    Running,
    /// Its end is recorded.
    Final,
}

/// How far the server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Admits tasks.
    Serving,
    /// Admits none; those that run are being stopped.
    Draining,
    /// All tasks are final; open streams end.
    Closing,
}

/// A task that has not yet been recorded as ended.
pub struct Live {
    /// Its id.
    pub id: TaskId,
    /// Who started it.
    pub owner: String,
    /// How far it has come.
    pub phase: watch::Sender<Phase>,
    record: Mutex<Record>,
    logs: OnceLock<Vec<(Source, Arc<Log>)>>,
    ending: std::sync::atomic::AtomicBool,
}

impl Live {
    /// The record as it stands.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its output; nothing before it runs.
    pub fn logs(&self) -> &[(Source, Arc<Log>)] {
        self.logs.get().map_or(&[], Vec::as_slice)
    }

    /// Hands over its output, once.
    pub fn set_logs(&self, logs: Vec<(Source, Arc<Log>)>) {
        let _ = self.logs.set(logs);
    }

    /// Whether its end was asked for.
    pub fn is_ending(&self) -> bool {
        self.ending.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Notes that its end was asked for.
    pub fn set_ending(&self) {
        self.ending.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Waits until its end is recorded.
    pub async fn wait_final(&self) {
        // The sender lives in this very value, so the wait cannot fail.
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Final).await;
    }

    /// Bytes written so far.
    pub fn output_bytes(&self) -> u64 {
        self.logs().iter().map(|(_, log)| log.progress().borrow().end).sum()
    }
}

/// A task that a caller may see.
pub enum Found {
    /// It runs, or its end is being recorded.
    Live(Arc<Live>),
    /// It has ended.
    Ended(Box<Record>),
}

impl Found {
    /// Who started it.
    pub fn owner(&self) -> &str {
        match self {
            Self::Live(live) => &live.owner,
            Self::Ended(record) => &record.owner,
        }
    }
}

/// Everything the verbs need.
pub struct Registry {
    /// As it was read before the processes parted.
    pub config: Config,
    /// What is durable.
    pub store: Store,
    /// What the tasks wrote.
    pub outputs: Outputs,
    /// The line to the launcher.
    pub link: Arc<Link>,
    /// Sandboxes that stand ready.
    pub slots: Slots,
    /// What each user has taken.
    pub quotas: Arc<Quotas>,
    /// How far the server has come.
    pub stage: watch::Sender<Stage>,
    /// Whether tasks are taken.
    pub health: Health,
    /// One more is held by each reader of output.
    pub readers: Arc<()>,
    /// Told whenever a task was recorded as ended.
    pub ended: Notify,
    /// What is counted for those who watch the server.
    pub metrics: Metrics,
    live: Mutex<HashMap<TaskId, Arc<Live>>>,
    tokens: Mutex<HashSet<(String, String)>>,
    token_freed: Notify,
}

impl Registry {
    /// Knows what the store knows, and no live task.
    pub fn new(config: Config, store: Store, outputs: Outputs, link: Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            quotas: Quotas::new(config.quota.clone()),
            config,
            store,
            outputs,
            link,
            slots: Slots::default(),
            stage: watch::Sender::new(Stage::Serving),
            health: Health::default(),
            readers: Arc::default(),
            ended: Notify::new(),
            metrics: Metrics::default(),
            live: Mutex::default(),
            tokens: Mutex::default(),
            token_freed: Notify::new(),
        })
    }

    /// Adds a task that is about to be started.
    pub fn add(&self, record: Record) -> Arc<Live> {
        let live = Arc::new(Live {
            id: record.id,
            owner: record.owner.clone(),
            phase: watch::Sender::new(Phase::Starting),
            record: Mutex::new(record),
            logs: OnceLock::new(),
            ending: false.into(),
        });
        self.lives().insert(live.id, Arc::clone(&live));
        live
    }

    /// Forgets a live task: it was not started, or the store has it now.
    pub fn remove(&self, id: TaskId) {
        self.lives().remove(&id);
        self.ended.notify_waiters();
    }

    /// The live task of this id, starting ones included.
    pub fn live(&self, id: TaskId) -> Option<Arc<Live>> {
        self.lives().get(&id).cloned()
    }

    /// How many tasks are live.
    pub fn live_count(&self) -> usize {
        self.lives().len()
    }

    /// How far each live task has come, in a word.
    pub fn live_states(&self) -> Vec<&'static str> {
        let state = |live: &Arc<Live>| match *live.phase.borrow() {
            Phase::Starting => "starting",
            Phase::Running if !live.is_ending() => "running",
            Phase::Running | Phase::Final => "ending",
        };
        self.lives().values().map(state).collect()
    }

    /// Bytes that the live tasks of `owner` have written.
    pub fn live_bytes(&self, owner: &str) -> u64 {
        let mine: Vec<_> = self.lives().values().filter(|live| live.owner == owner).cloned().collect();
        mine.iter().map(|live| live.output_bytes()).sum()
    }

    /// Any task that was started, whoever asks.
    pub async fn find(&self, id: TaskId) -> Result<Found, ApiError> {
        if let Some(live) = self.live(id) {
            let started = *live.phase.borrow() > Phase::Starting;
            return if started { Ok(Found::Live(live)) } else { Err(ApiError::NotFound) };
        }
        match self.store.get(id).await? {
            Some(record) if record.end.is_some() => Ok(Found::Ended(Box::new(record))),
            _ => Err(ApiError::NotFound),
        }
    }

    /// The task of this name, if the caller may do `verb` to it; otherwise the answer is that of an unknown id.
    pub async fn find_for(&self, caller: &Caller, verb: Verb, name: &str) -> Result<Found, ApiError> {
        let id = match name.parse()? {
            TaskName::Id(id) => id,
            TaskName::Prefix(prefix) => self.resolve(caller, verb, &prefix).await?,
        };
        let found = self.find(id).await?;
        caller.may(verb, found.owner())?;
        Ok(found)
    }

    /// The one task that the caller may see whose id begins so.
    async fn resolve(&self, caller: &Caller, verb: Verb, prefix: &str) -> Result<TaskId, ApiError> {
        // Of tasks that are not theirs nobody learns by guessing.
        let owner = if caller.may(verb, "").is_ok() { None } else { Some(caller.name.as_str()) };
        the_one(prefix, &self.store.beginning_with(prefix, owner).await?)
    }

    /// Waits until nobody else is starting a task with this token, and claims it.
    pub async fn claim(self: &Arc<Self>, owner: &str, token: &str) -> Claim {
        let key = (owner.to_owned(), token.to_owned());
        loop {
            let freed = self.token_freed.notified();
            if self.tokens().insert(key.clone()) {
                return Claim { registry: Arc::clone(self), key };
            }
            freed.await;
        }
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokens(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to start a task with one token; others wait until it is dropped.
pub struct Claim {
    registry: Arc<Registry>,
    key: (String, String),
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.tokens().remove(&self.key);
        self.registry.token_freed.notify_waiters();
    }
}

/// The task that is meant, if no other id begins so.
fn the_one(prefix: &str, ids: &[TaskId]) -> Result<TaskId, ApiError> {
    match *ids {
        [] => Err(ApiError::NotFound),
        [id] => Ok(id),
        _ => Err(SpecError::new("task_id", format!("{prefix:?} is the beginning of several; write more of it")).into()),
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn a_beginning_that_several_have_names_none() {
        let ids = ["aaaa0000-0000-4000-8000-000000000000", "aaaaf000-0000-4000-8000-000000000000"];
        let ids = ids.map(|id| id.parse::<TaskId>().unwrap());
        assert!(matches!(the_one("aaaa0", &ids[..1]), Ok(id) if id == ids[0]));
        assert!(matches!(the_one("aaab", &[]), Err(ApiError::NotFound)));
        let refused = Status::from(the_one("aaaa", &ids).unwrap_err());
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(refused.message(), r#"task_id: "aaaa" is the beginning of several; write more of it"#);
    }
}
