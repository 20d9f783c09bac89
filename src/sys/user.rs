//! What the kernel knows of a user: whether any process runs under a uid, and how to end all of them.

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

/// Kills every process of `uid` in one step, which nothing that forks can outrun.
///
/// A child becomes that uid, without any capability, and asks the kernel to kill whatever it may: what it may is decided by
/// the kernel, for each process, at that moment. Root alone is refused, and so is a child that is still root in any way.
pub fn kill_all_of(uid: u32) -> Result<(), Errno> {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    if uid < 65_536 || uid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the child makes system calls alone and ends by _exit: it needs no lock that another thread may have held.
    match Errno::result(unsafe { libc::fork() })? {
        0 => {
            let code = as_user(uid).map_or_else(|errno| errno as i32, |()| 0);
            // SAFETY: ends this process at once; handlers of exit are its parent's business.
            unsafe { libc::_exit(code) }
        }
        child => match waitpid(Pid::from_raw(child), None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, code) => Err(Errno::from_raw(code)),
            // Its own kind may have killed it.
            _ => Err(Errno::EINTR),
        },
    }
}

/// What the child of [`kill_all_of`] does.
fn as_user(uid: u32) -> Result<(), Errno> {
    let mut now = [0u32; 3];
    // SAFETY: the calls take numbers, but for the one that writes three words, which live here. They are made directly:
    // the C library would tell threads of it that this process does not have.
    unsafe {
        Errno::result(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        Errno::result(libc::syscall(libc::SYS_setresgid, uid, uid, uid))?;
        Errno::result(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        super::caps::clear()?;
        let [real, effective, saved] = now.each_mut();
        Errno::result(libc::syscall(libc::SYS_getresuid, &raw mut *real, &raw mut *effective, &raw mut *saved))?;
    }
    if now != [uid; 3] {
        return Err(Errno::EPERM);
    }
    // SAFETY: touches no memory. Whom it may signal, this uid without capabilities, the kernel decides.
    match Errno::result(unsafe { libc::syscall(libc::SYS_kill, -1, libc::SIGKILL) }) {
        // There was nobody left.
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}
