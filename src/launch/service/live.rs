//! One task of the service, from its first process to the proof of its end. Every step looks, acts and returns; what must be
//! waited for is a descriptor or a deadline of the loop's.

use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use super::patience::Patience;
use super::poller::{Owner, Poller, Token};
use super::warm::Instead;
use super::{complain, log};
use crate::error::{StartError, SysError};
use crate::fault;
use crate::launch::Lease;
use crate::launch::end::{self, Placement};
use crate::launch::starting::{Built, Starting};
use crate::launch::task::Task;
use crate::launch::watch::{self, Source, Watch};
use crate::task::id::TaskId;
use crate::task::outcome::{ExitStatus, Outcome, Reason};
use crate::task::record::UnixMillis;
use crate::task::report::{Check, Containment, Usage};
use crate::task::request::TaskRequest;
use crate::task::spec::TaskSpec;
use crate::wire::{Ended, Event, Started};

/// Once init is reaped the rest is a matter of microseconds; this is the most the loop stands still for one task.
const SETTLE: Duration = Duration::from_millis(100);

/// A start that was stopped is given this much more than its grace: a thousand times what it takes.
const HUNG: Duration = Duration::from_secs(5);
/// What could not be watched is looked at again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// What a step brought forth.
pub enum News {
    /// Nothing to tell.
    None,
    /// To be told, and the task lives on.
    Tell(Event, Vec<std::os::fd::OwnedFd>),
    /// A sandbox is built, and waits for its task.
    Parked,
    /// To be told, and nothing of the task is left here.
    Last(Box<Event>),
    /// Nothing to tell, and nothing of the task is left here.
    Gone,
}

/// A task of the service, or a sandbox that is kept ready for one.
pub struct Live {
    pub id: TaskId,
    serial: Owner,
    stage: Stage,
    /// Nobody has come for it yet.
    pub is_slot: bool,
    /// Of a sandbox that ends as none: the task to start under its id when it is gone.
    pub instead: Option<Instead>,
    /// It was built before anybody came for it, and this is who came: until the command was executed.
    taken: Option<TaskRequest>,
    /// Asked for while the task was being started.
    stop: Option<(Duration, Reason)>,
    /// When its end was seen.
    over_at: Option<Instant>,
    /// Whose it is, once it is somebody's.
    pub owner: Option<String>,
    /// The service ends: what dies slowly is not waited for.
    hurried: bool,
}

enum Stage {
    /// Its child confines itself.
    Starting(Box<Starting>),
    /// Its command runs.
    Running(Box<Watch>),
    /// Everything in it was killed; its init is waited for, until then.
    Ending(Box<Task>, usize, Patience),
    /// It was not started; what there was of it was killed and is waited for, until then.
    Failed(Box<(Placement, Lease, StartError)>, Patience),
    /// It was told as ended, yet something of it does not die. Its uid and its place stay taken.
    Lost(Box<(Placement, Lease)>),
    /// Between two stages, or after the last.
    Gone,
}

impl Live {
    /// Takes a task, or a sandbox for one, on whose first process was just created.
    pub fn new(serial: Owner, starting: Starting, is_slot: bool, poller: &mut Poller) -> Result<Self, SysError> {
        poller.add(starting.as_fd(), EpollFlags::EPOLLIN, Token::Report(serial))?;
        poller.set_deadline(serial, starting.deadline());
        let owner = (!is_slot).then(|| starting.owner().to_owned());
        let (id, stage) = (starting.id(), Stage::Starting(Box::new(starting)));
        let (instead, taken, stop, over_at, hurried) = (None, None, None, None, false);
        Ok(Self { id, serial, stage, is_slot, instead, taken, stop, over_at, owner, hurried })
    }

    /// Makes the sandbox that waits the task of this request, which is `spec`.
    pub fn take(&mut self, request: &TaskRequest, spec: TaskSpec, poller: &mut Poller) -> Result<(), StartError> {
        let Stage::Starting(starting) = &mut self.stage else {
            return Err(StartError::Refused("it does not wait".to_owned()));
        };
        starting.take(spec)?;
        poller.set_deadline(self.serial, starting.deadline());
        (self.is_slot, self.taken, self.owner) = (false, Some(request.clone()), Some(request.owner.clone()));
        Ok(())
    }

    /// Ends a sandbox that nobody has come for.
    pub fn discard(&mut self, why: &str, poller: &mut Poller) -> News {
        if self.is_slot { self.kill(Reason::Stopped, why, poller) } else { News::None }
    }

    /// Whose task it is, while its command is not executed.
    pub fn starting_for(&self) -> Option<&str> {
        match &self.stage {
            Stage::Starting(starting) if !self.is_slot => Some(starting.owner()),
            _ => None,
        }
    }

    /// Whether its end is still to be seen.
    pub fn is_pending(&self) -> bool {
        !matches!(self.stage, Stage::Lost(_) | Stage::Gone)
    }

    /// Something happened, or a moment came.
    pub fn step(&mut self, source: Option<Source>, poller: &mut Poller) -> News {
        let news = match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Starting(starting) => self.look_at_start(starting, poller),
            Stage::Running(watch) => self.watch(watch, source, poller),
            // An event of the same batch may be older than the end.
            Stage::Ending(task, left, patience) => self.await_end(task, left, patience, poller),
            Stage::Failed(failed, patience) => self.await_failed(failed, patience, poller),
            Stage::Lost(lost) => self.bury(lost, poller),
            Stage::Gone => News::Gone,
        };
        if let Stage::Running(watch) = &self.stage {
            poller.set_deadline(self.serial, Some(watch.deadline()));
        }
        news
    }

    /// Asks it to end.
    pub fn stop(&mut self, grace: Duration, reason: Reason, poller: &mut Poller) -> News {
        self.hurried |= reason == Reason::ServerShutdown;
        if let Some(instead) = &mut self.instead {
            instead.stop = Some(sooner(instead.stop, grace, reason));
            return News::None;
        }
        match &mut self.stage {
            Stage::Starting(_) if self.is_slot => self.discard("nobody came for it", poller),
            Stage::Starting(starting) => {
                self.stop = Some(sooner(self.stop, grace, reason));
                // Its command is executed in a moment, and then asked to end; unless it never is.
                starting.give_up_within(grace.saturating_add(HUNG));
                poller.set_deadline(self.serial, starting.deadline());
                News::None
            }
            Stage::Running(watch) => match watch.stop(grace, reason) {
                Ok(()) => self.step(None, poller),
                Err(error) => self.kill(Reason::Containment, &error.to_string(), poller),
            },
            _ => News::None,
        }
    }

    /// Ends it at once.
    pub fn kill(&mut self, reason: Reason, why: &str, poller: &mut Poller) -> News {
        self.hurried |= matches!(reason, Reason::ServerShutdown | Reason::ServerLost);
        match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Starting(starting) => {
                let error = SysError::new("build", "sandbox", Errno::ECANCELED).hint(why.to_owned());
                self.fail(starting, StartError::step("start")(error), poller)
            }
            Stage::Running(mut watch) => {
                if let Err(error) = watch::end_for(&mut watch.task, reason, why.to_owned()) {
                    complain(&format!("task {}: {error}", self.id));
                }
                self.stage = Stage::Running(watch);
                self.step(None, poller)
            }
            other => {
                self.stage = other;
                News::None
            }
        }
    }

    /// Something of it was found outside its containment: it ends at once, and for that.
    pub fn breach(&mut self, detail: String, poller: &mut Poller) -> News {
        match std::mem::replace(&mut self.stage, Stage::Gone) {
            Stage::Starting(starting) => self.fail(starting, StartError::Refused(detail), poller),
            Stage::Running(mut watch) => {
                watch::breach(&mut watch.task, detail);
                if let Err(error) = watch::kill(&mut watch.task) {
                    complain(&format!("task {}: {error}", self.id));
                }
                self.stage = Stage::Running(watch);
                self.step(None, poller)
            }
            Stage::Ending(mut task, left, patience) => {
                watch::breach(&mut task, detail);
                self.stage = Stage::Ending(task, left, patience);
                News::None
            }
            other => {
                self.stage = other;
                News::None
            }
        }
    }

    /// Sends a signal to its main process.
    pub fn signal(&self, number: i32) -> Result<(), SysError> {
        let gone = || SysError::new("signal", format!("task {}", self.id), Errno::ESRCH);
        match &self.stage {
            Stage::Running(_) if !(1..=64).contains(&number) => {
                Err(SysError::new("signal", format!("{number} to task {}", self.id), Errno::EINVAL))
            }
            Stage::Running(watch) => watch.task.signal(number),
            _ => Err(gone().hint("it does not run any more")),
        }
    }

    /// Its output limit, while it runs.
    pub fn output_limit(&self) -> Option<u64> {
        match &self.stage {
            Stage::Running(watch) => Some(watch.task.spec.limits.output_bytes),
            _ => None,
        }
    }

    /// The service ends: what does not die is not waited for a second time.
    pub fn abandon(&mut self) {
        match &mut self.stage {
            Stage::Lost(lost) => lost.0.tried = true,
            Stage::Ending(task, ..) => task.placement.tried = true,
            Stage::Failed(failed, _) => failed.0.tried = true,
            Stage::Starting(_) | Stage::Running(_) | Stage::Gone => {}
        }
    }

    fn look_at_start(&mut self, mut starting: Box<Starting>, poller: &mut Poller) -> News {
        match starting.look() {
            None => {
                poller.set_deadline(self.serial, starting.deadline());
                self.stage = Stage::Starting(starting);
                News::None
            }
            Some(Err(error)) => {
                // One that died before it could execute anything, or say why it did not, is as good as none.
                if let Some(request) = self.taken.take().filter(|_| starting.died) {
                    self.is_slot = true;
                    self.instead = Some(Instead { request, stop: self.stop.take() });
                }
                self.fail(starting, error, poller)
            }
            Some(Ok(Built::Parked)) => {
                poller.set_deadline(self.serial, None);
                self.stage = Stage::Starting(starting);
                News::Parked
            }
            Some(Ok(Built::Executed)) => {
                poller.remove(starting.as_fd());
                match starting.into_task() {
                    Ok(task) => self.run(task, poller),
                    Err(error) => News::Last(Box::new(Event::StartFailed { task: self.id, error })),
                }
            }
        }
    }

    fn run(&mut self, mut task: Task, poller: &mut Poller) -> News {
        let outputs = task.take_outputs();
        let started = Started {
            task: self.id,
            process_id: task.process_id(),
            started_at: unix_millis(task.started_at),
            reduced: task.reduced.clone(),
            warm: self.taken.take().is_some(),
        };
        // Until the status pipe says that there is something to see, its end is not looked for by its descriptor.
        if let Some(init) = &mut task.placement.init {
            init.let_go();
        }
        let mut watch = Box::new(Watch::new(task));
        let added = watch.descriptors().into_iter().try_for_each(|(source, fd, flags)| {
            poller.add(fd, EpollFlags::from_bits_truncate(i32::from(flags.bits())), Token::Watch(self.serial, source))
        });
        // A task that cannot be watched, or that someone has stopped meanwhile.
        let asked = match (added, self.stop.take()) {
            (Err(error), _) => watch::end_for(&mut watch.task, Reason::Containment, error.to_string()),
            (Ok(()), Some((grace, reason))) => watch.stop(grace, reason),
            (Ok(()), None) => Ok(()),
        };
        if let Err(error) = asked {
            complain(&format!("task {}: {error}", self.id));
            // One that cannot be asked to end is not left to run.
            if let Err(error) = watch::end_for(&mut watch.task, Reason::Stopped, format!("stopped: {error}")) {
                complain(&format!("task {}: {error}", self.id));
            }
        }
        poller.set_deadline(self.serial, Some(watch.deadline()));
        self.stage = Stage::Running(watch);
        News::Tell(Event::Started(started), outputs)
    }

    fn watch(&mut self, mut watch: Box<Watch>, source: Option<Source>, poller: &mut Poller) -> News {
        let seen = source.map_or(Ok(()), |source| watch.on_ready(source)).and_then(|()| watch.on_time());
        if let Err(error) = seen {
            // A limit that cannot be looked at is not enforced: the task ends.
            complain(&format!("task {}: {error}", self.id));
            watch::decide(&mut watch.task, Reason::Containment, format!("it could not be watched: {error}"));
        } else if !watch.is_over() {
            self.stage = Stage::Running(watch);
            return News::None;
        }
        for (_, fd, _) in watch.descriptors() {
            poller.remove(fd);
        }
        self.over_at = Some(Instant::now());
        // Closed first: to hold its init takes a descriptor.
        let mut task = Box::new(watch.into_task());
        let killed_at = task.ending.as_ref().and_then(|ending| ending.killed_at);
        let left = end::begin(&mut task).unwrap_or_else(|error| {
            complain(&format!("task {}: {error}", self.id));
            if let Err(error) = task.placement.group.kill() {
                complain(&format!("task {}: {error}", self.id));
            }
            0
        });
        let watched = self.watch_init(&mut task.placement, poller);
        if watched.is_err() {
            return self.finish(task, left, poller);
        }
        self.await_end(task, left, Patience::since(killed_at.unwrap_or_else(Instant::now)), poller)
    }

    /// Waits for the end of a task, or has it reported as it is.
    fn await_end(&mut self, task: Box<Task>, left: usize, mut patience: Patience, poller: &mut Poller) -> News {
        if !patience.lasts(&task.placement, self.hurried) {
            return self.finish(task, left, poller);
        }
        poller.set_deadline(self.serial, Some(patience.until));
        self.stage = Stage::Ending(task, left, patience);
        News::None
    }

    /// The same of a start that has failed.
    fn await_failed(
        &mut self,
        failed: Box<(Placement, Lease, StartError)>,
        mut patience: Patience,
        poller: &mut Poller,
    ) -> News {
        if !patience.lasts(&failed.0, self.hurried) {
            return self.give_up(failed, poller);
        }
        poller.set_deadline(self.serial, Some(patience.until));
        self.stage = Stage::Failed(failed, patience);
        News::None
    }

    /// Init has ended, or will not: either way the kernel is asked what is left, and the answer is told.
    fn finish(&mut self, mut task: Box<Task>, left: usize, poller: &mut Poller) -> News {
        let vanished = task.placement.init_has_ended().unwrap_or(false);
        let patience = if vanished { SETTLE } else { Duration::ZERO };
        let mut ended = match end::finish(&mut task, left, patience) {
            Ok(ended) => Ended {
                task: self.id,
                outcome: end::outcome(&task, &ended),
                ended_at: unix_millis(ended.at),
                usage: end::usage(&ended, 0),
                containment: ended.containment,
                cleanup_micros: 0,
            },
            Err(error) => unproven(&task, &error),
        };
        ended.cleanup_micros = self.over_at.map_or(0, |at| at.elapsed().as_micros() as u64);
        poller.set_deadline(self.serial, None);
        if !ended.containment.is_proven() {
            complain(&format!("task {}: containment is not proven: {}", self.id, faults(&ended.containment)));
        }
        let event = Event::Ended(Box::new(ended));
        let Task { mut placement, lease, .. } = *task;
        if !vanished {
            placement.tried = false;
            poller.set_deadline(self.serial, Some(Instant::now() + AGAIN));
            self.stage = Stage::Lost(Box::new((placement, lease)));
            return News::Tell(event, Vec::new());
        }
        forget_init(&placement, poller);
        placement.tried = true;
        News::Last(Box::new(event))
    }

    /// Kills what there is of a start that failed, and waits for it without holding up the others.
    fn fail(&mut self, starting: Box<Starting>, error: StartError, poller: &mut Poller) -> News {
        poller.remove(starting.as_fd());
        let (placement, lease) = starting.into_remains();
        if let Err(error) = placement.group.kill().and_then(|()| placement.group.lift_throttles()) {
            complain(&format!("task {}: {error}", self.id));
        }
        fault::point("failed");
        let mut failed = Box::new((placement, lease, error));
        let watched = self.watch_init(&mut failed.0, poller);
        if watched.is_err() {
            return self.give_up(failed, poller);
        }
        self.await_failed(failed, Patience::since(Instant::now()), poller)
    }

    fn watch_init(&self, placement: &mut Placement, poller: &Poller) -> Result<(), SysError> {
        poller.add(placement.hold_init()?, EpollFlags::EPOLLIN, Token::Watch(self.serial, Source::Init))
    }

    fn give_up(&mut self, failed: Box<(Placement, Lease, StartError)>, poller: &mut Poller) -> News {
        let (placement, lease, error) = *failed;
        let event = Event::StartFailed { task: self.id, error };
        poller.set_deadline(self.serial, None);
        if placement.init_has_ended().unwrap_or(false) {
            forget_init(&placement, poller);
            // Dropped, it is reaped and removed.
            return News::Last(Box::new(event));
        }
        complain(&format!("task {}: its sandbox does not die; its uid {} stays taken", self.id, lease.uid));
        self.stage = Stage::Lost(Box::new((placement, lease)));
        News::Tell(event, Vec::new())
    }

    /// At last: what did not die has died.
    fn bury(&mut self, mut lost: Box<(Placement, Lease)>, poller: &mut Poller) -> News {
        if !lost.0.init_has_ended().unwrap_or(false) {
            // Its end is told by its descriptor, if that could be had and is watched.
            if self.watch_init(&mut lost.0, poller).is_err_and(|error| error.errno() != Errno::EEXIST) {
                poller.set_deadline(self.serial, Some(Instant::now() + AGAIN));
            }
            self.stage = Stage::Lost(lost);
            return News::None;
        }
        forget_init(&lost.0, poller);
        log(&format!("task {}: what was left of it is gone now", self.id));
        News::Gone
    }
}

/// The first reason stands, and the shorter grace.
fn sooner(asked: Option<(Duration, Reason)>, grace: Duration, reason: Reason) -> (Duration, Reason) {
    let (before, reason) = asked.unwrap_or((grace, reason));
    (before.min(grace), reason)
}

fn forget_init(placement: &Placement, poller: &Poller) {
    if let Ok(init) = placement.init() {
        poller.remove(init.as_fd());
    }
}

fn faults(containment: &Containment) -> String {
    let faults = containment.checks.iter().filter(|check| check.ok != Some(true));
    faults.map(|check| format!("{}: {}", check.name, check.value)).collect::<Vec<_>>().join("; ")
}

/// The kernel could not be asked. That is told, and not more.
fn unproven(task: &Task, error: &SysError) -> Ended {
    let (reason, detail) = match &task.ending {
        Some(ending) => (ending.reason, ending.detail.clone()),
        None => (Reason::Containment, "its end could not be seen".to_owned()),
    };
    Ended {
        task: task.id(),
        outcome: Outcome {
            status: ExitStatus::Unknown,
            reason,
            detail: format!("{detail}; containment is not proven"),
            by_client: false,
        },
        ended_at: unix_millis(SystemTime::now()),
        usage: Usage::default(),
        containment: Containment::from_checks(vec![Check { name: "end".into(), value: error.to_string(), ok: None }]),
        cleanup_micros: 0,
    }
}

/// Milliseconds since 1970.
fn unix_millis(time: SystemTime) -> UnixMillis {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as UnixMillis)
}
