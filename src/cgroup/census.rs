//! Where the groups of an instance are, in every hierarchy that is mounted.
//!
//! A launcher's groups lie below the group it was started in, which nobody remembers when it is dead, and an operator's shell
//! is in another one. So they are looked for by name, everywhere that is root's. What belongs to another account was delegated to
//! it: there it makes groups of any name and as many as it likes, and none of them is a launcher's.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::layout::read;
use super::mountinfo::Mount;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::place::GroupName;

/// The directories of one instance's groups.
#[derive(Debug, Default)]
pub struct Census {
    /// Whose.
    pub instance: String,
    /// Of version 1 hierarchies.
    pub halves: Vec<(GroupName, PathBuf)>,
    /// Of version 2.
    pub groups: Vec<(GroupName, PathBuf)>,
}

impl Census {
    /// Looks now. Halves come first: their version 2 directory is made before them and removed after them, so a half that is
    /// seen without one has lost it, unless its task ended in between.
    pub fn take(instance: &str) -> Result<Self, SysError> {
        let mountinfo = read(Path::new("/proc/self/mountinfo"))?;
        let mut census = Self { instance: instance.to_owned(), ..Self::default() };
        let mut seen = HashSet::new();
        for v2 in [false, true] {
            let found = if v2 { &mut census.groups } else { &mut census.halves };
            for mount in Mount::all(&mountinfo).filter(|m| m.kind.starts_with("cgroup") && m.is_v2() == v2) {
                walk(&mount.point, instance, &mut seen, found)?;
            }
        }
        Ok(census)
    }

    /// The version 1 directories of the group of this name.
    pub fn halves_of(&self, name: &GroupName) -> Vec<PathBuf> {
        self.halves.iter().filter(|(half, _)| half == name).map(|(_, path)| path.clone()).collect()
    }

    /// Version 1 directories whose version 2 directory is gone.
    pub fn orphans(&self) -> impl Iterator<Item = &(GroupName, PathBuf)> {
        self.halves.iter().filter(|(half, _)| !self.groups.iter().any(|(group, _)| group == half))
    }
}

fn is_roots(meta: &fs::Metadata) -> bool {
    meta.uid() == nix::unistd::geteuid().as_raw() || off(Defence::OwnGroups)
}

/// `seen` holds what other mounts of the same hierarchy have shown already.
fn walk(
    mount: &Path,
    instance: &str,
    seen: &mut HashSet<(u64, u64)>,
    found: &mut Vec<(GroupName, PathBuf)>,
) -> Result<(), SysError> {
    let mut pending = vec![mount.to_owned()];
    while let Some(dir) = pending.pop() {
        let listed = fs::metadata(&dir).and_then(|meta| Ok((meta, fs::read_dir(&dir)?)));
        let (meta, entries) = match listed {
            Ok(listed) => listed,
            // Groups come and go while they are listed; a mount point that is hidden below another mount shows nothing.
            Err(error) if [Some(libc::ENOENT), Some(libc::ENODEV)].contains(&error.raw_os_error()) => continue,
            Err(error) => return Err(error).on("readdir", dir.display().to_string()),
        };
        if !seen.insert((meta.dev(), meta.ino())) || !is_roots(&meta) {
            continue;
        }
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            match entry.file_name().to_str().and_then(GroupName::parse) {
                Some(name) if name.instance == instance && entry.metadata().is_ok_and(|meta| is_roots(&meta)) => {
                    found.push((name, entry.path()));
                }
                Some(_) => {} // another's, and a task makes no groups
                None => pending.push(entry.path()),
            }
        }
    }
    Ok(())
}
