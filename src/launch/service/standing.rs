//! Whether this worker may take tasks, as the launcher knows it: what the journal adds up to, and the ends that could not be
//! proven.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::auditor::Auditor;
use super::complain;
use crate::containment::{Entry, Health, HealthView, Journal, Line, Quarantine, Reason};
use crate::error::SysError;
use crate::mutation::{Defence, off};
use crate::task::record::now;

/// For so long an owner whose tasks' ends could not be proven again and again starts no more.
const SHUT_OUT: Duration = Duration::from_secs(600);
/// What an owner that is shut out reads.
const RUNBOOK: &str = "runbooks/cleanup-failure.md";

/// What follows from the end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// Nothing.
    None,
    /// Its owner has started its last task for a while.
    ShutOut,
    /// It happens to more than one owner: it is this worker's fault.
    Quarantine,
}

/// Ends of one owner's tasks that could not be proven.
#[derive(Debug, Default)]
struct Failures {
    in_a_row: u64,
    shut_out_until: Option<Instant>,
}

impl Failures {
    fn is_shut_out(&self, now: Instant) -> bool {
        self.shut_out_until.is_some_and(|until| now < until)
    }
}

/// The launcher's part of the journal.
pub struct Standing {
    journal: Journal,
    health: Health,
    /// A quarantine that could not be written; it counts all the same, and is tried again.
    unwritten: Option<Quarantine>,
    /// Lines that were read and not told to the server.
    untold: Vec<Line>,
    /// The view the server was told.
    shown: Option<HealthView>,
    cleanup_failures: u64,
    in_a_row: u64,
    /// By owner, of those that have any.
    failures: HashMap<String, Failures>,
}

impl Standing {
    /// What the journal of this directory says now; the server asks for the lines themselves.
    pub fn open(state_dir: &Path) -> Result<Self, SysError> {
        let mut journal = Journal::new(state_dir);
        if let Err(error) = journal.shorten() {
            complain(&error.to_string());
        }
        let health = journal.health()?;
        let (unwritten, untold, shown, failures) = (None, Vec::new(), None, HashMap::new());
        Ok(Self { journal, health, unwritten, untold, shown, cleanup_failures: 0, in_a_row: 0, failures })
    }

    /// What the journal says, if it has changed since this process last read it. Asked before each start, so that a line counts from
    /// the moment it is written, by whomever; the auditor notices half a second later.
    pub fn unread(&mut self) -> Result<Option<Health>, SysError> {
        if !self.journal.has_changed() {
            return Ok(None);
        }
        self.untold.extend(self.journal.settled_news()?);
        Ok(Some(self.journal.sum().clone()))
    }

    /// Takes over what was read. Says whether a quarantine was lifted.
    pub fn believe(&mut self, health: Health) -> bool {
        // Read before what this process has written since: it comes again. But a quarantine is believed in any case.
        if health.seq < self.health.seq && health.quarantine.is_none() {
            return false;
        }
        // Only a line of the journal lifts one. An auditor that could not write its quarantine, and died, has left it to us.
        if health.seq == self.health.seq && health.quarantine.is_none() && self.unwritten.is_none() {
            self.unwritten.clone_from(&self.health.quarantine);
        }
        let lifted = self.health.quarantine.is_some() && health.quarantine.is_none() && self.unwritten.is_none();
        self.health = health;
        if let Some(quarantine) = &self.unwritten {
            self.health.quarantine.get_or_insert(quarantine.clone());
        }
        if lifted {
            self.in_a_row = 0;
            self.failures.clear();
        }
        lifted
    }

    /// Whether it is quarantined.
    pub fn is_quarantined(&self) -> bool {
        self.health.quarantine.is_some()
    }

    /// Quarantines this worker, from now on and over restarts.
    pub fn quarantine(&mut self, reason: Reason, detail: String) {
        complain(&format!("quarantined ({}): {detail}", reason.name()));
        let quarantine = Quarantine { since: now(), reason, detail, by: "launcher".to_owned() };
        self.health.quarantine.get_or_insert(quarantine.clone());
        self.unwritten.get_or_insert(quarantine);
        self.write();
    }

    /// Writes what could not be written before.
    pub fn write(&mut self) {
        let Some(Quarantine { reason, detail, by, .. }) = self.unwritten.clone() else { return };
        match self.journal.append(Entry::Quarantined { reason, detail, by }) {
            Ok(line) => {
                self.unwritten = None;
                self.health.add(&line);
            }
            Err(error) => {
                complain(&format!("the quarantine is not on disk, and holds while this process lives: {error}"))
            }
        }
    }

    /// The lines that the server was not told yet: as they are in the journal, where those of an auditor that died are too.
    pub fn news(&mut self) -> Vec<Line> {
        if self.health.seq > self.journal.sum().seq {
            match self.journal.news() {
                Ok(lines) => self.untold.extend(lines),
                Err(error) => complain(&error.to_string()),
            }
        }
        std::mem::take(&mut self.untold)
    }

    /// A task was reported as ended. A user can have its own tasks die slowly: `most` ends of one owner in a row that could not be
    /// proven shut that owner out, and only those of a second one, with no end that was proven in between, quarantine the worker.
    pub fn count_end(&mut self, owner: &str, proven: bool, most: u64) -> Consequence {
        let now = Instant::now();
        if proven {
            self.in_a_row = 0;
            self.failures.retain(|of, failures| of != owner || failures.is_shut_out(now));
            return Consequence::None;
        }
        self.cleanup_failures += 1;
        self.in_a_row += 1;
        let others = self.failures.iter().any(|(of, failures)| of != owner && failures.is_shut_out(now));
        let failures = self.failures.entry(owner.to_owned()).or_default();
        failures.in_a_row += 1;
        if most == 0 || !failures.in_a_row.is_multiple_of(most) {
            return Consequence::None;
        }
        failures.shut_out_until = Some(now + SHUT_OUT);
        match (others && self.in_a_row >= 2 * most) || off(Defence::SlowDeath) {
            true => Consequence::Quarantine,
            false => Consequence::ShutOut,
        }
    }

    /// Why this owner may start no task, if so.
    pub fn refusal_of(&self, owner: &str) -> Option<String> {
        let failures = self.failures.get(owner)?;
        let left = failures.shut_out_until?.checked_duration_since(Instant::now())?;
        Some(format!(
            "the ends of {} of your tasks in a row could not be proven; you can start none for {} minutes; see {RUNBOOK}",
            failures.in_a_row,
            left.as_secs().div_ceil(60)
        ))
    }

    /// Why no task may start, if so: with the auditor's reason when there is no graver one.
    pub fn refusal(&self, auditor: &Auditor) -> Option<String> {
        match &self.health.quarantine {
            Some(quarantine) => Some(quarantine.refusal()),
            None => auditor.refusal().map(str::to_owned),
        }
    }

    /// What the server is to be told, if it has changed.
    pub fn change(&mut self, auditor: &Auditor) -> Option<HealthView> {
        let view = self.view(auditor);
        // Time alone is no change.
        let same = |shown: &HealthView| {
            HealthView { heartbeat_age_ms: None, ..shown.clone() }
                == HealthView { heartbeat_age_ms: None, ..view.clone() }
        };
        if self.shown.as_ref().is_some_and(same) {
            return None;
        }
        self.shown = Some(view.clone());
        Some(view)
    }

    /// All that the server is told, and root on this host.
    pub fn view(&self, auditor: &Auditor) -> HealthView {
        let refusal = self.refusal(auditor);
        HealthView {
            cleanup_failures: self.cleanup_failures,
            cleanup_failures_in_a_row: self.in_a_row,
            can_accept: refusal.is_none(),
            refusal,
            auditor: auditor.state(),
            heartbeat_age_ms: auditor.heard().map(|age| age.as_millis() as u64),
            auditor_restarts: auditor.restarts(),
            ..self.health.view()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_shut_out_before_the_worker_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut standing = Standing::open(dir.path()).unwrap();
        let [none, shut_out, quarantine] = [Consequence::None, Consequence::ShutOut, Consequence::Quarantine];
        let mut ends = |owner: &str, proven: bool, most: u64| standing.count_end(owner, proven, most);
        // However many, while others' ends are proven or nobody else fails.
        for expected in [none, shut_out, none, shut_out] {
            assert_eq!(ends("mallory", false, 2), expected);
        }
        assert_eq!(ends("alice", true, 2), none);
        assert_eq!((ends("alice", false, 2), ends("alice", false, 2)), (none, shut_out), "one was proven in between");
        assert_eq!((ends("bob", false, 2), ends("bob", false, 2)), (none, quarantine));
        assert!(standing.refusal_of("mallory").unwrap().contains("4 of your tasks"));
        assert_eq!(standing.refusal_of("carol"), None);
        for _ in 0..100 {
            assert_eq!(standing.count_end("carol", false, 0), none, "0 is never");
        }
        assert_eq!(standing.refusal_of("carol"), None);
    }

    #[test]
    fn only_a_line_of_the_journal_lifts_a_quarantine() {
        let dir = tempfile::tempdir().unwrap();
        let mut standing = Standing::open(dir.path()).unwrap();
        let (since, detail, by) = (1, "the disk is full".to_owned(), "auditor".to_owned());
        let quarantine = Some(Quarantine { since, reason: Reason::StateDamaged, detail, by });
        assert!(!standing.believe(Health { quarantine, ..Health::default() }));
        // The auditor could not write it, has died, and the next one reads a journal without it.
        assert!(!standing.believe(Health::default()));
        assert!(standing.is_quarantined());
        standing.write();
        let mut journal = Journal::new(dir.path());
        assert_eq!(journal.health().unwrap().quarantine.map(|it| (it.reason, it.by)).unwrap().1, "auditor");
        journal.append(Entry::Lifted { by: "admin".into(), reason: "looked".into() }).unwrap();
        assert!(standing.believe(journal.health().unwrap()));
        assert!(!standing.is_quarantined());
    }
}
