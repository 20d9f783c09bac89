//! One task's limits, watched from outside: what to wait for, until when, and what to do then. It waits for nothing itself,
//! so that one loop can watch one task or a thousand.
//!
//! Nobody polls on a clock while nothing happens. Processor time has no event of its own; the next look is at the earliest
//! moment at which the rest could be used up, which comes closer with every look.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::read;

use super::end;
use super::supervise::poll_until;
use super::task::{Signs, Task};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::task::outcome::Reason;

/// A CPU limit is looked at no more often than this near its end; the overshoot is at most this times the CPUs.
const CPU_LOOK: Duration = Duration::from_millis(10);
/// After an out-of-memory event the kernel needs a moment to choose and count its victim.
const OOM_LOOK: Duration = Duration::from_millis(2);
/// The event may be an ancestor's, so the looks end when the kernel counts no kill in this very group.
const OOM_LOOKS: u8 = 50;
/// A limit of time that is noticed later than this, because the launcher was held up, is told with how much later.
const LATE: Duration = Duration::from_millis(100);

/// A decision to end the task.
#[derive(Debug, Clone)]
pub struct Ending {
    /// Why.
    pub reason: Reason,
    /// In words, with the figures.
    pub detail: String,
    /// When everything is killed, if the task was asked first.
    pub kill_at: Option<Instant>,
    /// When everything was killed.
    pub killed_at: Option<Instant>,
}

/// What can happen to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Sandbox-init has told the payload's wait status, or is gone.
    Status,
    /// Sandbox-init has ended, of a task that is being ended.
    Init,
    /// The task runs out of memory.
    Memory,
}

/// A running task under watch.
pub struct Watch {
    pub task: Task,
    /// Closed with the watch: a task that is being ended has no use for them.
    signs: Signs,
    next_cpu_look: Instant,
    /// When to look for a counted kill next, and how often still, after a memory event.
    oom_looks: Option<(Instant, u8)>,
    init_gone: bool,
}

impl Watch {
    pub fn new(mut task: Task) -> Self {
        let signs = task.signs.take().expect("a task is watched once");
        let next_cpu_look = task.started + least_time_for(task.spec.limits.cpu_time, task.spec.limits.cpus);
        Self { task, signs, next_cpu_look, oom_looks: None, init_gone: false }
    }

    /// The task, with what it was watched by closed.
    pub fn into_task(self) -> Task {
        self.task
    }

    /// What to wait for. Init's end closes the status pipe, of which nobody else has the other end.
    pub fn descriptors(&self) -> [(Source, BorrowedFd<'_>, PollFlags); 2] {
        let Signs { status, oom } = &self.signs;
        [(Source::Status, status.as_fd(), PollFlags::POLLIN), (Source::Memory, oom.as_fd(), oom.interest().flags())]
    }

    /// When to call [`Watch::on_time`] at the latest.
    pub fn deadline(&self) -> Instant {
        let task = &self.task;
        let wall = (!was_killed(task) && !off(Defence::WallTime)).then(|| task.started + task.spec.limits.timeout);
        let kill_at = task.ending.as_ref().and_then(|ending| ending.kill_at);
        let oom_look = self.oom_looks.map(|(next, _)| next);
        [wall, kill_at, oom_look, self.overdue_at()].into_iter().flatten().fold(self.next_cpu_look, Instant::min)
    }

    /// Deals with what has happened.
    pub fn on_ready(&mut self, source: Source) -> Result<(), SysError> {
        match source {
            Source::Status | Source::Init => self.read_status(),
            Source::Memory => {
                self.signs.oom.clear()?;
                self.oom_looks = Some((Instant::now(), OOM_LOOKS));
                Ok(())
            }
        }
    }

    /// Deals with what is due. A task that has ended by itself is not ended for a limit: however late that is seen, nobody can
    /// say that it exceeded it.
    pub fn on_time(&mut self) -> Result<(), SysError> {
        if self.task.main.is_none() && Instant::now() >= self.deadline() {
            self.read_status()?;
        }
        if self.task.main.is_some() {
            return Ok(());
        }
        self.look_at_clock()?;
        self.look_at_oom()
    }

    /// Asks it to end. One that has ended by itself was not stopped, however late that is seen.
    pub fn stop(&mut self, grace: Duration, reason: Reason) -> Result<(), SysError> {
        if self.task.main.is_none() {
            self.read_status()?;
        }
        if self.is_over() { Ok(()) } else { stop(&mut self.task, grace, reason) }
    }

    /// Whether the payload or its init has ended, or will not although it was killed: time to end the task.
    pub fn is_over(&self) -> bool {
        self.task.main.is_some() || self.init_gone || self.overdue_at().is_some_and(|at| Instant::now() >= at)
    }

    /// Killed processes vanish soon; what does not is for the checks to report, not to be waited for without end.
    fn overdue_at(&self) -> Option<Instant> {
        self.task.ending.as_ref().and_then(|ending| ending.killed_at).map(|killed_at| killed_at + end::VANISH)
    }

    /// Four bytes are the payload's wait status; the end of the pipe is the end of init.
    fn read_status(&mut self) -> Result<(), SysError> {
        let mut status = [0; 4];
        if !poll_until([Some(PollFd::new(self.signs.status.as_fd(), PollFlags::POLLIN))], Some(Instant::now()))?[0] {
            return Ok(());
        }
        match read(&self.signs.status, &mut status).on("read", "status pipe")? {
            4 => self.task.main = Some(i32::from_ne_bytes(status)),
            _ => self.init_gone = true,
        }
        Ok(())
    }

    fn look_at_clock(&mut self) -> Result<(), SysError> {
        let now = Instant::now();
        let task = &mut self.task;
        let timeout = task.spec.limits.timeout;
        if now >= self.next_cpu_look {
            self.next_cpu_look = now + look_at_cpu_time(task)?;
        }
        // A task that was asked to stop keeps its limits, however long it was given.
        if !was_killed(task) && now >= task.started + timeout && !off(Defence::WallTime) {
            note_overshoot(task, now - (task.started + timeout));
            return end_for(task, Reason::WallTime, format!("ran longer than its timeout of {timeout:?}"));
        }
        if task.ending.as_ref().is_some_and(|ending| ending.kill_at.is_some_and(|at| now >= at)) {
            return kill(task);
        }
        Ok(())
    }

    /// After a memory event: takes the whole task down once the kernel has counted a kill in this very group.
    fn look_at_oom(&mut self) -> Result<(), SysError> {
        let Some((next, left)) = self.oom_looks.filter(|(next, _)| Instant::now() >= *next) else { return Ok(()) };
        self.oom_looks = (left > 1).then(|| (next + OOM_LOOK, left - 1));
        if self.task.placement.group.oom_kills()? > 0 {
            self.oom_looks = None;
            if !off(Defence::OomGroup) {
                let detail = end::oom_detail(&self.task, self.task.placement.group.reached_memory_limit());
                end_for(&mut self.task, Reason::Oom, detail)?;
            }
        }
        Ok(())
    }
}

/// Asks the payload to end, and has everything killed when `grace` is over: without one, at once and unasked. Asked again, only a
/// shorter grace counts.
pub fn stop(task: &mut Task, grace: Duration, reason: Reason) -> Result<(), SysError> {
    let kill_at = Instant::now() + grace;
    if let Some(ending) = &mut task.ending {
        ending.kill_at = ending.kill_at.map(|at| at.min(kill_at));
        return Ok(());
    }
    let cause = match reason {
        Reason::ServerShutdown => "the server was told to stop",
        _ => "stopped",
    };
    if grace.is_zero() {
        // Asked first, it would now and then find the time to answer, and now and then not.
        return end_for(task, reason, format!("{cause}: SIGKILL to all"));
    }
    match task.forward(libc::SIGTERM) {
        // Gone already: it ended before it could be asked.
        Err(error) if error.errno() == Errno::ESRCH => return Ok(()),
        other => other?,
    }
    let detail = format!("{cause}: SIGTERM");
    task.ending = Some(Ending { reason, detail, kill_at: Some(kill_at), killed_at: None });
    Ok(())
}

/// Kills everything in the task at once: not a loop over pids, which a forking task would outrun.
pub fn kill(task: &mut Task) -> Result<(), SysError> {
    if let Some(ending) = &mut task.ending
        && ending.kill_at.take().is_some()
    {
        let after = task.started.elapsed();
        ending.detail.push_str(&format!(", then SIGKILL to all, {:.3} s after the start", after.as_secs_f64()));
    }
    if let Some(ending) = &mut task.ending {
        ending.killed_at.get_or_insert_with(Instant::now);
    }
    task.placement.group.kill()?;
    task.placement.group.lift_throttles()
}

/// The first cause stands: a task killed for one limit does not turn into a victim of another.
pub fn decide(task: &mut Task, reason: Reason, detail: String) {
    if task.ending.is_none() {
        task.ending = Some(Ending { reason, detail, kill_at: None, killed_at: None });
    }
}

/// Something of the task was found outside: whatever else it was ended for, that is what its record must say.
pub fn breach(task: &mut Task, detail: String) {
    match &mut task.ending {
        Some(ending) if ending.reason == Reason::Containment => {}
        Some(ending) => {
            ending.reason = Reason::Containment;
            ending.detail = format!("{detail}; before that: {}", ending.detail);
        }
        None => decide(task, Reason::Containment, detail),
    }
}

/// Decides and kills.
pub fn end_for(task: &mut Task, reason: Reason, detail: String) -> Result<(), SysError> {
    decide(task, reason, detail);
    kill(task)
}

fn note_overshoot(task: &mut Task, by: Duration) {
    if by >= LATE {
        task.overshoot = by;
    }
}

fn was_killed(task: &Task) -> bool {
    task.ending.as_ref().is_some_and(|ending| ending.killed_at.is_some())
}

/// Ends the task if its processor time is used up; returns how long the rest lasts at least.
fn look_at_cpu_time(task: &mut Task) -> Result<Duration, SysError> {
    let limit = task.spec.limits.cpu_time;
    let used = task.placement.group.cpu_time()?;
    if used < limit {
        return Ok(least_time_for(limit - used, task.spec.limits.cpus).max(CPU_LOOK));
    }
    if !off(Defence::CpuTime) && !was_killed(task) {
        note_overshoot(task, used - limit);
        end_for(task, Reason::CpuTime, format!("used {used:.3?} of processor time; its limit is {limit:?}"))?;
    }
    Ok(Duration::from_secs(3600))
}

/// The time in which `rest` can be used up at the earliest. The quota is per period, so two can fall together.
fn least_time_for(rest: Duration, cpus: f64) -> Duration {
    rest.div_f64(cpus.max(0.01)).saturating_sub(Duration::from_millis(100))
}
