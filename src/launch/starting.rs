//! A task between its creation and the execution of its command: what its child tells, read without blocking.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, send};
use serde::Deserialize;

use super::Lease;
use super::end::Placement;
use super::supervise::poll_until;
use super::task::{Signs, Stdio, Task};
use crate::cgroup::{Group, OomWatch};
use crate::error::{StartError, SysError};
use crate::fault;
use crate::sandbox::{self, Failure};
use crate::sys::socket;
use crate::task::id::TaskId;
use crate::task::spec::TaskSpec;
use crate::task::units::exact_bytes;

/// How long a sandbox may take to build: a thousand times what it takes, and not for ever.
pub(super) const START: Duration = Duration::from_secs(30);
/// No failure takes more words; what does is not one.
const MOST: usize = 64 << 10;

/// How far a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    /// It is built, and waits for its command.
    Parked,
    /// Its command was executed.
    Executed,
}

/// A task that is being started. Dropped, it is killed and removed.
pub struct Starting {
    pub(super) spec: TaskSpec,
    pub(super) placement: Placement,
    /// After what has the uid: fields are dropped in this order.
    pub(super) lease: Lease,
    /// Set when the cgroup is complete; the child waits for that, and dies when it is an error.
    pub(super) completed: Result<OomWatch, StartError>,
    pub(super) report: OwnedFd,
    pub(super) status: OwnedFd,
    pub(super) stdio: Stdio,
    pub(super) reduced: Vec<String>,
    pub(super) said: Vec<u8>,
    pub(super) payload: Option<i32>,
    /// It ended without a word, or without one since it was parked: its command was not executed.
    pub(super) died: bool,
    /// When it is given up; never while it is parked.
    pub(super) deadline: Option<Instant>,
}

impl Starting {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.spec.id
    }

    /// Readable when [`Starting::look`] has something to see.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// Who asked for it, if anybody has.
    pub(super) fn owner(&self) -> &str {
        self.spec.owner.as_deref().unwrap_or_default()
    }

    /// [`Starting::look`] gives up after this at the latest.
    pub(super) fn give_up_within(&mut self, patience: Duration) {
        if let Some(at) = Instant::now().checked_add(patience) {
            self.deadline = Some(self.deadline.map_or(at, |before| before.min(at)));
        }
    }

    /// When [`Starting::look`] gives up.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Reads what the child has said: one byte when all steps are done, then silence (executed) or a failure. None while it
    /// is still at work, or waits.
    pub fn look(&mut self) -> Option<Result<Built, StartError>> {
        if let Err(error) = &self.completed {
            return Some(Err(error.clone()));
        }
        let mut piece = [0; 4096];
        loop {
            match socket::receive(self.report.as_fd(), &mut piece) {
                Ok(received) if received.bytes == 0 => return Some(self.judge().map(|()| Built::Executed)),
                Ok(_) if self.said.len() > MOST => return Some(Err(failed(&self.said, &self.spec))),
                Ok(received) => {
                    if self.payload.is_none() {
                        self.payload = received.sender.map(|sender| sender.pid);
                    }
                    self.said.extend_from_slice(&piece[..received.bytes]);
                }
                // It has died with its command unread. The kernel says so once, and then that it is the end.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(Errno::EAGAIN) if self.said == [sandbox::PARKED] => {
                    fault::point("parked");
                    self.said.clear();
                    self.deadline = None;
                    return Some(Ok(Built::Parked));
                }
                Err(Errno::EAGAIN) if self.deadline.is_none_or(|deadline| Instant::now() < deadline) => return None,
                Err(Errno::EAGAIN) => {
                    let error = SysError::new("build", "sandbox", Errno::ETIMEDOUT)
                        .hint("a file system it touches does not answer; look at --bind-ro and --workdir");
                    return Some(Err(StartError::step("start")(error)));
                }
                Err(errno) => return Some(Err(StartError::step("start")(SysError::new("read", "start pipe", errno)))),
            }
        }
    }

    /// Gives a parked sandbox the one task that it is for; it must have been built for a task of the same id and shape.
    /// [`Starting::look`] tells how the execution went.
    pub fn take(&mut self, spec: TaskSpec) -> Result<(), StartError> {
        let failed = |errno| StartError::step("park")(SysError::new("send", "command", errno));
        let orders = spec.command().orders().ok_or_else(|| failed(Errno::EMSGSIZE))?;
        if let Some(owner) = &spec.owner {
            self.placement.group.note_owner(owner).map_err(StartError::step("cgroup"))?;
        }
        match send(self.report.as_raw_fd(), &orders, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) if sent == orders.len() => {}
            Ok(_) => return Err(failed(Errno::EMSGSIZE)),
            Err(errno) => return Err(failed(errno)),
        }
        fault::point("taken");
        self.spec = spec;
        self.deadline = Some(Instant::now() + START);
        Ok(())
    }

    /// Waits until the command was executed, or for the reason why it was not.
    pub fn wait(mut self) -> Result<Task, StartError> {
        self.wait_until_built()?;
        self.into_task()
    }

    /// Waits until it is parked, or its command executed.
    pub fn wait_until_built(&mut self) -> Result<Built, StartError> {
        loop {
            if let Some(result) = self.look() {
                return result;
            }
            let readable = PollFd::new(self.report.as_fd(), PollFlags::POLLIN);
            poll_until([Some(readable)], self.deadline).map_err(StartError::step("start"))?;
        }
    }

    /// The running task, once [`Starting::look`] has said so.
    pub fn into_task(self) -> Result<Task, StartError> {
        fault::point("running");
        let Self { spec, lease, placement, completed, status, stdio, reduced, payload, .. } = self;
        let (started, started_at) = (Instant::now(), SystemTime::now());
        let (ending, main, payload) = (None, None, payload.unwrap_or_default());
        let oom = completed?;
        let overshoot = Duration::ZERO;
        Ok(Task {
            spec,
            lease,
            placement,
            signs: Some(Signs { status, oom }),
            stdio,
            reduced,
            started,
            started_at,
            ending,
            main,
            payload,
            sent: AtomicI32::new(0),
            overshoot,
        })
    }

    /// What must be ended and given back after a failure.
    pub(super) fn into_remains(self) -> (Placement, Lease) {
        (self.placement, self.lease)
    }

    /// What sandbox-init has said of itself before it ended, and with it the payload-to-be.
    fn init_gave_up(&self) -> Option<Errno> {
        let readable = PollFd::new(self.status.as_fd(), PollFlags::POLLIN);
        if !poll_until([Some(readable)], Some(Instant::now())).ok()?[0] {
            return None;
        }
        let mut status = [0; 4];
        let told = nix::unistd::read(&self.status, &mut status).ok()? == status.len();
        let errno = i32::from_ne_bytes(status).checked_neg()?;
        (told && errno > 0).then(|| Errno::from_raw(errno))
    }

    fn judge(&mut self) -> Result<(), StartError> {
        // It may have been built, and ended, between two looks.
        let said = self.said.strip_prefix(&[sandbox::PARKED]).unwrap_or(&self.said);
        let failure = said.strip_prefix(&[sandbox::CONFINED]);
        match failure.unwrap_or(said) {
            [] if failure.is_some() => Ok(()),
            [] => {
                self.died = true;
                Err(match self.init_gave_up() {
                    Some(errno) => StartError::step("init")(
                        SysError::new("seccomp", "sandbox-init's filter", errno)
                            .hint("filters of the whole host share one budget: sysctl net.core.bpf_jit_limit"),
                    ),
                    None => died(&self.spec, &self.placement.group),
                })
            }
            failure => Err(failed(failure, &self.spec)),
        }
    }
}

fn failed(failure: &[u8], spec: &TaskSpec) -> StartError {
    // Both processes of a sandbox may fail at once; the first to speak is heard.
    let mut reader = serde_json::Deserializer::from_slice(failure);
    match Failure::deserialize(&mut reader) {
        Ok(Failure::Step { step, source }) => {
            let refused = matches!(source.errno(), Errno::EPERM | Errno::ENOSYS) && source.hint.is_none();
            let source = if refused { source.hint("taskman doctor says what this host refuses") } else { source };
            StartError::Step { step: step.into(), source }
        }
        Ok(Failure::Exec { not_found, source }) => {
            StartError::Exec { command: spec.command.clone(), not_found, source }
        }
        Err(error) => {
            StartError::step("start")(SysError::new("read", "start pipe", Errno::EBADMSG).hint(error.to_string()))
        }
    }
}

fn too_small(memory_bytes: u64) -> String {
    format!("the memory limit of {} is too small for the sandbox", exact_bytes(memory_bytes))
}

/// The child ended without a word: killed during set-up, by the memory limit or from outside.
fn died(spec: &TaskSpec, group: &Group) -> StartError {
    let hint = match group.oom_kills() {
        Ok(kills) if kills > 0 => too_small(spec.limits.memory_bytes),
        _ => "it was killed from outside; see the kernel log".to_owned(),
    };
    StartError::step("start")(SysError::new("build", "sandbox", Errno::ECHILD).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_small_is_named_as_it_is_written() {
        assert_eq!(too_small(8 << 20), "the memory limit of 8M is too small for the sandbox");
    }
}
