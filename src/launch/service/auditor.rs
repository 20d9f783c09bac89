//! The auditor's process as the launcher keeps it: started, heard, and replaced when it dies or falls silent.
//!
//! | stage | until |
//! |---|---|
//! | starting | its first look at everything is done, which may take ten seconds |
//! | watching | it ends, or says nothing for a second and a half |
//! | lost | the next one is started: at once, or after a pause when they are lost one after another |
//!
//! It is not told to die with the launcher: it sees its socket close, and then ends what the launcher left.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::epoll::EpollFlags;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::poller::{Poller, Token};
use super::{complain, log};
use crate::containment::{FromAuditor, Setup, ToAuditor};
use crate::error::{Context, SysError};
use crate::launch::supervise::poll_until;
use crate::sys::pidfd::PidFd;
use crate::sys::spawn;
use crate::wire::{self, PacketError};

/// For its first look.
const START: Duration = Duration::from_secs(10);
/// It says something twice a second.
const SILENCE: Duration = Duration::from_millis(1500);
/// Who notices the silence this much too late was held up itself, and so perhaps the auditor with it.
const LATE: Duration = Duration::from_millis(250);
/// So many losses within so long are more than bad luck.
const MANY: usize = 3;
const LATELY: Duration = Duration::from_secs(60);
/// The longest pause before the next one.
const PAUSE: Duration = Duration::from_secs(30);
/// For one that was told to end, and then for one that was killed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Ends of tasks that wait to be told; more are left to its scans.
const HINTS: usize = 1024;

/// The auditor, whichever one it is just now.
pub struct Auditor {
    program: OwnedFd,
    setup: Setup,
    stage: Stage,
    /// Killed, and not yet seen to end.
    dying: Vec<PidFd>,
    /// What waits for room in its socket.
    waiting: VecDeque<ToAuditor>,
    losses: VecDeque<Instant>,
    started: u64,
}

struct Process {
    process: PidFd,
    socket: OwnedFd,
}

enum Stage {
    Starting { process: Process, until: Instant },
    Watching { process: Process, without_events: Option<String>, heard: Instant, until: Instant },
    Lost { until: Instant },
}

/// What the time has come for.
pub enum Due {
    /// A new one.
    Start,
    /// To give this one up.
    Loss(String),
}

impl Auditor {
    /// To be started by [`Auditor::start`]: `program` is executed, and told `setup`.
    pub fn new(program: OwnedFd, setup: Setup) -> Self {
        let stage = Stage::Lost { until: Instant::now() };
        let (dying, waiting, losses) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { program, setup, stage, dying, waiting, losses, started: 0 }
    }

    /// Starts one.
    pub fn start(&mut self, poller: &Poller) -> Result<(), SysError> {
        let (socket, there) = wire::pair()?;
        let env = std::env::vars_os().filter_map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok() // always: it came without NUL
        });
        let args = [c"taskman-server".to_owned(), c"auditor".to_owned()];
        let env: Vec<CString> = env.collect();
        let process = spawn::spawn(self.program.as_fd(), &args, &env, there.as_fd()).on("clone3", "auditor")?;
        let process = Process { process, socket };
        let watched = poller
            .add(&process.process, EpollFlags::EPOLLIN, Token::AuditorEnded)
            .and_then(|()| poller.add(&process.socket, EpollFlags::EPOLLIN, Token::Auditor));
        self.started += 1;
        self.waiting = VecDeque::from([ToAuditor::Setup(Box::new(self.setup.clone()))]);
        self.stage = Stage::Starting { process, until: Instant::now() + START };
        watched
    }

    /// The next thing it has said; none when that is all. An error is the end of it.
    pub fn hear(&mut self) -> Option<Result<FromAuditor, String>> {
        let message = match wire::receive::<FromAuditor>(self.process()?.socket.as_fd()) {
            Ok(Some(packet)) => packet.message,
            Ok(None) => return Some(Err("it has closed its socket".to_owned())),
            Err(PacketError::WouldBlock) => return None,
            Err(error) => return Some(Err(format!("it does not speak as it should: {error}"))),
        };
        let now = Instant::now();
        match (&mut self.stage, &message) {
            (Stage::Watching { heard, until, .. }, _) => (*heard, *until) = (now, now + SILENCE),
            (Stage::Starting { .. }, FromAuditor::Ready { without_events, .. }) => self.is_ready(without_events, now),
            _ => {}
        }
        Some(Ok(message))
    }

    fn is_ready(&mut self, without_events: &Option<String>, now: Instant) {
        let before = std::mem::replace(&mut self.stage, Stage::Lost { until: now });
        self.stage = match before {
            Stage::Starting { process, .. } => {
                let without_events = without_events.clone();
                Stage::Watching { process, without_events, heard: now, until: now + SILENCE }
            }
            other => other,
        };
    }

    /// Gives it up, for another to be started. Says whether too many were lost lately.
    pub fn lose(&mut self, poller: &Poller) -> bool {
        let now = Instant::now();
        self.losses.push_back(now);
        self.losses.retain(|at| now - *at < LATELY);
        let more = self.losses.len().checked_sub(MANY);
        let pause = more.map_or(Duration::ZERO, |more| PAUSE.min(Duration::from_secs(1 << more.min(16))));
        self.release(Stage::Lost { until: now + pause }, |process| {
            poller.remove(process.socket.as_fd());
            // One that is gone needs no kill.
            let _ = process.process.kill();
        });
        more.is_some()
    }

    /// What it was lost for does not count any more.
    pub fn forgive(&mut self) {
        self.losses.clear();
    }

    fn release(&mut self, stage: Stage, part: impl FnOnce(&Process)) {
        match std::mem::replace(&mut self.stage, stage) {
            Stage::Starting { process, .. } | Stage::Watching { process, .. } => {
                part(&process);
                self.dying.push(process.process);
            }
            Stage::Lost { .. } => {}
        }
    }

    /// Whether its process has ended.
    pub fn has_ended(&self) -> bool {
        self.process().is_some_and(|process| process.process.has_ended().unwrap_or(true))
    }

    /// Waits for those that have ended, and says how they did.
    pub fn reap(&mut self, poller: &Poller) {
        self.dying.retain(|process| {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
            let status = waitid(Id::PIDFd(process.as_fd()), flags);
            let lives = status == Ok(WaitStatus::StillAlive);
            if !lives {
                poller.remove(process.as_fd());
                log(&format!("the auditor has ended: {status:?}"));
            }
            lives
        });
    }

    /// When [`Auditor::due`] has something to say.
    pub fn deadline(&self) -> Instant {
        match &self.stage {
            Stage::Starting { until, .. } | Stage::Watching { until, .. } | Stage::Lost { until } => *until,
        }
    }

    /// What the time has come for. What it has said must have been [heard](Auditor::hear) before.
    pub fn due(&mut self) -> Option<Due> {
        let now = Instant::now();
        match &mut self.stage {
            Stage::Lost { until } if now >= *until => Some(Due::Start),
            Stage::Starting { until, .. } if now >= *until => {
                Some(Due::Loss(format!("its first look is not done after {START:?}")))
            }
            Stage::Watching { heard, until, .. } if now >= *until => {
                if now - *until > LATE && *until - *heard <= SILENCE {
                    *until = now + SILENCE;
                    return None;
                }
                Some(Due::Loss(format!("it has said nothing for {:.1?}", now - *heard)))
            }
            _ => None,
        }
    }

    /// Says something, as soon as there is room.
    pub fn say(&mut self, message: ToAuditor) {
        let is_hint = matches!(message, ToAuditor::Ended { .. });
        if self.process().is_some() && !(is_hint && self.waiting.len() >= HINTS) {
            self.waiting.push_back(message);
            self.flush();
        }
    }

    /// Sends what waits. It is called in every turn of the loop, and each beat is one: room need not be waited for.
    pub fn flush(&mut self) {
        while let (Some(process), Some(message)) = (self.process(), self.waiting.front()) {
            match wire::send(process.socket.as_fd(), message, &[]) {
                Err(PacketError::WouldBlock) => return,
                Ok(()) => {}
                // A closed socket is heard of; a question that cannot be sent is not answered in time.
                Err(error) => complain(&format!("a message to the auditor: {error}")),
            }
            self.waiting.pop_front();
        }
    }

    /// Why no task may start just now, if so.
    pub fn refusal(&self) -> Option<&'static str> {
        match &self.stage {
            Stage::Watching { heard, .. } if heard.elapsed() < SILENCE => None,
            Stage::Starting { .. } if self.started == 1 => {
                Some("the auditor has just been started and is having its first look; try again")
            }
            _ => Some("the auditor does not answer, so an escape would not be seen; it is being restarted; try again"),
        }
    }

    /// In words.
    pub fn state(&self) -> String {
        match &self.stage {
            Stage::Starting { .. } => "starting".to_owned(),
            Stage::Watching { without_events: None, .. } => "watching".to_owned(),
            Stage::Watching { without_events: Some(why), .. } => format!("watching without events: {why}"),
            Stage::Lost { .. } => "lost".to_owned(),
        }
    }

    /// Since it was last heard, while it watches.
    pub fn heard(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Watching { heard, .. } => Some(heard.elapsed()),
            Stage::Starting { .. } | Stage::Lost { .. } => None,
        }
    }

    /// How often it was started again.
    pub fn restarts(&self) -> u64 {
        self.started.saturating_sub(1)
    }

    /// Whether it has its very first look.
    pub fn is_first_look(&self) -> bool {
        self.started <= 1 && matches!(self.stage, Stage::Starting { .. })
    }

    /// Whether there is one to be asked.
    pub fn is_there(&self) -> bool {
        self.process().is_some()
    }

    fn process(&self) -> Option<&Process> {
        match &self.stage {
            Stage::Starting { process, .. } | Stage::Watching { process, .. } => Some(process),
            Stage::Lost { .. } => None,
        }
    }
}

/// The last of all: closes its socket, which tells it to see to what is left and end, and waits for that.
impl Drop for Auditor {
    fn drop(&mut self) {
        self.release(Stage::Lost { until: Instant::now() }, |_| {});
        let ended = |process: &PidFd, patience: Duration| {
            let readable = PollFd::new(process.as_fd(), PollFlags::POLLIN);
            poll_until([Some(readable)], Some(Instant::now() + patience)).is_ok_and(|[ended]| ended)
        };
        for process in &self.dying {
            if !ended(process, FAREWELL) {
                complain("the auditor does not end; it is killed");
                let _ = process.kill();
                ended(process, FAREWELL);
            }
            let _ = waitid(Id::PIDFd(process.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
        }
    }
}
