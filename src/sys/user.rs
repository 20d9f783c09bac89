//! What the kernel knows of a user: whether any process runs under a uid.

use nix::errno::Errno;

/// Whether any process or thread, zombies included, has the real uid `uid`.
///
/// One call over the kernel's own task list: no scan of `/proc`, which a process could leave while it is read.
pub fn has_processes(uid: u32) -> Result<bool, Errno> {
    // SAFETY: getpriority takes numbers and touches no memory.
    match Errno::result(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_USER, uid) }) {
        Ok(_) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(errno) => Err(errno),
    }
}
