//! News of an out-of-memory kill, for a poll loop: an event descriptor in version 1, a priority event in version 2.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::uio::pread;

use super::file;
use super::group::Group;
use super::layout::Controller;
use crate::error::{Context, SysError};

/// Becomes ready when the group runs out of memory.
///
/// Version 1 tells *before* it kills, so [`Group::oom_kills`] may still be 0 when this is ready, and stays 0 if
/// `cgroup.kill` comes first: there the event itself is the evidence. Version 1 also signals when the group is removed.
#[derive(Debug)]
pub struct OomWatch(Source);

#[derive(Debug)]
enum Source {
    V1(EventFd),
    V2(OwnedFd),
}

/// What to poll an [`OomWatch`] for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// `POLLIN`.
    Read,
    /// `POLLPRI`.
    Priority,
}

impl Interest {
    /// The same for poll(2).
    pub fn flags(self) -> PollFlags {
        match self {
            Self::Read => PollFlags::POLLIN,
            Self::Priority => PollFlags::POLLPRI,
        }
    }
}

impl Group {
    /// Begins to watch. The watch may be closed before or after the group is removed.
    pub fn watch_oom(&self) -> Result<OomWatch, SysError> {
        let event = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).on("eventfd", &self.name);
        let Some(half) = self.half(Controller::Memory) else {
            if !self.in_v2.contains(&Controller::Memory) {
                // Not strict, and no limit to run into: a descriptor that is never ready.
                return Ok(OomWatch(Source::V1(event()?)));
            }
            let events = file::open(&self.v2, &self.name, "memory.events", OFlag::O_RDONLY)?;
            let watch = OomWatch(Source::V2(events));
            watch.clear()?; // the first read arms the poll
            return Ok(watch);
        };
        let event = event()?;
        let control = file::open(half, &self.name, "memory.oom_control", OFlag::O_RDONLY)?;
        let line = format!("{} {}", event.as_fd().as_raw_fd(), control.as_raw_fd());
        file::write_to(half, &self.name, "cgroup.event_control", &line)?;
        Ok(OomWatch(Source::V1(event)))
    }
}

impl OomWatch {
    /// The descriptor to poll.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Source::V1(event) => event.as_fd(),
            Source::V2(events) => events.as_fd(),
        }
    }

    /// What to poll it for.
    pub fn interest(&self) -> Interest {
        match &self.0 {
            Source::V1(_) => Interest::Read,
            Source::V2(_) => Interest::Priority,
        }
    }

    /// Takes the news and arms the next. True if the group ran out of memory: since the last call in version 1, ever in
    /// version 2, whose descriptor is also ready for lesser events.
    pub fn clear(&self) -> Result<bool, SysError> {
        match &self.0 {
            Source::V1(event) => match event.read() {
                Ok(count) => Ok(count > 0),
                Err(Errno::EAGAIN) => Ok(false),
                Err(errno) => Err(SysError::new("read", "the memory event descriptor", errno)),
            },
            Source::V2(events) => {
                let mut text = [0; 512];
                match pread(events, &mut text, 0) {
                    Ok(n) => Ok(file::keyed(&String::from_utf8_lossy(&text[..n]), "oom_kill").unwrap_or(0) > 0),
                    Err(Errno::ENODEV) => Ok(false), // removed
                    Err(errno) => Err(SysError::new("read", "memory.events", errno)),
                }
            }
        }
    }
}
