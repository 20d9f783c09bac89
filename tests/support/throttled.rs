//! A cgroup of root's own with a read limit: what is read in it is locked for as long as the limit takes, as a task of the same limit
//! would lock it.
#![allow(dead_code)] // each test program uses a part of it

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use taskman::cgroup::device;

/// The group. Dropped, its limit is taken back, and it is removed as soon as it is empty.
pub struct Throttled {
    group: PathBuf,
    file: &'static str,
    lifted: String,
}

impl Throttled {
    /// A group below this process's own, or above it where that cannot have the limit. Nothing where none can, or where no disk is
    /// behind `path`.
    pub fn make(path: &Path, bytes_per_second: u64) -> Option<Self> {
        let disk = *device::behind(&[path]).ok()?.disks.first()?;
        let (point, own, is_v2) = own_group()?;
        let file = if is_v2 { "io.max" } else { "blkio.throttle.read_bps_device" };
        let (rate, lifted) = match is_v2 {
            true => (format!("{disk} rbps={bytes_per_second}"), format!("{disk} rbps=max")),
            false => (format!("{disk} {bytes_per_second}"), format!("{disk} 0")),
        };
        let name = format!("throttled-{}", std::process::id());
        own.ancestors().take_while(|above| above.starts_with(&point)).find_map(|above| {
            let group = above.join(&name);
            fs::create_dir(&group).ok()?;
            if !group.join(file).exists() || fs::write(group.join(file), &rate).is_err() {
                let _ = fs::remove_dir(&group);
                return None;
            }
            Some(Self { group, file, lifted: lifted.clone() })
        })
    }

    /// Words that, put before a command line, run it in the group.
    pub fn wrap(&self) -> [String; 4] {
        let join = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.group.display());
        ["sh".into(), "-c".into(), join, "sh".into()]
    }

    /// Takes the limit back.
    pub fn lift(&self) {
        let _ = fs::write(self.group.join(self.file), &self.lifted);
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        self.lift();
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            nix::poll::poll(&mut [], 1u8).ok();
        }
    }
}

/// Where the hierarchy that limits io is mounted, this process's own group in it, and whether it is version 2.
fn own_group() -> Option<(PathBuf, PathBuf, bool)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let find = |kind: &str, controllers: &str| {
        let member = groups.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            (names.split(',').any(|name| name == controllers)).then_some(path)
        })?;
        mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let (root, point) = (left.split(' ').nth(3)?, left.split(' ').nth(4)?);
            let is_it = right.split(' ').next() == Some(kind)
                && (controllers.is_empty() || right.split([' ', ',']).any(|option| option == controllers));
            let below = member.strip_prefix(root.trim_end_matches('/'))?.trim_start_matches('/');
            is_it.then(|| (PathBuf::from(point), Path::new(point).join(below)))
        })
    };
    let v1 = find("cgroup", "blkio").map(|(point, own)| (point, own, false));
    v1.or_else(|| find("cgroup2", "").map(|(point, own)| (point, own, true)))
}
