//! Sandboxes that are built ahead of need: the price of a start is then that of an execve. Each is for one task, and has all of
//! its own as any other has: uid, groups, namespaces, proof.
//!
//! The server is told which of them wait, and takes one by giving its id to the task. What it takes is checked here as every
//! start is. A sandbox that is not there any more, or not of the request's shape, is as good as none: the task starts cold.

use std::time::{Duration, Instant};

use super::live::Live;
use super::poller::WARM;
use super::pool::At;
use super::{Owner, Service, complain};
use crate::error::StartError;
use crate::task::id::TaskId;
use crate::task::outcome::Reason;
use crate::task::request::TaskRequest;
use crate::task::spec::TaskSpec;
use crate::wire::{Event, Parked};

/// Nothing is built for so long after a start: whoever starts tasks has the processors first. But starts that never pause do not
/// put it off for longer than this.
const PAUSE: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(50);

/// A task that is started when what has its id is gone, and what was asked of it meanwhile.
pub struct Instead {
    pub request: TaskRequest,
    pub stop: Option<(Duration, Reason)>,
}

impl Service<'_> {
    /// Starts `spec` in the sandbox that waits under its id. Whatever is under that id and is no such sandbox is ended, and the
    /// task started when it is gone.
    pub(super) fn take_slot(&mut self, serial: Owner, request: TaskRequest, spec: TaskSpec) {
        let id = spec.id;
        let waits = self.pool.waits(id, &request);
        let Some(live) = self.live.get_mut(&serial) else { return };
        if waits && live.take(&request, spec, &mut self.poller).is_ok() {
            self.pool.remove(id, false);
            self.pool.note(&request, true, Instant::now());
        } else {
            live.instead = Some(Instead { request, stop: None });
            self.pool.leave(id);
            self.with_task(serial, |live, poller| live.discard("it was not what was asked for", poller));
        }
    }

    /// A start that found no sandbox under its id.
    pub(super) fn note_miss(&mut self, request: &TaskRequest) {
        self.pool.note(request, false, Instant::now());
    }

    /// A sandbox is built and waits.
    pub(super) fn slot_waits(&mut self, slot: TaskId) {
        if let Some((shape, took)) = self.pool.parked(slot, Instant::now()) {
            let built_micros = took.as_micros() as u64;
            self.tell(Event::Parked(Box::new(Parked { slot, shape, built_micros })), Vec::new());
        }
    }

    /// A sandbox that was no task yet does not die, and why it was to. Nobody can have it any more.
    pub(super) fn slot_is_stuck(&mut self, slot: TaskId) {
        let was = self.pool.leave(slot);
        self.tell_unparked(slot, was);
    }

    /// A sandbox is gone that was no task yet, because of `error`. One that was asked for meanwhile is made now.
    pub(super) fn slot_is_gone(&mut self, slot: TaskId, error: Option<&StartError>, instead: Option<Instead>) {
        let was = self.pool.remove(slot, true);
        self.tell_unparked(slot, was);
        if let (Some(At::Built), Some(error)) = (was, error) {
            complain(&format!("no sandbox can be kept ready: {error}"));
        }
        if let Some(Instead { request, stop }) = instead {
            self.start(request);
            if let Some((grace, reason)) = stop
                && !self.take_back(slot)
            {
                self.with_id(slot, |live, poller| live.stop(grace, reason, poller));
            }
        }
    }

    /// Before each wait: says when to look again. A worker that takes no tasks keeps none ready.
    pub(super) fn tend_slots(&mut self) {
        if self.standing.is_quarantined() || !self.phase.admits() {
            let all = self.pool.drain();
            self.discard_slots(all, "no task may start");
        }
        if self.auditor.refusal().is_some() || self.pool.lacking().is_none() {
            self.lacking = None;
        } else {
            self.lacking.get_or_insert_with(Instant::now);
        }
        self.poller.set_deadline(WARM, self.build_at().into_iter().chain(self.pool.deadline()).min());
    }

    /// When the next one is to be built, if one is wanted.
    fn build_at(&self) -> Option<Instant> {
        let since = self.lacking?;
        Some(self.last_start.map_or(since, |start| since.max(start + PAUSE)).min(since + LATEST))
    }

    /// Ends what has waited too long, and builds one that is wanted: one in a turn, so that nobody waits for more.
    pub(super) fn slots_are_due(&mut self) {
        let overdue = self.pool.overdue(Instant::now());
        for slot in &overdue {
            self.tell_unparked(*slot, Some(At::Parked));
        }
        self.discard_slots(overdue, "nobody came for it");
        let due = self.build_at().is_some_and(|at| Instant::now() >= at);
        let Some(request) = self.pool.lacking().filter(|_| due) else { return };
        self.lacking = None;
        let slot = request.task;
        if let Err(error) = self.build_slot(request) {
            self.slot_is_gone(slot, Some(&error), None);
        }
    }

    fn build_slot(&mut self, request: TaskRequest) -> Result<(), StartError> {
        self.pool.begun(&request, Instant::now());
        let mut spec = self.config.admit(&request)?;
        // Not known before someone comes for it.
        spec.owner = None;
        let starting = self.launcher.park(spec)?;
        self.add(starting, true)
    }

    fn discard_slots(&mut self, slots: Vec<TaskId>, why: &str) {
        for slot in slots {
            let was = self.pool.leave(slot);
            self.tell_unparked(slot, was);
            self.with_id(slot, |live, poller| live.discard(why, poller));
        }
    }

    /// The server hears once of a sandbox that it was told of, and of no other.
    fn tell_unparked(&mut self, slot: TaskId, was: Option<At>) {
        if was == Some(At::Parked) {
            self.tell(Event::Unparked { slot }, Vec::new());
        }
    }
}

impl Live {
    /// Whether it is a task, or one that was asked for.
    pub fn is_task(&self) -> bool {
        !self.is_slot || self.instead.is_some()
    }
}
