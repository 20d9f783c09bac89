//! What the auditor is asked and told, and what it says: by the launcher over a socket, for the server or by itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::finding::{Incident, IncidentId, Summary};
use super::health::Health;
use super::journal::Line;
use super::leftover::{Leftover, Swept};
use crate::place::UidRange;
use crate::task::id::TaskId;

/// What an auditor must know before it can look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Where journal and incidents are.
    pub state_dir: PathBuf,
    /// The middle of the names of this server's groups.
    pub instance: String,
    /// Whose processes are tasks'.
    pub uid_range: UidRange,
    /// The launcher, parent of every sandbox-init; none where no server runs.
    pub launcher: Option<i32>,
    /// Whether to listen to the kernel's events, beside scanning.
    pub events: bool,
    /// Time between two full scans.
    pub scan_ms: u64,
    /// A dead process may wait this long to be reaped.
    pub zombie_ms: u64,
}

/// A question, from an administrator or an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // as in containment.proto
pub enum Query {
    /// A full audit, now.
    Audit,
    Findings {
        most: u32,
    },
    Finding {
        id: IncidentId,
    },
    VerifyClean,
    Recover {
        by: String,
    },
    Quarantine {
        by: String,
        reason: String,
    },
    /// Refused unless nothing is left. Places that could not be looked into are left, unless they are named here.
    Lift {
        by: String,
        reason: String,
        #[serde(default)]
        accept: Vec<String>,
    },
    /// The journal's lines after this one.
    Journal {
        after: u64,
    },
}

/// The answer to a [`Query`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // as in Query
pub enum Answer {
    Audited(Audited),
    Findings(Vec<Summary>),
    Finding(Box<Incident>),
    /// Empty: clean.
    Left(Vec<Leftover>),
    Recovered(Vec<Swept>),
    Health(Health),
    Journal(Vec<Line>),
    /// It was not done, and why.
    Refused(String),
}

/// What a full audit saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audited {
    /// What it found, each now an incident.
    pub findings: Vec<Summary>,
    /// What else is left over of ended tasks and dead launchers.
    pub leftovers: Vec<Leftover>,
    /// Tasks looked at.
    pub tasks: u64,
    /// Their processes.
    pub processes: u64,
    /// How long it took.
    pub micros: u64,
}

/// From the launcher to the auditor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAuditor {
    /// The first message.
    Setup(Box<Setup>),
    /// A task was told as ended. Only a hint: what is left is asked of the kernel.
    Ended {
        /// Which.
        task: TaskId,
    },
    /// To be answered by [`FromAuditor::Answer`].
    Ask {
        /// Returned in the answer.
        seq: u64,
        /// What.
        query: Query,
    },
}

/// From the auditor to the launcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromAuditor {
    /// After the first full scan: it watches, with events unless something is said here.
    Ready {
        /// Why there are no events.
        without_events: Option<String>,
        /// What the journal adds up to.
        health: Health,
    },
    /// It lives. Sent twice a second, also during a long scan.
    Beat {
        /// What it has done since the last one.
        scan: Scan,
    },
    /// Sent before anything is killed, so that the launcher knows why a task ends.
    Found {
        /// Of which task, if that is known.
        task: Option<TaskId>,
        /// The finding.
        summary: Summary,
    },
    /// The journal has grown: its new lines, and what it adds up to now.
    Health {
        /// The lines.
        lines: Vec<Line>,
        /// The sum.
        health: Health,
    },
    /// To [`ToAuditor::Ask`].
    Answer {
        /// From the question.
        seq: u64,
        /// The answer.
        answer: Answer,
    },
}

/// What auditing cost since the last beat.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Durations of full scans, in microseconds.
    pub scans: Vec<u64>,
    /// Kernel events taken.
    pub events: u64,
    /// Processes looked at.
    pub looked_at: u64,
    /// Uids that the launcher has leased now, which it adds: its tasks' own, and those of what does not die.
    pub uids: u64,
    /// Places that could not be looked into when it last tried.
    #[serde(default)]
    pub unseen: u64,
}
