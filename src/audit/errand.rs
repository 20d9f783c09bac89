//! Looks and sweeps that take as long as a disk is large, in a process of their own: the auditor goes on watching meanwhile.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::auditor::TOO_LARGE;
use super::desk::{Pending, Work};
use crate::containment::{Answer, Setup};
use crate::error::{Context, SysError};
use crate::sys::clone::{self, Side};
use crate::wire;

/// Those that wait for the one that is under way.
const MOST: usize = 64;

/// What to do, and for whom: a number of the launcher's, or nobody.
pub struct Errand {
    pub work: Work,
    pub pending: Pending,
    pub seq: Option<u64>,
}

/// One at a time, in the order they came.
#[derive(Default)]
pub struct Errands {
    waiting: VecDeque<Errand>,
    under_way: Option<(Errand, Runner)>,
}

struct Runner {
    socket: OwnedFd,
    pid: Pid,
}

impl Errands {
    /// Adds one; false if there are too many.
    pub fn add(&mut self, errand: Errand) -> bool {
        let room = self.waiting.len() < MOST;
        if room {
            self.waiting.push_back(errand);
        }
        room
    }

    /// Whether any is waiting or under way.
    pub fn is_busy(&self) -> bool {
        self.under_way.is_some() || !self.waiting.is_empty()
    }

    /// Readable when the one that is under way is done.
    pub fn socket(&self) -> Option<&OwnedFd> {
        self.under_way.as_ref().map(|(_, runner)| &runner.socket)
    }

    /// Takes what the one under way has brought, if it is done, and sends the next.
    pub fn step(&mut self, setup: &Setup) -> Option<(Errand, Answer)> {
        let done = match self.under_way.take() {
            Some((errand, runner)) => match runner.result() {
                Some(answer) => Some((errand, answer)),
                None => {
                    self.under_way = Some((errand, runner));
                    return None;
                }
            },
            None => None,
        };
        if self.under_way.is_none()
            && let Some(errand) = self.waiting.pop_front()
        {
            match Runner::send(setup, errand.work) {
                Ok(runner) => self.under_way = Some((errand, runner)),
                Err(error) if done.is_none() => return Some((errand, Answer::Refused(error.to_string()))),
                // It is tried again in the next turn.
                Err(_) => self.waiting.push_front(errand),
            }
        }
        done
    }
}

impl Runner {
    fn send(setup: &Setup, work: Work) -> Result<Self, SysError> {
        let (socket, there) = wire::pair()?;
        match clone::split().on("fork", "an errand of the auditor")? {
            Side::Parent(pid, _) => Ok(Self { socket, pid: Pid::from_raw(pid) }),
            Side::Child(_) => {
                // What nobody waits for any more need not be found out; and it is in no hurry.
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
                let _ = nix::unistd::setsid(); // the auditor's own session is a preferred one
                let _ = crate::sys::scheduling::give_up_priority();
                let answer = work.run(setup);
                let sent = match wire::send(there.as_fd(), &answer, &[]) {
                    Err(wire::PacketError::TooLarge(_)) => {
                        wire::send(there.as_fd(), &Answer::Refused(TOO_LARGE.to_owned()), &[])
                    }
                    sent => sent,
                };
                std::process::exit(i32::from(sent.is_err()));
            }
        }
    }

    /// What it has brought; none while it is under way.
    fn result(&self) -> Option<Answer> {
        let answer = match wire::receive::<Answer>(self.socket.as_fd()) {
            Err(wire::PacketError::WouldBlock) => return None,
            Ok(Some(packet)) => packet.message,
            Ok(None) => Answer::Refused("the look was cut off before its end; try again".to_owned()),
            Err(error) => Answer::Refused(error.to_string()),
        };
        // It has nothing more to do than to end.
        let _ = waitpid(self.pid, None);
        Some(answer)
    }
}
