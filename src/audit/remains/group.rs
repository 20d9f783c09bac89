//! Control groups of dead launchers, and the version 1 halves of groups that are gone.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;

use super::shown;
use crate::cgroup::{Census, Dead};
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};
use crate::place::GroupName;

/// What is killed is given this long to leave its group, and a busy directory as long again.
const PATIENCE: Duration = Duration::from_millis(500);

/// A group whose lock is free.
#[derive(Debug, Clone)]
pub struct Group {
    path: PathBuf,
    halves: Vec<PathBuf>,
    made: SystemTime,
}

/// A version 1 directory whose version 2 directory is gone.
#[derive(Debug, Clone)]
pub struct Half {
    path: PathBuf,
}

/// The groups nobody holds, newest first: what was made last goes first.
pub fn dead(census: &Census) -> Vec<Group> {
    let dead = census.groups.iter().filter(|(_, path)| Dead::is_at(path));
    let mut groups: Vec<Group> = dead.map(|(name, path)| Group::new(census, name, path)).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.made));
    groups
}

impl Group {
    fn new(census: &Census, name: &GroupName, path: &Path) -> Self {
        let made = path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        Self { path: path.to_owned(), halves: census.halves_of(name), made }
    }

    /// Its version 2 directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let detail = match self.halves.len() {
            0 => "its launcher is dead".to_owned(),
            halves => format!("its launcher is dead; {halves} version 1 directories with it"),
        };
        Leftover { kind: LeftoverKind::Cgroup, name: shown(&self.path), detail }
    }

    /// Kills everything in it at once.
    pub fn kill(&self) -> Result<(), SysError> {
        self.take()?.map_or(Ok(()), |dead| dead.kill())
    }

    /// Kills, waits, and removes the version 1 directories and then its own.
    pub fn sweep(&self) -> Result<(), SysError> {
        self.take()?.map_or(Ok(()), |dead| dead.end(&self.halves, PATIENCE))
    }

    /// None when it is gone already.
    fn take(&self) -> Result<Option<Dead>, SysError> {
        match Dead::take(&self.path) {
            Some(dead) => Ok(Some(dead)),
            None if !self.path.exists() => Ok(None),
            None => Err(SysError::new("flock", shown(&self.path), Errno::EWOULDBLOCK)
                .hint("somebody else sweeps it, or just looks at it; try again")),
        }
    }
}

impl Half {
    /// At this path.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let detail = "of a group whose version 2 directory is gone".to_owned();
        Leftover { kind: LeftoverKind::Cgroup, name: shown(&self.path), detail }
    }

    /// Removes it.
    pub fn sweep(&self) -> Result<(), SysError> {
        match nix::unistd::unlinkat(nix::fcntl::AT_FDCWD, &self.path, nix::unistd::UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno).on("rmdir", shown(&self.path)).map_err(|error| {
                error.hint("processes are still in it; see its cgroup.procs, and find out who put them there")
            }),
        }
    }
}
