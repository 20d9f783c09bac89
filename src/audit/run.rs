//! The auditor's loop: one thread, woken by the launcher, by the kernel, or by a moment that has come.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

use super::auditor::{Auditor, Source, log};
use super::clean::Extent;
use super::desk::{Begun, Pending, Work};
use super::errand::{Errand, Errands};
use super::events::{BATCH, Events, Hint, Overrun};
use super::facts::Facts;
use crate::containment::{Answer, FromAuditor, Query, Setup, ToAuditor};
use crate::fault;
use crate::wire::{self, PacketError};

/// Executed programs looked at per second; beyond it a scan soon looks at what they have become. A change of uid and a write to
/// a group are always looked at: they are how a process gets out.
const EXECS: f64 = 150.0;
/// The same of forked processes, of which the kernel tells only a few.
const FORKS: f64 = 50.0;
/// A scan that was asked for comes no sooner than this after the last one.
const APART: Duration = Duration::from_secs(1);
/// One for programs that were too many to look at comes only after so many times what the last one took, and this at most: with
/// the looks above, a storm of processes costs less than a tenth of a processor.
const REST: u32 = 30;
const LONGEST_REST: Duration = Duration::from_secs(3);
/// In a storm, the time between two looks at what the kernel tells of processes: to be woken for each costs more than to look at it.
const TOGETHER: Duration = Duration::from_millis(5);
/// Where the kernel tells of no processes, as in a container, a scan comes at least this often.
const WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// Every so many scans, what is not a process is looked for too; and every so many, files on disks.
const GLANCE_EVERY: u64 = 6;
const LOOK_EVERY: u64 = 60;
/// As the mask of a capability set.
const CAP_SYS_PTRACE: u64 = 1 << 19;
/// How long the launcher may take to say what to look at.
const SETUP: Duration = Duration::from_secs(10);

/// The whole of the auditor; returns its exit code when the launcher is gone.
pub fn run(socket: OwnedFd) -> u8 {
    fault::role("auditor");
    let Some(setup) = first_message(&socket) else { return 0 };
    fault::point("set-up");
    let (events, mut why) = match setup.events {
        true => Events::open(),
        false => (Events::default(), vec!["audit.events is false".to_owned()]),
    };
    let scan = Duration::from_millis(setup.scan_ms);
    // What the kernel would have told is then seen this soon.
    let every = if setup.events && events.processes.is_none() { scan.min(WITHOUT_EVENTS) } else { scan };
    if every < scan {
        why.push(format!("scanning every {every:?} instead"));
    }
    // Said with the events: both are what it knows less of.
    if Facts::read(std::process::id() as i32).is_some_and(|own| own.caps[2] & CAP_SYS_PTRACE == 0) {
        why.push("without CAP_SYS_PTRACE the namespaces and the program of a task cannot be read".to_owned());
    }
    let without_events = (!why.is_empty()).then(|| why.join("; "));
    match Auditor::open(*setup, Some(socket)) {
        Ok(auditor) => Loop::new(auditor, events, every).run(without_events),
        Err(error) => {
            log(&error);
            1
        }
    }
}

fn first_message(socket: &OwnedFd) -> Option<Box<Setup>> {
    let timeout = PollTimeout::try_from(SETUP).unwrap_or(PollTimeout::MAX);
    poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout).ok()?;
    match wire::receive::<ToAuditor>(socket.as_fd()).ok()??.message {
        ToAuditor::Setup(setup) => Some(setup),
        _ => None,
    }
}

struct Loop {
    auditor: Auditor,
    events: Events,
    every: Duration,
    next_scan: Instant,
    last_scan: Instant,
    /// Of the processor's time.
    scan_took: Duration,
    /// More has come of processes than was taken at once.
    is_behind: bool,
    scans: u64,
    errands: Errands,
    execs: Allowance,
    forks: Allowance,
}

/// So many per second, and as many at once.
struct Allowance {
    most: f64,
    left: f64,
    refilled: Instant,
}

impl Allowance {
    fn of(most: f64) -> Self {
        Self { most, left: most, refilled: Instant::now() }
    }

    fn take(&mut self) -> bool {
        let granted = !self.is_spent();
        if granted {
            self.left -= 1.0;
        }
        granted
    }

    fn is_spent(&mut self) -> bool {
        let now = Instant::now();
        self.left = (self.left + self.most * now.duration_since(self.refilled).as_secs_f64()).min(self.most);
        self.refilled = now;
        self.left < 1.0
    }
}

impl Loop {
    fn new(auditor: Auditor, events: Events, every: Duration) -> Self {
        let now = Instant::now();
        Self {
            auditor,
            events,
            every,
            next_scan: now,
            last_scan: now,
            scan_took: Duration::ZERO,
            is_behind: false,
            scans: 0,
            errands: Errands::default(),
            execs: Allowance::of(EXECS),
            forks: Allowance::of(FORKS),
        }
    }

    fn run(mut self, without_events: Option<String>) -> u8 {
        self.scan();
        self.auditor.settle();
        fault::point("scanned");
        let health = self.auditor.health.clone();
        // One that was not heard is taken for lost, and another is started.
        let _ = self.auditor.say(&FromAuditor::Ready { without_events, health });
        fault::point("ready");
        loop {
            self.wait();
            if !self.heed_launcher() {
                return self.last_look();
            }
            self.heed_kernel();
            self.auditor.recheck();
            self.heed_errands();
            if Instant::now() >= self.next_scan {
                self.scan();
            }
            self.auditor.beat();
        }
    }

    fn wait(&mut self) {
        // Not while there is more than can be taken at once.
        if self.execs.is_spent() && !self.is_behind {
            self.wait_for(TOGETHER, false);
        }
        self.wait_for(Duration::MAX, true);
    }

    /// Until something is due or has come, or for as long as this; for news of `processes` or not.
    fn wait_for(&self, most: Duration, processes: bool) {
        let due = [Some(self.auditor.next_beat()), Some(self.next_scan), self.auditor.next_recheck()];
        let wait =
            due.into_iter().flatten().min().map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        // Rounded up: a moment early would find nothing due and turn round at once.
        let timeout = PollTimeout::try_from(wait.min(most) + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(4);
        fds.extend(self.auditor.socket().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let told = self.events.processes.as_ref().filter(|_| processes);
        fds.extend(told.map(|events| PollFd::new(events.as_fd(), PollFlags::POLLIN)));
        let writes = &self.events.writes;
        fds.extend(writes.as_ref().map(|events| PollFd::new(events.as_fd(), PollFlags::POLLIN)));
        fds.extend(self.errands.socket().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut fds, timeout);
    }

    /// Takes what the launcher says; false when it is gone.
    fn heed_launcher(&mut self) -> bool {
        loop {
            // However much it asks.
            self.auditor.beat();
            let Some(socket) = self.auditor.socket() else { return false };
            match wire::receive::<ToAuditor>(socket.as_fd()) {
                Ok(Some(packet)) => match packet.message {
                    ToAuditor::Setup(_) => {}
                    ToAuditor::Ended { task } => {
                        if let Some(task) = self.auditor.tasks.of_id(task) {
                            task.ended = Some(Instant::now());
                            self.scan_soon();
                        }
                    }
                    ToAuditor::Ask { seq, query } => self.ask(seq, query),
                },
                Err(PacketError::WouldBlock) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }

    fn ask(&mut self, seq: u64, query: Query) {
        match self.auditor.begin(query) {
            Begun::Done(answer) => self.auditor.reply(seq, answer),
            Begun::Needs(work, pending) => {
                if !self.errands.add(Errand { work, pending, seq: Some(seq) }) {
                    self.auditor.reply(seq, Answer::Refused("too much is under way already; try again".to_owned()));
                }
            }
        }
    }

    fn heed_errands(&mut self) {
        if let Some((errand, brought)) = self.errands.step(&self.auditor.setup) {
            let answer = self.auditor.finish(errand.pending, brought);
            match errand.seq {
                Some(seq) => self.auditor.reply(seq, answer),
                None => {
                    if let Answer::Refused(why) = answer {
                        log(&why);
                    }
                }
            }
        }
    }

    fn heed_kernel(&mut self) {
        let (writes, processes) = (self.events.of_writes(), self.events.of_processes());
        self.is_behind = processes.as_ref().is_ok_and(|hints| hints.len() >= BATCH);
        for hints in [writes, processes] {
            match hints {
                // A thousand programs executed at once take longer to look at than the launcher waits for a beat.
                Ok(hints) => {
                    for hint in &hints {
                        self.heed(hint);
                        self.auditor.beat();
                    }
                }
                Err(Overrun) => {
                    log("kernel events were lost; scanning");
                    self.scan_soon();
                }
            }
            self.auditor.beat();
        }
    }

    fn heed(&mut self, hint: &Hint) {
        self.auditor.done.events += 1;
        match hint.source {
            Source::Exec if !self.execs.take() => {
                return self.scan_after(APART.max((self.scan_took * REST).min(LONGEST_REST)));
            }
            Source::Fork if !self.forks.take() => return,
            _ => {}
        }
        self.auditor.consider(hint.pid, &hint.source);
    }

    fn scan_soon(&mut self) {
        self.scan_after(APART);
    }

    fn scan_after(&mut self, rest: Duration) {
        self.next_scan = self.next_scan.min(self.last_scan + rest).max(Instant::now());
    }

    fn scan(&mut self) {
        let begun = spent();
        self.auditor.scan();
        self.scan_took = spent().saturating_sub(begun);
        self.scans += 1;
        // Scans that stand in for events are no reason to look at everything else as often.
        let pace = (self.auditor.setup.scan_ms / (self.every.as_millis() as u64).max(1)).max(1);
        let extent = if self.scans.is_multiple_of(LOOK_EVERY * pace) { Extent::Things } else { Extent::QuickThings };
        if self.scans.is_multiple_of(GLANCE_EVERY * pace) && !self.errands.is_busy() {
            self.errands.add(Errand { work: Work::Look(extent), pending: Pending::Things(extent), seq: None });
        }
        self.last_scan = Instant::now();
        self.next_scan = self.last_scan + self.every;
    }

    /// The launcher is gone, and with it every task must go. What does not is killed and written down.
    fn last_look(mut self) -> u8 {
        self.auditor.end_instance();
        0
    }
}

/// What this process has had of the processor so far.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
