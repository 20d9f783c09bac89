//! Waiting on an epoll instance with the precision of the clock: the C library's call counts milliseconds.

use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent};

/// Waits until something is ready or `timeout` is over; returns how many entries of `events` are filled.
pub fn wait(epoll: &Epoll, events: &mut [EpollEvent], timeout: Option<Duration>) -> Result<usize, Errno> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: EpollEvent is a transparent epoll_event, `events` has room for `len`, and the timespec outlives the call.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr(),
            events.len().min(1024) as libc::c_int,
            timeout,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    Errno::result(ready).map(|ready| ready as usize)
}
