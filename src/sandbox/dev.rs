//! `/dev`: six devices that hold nothing of the host, terminals of the task's own, and shared memory.

use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use super::{Plan, rootfs};
use crate::error::{Context, SysError};

const DEVICES: [(&str, u64, u64); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Fills `dev` of the new root. It and `dev/pts` are the only mounts without nodev: they are where devices are.
pub fn populate(plan: &Plan<'_>) -> Result<(), SysError> {
    rootfs::directory("dev")?;
    rootfs::mount_tmpfs("tmpfs", "dev", "mode=755,size=64k,nr_inodes=32", MsFlags::MS_NOEXEC)?;
    for (name, major, minor) in DEVICES {
        let path = format!("dev/{name}");
        mknod(&*path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(major, minor)).on("mknod", &*path)?;
    }
    for (name, target) in LINKS {
        let path = format!("dev/{name}");
        std::os::unix::fs::symlink(target, &path).on("symlink", path)?;
    }
    rootfs::directory("dev/pts")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("devpts"), "dev/pts", Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=0620,max=64"))
        .on("mount", "devpts on dev/pts")?;
    rootfs::scratch(plan, "dev/shm", 0o1777)?;
    rootfs::seal("dev")
}
