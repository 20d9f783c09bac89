//! Processes: clone3 and fork, from a single-threaded process only.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::pidfd::PidFd;
use crate::mutation::{Defence, off};

/// libc's constant of this name is too narrow for its value.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Which side of a new process this is.
pub enum Side {
    /// The new process.
    Child(InChild),
    /// The creator, with the child's pid and, from [`clone3`], its pidfd.
    Parent(i32, Option<OwnedFd>),
}

/// Whoever has this is in a process that was just made here. It has one thread. It executes a program or exits, and never goes back to what its
/// creator was doing: so what it inherited is dropped nowhere, and its descriptors are those numbers and nobody's. That makes sound what would
/// take a descriptor from its owner anywhere else, and so it is asked for there.
///
/// A process that goes on, as the server does, gives it up in [`close_all_but`](super::fd::close_all_but), before it has a thread or a
/// descriptor of its own.
#[derive(Debug)]
pub struct InChild(());

/// Whether this process has exactly one thread, as the kernel counts them.
///
/// `PR_SET_PDEATHSIG` names the parent *thread*, and memory copied from a threaded process may hold locks that nobody
/// will ever release; so everything here refuses to go on otherwise.
pub fn is_single_threaded() -> bool {
    // One subdirectory per thread, plus "." and "..".
    nix::sys::stat::stat("/proc/self/task").is_ok_and(|stat| stat.st_nlink == 3)
}

/// What a new process does not share with its creator. Only these: with one of the flags that share memory, descriptors or signal handlers,
/// two processes would own the same things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // as in namespaces(7)
pub enum Namespace {
    Cgroup,
    Ipc,
    Mount,
    Net,
    Pid,
    Uts,
}

impl Namespace {
    fn flag(self) -> u64 {
        let flag = match self {
            Self::Cgroup => libc::CLONE_NEWCGROUP,
            Self::Ipc => libc::CLONE_NEWIPC,
            Self::Mount => libc::CLONE_NEWNS,
            Self::Net => libc::CLONE_NEWNET,
            Self::Pid => libc::CLONE_NEWPID,
            Self::Uts => libc::CLONE_NEWUTS,
        };
        flag as u64
    }
}

/// Creates a process in new `namespaces`, inside `cgroup` from its first instruction, and a pidfd for it.
pub fn clone3(namespaces: &[Namespace], cgroup: Option<BorrowedFd<'_>>) -> Result<Side, Errno> {
    if !is_single_threaded() && !off(Defence::SingleThread) {
        return Err(Errno::EDEADLK);
    }
    let mut pidfd = -1i32;
    // SAFETY: all-zero is a valid clone_args: no stack, no tid addresses.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces.iter().fold(libc::CLONE_PIDFD as u64, |flags, namespace| flags | namespace.flag());
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: single-threaded (checked above), so the child may use any memory it copied; no flag but those of Namespace, so it
    // shares none.
    let pid =
        Errno::result(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) })?;
    if pid == 0 {
        return Ok(Side::Child(InChild(())));
    }
    // SAFETY: the kernel has just stored a new descriptor that nobody else owns.
    Ok(Side::Parent(pid as i32, Some(unsafe { OwnedFd::from_raw_fd(pidfd) })))
}

/// Creates a process like this one, which may go on to start threads; a pid and a pidfd for it.
///
/// By the C library's fork, not by [`clone3`]: the child's thread structures must be its own.
pub fn split() -> Result<Side, Errno> {
    if !is_single_threaded() {
        return Err(Errno::EDEADLK);
    }
    // SAFETY: single-threaded (checked above), so the child may use any memory it copied.
    match Errno::result(unsafe { libc::fork() })? {
        0 => Ok(Side::Child(InChild(()))),
        // Not waited for yet, so the number is still its own.
        pid => PidFd::child(pid).map(|pidfd| Side::Parent(pid, Some(pidfd.into()))),
    }
}

/// Creates a process like this one.
pub fn fork(_: &InChild) -> Result<Side, Errno> {
    // SAFETY: this process has one thread (InChild), so the child may use any memory it copied.
    match Errno::result(unsafe { libc::fork() })? {
        0 => Ok(Side::Child(InChild(()))),
        pid => Ok(Side::Parent(pid, None)),
    }
}
