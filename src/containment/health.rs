//! Whether this worker may take tasks: healthy, or quarantined until an administrator lifts it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RUNBOOK;
use super::journal::{Entry, Line};
use crate::task::record::{UnixMillis, rfc3339};

/// Why a worker is quarantined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A process was found outside its sandbox, or without its confinement.
    Orphan,
    /// Something of an ended task was found.
    Leak,
    /// The ends of several tasks in a row could not be proven.
    CleanupFailure,
    /// The auditor died or stalled again and again.
    AuditorLost,
    /// An administrator said so.
    Manual,
    /// The journal itself is damaged, so nobody knows.
    StateDamaged,
}

impl Reason {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Orphan => "orphan",
            Self::Leak => "leak",
            Self::CleanupFailure => "cleanup_failure",
            Self::AuditorLost => "auditor_lost",
            Self::Manual => "manual",
            Self::StateDamaged => "state_damaged",
        }
    }
}

/// A quarantine. The first cause stands until it is lifted; later ones are in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Since when.
    pub since: UnixMillis,
    /// Why.
    pub reason: Reason,
    /// The same in words.
    pub detail: String,
    /// Who: `auditor`, `launcher`, a certificate's name, or `root` for a command on this host.
    pub by: String,
}

impl Quarantine {
    /// What a start is refused with.
    pub fn refusal(&self) -> String {
        format!("this worker is {self}; see {RUNBOOK}")
    }
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "quarantined ({}): {}", self.reason.name(), self.detail)
    }
}

/// What the journal adds up to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// None: healthy.
    pub quarantine: Option<Quarantine>,
    /// Findings since the last lift.
    pub findings: u64,
    /// Findings ever.
    pub findings_total: u64,
    /// When it was last lifted; 0 for never.
    #[serde(default)]
    pub lifted_at: UnixMillis,
    /// The last line counted.
    pub seq: u64,
}

impl Health {
    /// Counts one more line.
    pub fn add(&mut self, line: &Line) {
        self.seq = line.seq;
        match &line.entry {
            Entry::Finding { .. } => {
                self.findings += 1;
                self.findings_total += 1;
            }
            Entry::Quarantined { reason, detail, by } => {
                let (reason, detail, by) = (*reason, detail.clone(), by.clone());
                self.quarantine.get_or_insert(Quarantine { since: line.at, reason, detail, by });
            }
            Entry::Lifted { .. } => {
                self.quarantine = None;
                self.findings = 0;
                self.lifted_at = line.at;
            }
            Entry::Recovered { .. } => {}
            Entry::Checkpoint { sum } => *self = Self { seq: line.seq, ..sum.clone() },
        }
    }
}

impl Health {
    /// All that the journal says; the rest is a running server's to add.
    pub fn view(&self) -> HealthView {
        let quarantine = self.quarantine.as_ref();
        HealthView {
            status: if quarantine.is_some() { "quarantined" } else { "healthy" }.to_owned(),
            since: quarantine.map(|quarantine| rfc3339(quarantine.since)),
            reason: quarantine.map(|quarantine| quarantine.reason.name().to_owned()),
            detail: quarantine.map(|quarantine| quarantine.detail.clone()),
            by: quarantine.map(|quarantine| quarantine.by.clone()),
            findings: self.findings,
            findings_total: self.findings_total,
            cleanup_failures: 0,
            cleanup_failures_in_a_row: 0,
            can_accept: quarantine.is_none(),
            refusal: quarantine.map(Quarantine::refusal),
            auditor: "not running".to_owned(),
            heartbeat_age_ms: None,
            auditor_restarts: 0,
            runbook: quarantine.map(|_| RUNBOOK.to_owned()),
        }
    }
}

impl HealthView {
    /// The launcher is not heard. A graver reason not to take tasks stands.
    pub fn stalled(self, silent: &str) -> Self {
        if !self.can_accept {
            return self;
        }
        let refusal = Some(format!(
            "{silent}, so nothing is enforced in time; see its process and its log, or restart the service"
        ));
        Self { status: "stalled".to_owned(), can_accept: false, refusal, ..self }
    }
}

/// What `taskman health --output json` prints. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthView {
    /// `healthy`, `quarantined`, or `stalled`: the launcher is not heard.
    pub status: String,
    /// RFC 3339; of the quarantine.
    pub since: Option<String>,
    /// [`Reason::name`].
    pub reason: Option<String>,
    /// In words.
    pub detail: Option<String>,
    /// Who quarantined it.
    pub by: Option<String>,
    /// Since the last lift.
    pub findings: u64,
    /// Ever.
    pub findings_total: u64,
    /// Tasks of this server's life whose end could not be proven.
    pub cleanup_failures: u64,
    /// How many of them in a row, just now.
    pub cleanup_failures_in_a_row: u64,
    /// Whether a start is taken.
    pub can_accept: bool,
    /// Why not, with what to do.
    pub refusal: Option<String>,
    /// `watching`, `watching without events: WHY`, `starting`, `lost`, `not running` where no server runs, or
    /// `unknown` where the launcher does not answer.
    pub auditor: String,
    /// Since the auditor was last heard, in milliseconds.
    pub heartbeat_age_ms: Option<u64>,
    /// How often it was started again.
    pub auditor_restarts: u64,
    /// What to read next.
    pub runbook: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containment::{IncidentId, Kind};

    fn line(seq: u64, entry: Entry) -> Line {
        Line { seq, at: seq as i64, entry }
    }

    #[test]
    fn the_first_cause_stands_until_it_is_lifted_and_nothing_else_lifts_it() {
        let quarantined = |reason| Entry::Quarantined { reason, detail: "x".into(), by: "auditor".into() };
        let finding = Entry::Finding { id: IncidentId::new(1), kind: Kind::OrphanDetected, task: None, owner: None };
        let mut health = Health::default();
        health.add(&line(1, finding));
        health.add(&line(2, quarantined(Reason::Orphan)));
        health.add(&line(3, quarantined(Reason::Manual)));
        health.add(&line(4, Entry::Recovered { by: "root".into(), swept: 2, left: 0 }));
        let quarantine = health.quarantine.clone().unwrap();
        assert_eq!((quarantine.since, quarantine.reason), (2, Reason::Orphan));
        assert_eq!((health.findings, health.seq), (1, 4));
        health.add(&line(5, Entry::Lifted { by: "admin".into(), reason: "looked".into() }));
        assert_eq!((health.quarantine, health.findings, health.findings_total), (None, 0, 1));
    }
}
