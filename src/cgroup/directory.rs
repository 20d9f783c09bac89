//! One group's directory: made with its lock, waited for, removed. The lock is what tells the living from the dead, so how
//! it is taken is the whole of the agreement between a launcher and a sweeper.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, mkdir, unlinkat};

use super::file;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::fd;
use crate::sys::file::lock_within;

/// Times a sweeper may win the race for a directory that was just made.
const CREATE_ATTEMPTS: usize = 8;

/// What a sweeper that holds a new, empty directory takes to remove it is microseconds; one that is stopped is not waited for.
const SWEEPER: Duration = Duration::from_millis(250);

/// A directory of a hierarchy. Nobody but root may open it: whoever can, can also hold its lock, and so keep it from its launcher
/// or, once that is dead, from every sweep.
pub(super) fn make(path: &Path) -> Result<(), SysError> {
    let mode = if off(Defence::PrivateGroups) { 0o755 } else { 0o700 };
    mkdir(path, Mode::from_bits_truncate(mode)).map_err(|errno| {
        let error = SysError::new("mkdir", path.display().to_string(), errno);
        match errno {
            Errno::EROFS => error.hint("cgroupfs is mounted read-only; in a container, start it privileged"),
            Errno::EACCES | Errno::EPERM => error.hint("needs root and a delegated cgroup; see taskman doctor"),
            Errno::EAGAIN => error.hint("cgroup.max.descendants of a parent is reached"),
            _ => error,
        }
    })
}

/// Makes the version 2 directory and takes its lock. A sweeper that looks between the two finds an unlocked, empty group
/// and removes it: then the lock is not to be had, or it is of a directory that is no longer there.
pub(super) fn make_locked(path: &Path) -> Result<File, SysError> {
    for _ in 0..CREATE_ATTEMPTS {
        make(path)?;
        if let Some(dir) = lock(path)? {
            return Ok(dir);
        }
    }
    Err(SysError::new("flock", path.display().to_string(), Errno::EAGAIN)
        .hint("another taskman keeps sweeping it away"))
}

/// Opens and locks a directory that was just made; none if it was removed meanwhile. The wait for a sweeper is bounded: it is the
/// launcher's only thread that waits.
fn lock(path: &Path) -> Result<Option<File>, SysError> {
    let Ok(dir) = File::open(path) else { return Ok(None) };
    // A child of the launcher keeps it under numbers it assigns itself.
    let dir = File::from(fd::lift(dir.into()).on("fcntl", path.display().to_string())?);
    if !lock_within(&dir, SWEEPER) {
        let error = SysError::new("flock", path.display().to_string(), Errno::EWOULDBLOCK);
        return Err(error.hint("another process holds the directory that was just made; see `fuser -v` of it"));
    }
    Ok(is_linked(&dir).then_some(dir))
}

/// Whether the directory is still in the tree. Its link count does not tell on cgroupfs; its files do.
pub(super) fn is_linked(dir: &File) -> bool {
    faccessat(dir, "cgroup.events", AccessFlags::F_OK, AtFlags::empty()).is_ok()
}

/// Whether any process is in the group of this directory.
pub(super) fn is_populated(dir: &File, name: &str) -> Result<bool, SysError> {
    Ok(match events(dir, name)? {
        Some(events) => populated(&events, name)?,
        None => false,
    })
}

/// Waits until no process is in the group of this directory; false if `timeout` comes first.
pub(super) fn wait_empty(dir: &File, name: &str, timeout: Duration) -> Result<bool, SysError> {
    let Some(events) = events(dir, name)? else { return Ok(true) };
    let deadline = Instant::now() + timeout;
    while populated(&events, name)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // Rounded up: a wait of no milliseconds would spin.
        let wait = PollTimeout::try_from(left.as_millis() as u64 + 1).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(events.as_fd(), PollFlags::POLLPRI)], wait) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SysError::new("poll", format!("cgroup.events of {name}"), errno)),
        }
    }
    Ok(true)
}

/// None of a group that was removed: it holds nothing.
fn events(dir: &File, name: &str) -> Result<Option<OwnedFd>, SysError> {
    match file::open(dir, name, "cgroup.events", OFlag::O_RDONLY) {
        Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::ENODEV) => Ok(None),
        opened => opened.map(Some),
    }
}

fn populated(events: &OwnedFd, name: &str) -> Result<bool, SysError> {
    let mut text = [0; 128];
    // Always from the start: that is what arms the next poll.
    match pread(events, &mut text, 0) {
        Ok(n) => Ok(file::keyed(&String::from_utf8_lossy(&text[..n]), "populated") != Some(0)),
        // Removed meanwhile.
        Err(Errno::ENODEV) => Ok(false),
        Err(errno) => Err(SysError::new("read", format!("cgroup.events of {name}"), errno)),
    }
}

/// Removes one directory of the `group` whose version 2 directory is open; one that is gone is as good.
pub(super) fn remove_dir(path: &Path, group: &File, deadline: Instant) -> Result<(), SysError> {
    loop {
        match unlinkat(AT_FDCWD, path, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EBUSY) if Instant::now() < deadline => {
                let name = path.display().to_string();
                if wait_empty(group, &name, deadline.saturating_duration_since(Instant::now()))? {
                    // Empty, yet busy: an exiting task is let go a moment after the event. Give it that moment.
                    let _ = poll(&mut [], PollTimeout::from(1u8));
                }
            }
            Err(Errno::EBUSY) => {
                let error = SysError::new("rmdir", path.display().to_string(), Errno::EBUSY);
                return Err(error.hint("processes are still in it; see its cgroup.procs"));
            }
            Err(errno) => return Err(SysError::new("rmdir", path.display().to_string(), errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_directory_is_not_waited_for() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("group");
        make(&path).unwrap();
        std::fs::write(path.join("cgroup.events"), "").unwrap();
        let holder = File::open(&path).unwrap();
        holder.lock().unwrap();
        assert_eq!(lock(&path).unwrap_err().errno(), Errno::EWOULDBLOCK);
        holder.unlock().unwrap();
        assert!(lock(&path).unwrap().is_some());
    }
}
