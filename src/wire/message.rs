//! The messages, one type per direction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::containment::{Answer, HealthView, Line, Query, Scan};
use crate::error::{StartError, SysError};
use crate::task::id::TaskId;
use crate::task::limits::Limits;
use crate::task::outcome::Outcome;
use crate::task::record::UnixMillis;
use crate::task::report::{Containment, Usage};
use crate::task::request::TaskRequest;

/// From the server to the launcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Start a task; answered by [`Event::Started`] or [`Event::StartFailed`].
    Start(Box<TaskRequest>),
    /// Ask a task to end: SIGTERM, and a kill of everything after the grace. A task that is not there has ended.
    Stop {
        /// Which.
        task: TaskId,
        /// Time to end by itself.
        grace_ms: u64,
    },
    /// Send a signal to a task's main process; answered by [`Event::Signalled`].
    Signal {
        /// Returned in the answer.
        seq: u64,
        /// Which.
        task: TaskId,
        /// The signal's number.
        number: i32,
    },
    /// A task wrote more than its output limit: end it for that.
    OutputLimit {
        /// Which.
        task: TaskId,
    },
    /// A question to the auditor, passed on; answered by [`Event::Containment`]. Who asks is in the query.
    Containment {
        /// Returned in the answer.
        seq: u64,
        /// What.
        query: Query,
    },
    /// The server listens, and serves whoever comes. Said once.
    Serving,
    /// The answer to [`Event::Ping`].
    Pong {
        /// From the question.
        seq: u64,
    },
    /// Everything is recorded and flushed: the server ends. Only after [`Event::Drain`] is this an orderly end.
    Goodbye,
}

/// All of a request that goes into the building of its sandbox: one that was built for a request of the same shape can be
/// this one's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // named as in the request
pub struct Shape {
    pub profile: String,
    pub limits: Limits,
    pub hostname: Option<String>,
    pub split_output: bool,
}

impl Shape {
    /// The shape of a request's sandbox. None has one that shows paths of the host's choosing: what lies there may be another thing
    /// tomorrow, and a sandbox built today would show the old one.
    pub fn of(request: &TaskRequest) -> Option<Self> {
        // Every field by name, so that a new one does not compile until someone has thought of it here.
        let TaskRequest {
            task: _,
            owner: _,
            command: _,
            args: _,
            env: _,
            working_dir: _,
            hostname,
            profile,
            limits,
            bind_ro,
            split_output,
        } = request;
        // These are watched from outside, and nothing of the sandbox is made by them.
        let limits = Limits { cpu_time: Duration::ZERO, timeout: Duration::ZERO, output_bytes: 0, ..limits.clone() };
        bind_ro.is_empty().then(|| Self {
            profile: profile.clone(),
            limits,
            hostname: hostname.clone(),
            split_output: *split_output,
        })
    }
}

/// From the launcher to the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Event {
    /// A task's command was executed. With it come the read ends of its output: one, or two if it is split.
    Started(Started),
    /// A task was not started, and nothing of it is left.
    StartFailed {
        /// Which.
        task: TaskId,
        /// Why.
        error: StartError,
    },
    /// The answer to [`Request::Signal`].
    Signalled {
        /// From the request.
        seq: u64,
        /// Why it was not delivered, if it was not.
        error: Option<SysError>,
    },
    /// A task has ended, and the kernel was asked what is left.
    Ended(Box<Ended>),
    /// A sandbox is built and waits for a command. A request of this shape that takes its id for the task's is its command.
    Parked(Box<Parked>),
    /// A sandbox that waited does no longer. Its id, taken all the same, makes a task like any other.
    Unparked {
        /// Which.
        slot: TaskId,
    },
    /// The TLS files, at the start and after each change: CA, certificate, key and, if there is one, the revocation list.
    TlsFiles,
    /// The answer to [`Request::Containment`].
    Containment {
        /// From the request.
        seq: u64,
        /// The answer.
        answer: Box<Answer>,
    },
    /// Whether tasks are taken, at the start and whenever it changes.
    Health(Box<HealthView>),
    /// New lines of the containment journal, for the audit log.
    Journal(Vec<Line>),
    /// What the auditor did, for metrics; with each of its beats.
    Scan(Scan),
    /// A question whether the server still answers, and has seen to everything before it; answered by [`Request::Pong`].
    Ping {
        /// Returned in the answer.
        seq: u64,
    },
    /// Admit no more tasks, say goodbye when the last one is recorded. Every running task is being stopped.
    Drain,
}

/// A task's command was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Which.
    pub task: TaskId,
    /// The main process's pid on the host.
    pub process_id: i32,
    /// When.
    pub started_at: UnixMillis,
    /// Limits and defences that the host cannot enforce.
    pub reduced: Vec<String>,
    /// Its sandbox had waited for it.
    pub warm: bool,
}

/// A sandbox without a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parked {
    /// The id of the task that it will be.
    pub slot: TaskId,
    /// What it is for.
    pub shape: Shape,
    /// How long it took to build, in microseconds.
    pub built_micros: u64,
}

/// A task has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Which.
    pub task: TaskId,
    /// How and why.
    pub outcome: Outcome,
    /// When its last process was gone.
    pub ended_at: UnixMillis,
    /// What it used; `output_bytes` is the server's to fill in.
    pub usage: Usage,
    /// What the kernel said was left of it.
    pub containment: Containment,
    /// Time from the moment its end was seen to the proof, in microseconds.
    pub cleanup_micros: u64,
}
