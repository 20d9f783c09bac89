//! Watching a task from outside: one poll loop over its pipes, its init, its memory events and the nearest deadline.
//!
//! Nothing here polls on a clock while nothing happens. Processor time has no event of its own; the loop sleeps until
//! the earliest moment at which the rest could be used up, which comes closer with every look.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::unistd::read;

use super::end;
use super::pump::{Pump, Step};
use super::task::{Task, Wait};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::task::outcome::Reason;
use crate::task::report::Report;
use crate::task::units::human_bytes;

/// A CPU limit is looked at no more often than this near its end; the overshoot is at most this times the CPUs.
const CPU_LOOK: Duration = Duration::from_millis(10);
/// After an out-of-memory event the kernel needs a moment to choose and count its victim.
const OOM_LOOK: Duration = Duration::from_millis(2);
/// The event may be an ancestor's, so the looks end when the kernel counts no kill in this very group.
const OOM_LOOKS: u8 = 50;

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

/// Runs until the payload or its init has ended, then ends, proves and reports.
pub fn run(task: Task, wait: Wait<'_>) -> Result<Report, SysError> {
    let mut supervisor = Supervisor::new(task, wait);
    while supervisor.task.main.is_none() && !supervisor.init_gone && !supervisor.is_overdue() {
        supervisor.turn()?;
    }
    let ended = end::end(&mut supervisor.task)?;
    supervisor.ended = !off(Defence::RemovedGroup);
    supervisor.drain()?;
    Ok(end::report(supervisor.task, ended, supervisor.output_bytes))
}

/// Asks the payload to end; [`run`] kills everything when `grace` is over.
pub fn stop(task: &mut Task, grace: Duration) -> Result<(), SysError> {
    if task.ending.is_some() {
        return Ok(());
    }
    match task.signal(libc::SIGTERM) {
        // Gone already: it ended before it could be asked.
        Err(error) if error.errno() == Errno::ESRCH => return Ok(()),
        other => other?,
    }
    let detail = "stopped: SIGTERM".to_owned();
    task.ending =
        Some(Ending { reason: Reason::Stopped, detail, kill_at: Some(Instant::now() + grace), killed_at: None });
    Ok(())
}

struct Supervisor<'a> {
    task: Task,
    input: Pump<'a>,
    outputs: [Pump<'a>; 2],
    output_bytes: u64,
    stop_on: Option<&'a SignalFd>,
    grace: Duration,
    next_cpu_look: Instant,
    /// When to look for a counted kill next, and how often still, after a memory event.
    oom_looks: Option<(Instant, u8)>,
    init_gone: bool,
    /// The task is gone, and its group too: there is nothing to kill.
    ended: bool,
}

impl<'a> Supervisor<'a> {
    fn new(mut task: Task, wait: Wait<'a>) -> Self {
        let outputs =
            [Pump::output(task.stdio.stdout.take(), wait.stdout), Pump::output(task.stdio.stderr.take(), wait.stderr)];
        Self {
            input: Pump::input(wait.input, wait.input_anew, task.stdio.stdin.take()),
            outputs,
            output_bytes: 0,
            stop_on: wait.stop_on,
            grace: wait.grace.unwrap_or(super::DEFAULT_GRACE),
            next_cpu_look: task.started + least_time_for(task.spec.limits.cpu_time, task.spec.limits.cpus),
            oom_looks: None,
            init_gone: false,
            ended: false,
            task,
        }
    }

    /// Sleeps until something happens, and deals with it.
    fn turn(&mut self) -> Result<(), SysError> {
        let [status, init, oom, stop, input, outputs @ ..] = self.wait_for_event()?;
        if stop {
            self.heed_stop_signal()?;
        }
        if input {
            self.input.step(u64::MAX);
        }
        for (at, _) in outputs.into_iter().enumerate().filter(|(_, ready)| *ready) {
            self.take_output(at)?;
        }
        if oom {
            self.task.oom.clear()?;
            self.oom_looks = Some((Instant::now(), OOM_LOOKS));
        }
        if status || init {
            self.read_status()?;
        }
        self.look_at_clock()?;
        self.look_at_oom()
    }

    /// Which of these is ready: status pipe, init, memory event, stop signal, input, two outputs.
    fn wait_for_event(&self) -> Result<[bool; 7], SysError> {
        let readable = |fd| Some(PollFd::new(fd, PollFlags::POLLIN));
        let task = &self.task;
        let wanted = [
            readable(task.status.as_fd()),
            readable(task.placement.init().as_fd()),
            Some(PollFd::new(task.oom.as_fd(), task.oom.interest().flags())),
            self.stop_on.and_then(|signals| readable(signals.as_fd())),
            self.input.interest(),
            self.outputs[0].interest(),
            self.outputs[1].interest(),
        ];
        let wall = (task.ending.is_none() && !off(Defence::WallTime)).then(|| task.started + task.spec.limits.timeout);
        let kill_at = task.ending.as_ref().and_then(|ending| ending.kill_at);
        let oom_look = self.oom_looks.map(|(next, _)| next);
        let deadline =
            [Some(self.next_cpu_look), wall, kill_at, oom_look, self.overdue_at()].into_iter().flatten().min();
        poll_until(wanted, deadline)
    }

    /// Killed processes vanish soon; what does not is for the checks to report, not to be waited for without end.
    fn overdue_at(&self) -> Option<Instant> {
        self.task.ending.as_ref().and_then(|ending| ending.killed_at).map(|killed_at| killed_at + end::VANISH)
    }

    fn is_overdue(&self) -> bool {
        self.overdue_at().is_some_and(|at| Instant::now() >= at)
    }

    /// The first signal asks the task to end, the next one kills it.
    fn heed_stop_signal(&mut self) -> Result<(), SysError> {
        if !self.stop_on.is_some_and(|signals| signals.read_signal().is_ok_and(|info| info.is_some())) {
            return Ok(());
        }
        match &self.task.ending {
            None => stop(&mut self.task, self.grace),
            Some(_) => kill(&mut self.task),
        }
    }

    /// Moves output on, and ends the task when it exceeds its limit.
    fn take_output(&mut self, at: usize) -> Result<(), SysError> {
        let limit = if off(Defence::OutputLimit) { u64::MAX } else { self.task.spec.limits.output_bytes };
        let Step { took, overflow } = self.outputs[at].step(limit - self.output_bytes);
        self.output_bytes += took;
        if overflow {
            let detail = format!("wrote more than its output limit of {}", human_bytes(limit));
            decide(&mut self.task, Reason::OutputLimit, detail);
            // Killed first: closing the pipe before would hand the task a SIGPIPE and a choice.
            if !self.ended {
                kill(&mut self.task)?;
            }
            self.outputs[at].close();
        }
        Ok(())
    }

    /// Four bytes are the payload's wait status; the end of the pipe is the end of init.
    fn read_status(&mut self) -> Result<(), SysError> {
        let mut status = [0; 4];
        if !poll_until([Some(PollFd::new(self.task.status.as_fd(), PollFlags::POLLIN))], Some(Instant::now()))?[0] {
            return Ok(());
        }
        match read(&self.task.status, &mut status).on("read", "status pipe")? {
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
        if task.ending.is_none() && now >= task.started + timeout && !off(Defence::WallTime) {
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
                let detail = end::oom_detail(&self.task);
                end_for(&mut self.task, Reason::Oom, detail)?;
            }
        }
        Ok(())
    }

    /// Delivers what the task had written before it died; that is in the pipes, and the launcher's ends do not block. Only a
    /// reader that does not read is waited for, as long as nobody asks to stop.
    fn drain(&mut self) -> Result<(), SysError> {
        if !off(Defence::NoMoreWriters) {
            self.outputs.iter_mut().for_each(Pump::no_more_writers);
        }
        loop {
            for at in 0..self.outputs.len() {
                while !self.outputs[at].is_waiting() && !self.outputs[at].is_done() {
                    self.take_output(at)?;
                }
            }
            if self.outputs.iter().all(Pump::is_done) {
                return Ok(());
            }
            let stop = self.stop_on.map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            let [stop, ready @ ..] = poll_until([stop, self.outputs[0].interest(), self.outputs[1].interest()], None)?;
            if stop {
                return Ok(());
            }
            for (at, _) in ready.into_iter().enumerate().filter(|(_, ready)| *ready) {
                self.take_output(at)?;
            }
        }
    }
}

/// Sleeps until one of `wanted` is ready or the deadline has come; says which are.
fn poll_until<const N: usize>(
    wanted: [Option<PollFd<'_>>; N],
    deadline: Option<Instant>,
) -> Result<[bool; N], SysError> {
    let timeout = deadline.map_or(PollTimeout::NONE, |deadline| {
        // Rounded up: waking a moment early would only mean another turn.
        let millis = deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    });
    let mut fds: Vec<PollFd<'_>> = wanted.iter().flatten().cloned().collect();
    match poll(&mut fds, timeout) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok([false; N]),
        Err(errno) => return Err(SysError::new("poll", "task", errno)),
    }
    let mut answers = fds.iter().map(|fd| fd.any().unwrap_or(false));
    Ok(wanted.map(|fd| fd.is_some() && answers.next().unwrap_or(false)))
}

/// Kills everything in the task at once: not a loop over pids, which a forking task would outrun.
fn kill(task: &mut Task) -> Result<(), SysError> {
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
fn decide(task: &mut Task, reason: Reason, detail: String) {
    if task.ending.is_none() {
        task.ending = Some(Ending { reason, detail, kill_at: None, killed_at: None });
    }
}

fn end_for(task: &mut Task, reason: Reason, detail: String) -> Result<(), SysError> {
    decide(task, reason, detail);
    kill(task)
}

/// Ends the task if its processor time is used up; returns how long the rest lasts at least.
fn look_at_cpu_time(task: &mut Task) -> Result<Duration, SysError> {
    let limit = task.spec.limits.cpu_time;
    let used = task.placement.group.cpu_time()?;
    if used < limit {
        return Ok(least_time_for(limit - used, task.spec.limits.cpus).max(CPU_LOOK));
    }
    if !off(Defence::CpuTime) && task.ending.is_none() {
        end_for(task, Reason::CpuTime, format!("used {used:.3?} of processor time; its limit is {limit:?}"))?;
    }
    Ok(Duration::from_secs(3600))
}

/// The time in which `rest` can be used up at the earliest. The quota is per period, so two can fall together.
fn least_time_for(rest: Duration, cpus: f64) -> Duration {
    rest.div_f64(cpus.max(0.01)).saturating_sub(Duration::from_millis(100))
}
