//! Limits that belong to processes, not to the cgroup: files, sizes, processors seen, and who dies first.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use super::Plan;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::scheduling;

/// Limits of the caller that a task does not get, and the most it has instead.
const INHERITED: [(Resource, &str, u64); 5] = [
    (Resource::RLIMIT_RTPRIO, "RLIMIT_RTPRIO", 0),
    (Resource::RLIMIT_NICE, "RLIMIT_NICE", 0),
    (Resource::RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", 8 << 20),
    (Resource::RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING", 4096),
    (Resource::RLIMIT_MSGQUEUE, "RLIMIT_MSGQUEUE", 819_200),
];

/// Applies those that the payload inherits from this process.
pub fn apply(plan: &Plan<'_>) -> Result<(), SysError> {
    let limits = &plan.spec.limits;
    if !off(Defence::Fsize) {
        setrlimit(Resource::RLIMIT_FSIZE, limits.fsize_bytes, limits.fsize_bytes).on("setrlimit", "RLIMIT_FSIZE")?;
    }
    if !off(Defence::HandedDown) {
        for (resource, name, most) in INHERITED {
            let (_, hard) = getrlimit(resource).on("getrlimit", name)?;
            let value = most.min(hard);
            setrlimit(resource, value, value).on("setrlimit", name)?;
        }
    }
    // When the host itself runs short, tasks go first. Raising needs no privilege, lowering would.
    std::fs::write("/proc/self/oom_score_adj", "1000").on("write", "/proc/self/oom_score_adj")
}

/// The limit on open files, by itself: the descriptors of a launcher with many tasks are still open here, and with it nothing
/// more could be opened. So it comes when init and payload have opened all they need, but can still raise a limit.
pub fn bound_files(plan: &Plan<'_>) -> Result<(), SysError> {
    if off(Defence::Nofile) {
        return Ok(());
    }
    let most = plan.spec.limits.nofile;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
        .on("setrlimit", format!("RLIMIT_NOFILE {most}"))
        .map_err(|e| e.hint("above the hard limit of this host; lower --nofile or raise the hard limit"))
}

/// A task's place among the host's processes is not inherited from whoever started taskman, where that would favour it: no
/// real-time class, no negative nice value, no disabled address randomisation. Politeness (`nice 10`) is kept.
pub fn reset_scheduling() -> Result<(), SysError> {
    if off(Defence::HandedDown) {
        return Ok(());
    }
    scheduling::leave_real_time().on("sched_setscheduler", "SCHED_OTHER")?;
    scheduling::give_up_priority().on("setpriority", "0")?;
    scheduling::leave_io_real_time().on("ioprio_set", "none")?;
    scheduling::plain_personality().on("personality", "0")
}

/// No core files. A handler behind a pipe runs on the host and disregards a limit of 0, but not one of 1. Which it is can
/// only be read while the host's `/proc` is there.
pub fn forbid_cores() -> Result<(), SysError> {
    if off(Defence::Core) {
        return Ok(());
    }
    let pattern = std::fs::read("/proc/sys/kernel/core_pattern").on("read", "/proc/sys/kernel/core_pattern")?;
    let limit = u64::from(pattern.starts_with(b"|") || pattern.starts_with(b"@"));
    setrlimit(Resource::RLIMIT_CORE, limit, limit).on("setrlimit", "RLIMIT_CORE")
}

/// As many processors as the task may use: `nproc` and thread pools size themselves by it. The share itself is the cgroup's
/// to enforce. They begin next to the one this process runs on, so that init and payload are made side by side, and tasks
/// spread as their launchers do.
pub fn choose_processors(plan: &Plan<'_>) -> Result<CpuSet, SysError> {
    let usable = usable_processors()?;
    let current = sched_getcpu().on("getcpu", "sandbox-init")?;
    let next = usable.iter().position(|&cpu| cpu == current).map_or(0, |at| at + 1);
    let mut chosen = CpuSet::new();
    for step in 0..visible_processors(plan, &usable) {
        let cpu = usable[(next + step) % usable.len()];
        chosen.set(cpu).on("CPU_SET", cpu.to_string())?;
    }
    Ok(chosen)
}

/// Shows process `pid` (0 is this one) these processors and no others.
pub fn show_processors(pid: i32, chosen: &CpuSet) -> Result<(), SysError> {
    sched_setaffinity(Pid::from_raw(pid), chosen).on("sched_setaffinity", pid.to_string())
}

/// How many whole processors the task's share needs, of those there are.
pub fn visible_processors(plan: &Plan<'_>, usable: &[usize]) -> usize {
    (plan.spec.limits.cpus.ceil() as usize).clamp(1, usable.len().max(1))
}

/// The processors this process may run on.
pub fn usable_processors() -> Result<Vec<usize>, SysError> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).on("sched_getaffinity", "sandbox")?;
    Ok((0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)).collect())
}
