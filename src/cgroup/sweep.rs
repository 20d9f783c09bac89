//! Leftovers of dead launchers, and only of dead ones.
//!
//! A launcher holds the lock of its task's version 2 directory as long as it lives, and the kernel releases it when the
//! launcher dies, however it dies. Names, pids and ages decide nothing here: the lock does.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::directory::{linked, remove_dir, wait_empty};
use super::file;
use super::layout::{Controller, Layout};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::xattr;

/// What every task's group name begins with.
pub(super) const PREFIX: &str = "taskman-";
/// Where the version 1 halves are, as `controller:/path` lines. The launcher that left them may have been in another
/// version 1 group than the one that sweeps.
const NOTE: &std::ffi::CStr = c"trusted.taskman.v1";
/// Processes that were told to die are given this long; every start of a task waits for it, and the next one tries again.
const PATIENCE: Duration = Duration::from_millis(250);

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
    if off(Defence::Sweep) {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(&layout.v2.dir) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| is_task(name));
    names.filter_map(|name| sweep_one(layout, name)).collect()
}

/// `taskman-<instance>.<uuid>`: nothing else is a task's, whatever it begins with.
fn is_task(name: &str) -> bool {
    let task = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.'));
    task.is_some_and(|(instance, id)| !instance.is_empty() && id.len() == 36 && uuid::Uuid::parse_str(id).is_ok())
}

fn sweep_one(layout: &Layout, name: String) -> Option<Swept> {
    let path = layout.v2.dir.join(&name);
    let dir = File::open(&path).ok()?;
    dir.try_lock().ok()?; // its owner lives
    // The lock may be of a directory that another sweeper removed, while its creator made a new one of that name.
    let events = linked(&dir, &name).ok()?;
    let error = end(layout, &name, &path, &dir, &events).err();
    Some(Swept { name, error })
}

fn end(layout: &Layout, name: &str, path: &Path, dir: &File, events: &OwnedFd) -> Result<(), SysError> {
    file::write_to(dir, name, "cgroup.kill", "1")?;
    if !wait_empty(events, name, PATIENCE)? {
        let error = SysError::new("wait", format!("{name} to be empty"), Errno::ETIMEDOUT);
        return Err(error.hint("a process in it cannot be killed; see its cgroup.procs"));
    }
    let deadline = Instant::now() + PATIENCE;
    for half in noted(dir, layout, name)? {
        remove_dir(&half, events, deadline)?;
    }
    remove_dir(path, events, deadline)
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
    use super::is_task;

    #[test]
    fn only_a_tasks_name_is_swept() {
        assert!(is_task("taskman-run-1.00000000-0000-4000-8000-000000000000"));
        for other in [
            "taskman-launcher",
            "taskman-x",
            "taskman-.00000000-0000-4000-8000-000000000000",
            "taskman-x.00000000-0000-4000-8000",
            "other-x.00000000-0000-4000-8000-000000000000",
            "init.scope",
        ] {
            assert!(!is_task(other), "{other}");
        }
    }
}
