//! What the server asks for. A request from anyone else, or one that cannot be read, is the end of the server.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::live::Live;
use super::poller::STARTS;
use super::{Service, complain};
use crate::error::{StartError, SysError};
use crate::launch::Starting;
use crate::task::id::TaskId;
use crate::task::outcome::Reason;
use crate::task::request::TaskRequest;
use crate::task::spec::SpecError;
use crate::task::units::human_bytes;
use crate::wire::{self, Event, Packet, PacketError, Request};

/// Requests taken in one turn, so that tasks are watched however fast requests come.
const BATCH: usize = 32;

/// The owners of the tasks that are being started. A start can hang, if its owner wants it to: on a program that is read at a byte a
/// second. So there is a bound for all, because of the descriptors, and a smaller one for each, because of the others.
struct Crowd<'a> {
    most: usize,
    owners: Vec<&'a str>,
}

impl Crowd<'_> {
    fn has_room_for(&self, owner: &str) -> bool {
        let share = (self.most / 4).max(1);
        self.owners.len() < self.most && self.owners.iter().filter(|other| **other == owner).count() < share
    }
}

impl Service<'_> {
    pub(super) fn read_requests(&mut self) {
        for _ in 0..BATCH {
            if !self.phase.has_server() || !self.outbox.is_empty() || !self.read_request() {
                return;
            }
        }
    }

    /// Takes one request; false if there is none.
    pub(super) fn read_request(&mut self) -> bool {
        match wire::receive::<Request>(self.socket.as_fd()) {
            Ok(Some(packet)) => self.take(packet),
            Ok(None) => self.server_has_closed(),
            Err(PacketError::WouldBlock) => return false,
            Err(error) => self.server_is_lost(&format!("it does not speak as it should: {error}")),
        }
        self.phase.has_server()
    }

    fn take(&mut self, packet: Packet<Request>) {
        if packet.sender != self.server.sender {
            wire::abandon(packet.fds);
            return self.server_is_lost(&format!("another process, {:?}, uses its socket", packet.sender));
        }
        if packet.cut || !packet.fds.is_empty() {
            wire::abandon(packet.fds);
            return self.server_is_lost("it sent descriptors, which no request has");
        }
        match packet.message {
            Request::Start(request) => {
                // Whoever waits has been here longer.
                self.start_waiting();
                self.start(*request);
            }
            Request::Stop { task, .. } if self.take_back(task) => {}
            Request::Stop { task, grace_ms } => {
                let grace = Duration::from_millis(grace_ms);
                self.with_id(task, |live, poller| live.stop(grace, Reason::Stopped, poller));
            }
            Request::Signal { seq, task, number } => {
                let error = self.signal(task, number).err();
                self.tell(Event::Signalled { seq, error }, Vec::new());
            }
            Request::OutputLimit { task } => self.with_id(task, |live, poller| {
                let detail = match live.output_limit() {
                    Some(limit) => format!("wrote more than its output limit of {}", human_bytes(limit)),
                    None => "wrote more than its output limit".to_owned(),
                };
                live.kill(Reason::OutputLimit, &detail, poller)
            }),
            Request::Containment { seq, query } => self.ask(seq, query),
            Request::Serving => self.server_serves(),
            Request::Pong { seq } => self.server_answers(seq),
            Request::Goodbye => self.server_leaves(),
        }
        // What can be answered is answered before the next request is taken.
        if let Err(error) = self.flush() {
            self.server_is_lost(&error.to_string());
        }
    }

    pub(super) fn with_id(&mut self, task: TaskId, step: impl FnOnce(&mut Live, &mut super::Poller) -> super::News) {
        if let Some(serial) = self.ids.get(&task).copied() {
            self.with_task(serial, step);
        }
    }

    pub(super) fn start(&mut self, request: TaskRequest) {
        let task = request.task;
        if let Err(error) = self.try_start(request) {
            self.tell(Event::StartFailed { task, error }, Vec::new());
        }
    }

    /// Starts what has waited while too many others were being started, in the order of their coming; a bounded number, so that
    /// tasks are watched meanwhile. While the server does not read, nothing is begun that it would have to be told of.
    pub(super) fn start_waiting(&mut self) {
        for _ in 0..BATCH {
            let Some(request) = self.next_waiting().and_then(|at| self.waiting.remove(at)) else { break };
            self.start(request);
        }
        self.poller.set_deadline(STARTS, self.next_waiting().map(|_| Instant::now()));
    }

    /// The first that has waited long enough: one whose turn has come, or any when none is taken any more, to be refused.
    fn next_waiting(&self) -> Option<usize> {
        if self.waiting.is_empty() || !self.outbox.is_empty() {
            return None;
        }
        let crowd = self.crowd();
        self.waiting.iter().position(|request| !self.phase.admits() || crowd.has_room_for(&request.owner))
    }

    /// A stop of a task that has not begun: whether it was one.
    pub(super) fn take_back(&mut self, task: TaskId) -> bool {
        let Some(at) = self.waiting.iter().position(|request| request.task == task) else { return false };
        self.waiting.remove(at);
        let error = refused(task, Errno::ECANCELED, "it was stopped before it was started".to_owned());
        self.tell(Event::StartFailed { task, error }, Vec::new());
        true
    }

    fn signal(&self, task: TaskId, number: i32) -> Result<(), SysError> {
        let no = |errno, hint| Err(SysError::new("signal", format!("task {task}"), errno).hint(hint));
        let live = self.ids.get(&task).and_then(|serial| self.live.get(serial));
        let waits = self.waiting.iter().any(|request| request.task == task);
        if waits || live.is_some_and(|live| live.starting_for().is_some() || live.instead.is_some()) {
            return no(Errno::EALREADY, "it is being started; try again");
        }
        live.map_or_else(|| no(Errno::ESRCH, "it has ended"), |live| live.signal(number))
    }

    /// Who is being started just now.
    fn crowd(&self) -> Crowd<'_> {
        Crowd { most: self.config.quota.starting, owners: self.live.values().filter_map(Live::starting_for).collect() }
    }

    fn try_start(&mut self, request: TaskRequest) -> Result<(), StartError> {
        self.last_start = Some(Instant::now());
        let task = request.task;
        let waiting = self.ids.get(&task).copied();
        let is_taken = |live: &Live| live.is_task() || !live.is_pending();
        if waiting.is_some_and(|serial| self.live.get(&serial).is_none_or(is_taken))
            || self.waiting.iter().any(|other| other.task == task)
        {
            return Err(SpecError::new("task", "this id belongs to a task that runs").into());
        }
        let refused = |errno, hint: String| refused(task, errno, hint);
        if !self.phase.admits() {
            return Err(refused(Errno::ECANCELED, "the server is stopping".to_owned()));
        }
        if let Some(why) = self.refusal() {
            return Err(StartError::Refused(why));
        }
        if let Some(why) = self.standing.refusal_of(&request.owner) {
            return Err(StartError::Refused(why));
        }
        let most = self.config.quota.running;
        if self.tasks() + self.waiting.len() >= most {
            return Err(refused(Errno::EAGAIN, format!("{most} tasks run, which is the most (quota.running)")));
        }
        let spec = self.config.admit(&request)?;
        if !self.crowd().has_room_for(&request.owner) {
            self.waiting.push_back(request);
            return Ok(());
        }
        if let Some(serial) = waiting {
            self.take_slot(serial, request, spec);
            return Ok(());
        }
        self.note_miss(&request);
        let starting = self.launcher.begin(spec)?;
        self.add(starting, false)
    }

    /// Takes on what was just created.
    pub(super) fn add(&mut self, starting: Starting, is_slot: bool) -> Result<(), StartError> {
        let (serial, id) = (self.next, starting.id());
        self.next += 1;
        let live = Live::new(serial, starting, is_slot, &mut self.poller).map_err(StartError::step("start"))?;
        self.live.insert(serial, live);
        self.ids.insert(id, serial);
        // It may have failed already.
        self.with_task(serial, |live, poller| live.step(None, poller));
        Ok(())
    }

    /// How many tasks there are, without sandboxes that wait for one.
    pub(super) fn tasks(&self) -> usize {
        self.live.values().filter(|live| live.is_task()).count()
    }

    /// The server is gone, broken or taken over.
    pub(super) fn server_is_lost(&mut self, why: &str) {
        if self.phase.has_server() {
            complain(&format!("the server is lost: {why}; ending {} tasks", self.tasks()));
            self.end_all_without_server(false);
        }
    }

    /// The server gives up, or has died.
    pub(super) fn server_has_closed(&mut self) {
        if self.phase.has_server() {
            complain(&format!("the server has closed its socket; ending {} tasks", self.tasks()));
            self.end_all_without_server(true);
        }
    }
}

fn refused(task: TaskId, errno: Errno, hint: String) -> StartError {
    StartError::step("admit")(SysError::new("start", format!("task {task}"), errno).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_that_hang_take_their_owners_share_and_no_more() {
        let crowd = |owners: &[&'static str]| Crowd { most: 8, owners: owners.to_vec() };
        assert!(crowd(&["a"]).has_room_for("a"));
        assert!(!crowd(&["a", "a"]).has_room_for("a"), "a quarter of eight");
        assert!(crowd(&["a", "a"]).has_room_for("b"));
        assert!(!crowd(&["a", "a", "b", "b", "c", "c", "d", "d"]).has_room_for("e"));
        let few = Crowd { most: 2, owners: vec!["a"] };
        assert!(!few.has_room_for("a") && few.has_room_for("b"), "at least one each");
    }
}
