//! The two kernel calls that neither std nor nix wraps; the suite's only unsafe code.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A pidfd of `pid`: unlike the number, it can never come to mean another process.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends `signal` through a pidfd.
pub fn pidfd_kill(fd: &OwnedFd, signal: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the info pointer is null, which the call documents as "as kill(2) would fill it".
    let rc = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, std::ptr::null::<()>(), 0) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until a pidfd says that its process is dead; false when `limit` comes first.
pub fn wait_readable(fd: &OwnedFd, limit: std::time::Duration) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let millis = PollTimeout::try_from(limit.as_millis()).unwrap_or(PollTimeout::MAX);
    poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], millis).is_ok_and(|n| n > 0)
}

/// Whether `bytes` contain `needle`. The C library's search, because every process of the host is searched, often,
/// and a debug build of a loop over windows is a hundred times slower.
pub fn contains(bytes: &[u8], needle: &str) -> bool {
    // SAFETY: both pointers are valid for the lengths that are passed with them; memmem only reads.
    let found = unsafe { libc::memmem(bytes.as_ptr().cast(), bytes.len(), needle.as_ptr().cast(), needle.len()) };
    !found.is_null()
}
