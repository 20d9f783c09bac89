//! The service's own life: serving, draining, leaving in order, or ending everything because the server is gone. Each but the
//! first is bounded.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::poller::SERVICE;
use super::{Service, complain, log};
use crate::launch::end::VANISH;
use crate::task::outcome::Reason;
use crate::wire::Event;

/// After the grace of the last task: for its end to be seen, recorded and flushed.
const RECORD: Duration = Duration::from_secs(15);
/// For a server that has said goodbye, or was killed, to be gone.
const LEAVE: Duration = Duration::from_secs(5);
/// For a server that has closed its socket to say why, and end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where the service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Tasks are started and watched.
    Serving,
    /// Told to stop: tasks are being stopped, the server records their ends.
    Draining,
    /// The server has said goodbye.
    Leaving,
    /// The server has said goodbye and is gone.
    Left,
    /// The server has closed its socket, and should end; its tasks are being ended.
    Closed,
    /// The server is gone or was killed; its tasks are being ended.
    Lost,
    /// The bound is over.
    Overdue,
}

impl Phase {
    /// Whether there is a server to listen to.
    pub fn has_server(self) -> bool {
        matches!(self, Self::Serving | Self::Draining)
    }

    /// Whether new tasks are taken.
    pub fn admits(self) -> bool {
        self == Self::Serving
    }
}

impl Service<'_> {
    /// SIGTERM: the first asks every task to end, the next one kills them.
    pub(super) fn drain(&mut self) {
        match self.phase {
            Phase::Serving => {
                let grace = self.config.stop.shutdown;
                log(&format!("told to stop; {} tasks are given {grace:?} to end", self.tasks()));
                self.enter(Phase::Draining, grace + RECORD);
                self.tell(Event::Drain, Vec::new());
                self.with_every_task(|live, poller| live.stop(grace, Reason::ServerShutdown, poller));
            }
            Phase::Draining => {
                log(&format!("told to stop at once; {} tasks are killed", self.tasks()));
                self.enter(Phase::Draining, RECORD);
                let why = "the server was told to stop at once";
                self.with_every_task(|live, poller| live.kill(Reason::ServerShutdown, why, poller));
            }
            // Everything is being killed already, or is gone.
            Phase::Leaving | Phase::Left | Phase::Closed | Phase::Lost | Phase::Overdue => {}
        }
    }

    /// The server has recorded everything. Said too early, it is a server that gives up on its tasks.
    pub(super) fn server_leaves(&mut self) {
        if self.phase != Phase::Draining || self.live.values().any(|live| live.is_task() && live.is_pending()) {
            return self.server_is_lost("it said goodbye while it was needed");
        }
        self.forget_socket();
        self.enter(Phase::Leaving, LEAVE);
    }

    /// The server's process has ended; what it said before still counts.
    pub(super) fn server_ended(&mut self) {
        while self.phase.has_server() && self.read_request() {}
        self.poller.remove(self.server.process.as_fd());
        match waitid(Id::PIDFd(self.server.process.as_fd()), WaitPidFlag::WEXITED) {
            Ok(_) if self.phase == Phase::Leaving => {}
            Ok(status) => log(&format!("the server has ended: {status:?}")),
            Err(Errno::ECHILD) => {}
            Err(errno) => complain(&format!("waitid on the server: {errno}")),
        }
        self.reaped = true;
        match self.phase {
            Phase::Leaving => self.enter(Phase::Left, LEAVE),
            Phase::Serving | Phase::Draining => self.server_is_lost("it has ended"),
            Phase::Closed => self.enter(Phase::Lost, VANISH + LEAVE),
            Phase::Left | Phase::Lost | Phase::Overdue => {}
        }
    }

    /// Nothing the server says counts any more, and no task of it goes on.
    pub(super) fn end_all_without_server(&mut self, closed: bool) {
        self.forget_socket();
        if closed && !self.reaped {
            self.enter(Phase::Closed, LAST_WORDS);
        } else {
            self.kill_server();
        }
        self.with_every_task(|live, poller| live.kill(Reason::ServerLost, "the server was lost", poller));
    }

    /// The bound of a phase has come.
    pub(super) fn phase_is_over(&mut self) {
        match self.phase {
            Phase::Draining => self.server_is_lost("it has not recorded the end of its tasks in time"),
            Phase::Leaving => {
                complain("the server does not leave although it said goodbye");
                self.kill_server();
            }
            Phase::Closed => self.kill_server(),
            Phase::Left | Phase::Lost => {
                let left = self.live.values().filter(|live| live.is_pending()).count();
                if left > 0 {
                    complain(&format!("{left} tasks do not end; the next start sweeps them"));
                }
                if !self.reaped {
                    complain("the server was killed and does not end");
                }
                self.phase = Phase::Overdue;
            }
            Phase::Serving | Phase::Overdue => {}
        }
    }

    /// The exit code, when there is nothing left to do.
    pub(super) fn exit_code(&self) -> Option<u8> {
        match self.phase {
            Phase::Serving | Phase::Draining | Phase::Leaving | Phase::Closed => None,
            // Of the sandboxes that waited for a task.
            Phase::Left if self.live.values().any(|live| live.is_pending()) => None,
            Phase::Left => Some(0),
            Phase::Lost if !self.reaped || self.live.values().any(|live| live.is_pending()) => None,
            Phase::Lost | Phase::Overdue => Some(1),
        }
    }

    fn enter(&mut self, phase: Phase, bound: Duration) {
        self.phase = phase;
        self.poller.set_deadline(SERVICE, Some(Instant::now() + bound));
    }

    fn forget_socket(&mut self) {
        self.outbox.clear();
        self.poller.remove(self.socket.as_fd());
    }

    fn kill_server(&mut self) {
        // Longer than any single task is waited for.
        self.enter(Phase::Lost, VANISH + LEAVE);
        match self.server.process.kill() {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => complain(&format!("kill the server: {errno}")),
        }
    }
}
