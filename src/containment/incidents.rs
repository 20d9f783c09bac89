//! Incident files: one per finding, whole or not there.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::finding::{Incident, IncidentId};
use crate::error::{Context, SysError};

/// The directory of a state directory's incident files.
#[derive(Debug, Clone)]
pub struct Incidents {
    directory: PathBuf,
}

impl Incidents {
    /// Of this state directory; made by the first finding.
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("incidents") }
    }

    /// Writes the file, or writes it anew with what was done since; it is on disk when this returns.
    pub fn save(&self, incident: &Incident) -> Result<PathBuf, SysError> {
        let shown = self.directory.display().to_string();
        match fs::DirBuilder::new().mode(0o700).create(&self.directory) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).on("mkdir", shown),
        }
        let path = self.path(&incident.id);
        let fresh = path.with_extension("new");
        let name = fresh.display().to_string();
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&fresh).on("open", &*name)?;
        let text = serde_json::to_vec_pretty(incident).expect("plain data is always JSON");
        file.write_all(&text).on("write", &*name)?;
        file.sync_all().on("fsync", &*name)?;
        fs::rename(&fresh, &path).on("rename", &*name)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).on("fsync", shown)?;
        Ok(path)
    }

    /// Reads one.
    pub fn get(&self, id: &IncidentId) -> Result<Incident, SysError> {
        let path = self.path(id);
        let shown = path.display().to_string();
        let text = fs::read(&path).on("read", &*shown).map_err(|error| match error.errno() {
            Errno::ENOENT => error.hint("`taskman audit findings` shows what there is"),
            _ => error,
        })?;
        serde_json::from_slice(&text)
            .map_err(|_| SysError::new("parse", shown, Errno::EBADMSG).hint("the file is damaged; read it by hand"))
    }

    /// The newest ones, newest first. A damaged file is left out; its line in the journal is not.
    pub fn newest(&self, most: usize) -> Result<Vec<Incident>, SysError> {
        Ok(self.ids()?.iter().filter_map(|id| self.get(id).ok()).take(most).collect())
    }

    /// All but the newest, newest first.
    pub fn beyond(&self, most: usize) -> Result<Vec<IncidentId>, SysError> {
        Ok(self.ids()?.into_iter().skip(most).collect())
    }

    /// Removes one, if it is there.
    pub fn remove(&self, id: &IncidentId) -> Result<(), SysError> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).on("unlink", path.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// By their names, newest first.
    fn ids(&self) -> Result<Vec<IncidentId>, SysError> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).on("readdir", self.directory.display().to_string()),
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse::<IncidentId>().ok();
        let mut ids: Vec<IncidentId> = entries.filter_map(|entry| name(entry.ok()?)).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }

    fn path(&self, id: &IncidentId) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }
}
