//! The host's standard streams, which taskman shares with processes it does not know: used without ever blocking on them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::write;

use crate::mutation::{Defence, off};

/// Standard streams are shared with other processes, whose reads and writes can come between a poll and ours. So a pipe or
/// a terminal is opened anew, as one that does not block. A file never does; a socket cannot be opened, and stays as it is.
pub fn open_anew(stream: BorrowedFd<'_>) -> Option<OwnedFd> {
    if off(Defence::OpenAnew) {
        return None;
    }
    let kind = SFlag::from_bits_truncate(fstat(stream).ok()?.st_mode & SFlag::S_IFMT.bits());
    let access = OFlag::from_bits_truncate(fcntl(stream, FcntlArg::F_GETFL).ok()?) & OFlag::O_ACCMODE;
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    [SFlag::S_IFIFO, SFlag::S_IFCHR].contains(&kind).then(|| open(&*path, flags, Mode::empty()).ok()).flatten()
}

/// Writes to standard error; a reader that does not read is waited for as long as nobody asks to stop. A closed one leaves
/// nobody to tell, and the outcome is still in the exit code.
pub fn tell(line: &str, errors: BorrowedFd<'_>, stop_on: &SignalFd) {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match write(errors, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds =
                    [PollFd::new(errors, PollFlags::POLLOUT), PollFd::new(stop_on.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut fds, PollTimeout::NONE);
                if fds[1].any().unwrap_or(true) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
