//! The disks behind the host paths that a task can see, because an io limit is per disk and takes no path.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};
use nix::sys::statfs::{FsType, statfs};

use super::layout::read;
use super::mountinfo::Mount;
use crate::error::{Context, SysError};

/// A whole disk, never a partition: the kernel throttles disks alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the kernel's names
pub struct Device {
    pub major: u64,
    pub minor: u64,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// What stands behind a set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Disks that can be throttled, each once.
    pub disks: Vec<Device>,
    /// Paths whose reads and writes no io limit reaches, with the reason. File systems in memory are not among them: they
    /// need none.
    pub unenforceable: Vec<String>,
    /// Paths on an overlay, as the root of a container is. Its layers cannot be seen from inside; so every disk of the host is
    /// among `disks`, and only a layer that comes over a network is not reached.
    pub layered: Vec<String>,
}

impl Devices {
    /// What a start says where the limit may not reach everything.
    pub fn reduction(&self) -> Option<String> {
        let paths = self.layered.join(", ");
        let why = "is on overlay, whose layers cannot be seen here: every disk has the limit, and a layer that comes over a network has none";
        (!self.layered.is_empty()).then(|| format!("limit io: {paths} {why}"))
    }
}

/// File systems that live in memory or in the kernel, by their magic numbers.
const IN_MEMORY: [i64; 11] = [
    0x0102_1994, // tmpfs, devtmpfs
    0x8584_58f6, // ramfs
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x9584_58f6, // hugetlbfs
    0x1980_0202, // mqueue
    0xcafe_4a11, // bpf
];

/// Finds the disks behind `paths`.
pub fn behind(paths: &[impl AsRef<Path>]) -> Result<Devices, SysError> {
    let mut devices = Devices::default();
    let mut seen = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let number = fs::metadata(path).on("stat", path.display().to_string())?.dev();
        if seen.contains(&number) {
            continue;
        }
        seen.push(number);
        let found = if major(number) != 0 {
            vec![Device { major: major(number), minor: minor(number) }]
        } else {
            match anonymous(path)? {
                Behind::Disks(found) => found,
                Behind::Layers(found) => {
                    devices.layered.push(path.display().to_string());
                    found
                }
                Behind::Unenforceable(reason) => {
                    devices.unenforceable.push(reason);
                    continue;
                }
            }
        };
        for device in found.into_iter().map(whole_disk) {
            if !devices.disks.contains(&device) {
                devices.disks.push(device);
            }
        }
    }
    Ok(devices)
}

/// A partition's disk; anything else is its own. A stacked device (dm, md, loop) is throttled as it stands.
fn whole_disk(device: Device) -> Device {
    let node = PathBuf::from(format!("/sys/dev/block/{device}"));
    if !node.join("partition").exists() {
        return device;
    }
    let parent = fs::read_to_string(node.join("../dev")).ok();
    parent.as_deref().and_then(numbers).unwrap_or(device)
}

/// What a file system without a device number of its own stands on.
enum Behind {
    Disks(Vec<Device>),
    /// One of these, or several.
    Layers(Vec<Device>),
    Unenforceable(String),
}

/// A file system without a device number of its own: in memory, spread over devices, or not on this host at all.
fn anonymous(path: &Path) -> Result<Behind, SysError> {
    let FsType(magic) = statfs(path).on("statfs", path.display().to_string())?.filesystem_type();
    if IN_MEMORY.contains(&(magic & 0xffff_ffff)) {
        return Ok(Behind::Disks(Vec::new()));
    }
    let real = fs::canonicalize(path).on("realpath", path.display().to_string())?;
    let mountinfo = read(Path::new("/proc/self/mountinfo"))?;
    Ok(match mount_of(&mountinfo, &real) {
        Some(("overlay", source)) => match every_disk() {
            all if !all.is_empty() => Behind::Layers(all),
            _ => Behind::Unenforceable(unreachable(path, "overlay", source)),
        },
        Some((kind, source)) => match disks_of(kind, source) {
            found if !found.is_empty() => Behind::Disks(found),
            _ => Behind::Unenforceable(unreachable(path, kind, source)),
        },
        None => Behind::Unenforceable(format!("{} is on no mount that is visible here", path.display())),
    })
}

/// Every disk of the host that holds anything. Those in memory need no limit, and those that are paths to another have none.
fn every_disk() -> Vec<Device> {
    let read = |disk: &Path, name: &str| fs::read_to_string(disk.join(name)).unwrap_or_default();
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(|entry| {
        let (name, disk) = (entry.file_name(), entry.path());
        let in_memory = ["ram", "zram"].iter().any(|kind| name.to_string_lossy().starts_with(kind));
        let is_path = read(&disk, "hidden").trim() == "1";
        let is_empty = read(&disk, "size").trim().parse().unwrap_or(0u64) == 0;
        numbers(&read(&disk, "dev")).filter(|_| !in_memory && !is_path && !is_empty)
    });
    let mut disks: Vec<_> = disks.collect();
    disks.sort();
    disks
}

fn unreachable(path: &Path, kind: &str, source: &str) -> String {
    let why = match kind {
        "overlay" => "its layers may lie on any disk, and none can be seen here",
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" => "its data comes from another machine",
        _ => "the kernel names no block device for it",
    };
    format!("{} is on {kind} ({source}): {why}", path.display())
}

/// Type and source of the mount that `path`, without symlinks, is on: the longest mount point, and of equals the last.
fn mount_of<'a>(mountinfo: &'a str, path: &Path) -> Option<(&'a str, &'a str)> {
    let on = Mount::all(mountinfo).filter(|mount| path.starts_with(&mount.point));
    on.max_by_key(|mount| mount.point.components().count()).map(|mount| (mount.kind, mount.source))
}

/// The device that a mount names and, for btrfs, the others of the same file system.
fn disks_of(kind: &str, source: &str) -> Vec<Device> {
    let number = fs::metadata(source).map(|meta| meta.rdev()).unwrap_or(0);
    if number == 0 {
        return Vec::new();
    }
    let device = Device { major: major(number), minor: minor(number) };
    if kind != "btrfs" {
        return vec![device];
    }
    let members = |pool: PathBuf| -> Vec<Device> {
        let listed = fs::read_dir(pool.join("devices")).into_iter().flatten().flatten();
        listed.filter_map(|entry| numbers(&fs::read_to_string(entry.path().join("dev")).ok()?)).collect()
    };
    let pools = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
    pools.map(|pool| members(pool.path())).find(|found| found.contains(&device)).unwrap_or_else(|| vec![device])
}

fn numbers(text: &str) -> Option<Device> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_behind_usr_is_found_and_memory_needs_none() {
        let found = behind(&[Path::new("/usr"), Path::new("/proc"), Path::new("/usr/bin")]).unwrap();
        let number = fs::metadata("/usr").unwrap().dev();
        if major(number) != 0 {
            assert_eq!(found.disks.len(), 1, "{found:?}");
            assert!(found.unenforceable.is_empty(), "{found:?}");
        } else {
            assert!(found.disks.len() + found.unenforceable.len() > 0, "{found:?}");
        }
        assert_eq!(behind(&[Path::new("/proc")]).unwrap(), Devices::default());
        assert_eq!(behind(&[Path::new("/no/such")]).unwrap_err().errno(), nix::errno::Errno::ENOENT);
    }

    #[test]
    fn the_mount_on_top_decides() {
        let mounts = "\
27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 0:40 / /home rw - btrfs /dev/sdb1 rw
31 30 0:41 / /home/u rw - nfs4 server:/x rw
32 30 0:42 / /home/u rw - overlay overlay rw";
        assert_eq!(mount_of(mounts, Path::new("/home/v")), Some(("btrfs", "/dev/sdb1")));
        assert_eq!(mount_of(mounts, Path::new("/home/u/x")), Some(("overlay", "overlay")));
        assert_eq!(mount_of(mounts, Path::new("/homes")), Some(("ext4", "/dev/vda")));
        let reason = unreachable(Path::new("/home/u"), "overlay", "overlay");
        assert!(reason.contains("/home/u") && reason.contains("layers"), "{reason}");
    }

    #[test]
    fn every_disk_is_found_once_and_the_one_behind_usr_is_among_them() {
        let all = every_disk();
        let mut unique = all.clone();
        unique.dedup();
        assert_eq!(all, unique);
        let behind_usr = behind(&[Path::new("/usr")]).unwrap();
        assert!(behind_usr.disks.iter().all(|disk| all.contains(disk)), "{behind_usr:?} in {all:?}");
    }

    #[test]
    fn device_numbers_are_written_as_the_kernel_reads_them() {
        assert_eq!(numbers("254:16\n").map(|d| d.to_string()).as_deref(), Some("254:16"));
        assert_eq!(numbers("x"), None);
    }
}
