//! Things of the host's that a test needs: directories a task can be shown, and commands run outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::GUARD;
use super::run::Started;

/// A fresh directory on the host that any uid may enter.
pub struct HostDir(TempDir);

impl HostDir {
    pub fn new() -> Self {
        let dir = TempDir::with_prefix("taskman-e2e-").expect("make a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        Self(dir)
    }

    /// The directory itself, with no symlink in it.
    pub fn root(&self) -> PathBuf {
        self.0.path().canonicalize().expect("canonicalize")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Writes a file with this mode.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let draft = self.path(&format!("{name}.draft"));
        fs::write(&draft, content).expect("write");
        let path = self.copy(&draft, name, mode);
        fs::remove_file(draft).expect("remove");
        path
    }

    /// Copies a file, by another process: a descriptor that this one had open for writing could be in a child that some
    /// other test's thread forks just then, and the file could not be executed until that child has.
    pub fn copy(&self, source: &Path, name: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        host_text(&["install", "-m", &format!("{mode:o}"), source.to_str().unwrap(), path.to_str().unwrap()]);
        path
    }

    /// The argument of `--bind-ro` that shows this directory at `target`.
    pub fn bound_at(&self, target: &str) -> String {
        bind(&self.root(), target)
    }
}

/// The argument of `--bind-ro` that shows `source` at `target`.
pub fn bind(source: &Path, target: &str) -> String {
    format!("{}:{target}", source.display())
}

/// Runs a command outside any sandbox, for its output; a missing tool fails the test.
#[track_caller]
pub fn host_text(words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert!(ended.status.success(), "{words:?}: {ended:?}");
    ended.text()
}
