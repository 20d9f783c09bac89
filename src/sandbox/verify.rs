//! Set, then look: what the kernel says this process is, read back just before it executes the command.
//!
//! The steps before have all reported success. This module does not care: it reads `/proc` as any observer would, and a
//! value that is not the expected one means the task does not start.

use nix::errno::Errno;
use nix::sys::statfs::statfs;
use nix::sys::statvfs::FsFlags;

use super::Plan;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::{caps, file};

/// Mounts the task may write to; `/proc` until it is covered.
const WRITABLE: [&str; 5] = ["/task", "/tmp", "/dev/shm", "/dev/pts", "/proc"];
/// Mounts that hold device nodes.
const WITH_DEVICES: [&str; 2] = ["/dev", "/dev/pts"];

/// Reads ids, capabilities, securebits, no_new_privs, seccomp mode, and that `/proc` is sealed. The cgroup was read when it was joined, because from
/// inside its namespace it is always "/".
pub fn identity(plan: &Plan<'_>) -> Result<(), SysError> {
    is_powerless(plan.uid)?;
    let sealed = statfs("/proc").on("statfs", "/proc")?.flags().contains(FsFlags::ST_RDONLY);
    if !sealed && !off(Defence::ReadOnly) {
        return Err(refused("mount /proc".to_owned(), "rw", "ro"));
    }
    Ok(())
}

/// Whether this process is `uid`, under a filter, and cannot be anyone else any more.
pub fn is_powerless(uid: u32) -> Result<(), SysError> {
    let status = file::text("/proc/self/status").on("read", "/proc/self/status")?;
    let ids = format!("{uid}\t{uid}\t{uid}\t{uid}");
    let none = "0000000000000000";
    let expected = [
        ("Uid", ids.as_str(), Defence::Uid),
        ("Gid", ids.as_str(), Defence::Uid),
        ("Groups", "", Defence::Groups),
        ("CapInh", none, Defence::Caps),
        ("CapPrm", none, Defence::Caps),
        ("CapEff", none, Defence::Caps),
        ("CapBnd", none, Defence::Caps),
        ("CapAmb", none, Defence::Caps),
        ("NoNewPrivs", "1", Defence::NoNewPrivs),
        ("Seccomp", "2", Defence::Seccomp),
    ];
    for (field, expected, defence) in expected {
        let found =
            status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap_or("missing").trim();
        if found != expected && !off(defence) {
            return Err(refused(format!("{field} in /proc/self/status"), found, expected));
        }
    }
    let securebits = caps::securebits().on("prctl", "PR_GET_SECUREBITS")?;
    if securebits != caps::LOCKED_SECUREBITS && !off(Defence::Caps) {
        return Err(refused("securebits".to_owned(), &securebits.to_string(), "all locked"));
    }
    Ok(())
}

/// Reads all mounts back once the host's root is gone and before `/proc` is covered by more of the same. Every mount is
/// nosuid; nodev unless it holds the devices; read-only unless it is the task's own.
pub fn mounts() -> Result<(), SysError> {
    let table = file::text("/proc/self/mountinfo").on("read", "/proc/self/mountinfo")?;
    for line in table.lines() {
        let mut fields = line.split(' ').skip(4);
        let (point, options) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let has = |wanted: &str| options.split(',').any(|option| option == wanted);
        let faults = [
            ("nosuid", !has("nosuid") && !off(Defence::NoSuid)),
            ("nodev", !has("nodev") && !WITH_DEVICES.contains(&point)),
            ("ro", !has("ro") && !WRITABLE.contains(&point) && !off(Defence::ReadOnly)),
        ];
        if let Some((wanted, _)) = faults.iter().find(|(_, fault)| *fault)
            && !off(Defence::OldRoot)
        {
            return Err(refused(format!("mount {point}"), options, wanted));
        }
    }
    Ok(())
}

fn refused(object: String, found: &str, expected: &str) -> SysError {
    SysError::new("verify", object, Errno::EPERM)
        .hint(format!("found {found:?} where {expected:?} was set; the task was not started"))
}
