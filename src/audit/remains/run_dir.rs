//! The directory that all launchers of the host share holds the file of uid locks, and nothing else.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::shown;
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};
use crate::place::UID_LOCKS;

/// Something that does not belong there.
#[derive(Debug, Clone)]
pub struct Stray {
    path: PathBuf,
}

/// Everything but the locks.
pub fn find(run_dir: &Path) -> Result<Vec<Stray>, SysError> {
    let entries = match fs::read_dir(run_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).on("readdir", shown(run_dir)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.on("readdir", shown(run_dir))?;
        if Some(entry.file_name().as_ref()) != Path::new(UID_LOCKS).file_name().map(OsStr::new) {
            found.push(Stray { path: entry.path() });
        }
    }
    Ok(found)
}

impl Stray {
    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let detail = "nothing but the uid locks belongs there".to_owned();
        Leftover { kind: LeftoverKind::Directory, name: shown(&self.path), detail }
    }

    /// Removes it if it is an empty directory, such as a mount was on. Nothing else there is known to be ours.
    pub fn sweep(&self) -> Result<(), SysError> {
        match fs::remove_dir(&self.path).on("rmdir", shown(&self.path)) {
            Err(error) if error.errno() != Errno::ENOENT => {
                Err(error.hint("taskman did not make it; find out who did, and remove it by hand"))
            }
            _ => Ok(()),
        }
    }
}
