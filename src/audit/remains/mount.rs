//! Mounts in the host's namespace. A sandbox assembles its root in its own, so the host sees none of it.

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::shown;
use crate::cgroup::mountinfo::Mount;
use crate::cgroup::{Census, Dead};
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};
use crate::place::GroupName;

/// One mount.
#[derive(Debug, Clone)]
pub struct Mounted {
    point: PathBuf,
    what: String,
}

/// What is mounted at or below `run_dir`, or shows a group of a dead launcher; the last mounted first.
pub fn find(run_dir: &Path, census: &Census) -> Result<Vec<Mounted>, SysError> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").on("read", "/proc/self/mountinfo")?;
    let lives = |name: &GroupName| census.groups.iter().any(|(other, path)| other == name && !Dead::is_at(path));
    let shows_dead = |mount: &Mount<'_>| {
        let mut names = Path::new(&mount.root).iter().filter_map(|part| GroupName::parse(part.to_str()?));
        mount.kind.starts_with("cgroup") && names.any(|name| name.instance == census.instance && !lives(&name))
    };
    // By where it is, not by what it is called: users may mount file systems of their own, on directories of any name.
    let groups = census.groups.iter().chain(&census.halves).filter(|(name, _)| !lives(name)).map(|(_, path)| path);
    let ours = |mount: &Mount<'_>| {
        mount.point.starts_with(run_dir)
            || shows_dead(mount)
            || groups.clone().any(|path| mount.point.starts_with(path))
    };
    let mut found: Vec<Mounted> = Mount::all(&mountinfo)
        .filter(ours)
        .map(|mount| Mounted { what: format!("{} from {}", mount.kind, mount.source), point: mount.point })
        .collect();
    found.reverse();
    Ok(found)
}

impl Mounted {
    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        Leftover { kind: LeftoverKind::Mount, name: shown(&self.point), detail: self.what.clone() }
    }

    /// Takes it out of the tree; what still uses it keeps it until it ends.
    pub fn sweep(&self) -> Result<(), SysError> {
        match umount2(&self.point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // Gone, or no mount any more.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno).on("umount", shown(&self.point)),
        }
    }
}
