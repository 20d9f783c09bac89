//! Signal dispositions, which execve does not reset when they are "ignore".

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Gives every signal its default disposition: a Rust program ignores SIGPIPE, a shell may have ignored more.
pub fn reset_dispositions() -> Result<(), Errno> {
    // The kernel's struct: handler (SIG_DFL), flags, restorer, mask. The C library would refuse 32 and 33, its own.
    let default = [0usize; 4];
    for signal in (1..=64).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        // SAFETY: the kernel reads 32 bytes, which live here, and installs no handler.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<usize>(), 8usize)
        })?;
    }
    Ok(())
}

/// Ignores `signals`.
pub fn ignore(signals: &[nix::sys::signal::Signal]) -> Result<(), Errno> {
    for signal in signals {
        // SAFETY: no handler is installed.
        unsafe { nix::sys::signal::signal(*signal, nix::sys::signal::SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// A child that has ended stays, with its number, until it is waited for: whoever started this program may have ignored SIGCHLD, and
/// then the kernel would reap by itself.
pub fn keep_ended_children() -> Result<(), Errno> {
    use nix::sys::signal::{SigHandler, Signal};
    // SAFETY: no handler is installed.
    unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// Blocks every signal.
pub fn block_all() -> Result<(), Errno> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)
}

/// Blocks none.
pub fn unblock_all() -> Result<(), Errno> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

#[cfg(test)]
mod tests {
    use crate::task::signal::name;

    #[test]
    fn names_are_the_kernels() {
        for signal in nix::sys::signal::Signal::iterator() {
            assert_eq!(name(signal as i32), signal.as_str());
        }
        assert_eq!([name(32), name(37), name(0), name(-1)], ["SIG32", "SIGRTMIN+3", "SIG0", "SIG-1"]);
    }
}
