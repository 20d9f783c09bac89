//! Descriptors: which ones a process keeps, under which numbers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use super::clone::InChild;

/// Numbers from here on are given by [`lift`]; those below are assigned by [`place`], so the two never meet.
const LIFTED: RawFd = 64;

/// Moves a descriptor out of the way of assigned numbers.
pub fn lift(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC touches no memory; the result is a new descriptor that nobody else owns.
    unsafe {
        Errno::result(libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LIFTED)).map(|raw| OwnedFd::from_raw_fd(raw))
    }
}

/// Puts a copy of a lifted descriptor at exactly the number `to`, open across execve unless `cloexec`.
pub fn place(_: &InChild, from: impl AsFd, to: RawFd, cloexec: bool) -> Result<(), Errno> {
    debug_assert!(to < LIFTED);
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: dup3 touches no memory; what stood at `to` is nobody's (InChild).
    Errno::result(unsafe { libc::dup3(from.as_fd().as_raw_fd(), to, flags) }).map(drop)
}

/// What [`place`] has put at `number`; EBADF where nothing is.
pub fn placed(_: &InChild, number: RawFd) -> Result<BorrowedFd<'_>, Errno> {
    // SAFETY: F_GETFD touches no memory.
    Errno::result(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: it is open, as was just seen, and nobody owns it who could close it (InChild).
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// For tests: waits until the other end of a pipe or socket is closed. A child that a test beside it has forked has a copy of
/// that end until it executes its program.
#[cfg(test)]
pub fn wait_hung_up(fd: impl AsFd) {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    let mut end = [PollFd::new(fd.as_fd(), PollFlags::empty())];
    assert_eq!(poll(&mut end, PollTimeout::from(10_000u16)), Ok(1), "the other end is still open");
}

/// Closes every descriptor above 2 but `keep`, once: from here on descriptors may have owners.
pub fn close_all_but(child: InChild, keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut numbers: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).filter(|number| *number > 2).collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers {
        if first < number {
            close_range(&child, first, Some(number - 1))?;
        }
        first = number + 1;
    }
    close_range(&child, first, None)
}

/// Closes descriptors `first` to `last`.
pub fn close_range(_: &InChild, first: RawFd, last: Option<RawFd>) -> Result<(), Errno> {
    let last = last.map_or(u32::MAX, |last| last as u32);
    // SAFETY: touches no memory; nobody owns a descriptor of the range (InChild).
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first as u32, last, 0) }).map(drop)
}
