//! Processes by descriptor: a pid may be recycled, a pidfd never is.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::mutation::{Defence, off};

/// The real-time signal by which sandbox-init is told which signal to forward.
const CARRIER: libc::c_int = 64;
/// From here on a signal for which there is no room has no sender: init could not know whose it is.
const FIRST_REAL_TIME: libc::c_int = 32;

/// A process that cannot be mistaken for another.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl From<OwnedFd> for PidFd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<PidFd> for OwnedFd {
    fn from(process: PidFd) -> Self {
        process.0
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A child of this process that is waited for by its descriptor alone. Its number is its own until then, so the descriptor can be
/// let go, and be had again: a launcher with thousands of tasks has few for each. Whoever ignores SIGCHLD has no such children.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: Option<PidFd>,
}

impl Child {
    /// A child that was just created.
    pub fn new(pid: i32, pidfd: PidFd) -> Self {
        Self { pid, pidfd: Some(pidfd) }
    }

    /// Its descriptor; EBADF while it is let go.
    pub fn pidfd(&self) -> Result<&PidFd, Errno> {
        self.pidfd.as_ref().ok_or(Errno::EBADF)
    }

    /// Its descriptor, opened anew if it was let go. What waits for the child has it from here on.
    pub fn hold(&mut self) -> Result<&PidFd, Errno> {
        if self.pidfd.is_none() {
            self.pidfd = Some(PidFd::child(self.pid)?);
        }
        self.pidfd()
    }

    /// Closes its descriptor. It must not have been waited for.
    pub fn let_go(&mut self) {
        self.pidfd = None;
    }

    /// As [`PidFd::forward`].
    pub fn forward(&self, signal: i32) -> Result<(), Errno> {
        match &self.pidfd {
            Some(pidfd) => pidfd.forward(signal),
            None => PidFd::of(self.pid)?.forward(signal),
        }
    }
}

impl PidFd {
    /// This process.
    pub fn myself() -> Result<Self, Errno> {
        Self::child(nix::unistd::getpid().as_raw())
    }

    /// A child of this process that was not waited for yet, so that its number cannot have gone to another.
    pub fn child(pid: i32) -> Result<Self, Errno> {
        // A child of the launcher assigns low numbers itself.
        super::fd::lift(Self::of(pid)?.0).map(Self)
    }

    fn of(pid: i32) -> Result<Self, Errno> {
        // SAFETY: pidfd_open touches no memory; the result is a new descriptor that nobody else owns.
        unsafe {
            let raw = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
            Ok(Self(OwnedFd::from_raw_fd(raw as i32)))
        }
    }

    /// Whoever has this number just now. Nothing that was known of the number before is known of it: look again, and then
    /// at [`PidFd::kernel_pid`].
    pub fn open(pid: i32) -> Result<Self, Errno> {
        if pid <= 0 {
            return Err(Errno::ESRCH);
        }
        Self::child(pid)
    }

    /// Kills the process.
    pub fn kill(&self) -> Result<(), Errno> {
        // SAFETY: without a siginfo the kernel reads no memory.
        Errno::result(unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        })
        .map(drop)
    }

    /// Asks this process, if it is a sandbox-init, to send `signal` to its payload.
    ///
    /// A usual signal goes as itself: it needs no memory that the payload could have used up. Those that init cannot take as
    /// data, and real-time signals, travel as the value of a queued one, which fails with EAGAIN when the payload's queue is full.
    pub fn forward(&self, signal: i32) -> Result<(), Errno> {
        if signal < FIRST_REAL_TIME
            && !off(Defence::PlainSignals)
            && ![libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD].contains(&signal)
        {
            // SAFETY: without a siginfo the kernel reads no memory.
            return Errno::result(unsafe {
                libc::syscall(
                    libc::SYS_pidfd_send_signal,
                    self.0.as_raw_fd(),
                    signal,
                    std::ptr::null::<libc::siginfo_t>(),
                    0,
                )
            })
            .map(drop);
        }
        // SAFETY: all-zero is a valid siginfo.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        info.si_signo = CARRIER;
        info.si_code = libc::SI_QUEUE;
        // The sender's pid and uid, then the value; the kernel overwrites the pid when it crosses namespaces.
        let queued = [0, 0, signal];
        // SAFETY: siginfo_t has 128 bytes; for SI_QUEUE the kernel's layout has these three words at offset 16.
        unsafe { std::ptr::copy_nonoverlapping(queued.as_ptr(), (&raw mut info).cast::<i32>().add(4), queued.len()) };
        // SAFETY: the kernel reads one siginfo, which lives here.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), CARRIER, &raw const info, 0)
        })
        .map(drop)
    }

    /// Whether the process has ended (it may still be a zombie).
    pub fn has_ended(&self) -> Result<bool, Errno> {
        poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).map(|ready| ready > 0)
    }

    /// Waits for the end of the process; false if `timeout` comes first.
    pub fn ends_within(&self, timeout: Duration) -> Result<bool, Errno> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = PollTimeout::try_from(left.as_millis() as u64).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], wait) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The pid the kernel knows for this descriptor: -1 once the process is gone and reaped.
    pub fn kernel_pid(&self) -> std::io::Result<i64> {
        let info = super::file::text(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
        let line = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        line.and_then(|pid| pid.trim().parse().ok()).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENODATA))
    }
}
