//! A running task, as its starter holds it. Dropped without [`Task::wait`], it is killed and removed.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signalfd::SignalFd;

use super::end::Placement;
use super::pump::{Sink, Stream};
use super::watch::{self, Ending};
use super::{Lease, supervise};
use crate::cgroup::OomWatch;
use crate::error::{Context, SysError};
use crate::task::id::TaskId;
use crate::task::outcome::Reason;
use crate::task::report::Report;
use crate::task::signal;
use crate::task::spec::TaskSpec;

/// A task whose command was executed.
pub struct Task {
    pub(super) spec: TaskSpec,
    pub(super) placement: Placement,
    /// After what has the uid: fields are dropped in this order.
    pub(super) lease: Lease,
    /// Until it is watched.
    pub(super) signs: Option<Signs>,
    pub(super) stdio: Stdio,
    pub(super) reduced: Vec<String>,
    pub(super) started: Instant,
    pub(super) started_at: SystemTime,
    /// Set once the end was decided; the first decision stands.
    pub(super) ending: Option<Ending>,
    /// The payload's wait status, once told.
    pub(super) main: Option<i32>,
    /// The payload's pid on the host.
    pub(super) payload: i32,
    /// The last signal that a client sent; zero before the first.
    pub(super) sent: AtomicI32,
    /// How far a limit of time was exceeded when that was noticed.
    pub(super) overshoot: Duration,
}

/// What a running task is watched by.
pub(super) struct Signs {
    /// Read end of the pipe on which sandbox-init tells the payload's wait status.
    pub status: OwnedFd,
    /// Its memory.
    pub oom: OomWatch,
}

/// The launcher's ends of the task's standard streams.
pub(super) struct Stdio {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// Whether a task still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It runs.
    Running,
    /// A stop was asked for, or a limit was hit; it is being ended.
    Ending(Reason),
    /// Its main process has ended; [`Task::wait`] tells how.
    Ended,
}

/// What to do while waiting.
#[derive(Default)]
pub struct Wait<'a> {
    /// Where the task's standard input comes from; without one it is empty.
    pub input: Option<BorrowedFd<'a>>,
    /// The same, opened anew so that reading it does not block, where others read it too.
    pub input_anew: Option<BorrowedFd<'a>>,
    /// Where its standard output goes.
    pub stdout: Sink<'a>,
    /// Where its standard error goes.
    pub stderr: Sink<'a>,
    /// Signals that mean "stop": the first asks, the second kills.
    pub stop_on: Option<&'a SignalFd>,
    /// Time between asking and killing.
    pub grace: Option<Duration>,
}

impl Task {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.spec.id
    }

    /// The uid all its processes run under.
    pub fn uid(&self) -> u32 {
        self.lease.uid
    }

    /// Whether it still runs. Never blocks.
    pub fn status(&self) -> Result<Status, SysError> {
        let init_ended = self.placement.init_has_ended()?;
        Ok(match &self.ending {
            _ if self.main.is_some() || init_ended => Status::Ended,
            Some(ending) => Status::Ending(ending.reason),
            None => Status::Running,
        })
    }

    /// Sends a signal to the payload's main process, through sandbox-init.
    pub fn signal(&self, number: i32) -> Result<(), SysError> {
        self.forward(number)?;
        self.sent.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// The same of taskman's own accord.
    pub(super) fn forward(&self, number: i32) -> Result<(), SysError> {
        self.placement
            .child()
            .forward(number)
            .on("pidfd_send_signal", format!("{} to task {}", signal::name(number), self.id()))
    }

    /// Asks the task to end: SIGTERM now, and a kill of everything in it after `grace`; without one, the kill alone.
    /// [`Task::wait`] sees it through.
    pub fn stop(&mut self, grace: Duration) -> Result<(), SysError> {
        watch::stop(self, grace, Reason::Stopped)
    }

    /// The pid of its main process on the host, which may have ended by now.
    pub fn process_id(&self) -> i32 {
        self.payload
    }

    /// Takes the read ends of its output, one or two of them, for someone else to read; its standard input is closed.
    pub fn take_outputs(&mut self) -> Vec<OwnedFd> {
        self.stdio.stdin = None;
        self.stdio.stdout.take().into_iter().chain(self.stdio.stderr.take()).collect()
    }

    /// Waits for the end, handing output to `output` as it comes, and proves that nothing is left.
    pub fn wait(self, mut output: impl FnMut(Stream, &[u8])) -> Result<Report, SysError> {
        let output = std::cell::RefCell::new(&mut output);
        let mut out = |bytes: &[u8]| (output.borrow_mut())(Stream::Stdout, bytes);
        let mut err = |bytes: &[u8]| (output.borrow_mut())(Stream::Stderr, bytes);
        self.wait_with(Wait { stdout: Sink::Call(&mut out), stderr: Sink::Call(&mut err), ..Wait::default() })
    }

    /// As [`Task::wait`], with descriptors for the three streams and signals that stop it.
    pub fn wait_with(self, wait: Wait<'_>) -> Result<Report, SysError> {
        supervise::run(self, wait)
    }
}
