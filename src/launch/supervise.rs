//! One task from start to report, for a caller who waits: its watch, its pipes and the nearest deadline in one poll loop.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;

use super::end;
use super::pump::{Pump, Step};
use super::task::{Task, Wait};
use super::watch::{Watch, decide, kill};
use crate::error::SysError;
use crate::mutation::{Defence, off};
use crate::task::outcome::Reason;
use crate::task::report::Report;
use crate::task::units::human_bytes;

/// Runs until the payload or its init has ended, then ends, proves and reports.
pub fn run(task: Task, wait: Wait<'_>) -> Result<Report, SysError> {
    let mut supervisor = Supervisor::new(task, wait);
    while !supervisor.watch.is_over() {
        supervisor.turn()?;
    }
    let task = &mut supervisor.watch.task;
    let left = end::begin(task)?;
    let ended = end::finish(task, left, end::VANISH)?;
    supervisor.ended = !off(Defence::RemovedGroup);
    supervisor.drain()?;
    Ok(end::report(supervisor.watch.task, ended, supervisor.output_bytes))
}

struct Supervisor<'a> {
    watch: Watch,
    input: Pump<'a>,
    outputs: [Pump<'a>; 2],
    output_bytes: u64,
    stop_on: Option<&'a SignalFd>,
    grace: Duration,
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
            ended: false,
            watch: Watch::new(task),
        }
    }

    /// Sleeps until something happens, and deals with it.
    fn turn(&mut self) -> Result<(), SysError> {
        let watched = self.watch.descriptors();
        let sources = watched.map(|(source, ..)| source);
        let [status, memory] = watched.map(|(_, fd, flags)| Some(PollFd::new(fd, flags)));
        let stop = self.stop_on.map(|signals| PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        let [out, err] = [self.outputs[0].interest(), self.outputs[1].interest()];
        let wanted = [status, memory, stop, self.input.interest(), out, err];
        let [status, memory, stop, input, outputs @ ..] = poll_until(wanted, Some(self.watch.deadline()))?;
        if stop {
            self.heed_stop_signal()?;
        }
        if input {
            self.input.step(u64::MAX);
        }
        for (at, _) in outputs.into_iter().enumerate().filter(|(_, ready)| *ready) {
            self.take_output(at)?;
        }
        for (source, _) in sources.into_iter().zip([status, memory]).filter(|(_, ready)| *ready) {
            self.watch.on_ready(source)?;
        }
        self.watch.on_time()
    }

    /// The first signal asks the task to end, the next one kills it.
    fn heed_stop_signal(&mut self) -> Result<(), SysError> {
        if !self.stop_on.is_some_and(|signals| signals.read_signal().is_ok_and(|info| info.is_some())) {
            return Ok(());
        }
        match &self.watch.task.ending {
            None => self.watch.stop(self.grace, Reason::Stopped),
            Some(_) => kill(&mut self.watch.task),
        }
    }

    /// Moves output on, and ends the task when it exceeds its limit.
    fn take_output(&mut self, at: usize) -> Result<(), SysError> {
        let limit = if off(Defence::OutputLimit) { u64::MAX } else { self.watch.task.spec.limits.output_bytes };
        let Step { took, overflow } = self.outputs[at].step(limit - self.output_bytes);
        self.output_bytes += took;
        if overflow {
            let detail = format!("wrote more than its output limit of {}", human_bytes(limit));
            decide(&mut self.watch.task, Reason::OutputLimit, detail);
            // Killed first: closing the pipe before would hand the task a SIGPIPE and a choice.
            if !self.ended {
                kill(&mut self.watch.task)?;
            }
            self.outputs[at].close();
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
pub fn poll_until<const N: usize>(
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
