//! Who the task is: a uid of its own, no groups, no capabilities, no way to gain any.

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::Plan;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::caps;

/// Arms the parent-death signal, then makes sure the parent had not died before.
///
/// In a new PID namespace getppid() is 0 whether the parent lives or not, so the launcher's pidfd is asked.
pub fn die_with(plan: &Plan<'_>) -> Result<(), SysError> {
    if off(Defence::DeathSignal) {
        return Ok(());
    }
    prctl::set_pdeathsig(Signal::SIGKILL).on("prctl", "PR_SET_PDEATHSIG")?;
    if plan.launcher.has_ended().on("poll", "pidfd of the launcher")? {
        return Err(SysError::new("poll", "pidfd of the launcher", nix::errno::Errno::ESRCH).hint("the launcher died"));
    }
    Ok(())
}

/// Gives up everything root has, for the task's own uid.
pub fn drop_privileges(plan: &Plan<'_>) -> Result<(), SysError> {
    drop_to(plan.uid)
}

/// Gives up everything root has. Securebits come before the uid, because locking them needs a capability that goes with it.
pub fn drop_to(uid: u32) -> Result<(), SysError> {
    let keep = off(Defence::Caps);
    if !keep {
        caps::drop_bounding().on("prctl", "PR_CAPBSET_DROP")?;
        // With these bits a change of uid leaves the capabilities alone, and they are cleared by name below.
        caps::lock_securebits().on("prctl", "PR_SET_SECUREBITS")?;
    }
    if !off(Defence::Groups) {
        setgroups(&[]).on("setgroups", "none")?;
    }
    if !off(Defence::Uid) {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        setresgid(group, group, group).on("setresgid", uid.to_string())?;
        setresuid(user, user, user).on("setresuid", uid.to_string())?;
    }
    if !keep {
        caps::clear().on("capset", "none")?;
    }
    if !off(Defence::NoNewPrivs) {
        prctl::set_no_new_privs().on("prctl", "PR_SET_NO_NEW_PRIVS")?;
    }
    if !off(Defence::Dumpable) {
        prctl::set_dumpable(false).on("prctl", "PR_SET_DUMPABLE")?;
    }
    Ok(())
}
