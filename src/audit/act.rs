//! What follows a finding, in this order: the launcher is told why, the process is killed, then everything of its task; then
//! the incident is written down, and the worker quarantined.
//!
//! Only a [`Process`] can be signalled, and only after it was judged anew by facts that are its own. What cannot be proven to be
//! ours is reported, and nothing else.

use std::time::{Duration, Instant};

use super::auditor::{Auditor, BEAT, Source, log};
use super::facts::{self, Facts};
use super::judge::Fault;
use super::process::Process;
use super::remains::{Lease, Leases};
use super::report;
use crate::cgroup;
use crate::containment::{Action, Entry, FromAuditor, Incident, IncidentId, Leftover, Summary};
use crate::place::GroupName;
use crate::sys::user;
use crate::task::record::now;

/// A killed process is given this long to be gone.
const DIES_WITHIN: Duration = Duration::from_secs(1);
/// How often the rest of a uid is killed one by one, before all of it at once.
const ROUNDS: usize = 3;

impl Auditor {
    /// Acts on a process that was found at fault twice.
    pub(super) fn act(&mut self, process: Process, mut fault: Fault, source: &Source) {
        // What is not proven to be ours is only told.
        if !fault.proven && !self.may_tell(&mut fault) {
            return;
        }
        let mut incident = report::incident(&process.facts, &fault, source);
        self.tell(&incident, &fault);
        let mut actions = Vec::new();
        if fault.proven {
            // So that no task is given the uid as soon as this process is gone.
            let held = fault.uid.and_then(|uid| Leases::take(uid).ok().flatten());
            note(
                &mut actions,
                format!("kill process {}", process.facts.pid),
                process.kill().map_err(|e| e.to_string()),
            );
            if let Some(group) = &fault.group {
                let killed = cgroup::kill(&self.layout, group).map_err(|e| e.to_string());
                note(&mut actions, format!("kill everything in group {group}"), killed);
            }
            let died = self.see_dead(&process, DIES_WITHIN);
            let result = if died { Ok(()) } else { Err(format!("it is not dead after {DIES_WITHIN:?}")) };
            note(&mut actions, format!("see process {} dead", process.facts.pid), result);
            self.sweep_uid(&fault, held, &mut actions);
        } else {
            let why = Err("it cannot be proven to be a task's of this instance".to_owned());
            note(&mut actions, format!("signal process {}", process.facts.pid), why);
        }
        incident.actions = actions;
        self.record(incident, &fault);
    }

    /// Writes down a process that was outside, and is not any more.
    pub(super) fn record_gone(&mut self, facts: Facts, mut fault: Fault, source: &Source) {
        if !self.may_tell(&mut fault) {
            return;
        }
        let mut incident = report::incident(&facts, &fault, source);
        self.tell(&incident, &fault);
        let mut actions = Vec::new();
        if let Some(group) = fault.group.as_ref().filter(|_| fault.proven) {
            let held = fault.uid.and_then(|uid| Leases::take(uid).ok().flatten());
            let killed = cgroup::kill(&self.layout, group).map_err(|e| e.to_string());
            note(&mut actions, format!("kill everything in group {group}"), killed);
            self.sweep_uid(&fault, held, &mut actions);
        }
        incident.actions = actions;
        self.record(incident, &fault);
    }

    /// Writes down a process that was killed and dies slowly: there is nothing more to do about it.
    pub(super) fn record_dying(&mut self, facts: &Facts, mut fault: Fault) {
        if self.may_tell(&mut fault) {
            self.record(report::incident(facts, &fault, &Source::Scan), &fault);
        }
    }

    /// Writes down what is left of an ended task and is not a process.
    pub(super) fn record_thing(&mut self, thing: &Leftover) {
        let (incident, fault) = report::of_thing(thing);
        self.record(incident, &fault);
    }

    /// Before anything is killed: the launcher then knows why the task ends.
    fn tell(&self, incident: &Incident, fault: &Fault) {
        let task = fault.task.filter(|_| fault.proven && fault.group.is_some());
        let _ = self.say(&FromAuditor::Found { task, summary: Summary::from(incident) });
    }

    /// Waits until a killed process is dead, and goes on saying that it lives itself; false if it does not die in time.
    pub(super) fn see_dead(&mut self, process: &Process, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            self.beat();
            let left = until.saturating_duration_since(Instant::now());
            if process.wait_dead(left.min(BEAT / 2)) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// Kills whatever else has the uid: one by one, each proven, and what forks faster than that in one step.
    fn sweep_uid(&mut self, fault: &Fault, held: Option<Lease>, actions: &mut Vec<Action>) {
        let Some(uid) = fault.uid else { return };
        // Held by us, or by the launcher for the task whose group is still there; otherwise it is another task's by now.
        let is_its_own = |auditor: &Self| {
            held.is_some() || fault.group.as_ref().is_some_and(|name| auditor.layout.base().dir.join(name).exists())
        };
        for _ in 0..ROUNDS {
            let others = facts::pids().into_iter().filter_map(|pid| of_uid(pid, uid));
            let others: Vec<Process> = others.filter(|other| !is_of_another(other, fault)).collect();
            if others.is_empty() || !is_its_own(self) {
                break;
            }
            for other in &others {
                let killed = other.kill().map_err(|errno| errno.to_string());
                note(actions, format!("kill process {} of uid {uid}", other.facts.pid), killed);
            }
            let until = Instant::now() + DIES_WITHIN / 4;
            for other in &others {
                self.see_dead(other, until.saturating_duration_since(Instant::now()));
            }
        }
        if is_its_own(self) && user::has_processes(uid).unwrap_or(false) {
            let killed = user::kill_all_of(uid).map_err(|errno| errno.to_string());
            note(actions, format!("kill everything of uid {uid} at once"), killed);
        }
    }

    /// Makes a finding durable: the incident's file, its line in the journal, and the quarantine.
    fn record(&mut self, incident: Incident, fault: &Fault) {
        log(&format!("{}: {} ({})", incident.kind.name(), incident.what, incident.id));
        self.found.push(Summary::from(&incident));
        let id: IncidentId = incident.id.clone();
        let saved = self.incidents.save(&incident).err();
        self.note_file();
        let (kind, task, owner) = (incident.kind, incident.task, incident.owner.clone());
        let written = self.journal.append(Entry::Finding { id: id.clone(), kind, task, owner }).err();
        if fault.grave {
            self.quarantine(kind.reason(), format!("{}: {}; finding {id}", kind.name(), incident.what));
        }
        for error in [saved, written].into_iter().flatten() {
            self.distrust(&error);
        }
        self.reread();
    }
}

/// Whether it stands in the group of another task than the one at fault.
fn is_of_another(process: &Process, fault: &Fault) -> bool {
    let is_task = |part: &&str| GroupName::parse(part).is_some();
    process.facts.v2_path().split('/').find(is_task).is_some_and(|name| Some(name) != fault.group.as_deref())
}

fn of_uid(pid: i32, uid: u32) -> Option<Process> {
    let ((uids, _), _) = facts::glance(pid)?;
    if !uids.contains(&uid) {
        return None;
    }
    // By the facts that are its own: the number may have changed hands since the glance.
    Process::look(pid).filter(|process| process.facts.uid.contains(&uid) && !process.facts.exiting)
}

fn note(actions: &mut Vec<Action>, what: String, result: Result<(), String>) {
    let result = result.map_or_else(|error| error, |()| "done".to_owned());
    actions.push(Action { at: now(), what, result });
}
