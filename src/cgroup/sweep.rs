//! Leftovers of dead launchers, and only of dead ones.
//!
//! A launcher holds the lock of its task's version 2 directory as long as it lives, and the kernel releases it when the
//! launcher dies, however it dies. Names, pids and ages decide nothing here: the lock does.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::directory::{is_linked, remove_dir, wait_empty};
use super::file;
use super::layout::{Controller, Layout};
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::place::GroupName;
use crate::sys::xattr;

/// Where the version 1 halves are, as `controller:/path` lines. The launcher that left them may have been in another
/// version 1 group than the one that sweeps.
const NOTE: &std::ffi::CStr = c"trusted.taskman.v1";
/// Processes that were told to die are given this long; every start of a task waits for it, and the next one tries again.
const PATIENCE: Duration = Duration::from_millis(250);
/// What a launcher that has died left is given this long.
pub const LEFT_TO_DIE: Duration = Duration::from_secs(5);
/// Milliseconds between two sweeps of the same instance.
const AGAIN: u8 = 50;

/// One leftover group.
#[derive(Debug)]
pub struct Swept {
    /// Its name.
    pub name: String,
    /// Why it is still there, if it is; the next sweep tries again.
    pub error: Option<SysError>,
}

/// Ends and removes the groups of dead instances. With nothing to do, it costs one listing of a directory.
pub fn sweep(layout: &Layout) -> Vec<Swept> {
    names(layout, |_| true).filter_map(|name| sweep_one(layout, name)).collect()
}

/// The same of one instance whose launcher is known to be dead, again and again until none of its groups is there or `patience`
/// is over. A lock that is held then is no sign of life: a sandbox that was being built has all its launcher's files open, and
/// lets go of them only when its own end has come. One that is never let go of is told with EWOULDBLOCK, and not touched.
pub fn sweep_out(layout: &Layout, instance: &str, patience: Duration) -> Vec<Swept> {
    let until = Instant::now() + patience;
    loop {
        let names: Vec<String> = names(layout, |name| name.instance == instance).collect();
        // All at once, so that they die at the same time.
        for dead in names.iter().filter_map(|name| Dead::take(&layout.v2.dir.join(name))) {
            let _ = dead.kill(); // told below
        }
        let one = |name: String| sweep_one(layout, name.clone()).unwrap_or_else(|| held(name));
        let swept: Vec<Swept> = names.into_iter().map(one).collect();
        if swept.iter().all(|one| one.error.is_none()) || Instant::now() >= until {
            return swept;
        }
        let _ = nix::poll::poll(&mut [], AGAIN);
    }
}

fn held(name: String) -> Swept {
    let error = SysError::new("flock", name.clone(), Errno::EWOULDBLOCK);
    Swept { name, error: Some(error.hint("a process that is not in it still has it open")) }
}

fn names(layout: &Layout, wanted: impl Fn(&GroupName) -> bool) -> impl Iterator<Item = String> {
    let entries = (!off(Defence::Sweep)).then(|| std::fs::read_dir(&layout.v2.dir).ok()).flatten();
    let names = entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(move |name| GroupName::parse(name).is_some_and(|name| wanted(&name)))
}

/// Kills everything in a task's group at once; one that is gone has nothing in it.
pub fn kill(layout: &Layout, name: &str) -> Result<(), SysError> {
    let path = layout.v2.dir.join(name);
    match File::open(&path) {
        Ok(dir) => file::write_to(&dir, name, "cgroup.kill", "1"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).on("open", path.display().to_string()),
    }
}

fn sweep_one(layout: &Layout, name: String) -> Option<Swept> {
    let dead = Dead::take(&layout.v2.dir.join(&name))?;
    let error = noted(&dead.dir, layout, &name).and_then(|halves| dead.end(&halves, PATIENCE)).err();
    Some(Swept { name, error })
}

/// A group whose launcher is dead, held by its lock so that nobody else sweeps it too.
#[derive(Debug)]
pub struct Dead {
    path: PathBuf,
    name: String,
    dir: File,
}

impl Dead {
    /// Takes the group at this version 2 directory; none if its owner lives, or if it is gone.
    pub fn take(path: &Path) -> Option<Self> {
        Self::locked(path, File::try_lock)
    }

    /// Whether the group at this version 2 directory has no living owner. Shared, so that two who look do not take each
    /// other for one.
    pub fn is_at(path: &Path) -> bool {
        Self::locked(path, File::try_lock_shared).is_some()
    }

    fn locked(path: &Path, lock: impl Fn(&File) -> Result<(), TryLockError>) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_owned();
        let dir = File::open(path).ok()?;
        lock(&dir).ok()?;
        let dead = Self { path: path.to_owned(), name, dir };
        // The lock may be of a directory that another sweeper removed, while its creator made a new one of that name.
        is_linked(&dead.dir).then_some(dead)
    }

    /// Kills everything in it at once; forking does not outrun it.
    pub fn kill(&self) -> Result<(), SysError> {
        file::write_to(&self.dir, &self.name, "cgroup.kill", "1")
    }

    /// Kills, waits until the kernel says that it is empty, and removes its version 1 `halves` and then itself.
    pub fn end(&self, halves: &[PathBuf], patience: Duration) -> Result<(), SysError> {
        self.kill()?;
        if !wait_empty(&self.dir, &self.name, patience)? {
            let error = SysError::new("wait", format!("{} to be empty", self.name), Errno::ETIMEDOUT);
            return Err(error.hint("a process in it cannot be killed; see its cgroup.procs"));
        }
        fault::point("sweep-killed");
        let deadline = Instant::now() + patience;
        for half in halves {
            remove_dir(half, &self.dir, deadline)?;
        }
        fault::point("sweep-halves");
        remove_dir(&self.path, &self.dir, deadline)?;
        fault::point("swept");
        Ok(())
    }
}

impl Drop for Dead {
    /// By hand: closing alone would leave the lock to a child that was forked meanwhile and has a copy. No child drops its copy.
    fn drop(&mut self) {
        // Should the kernel keep it, it ends with the last copy.
        let _ = self.dir.unlock();
    }
}

/// Writes down where the version 1 halves will be.
pub(super) fn note(dir: &File, layout: &Layout, name: &str) -> Result<(), SysError> {
    if layout.v1.is_empty() {
        return Ok(());
    }
    let lines: String =
        layout.v1.iter().map(|half| format!("{}:{}\n", half.controllers[0].v1_name(), half.cgroup)).collect();
    xattr::set(dir, NOTE, lines.as_bytes()).on("fsetxattr", format!("{} of {name}", NOTE.to_string_lossy()))
}

/// The version 1 directories that a group's note tells of, as this process sees them. No note: none was made yet.
fn noted(dir: &File, layout: &Layout, name: &str) -> Result<Vec<PathBuf>, SysError> {
    let note = match xattr::get(dir, NOTE) {
        Ok(note) => String::from_utf8_lossy(&note).into_owned(),
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(SysError::new("fgetxattr", format!("{} of {name}", NOTE.to_string_lossy()), errno)),
    };
    let resolve = |line: &str| {
        let (controller, cgroup) = line.split_once(':')?;
        let hierarchy =
            layout.v1.iter().find(|h| h.controllers.iter().any(|c: &Controller| c.v1_name() == controller))?;
        hierarchy.resolve(cgroup).map(|parent| parent.join(name))
    };
    note.lines()
        .map(|line| {
            resolve(line).ok_or_else(|| {
                SysError::new("find", format!("{line} of {name}"), Errno::ENOENT)
                    .hint("no mount shows that version 1 group here; run taskman where it does")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_was_taken_is_free_when_it_is_let_go_whoever_has_a_copy() {
        let group = tempfile::tempdir().unwrap();
        std::fs::write(group.path().join("cgroup.events"), "").unwrap();
        let dead = Dead::take(group.path()).unwrap();
        let _copy = dead.dir.try_clone().unwrap();
        assert!(!Dead::is_at(group.path()) && Dead::take(group.path()).is_none());
        drop(dead);
        assert!(Dead::is_at(group.path()) && Dead::take(group.path()).is_some());
    }
}
