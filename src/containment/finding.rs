//! One finding: what was seen, of which process and task, and what was done about it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::health::Reason;
use super::leftover::Leftover;
use crate::task::id::TaskId;
use crate::task::record::UnixMillis;
use crate::task::spec::SpecError;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A process of a living task is outside its control group.
    OrphanDetected,
    /// It was outside, and had ended or was back when it was looked at again.
    TransientEscape,
    /// Something of a task that has ended is still there: a process, a group, a mount, a file, an IPC object.
    PostCleanupLeak,
    /// A dead process that nobody reaps.
    ZombieDetected,
    /// A process of a task lacks a part of its confinement: uid, capabilities, no_new_privs, seccomp, namespaces, ancestry.
    ConfinementLost,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OrphanDetected,
        Self::TransientEscape,
        Self::PostCleanupLeak,
        Self::ZombieDetected,
        Self::ConfinementLost,
    ];

    /// As in JSON, metrics and the runbooks.
    pub fn name(self) -> &'static str {
        match self {
            Self::OrphanDetected => "orphan_detected",
            Self::TransientEscape => "transient_escape",
            Self::PostCleanupLeak => "post_cleanup_leak",
            Self::ZombieDetected => "zombie_detected",
            Self::ConfinementLost => "confinement_lost",
        }
    }

    /// What a worker with such a finding is quarantined for.
    pub fn reason(self) -> Reason {
        match self {
            Self::OrphanDetected | Self::TransientEscape | Self::ConfinementLost => Reason::Orphan,
            Self::PostCleanupLeak | Self::ZombieDetected => Reason::Leak,
        }
    }
}

/// Which of the causes in `runbooks/orphan-process.md` fits what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The process was never seen in its group.
    SpawnRace,
    /// It is in its group in some hierarchies and not in others.
    MigrationFailure,
    /// Another process moved it.
    MovedFromOutside,
    /// Its parent is not of its sandbox.
    DoubleFork,
    /// It is in another PID or mount namespace than its task.
    NamespaceEscape,
    /// The launcher died, or gave its end up.
    SupervisorCrash,
    /// What was seen does not tell.
    Unknown,
}

/// A finding's name, which is also its file's: letters, digits and dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IncidentId(String);

impl IncidentId {
    /// A new one, that sorts by time.
    pub fn new(at: UnixMillis) -> Self {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at.max(0) as u64);
        let digits: String =
            humantime::format_rfc3339_millis(time).to_string().chars().filter(char::is_ascii_digit).collect();
        Self(format!("{}-{}-{:08x}", &digits[..8], &digits[8..], TaskId::random().entropy() as u32))
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for IncidentId {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if text.is_empty() || text.len() > 64 || !plain(text) || text.starts_with('-') {
            let why = format!("{text:?} is not a finding's id; `taskman audit findings` shows them");
            return Err(SpecError::new("id", why));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for IncidentId {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<IncidentId> for String {
    fn from(id: IncidentId) -> Self {
        id.0
    }
}

/// Everything about one finding. Fields are only ever added: the file is read by people and by later versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Its name.
    pub id: IncidentId,
    /// What was found.
    pub kind: Kind,
    /// When.
    pub detected_at: UnixMillis,
    /// What woke the auditor: `uid change`, `exec`, `cgroup write by pid 7 (bash)`, `scan`.
    pub detected_by: String,
    /// In one line, for a table.
    pub what: String,
    /// Each check that failed, with what was expected and what was seen.
    pub faults: Vec<String>,
    /// The task it belongs to, if that is known.
    pub task: Option<TaskId>,
    /// The certificate name of the task's owner, if that is known.
    pub owner: Option<String>,
    /// The process, as the kernel described it before anything was done; none where the finding is not a process.
    pub process: Option<ProcessState>,
    /// What it is where it is no process.
    #[serde(default)]
    pub thing: Option<Leftover>,
    /// Which of the runbook's causes fits.
    pub cause: Cause,
    /// Why that one.
    pub cause_detail: String,
    /// Whether it was proven to be ours, without which nothing is signalled.
    pub proven_ours: bool,
    /// What was done, in order.
    pub actions: Vec<Action>,
}

/// A process as the kernel describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // named as in proc(5)
pub struct ProcessState {
    pub pid: i32,
    /// Its numbers in the namespaces it is in, outermost first.
    pub nspid: Vec<i32>,
    /// In clock ticks since boot; with the pid it names the process.
    pub start_time: u64,
    pub state: String,
    pub comm: String,
    pub exe: String,
    pub cmdline: Vec<String>,
    /// Parent first.
    pub ancestry: Vec<Ancestor>,
    /// Real, effective, saved, file system.
    pub uid: [u32; 4],
    pub gid: [u32; 4],
    /// By the names of status: CapInh, CapPrm, CapEff, CapBnd, CapAmb.
    pub capabilities: BTreeMap<String, String>,
    pub no_new_privs: bool,
    pub seccomp: u8,
    /// The lines of its cgroup file.
    pub cgroup: Vec<String>,
    /// By the names in its ns directory.
    pub namespaces: BTreeMap<String, String>,
}

/// A process on the way to the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Ancestor {
    pub pid: i32,
    pub comm: String,
    pub uid: u32,
}

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// When.
    pub at: UnixMillis,
    /// What.
    pub what: String,
    /// With which result.
    pub result: String,
}

/// A finding in one line of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // as in Incident
pub struct Summary {
    pub id: IncidentId,
    pub kind: Kind,
    pub detected_at: UnixMillis,
    pub task: Option<TaskId>,
    pub owner: Option<String>,
    pub pid: Option<i32>,
    pub what: String,
}

impl From<&Incident> for Summary {
    fn from(incident: &Incident) -> Self {
        Self {
            id: incident.id.clone(),
            kind: incident.kind,
            detected_at: incident.detected_at,
            task: incident.task,
            owner: incident.owner.clone(),
            pid: incident.process.as_ref().map(|process| process.pid),
            what: incident.what.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_sorts_by_time_and_is_never_a_path() {
        let (early, late) = (IncidentId::new(1_700_000_000_000), IncidentId::new(1_700_000_000_001));
        assert!(early < late, "{early} {late}");
        assert_eq!(early.to_string().parse::<IncidentId>().unwrap(), early);
        for bad in ["", ".", "../x", "a/b", "a b", "-a", &"a".repeat(65)] {
            assert!(bad.parse::<IncidentId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_are_named_as_in_json() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
        }
    }
}
