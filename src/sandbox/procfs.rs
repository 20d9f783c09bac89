//! `/proc`: the task's own processes, and a machine of the task's own size.
//!
//! In the judge profile that is all: `subset=pid`. Elsewhere `ps`, `top`, `free` and language runtimes need a few more
//! files, and a mount of proc with them brings all others along. So every entry the kernel lists there is covered unless
//! it stands on the allow list below: an entry that a newer kernel adds is covered too.

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::mount::{MsFlags, mount as mount_fs};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{chdir, fchdir};

use super::{Plan, limits, machine, rootfs};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::fd;
use crate::task::profile::Profile;

/// Entries of the real `/proc` that a task can read, and why. `docs/proc.md` is checked against this list.
pub const PASS_THROUGH: [(&str, &str); 2] = [
    ("uptime", "counted by the task's own time namespace, so it shows the sandbox's age"),
    ("version", "what uname(2) tells anyone"),
];

/// Entries written by taskman, in the sizes of the task's limits.
pub const SYNTHETIC: [&str; 4] = ["cpuinfo", "loadavg", "meminfo", "stat"];

/// Files of `/proc/self/net` that count for the whole host, whatever network asks.
const HOST_COUNTERS: [&str; 3] = ["softnet_stat", "stat/rt_cache", "rt_acct"];

/// Where the directory of covers, over which proc is mounted, is kept until the payload's process has used it.
const COVERS: i32 = 7;

/// Puts covers and synthetic files where `proc` will be mounted: reachable from here through a descriptor, and from
/// inside not at all.
pub fn prepare(plan: &Plan<'_>) -> Result<(), SysError> {
    rootfs::directory("proc")?;
    if off(Defence::OldRoot) {
        rootfs::directory("old")?;
    }
    if plan.spec.profile == Profile::Judge {
        return Ok(());
    }
    rootfs::directory("proc/covered-directory")?;
    rootfs::file("proc/covered-file", "")?;
    let limits = &plan.spec.limits;
    let processors = limits::visible_processors(plan, &limits::usable_processors()?);
    rootfs::file("proc/cpuinfo", &machine::cpuinfo(processors).on("read", "/proc/cpuinfo")?)?;
    rootfs::file("proc/loadavg", machine::LOADAVG)?;
    rootfs::file("proc/meminfo", &machine::meminfo(limits.memory_bytes))?;
    rootfs::file("proc/stat", &machine::stat(processors))
}

/// Mounts proc in the new root, which is the working directory. What covers its entries stays reachable through a
/// descriptor.
pub fn mount(plan: &Plan<'_>) -> Result<(), SysError> {
    let covers = open("proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).on("open", "proc")?;
    fd::lift(covers).and_then(|covers| fd::place(plan.child, covers, COVERS, true)).on("dup3", "covers")?;
    let options = (plan.spec.profile == Profile::Judge && !off(Defence::ProcMask)).then_some("subset=pid");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_fs(Some("proc"), "proc", Some("proc"), flags, options).on("mount", "proc")
}

/// Covers every entry of `/proc` that is not on the allow list, and makes the rest read-only.
pub fn cover(plan: &Plan<'_>) -> Result<(), SysError> {
    hide_host_counters()?;
    if plan.spec.profile == Profile::Judge || off(Defence::ProcMask) {
        return seal();
    }
    let mut proc = Dir::open("/proc", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .on("open", "/proc")?;
    // From inside the covers' directory, every path below has one or two components.
    fd::placed(plan.child, COVERS).and_then(fchdir).on("fchdir", "covers")?;
    for entry in proc.iter() {
        let entry = entry.on("readdir", "/proc")?;
        let name = entry.file_name().to_str().unwrap_or_default();
        let own = name.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if own || PASS_THROUGH.iter().any(|(allowed, _)| *allowed == name) {
            continue;
        }
        let cover = match entry.file_type() {
            // self, thread-self, mounts, net: each leads to the reader's own process.
            Some(Type::Symlink) => continue,
            Some(Type::Directory) => "covered-directory",
            _ if SYNTHETIC.contains(&name) => name,
            _ => "covered-file",
        };
        // The covers' mount is sealed, and a bind inherits that.
        let target = format!("/proc/{name}");
        mount_fs(Some(cover), &*target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .on("mount", format!("cover on {target}"))?;
    }
    chdir("/").on("chdir", "/")?;
    seal()
}

/// Nothing can be mounted over the files of processes to come. But these are the network namespace's own, whichever process they are reached through,
/// and so is their mode.
fn hide_host_counters() -> Result<(), SysError> {
    if off(Defence::ProcMask) || off(Defence::NetNamespace) {
        return Ok(());
    }
    for name in HOST_COUNTERS {
        let path = format!("/proc/self/net/{name}");
        match fchmodat(AT_FDCWD, &*path, Mode::S_IRUSR, FchmodatFlags::FollowSymlink) {
            // Not every kernel has each.
            Err(Errno::ENOENT) => {}
            done => done.on("chmod", path)?,
        }
    }
    Ok(())
}

/// Nothing in it is the task's to write. Without CAP_SYS_RESOURCE the kernel does not hold a task to its `oom_score_adj`: it could
/// take that back as far as the launcher's own, and outlive its neighbours and the host's services.
fn seal() -> Result<(), SysError> {
    if off(Defence::ReadOnly) { Ok(()) } else { rootfs::seal("/proc") }
}
