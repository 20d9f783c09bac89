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

/// A signal's name: `SIGKILL`, `SIGRTMIN+3`.
pub fn name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(known) => known.as_str().to_owned(),
        Err(_) if signal >= 34 => format!("SIGRTMIN+{}", signal - 34).replace("SIGRTMIN+0", "SIGRTMIN"),
        Err(_) => format!("SIG{signal}"),
    }
}

/// The number of a signal's [name].
pub fn number(name: &str) -> Option<i32> {
    (1..=64).find(|signal| self::name(*signal) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_each_others_inverse() {
        for signal in 1..=64 {
            assert_eq!(number(&name(signal)), Some(signal));
        }
        assert_eq!(
            [number("SIGKILL"), number("SIGRTMIN"), number("KILL"), number("")],
            [Some(9), Some(34), None, None]
        );
    }
}
