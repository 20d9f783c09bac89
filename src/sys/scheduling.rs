//! A process's standing among others: scheduling class, nice value, io class, personality.

use nix::errno::Errno;

/// Leaves a real-time class; the classes below it stay.
pub fn leave_real_time() -> Result<(), Errno> {
    // SAFETY: touches no memory.
    let policy = Errno::result(unsafe { libc::sched_getscheduler(0) })? & !libc::SCHED_RESET_ON_FORK;
    if ![libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy) {
        return Ok(());
    }
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one sched_param, which lives here.
    Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) }).map(drop)
}

/// Gives up a negative nice value.
pub fn give_up_priority() -> Result<(), Errno> {
    if nice()? >= 0 {
        return Ok(());
    }
    // SAFETY: touches no memory.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) }).map(drop)
}

/// The nice value of this process.
fn nice() -> Result<i64, Errno> {
    // SAFETY: touches no memory. The system call answers 20 - nice, so that it is never negative.
    Errno::result(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) }).map(|answer| 20 - answer)
}

/// Runs before processes of the usual nice value: a reaper that has to wait its turn leaves zombies meanwhile. A host that
/// does not grant it (no CAP_SYS_NICE) has them wait.
pub fn prefer() -> Result<(), Errno> {
    // SAFETY: touches no memory.
    match Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) }) {
        Ok(_) | Err(Errno::EACCES | Errno::EPERM) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The same, unless somebody has asked for less: what this process starts gives up a negative value, and would not have the
/// positive one either.
pub fn prefer_if_usual() -> Result<(), Errno> {
    if nice()? > 0 { Ok(()) } else { prefer() }
}

/// As [`prefer`], for the session that this process leads. Where the kernel shares time out among sessions (autogroup), a nice value
/// counts only beside others of the same session: without this, four shells that execute programs kept a process of nice -10
/// waiting for up to two seconds. A host without it, or one that does not grant it, is as it was.
pub fn prefer_session() {
    let _ = std::fs::write("/proc/self/autogroup", "-10");
}

/// Leaves the real-time io class.
pub fn leave_io_real_time() -> Result<(), Errno> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_REAL_TIME: libc::c_long = 1;
    // SAFETY: touches no memory.
    let class = Errno::result(unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) })? >> 13;
    if class != CLASS_REAL_TIME {
        return Ok(());
    }
    // SAFETY: touches no memory.
    Errno::result(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, 0) }).map(drop)
}

/// Takes back what setarch(8) may have set, such as addresses that are not randomised.
pub fn plain_personality() -> Result<(), Errno> {
    // SAFETY: touches no memory.
    Errno::result(unsafe { libc::personality(0) }).map(drop)
}
