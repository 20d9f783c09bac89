//! What the loop waits for: descriptors with the meaning they have, and deadlines by owner. One place, so that neither can be
//! forgotten when a task goes.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::error::{Context, SysError};
use crate::launch::watch::Source;
use crate::sys::{epoll, fd};

/// Events taken at once; more are taken in the next turn, so that no kind starves another.
const BATCH: usize = 128;

/// Whom a deadline belongs to: the service itself, its TLS files, its auditor, its manager, its sandboxes that are kept ready, starts
/// that wait, or a task by its serial number.
pub type Owner = u64;
/// The service's own deadline.
pub const SERVICE: Owner = 0;
/// The deadline of a look at changed TLS files.
pub const TLS: Owner = 1;
/// The deadlines of the auditor and of questions to it.
pub const AUDITOR: Owner = 2;
/// The deadline of the next sign of life to the service manager.
pub const MANAGER: Owner = 3;
/// The deadline of sandboxes that are kept ready.
pub const WARM: Owner = 4;
/// At once, while there are more starts that have waited than are begun in one turn.
pub const STARTS: Owner = 5;
/// Serial numbers of tasks begin here.
pub const FIRST_TASK: Owner = 16;

/// What has become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// The server's socket.
    Socket,
    /// The server has ended.
    Server,
    /// A signal came.
    Signals,
    /// Something changed beside the TLS files.
    TlsFiles,
    /// The auditor has said something.
    Auditor,
    /// An auditor has ended.
    AuditorEnded,
    /// Root asks on this host.
    Local,
    /// A starting task's child has said something.
    Report(Owner),
    /// Something happened to a running task.
    Watch(Owner, Source),
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Socket => 0,
            Self::Server => 1,
            Self::Signals => 2,
            Self::TlsFiles => 3,
            // No task has such a number.
            Self::Auditor => 4,
            Self::AuditorEnded => 5,
            Self::Local => 6,
            Self::Report(task) => task << 2,
            Self::Watch(task, Source::Status) => task << 2 | 1,
            Self::Watch(task, Source::Init) => task << 2 | 2,
            Self::Watch(task, Source::Memory) => task << 2 | 3,
        }
    }

    fn decode(data: u64) -> Self {
        match (data >> 2, data & 3) {
            (0, 0) => Self::Socket,
            (0, 1) => Self::Server,
            (0, 2) => Self::Signals,
            (0, _) => Self::TlsFiles,
            (1, 0) => Self::Auditor,
            (1, 1) => Self::AuditorEnded,
            (1, _) => Self::Local,
            (task, 0) => Self::Report(task),
            (task, 1) => Self::Watch(task, Source::Status),
            (task, 2) => Self::Watch(task, Source::Init),
            (task, _) => Self::Watch(task, Source::Memory),
        }
    }
}

/// Descriptors and deadlines.
pub struct Poller {
    epoll: Epoll,
    deadlines: BTreeSet<(Instant, Owner)>,
    of: HashMap<Owner, Instant>,
}

impl Poller {
    pub fn new() -> Result<Self, SysError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).on("epoll_create1", "service")?;
        // A child of the launcher assigns low numbers itself.
        let epoll = Epoll(fd::lift(epoll.0).on("fcntl", "epoll")?);
        Ok(Self { epoll, deadlines: BTreeSet::new(), of: HashMap::new() })
    }

    pub fn add(&self, fd: impl AsFd, flags: EpollFlags, token: Token) -> Result<(), SysError> {
        self.epoll.add(fd, EpollEvent::new(flags, token.encode())).on("epoll_ctl", format!("{token:?}"))
    }

    pub fn change(&self, fd: impl AsFd, flags: EpollFlags, token: Token) -> Result<(), SysError> {
        let mut event = EpollEvent::new(flags, token.encode());
        self.epoll.modify(fd, &mut event).on("epoll_ctl", format!("{token:?}"))
    }

    /// By hand and before the descriptor is closed: a child that is being created holds a copy, and closing alone would leave
    /// it in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) {
        // One that is not in the set is as good as removed.
        let _ = self.epoll.delete(fd);
    }

    /// Replaces the owner's deadline.
    pub fn set_deadline(&mut self, owner: Owner, deadline: Option<Instant>) {
        let before = match deadline {
            Some(at) => self.of.insert(owner, at),
            None => self.of.remove(&owner),
        };
        if before == deadline {
            return;
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, owner));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, owner));
        }
    }

    /// Whether the owner waits for a moment.
    pub fn has_deadline(&self, owner: Owner) -> bool {
        self.of.contains_key(&owner)
    }

    /// Sleeps until something is ready or due. What is due has its deadline taken away.
    pub fn wait(&mut self) -> Result<(Vec<Token>, Vec<Owner>), SysError> {
        let timeout = self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let mut events = [EpollEvent::empty(); BATCH];
        let ready = match epoll::wait(&self.epoll, &mut events, timeout) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(SysError::new("epoll_pwait2", "service", errno)),
        };
        let tokens = events[..ready].iter().map(|event| Token::decode(event.data())).collect();
        let now = Instant::now();
        let due: Vec<Owner> = self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, owner)| *owner).collect();
        for owner in &due {
            self.set_deadline(*owner, None);
        }
        Ok((tokens, due))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_token_comes_back_as_it_went() {
        let of = |task| {
            [
                Token::Report(task),
                Token::Watch(task, Source::Status),
                Token::Watch(task, Source::Init),
                Token::Watch(task, Source::Memory),
            ]
        };
        let fixed =
            [Token::Socket, Token::Server, Token::Signals, Token::TlsFiles, Token::Auditor, Token::AuditorEnded];
        for token in fixed.into_iter().chain(of(FIRST_TASK)).chain(of(1 << 40)) {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }

    #[test]
    fn an_owner_has_one_deadline_and_is_told_once() {
        let mut poller = Poller::new().unwrap();
        let now = Instant::now();
        poller.set_deadline(FIRST_TASK, Some(now + Duration::from_secs(600)));
        poller.set_deadline(FIRST_TASK, Some(now));
        poller.set_deadline(FIRST_TASK + 1, Some(now));
        poller.set_deadline(FIRST_TASK + 1, None);
        poller.set_deadline(SERVICE, Some(now + Duration::from_secs(600)));
        assert_eq!(poller.wait().unwrap().1, [FIRST_TASK]);
        poller.set_deadline(SERVICE, Some(Instant::now() + Duration::from_millis(5)));
        assert_eq!(poller.wait().unwrap().1, [SERVICE]);
        assert!(!poller.has_deadline(FIRST_TASK) && poller.deadlines.is_empty());
    }
}
