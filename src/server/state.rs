//! The state directory: root's, with one directory in it that the server may write to, and locked by one server at a time.
//!
//! Everything is opened by descriptor without following links, checked, and only then changed by that descriptor: the server's
//! uid owns what is inside `server/`, never a name that root resolves.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, fchown};

use crate::error::{Context, SysError};
use crate::sys::{fd, file};

/// The directory that the server writes to.
const SERVER: &str = "server";
/// What a killed server's other half has to end in before its successor gives up.
const OTHER_HALF: Duration = Duration::from_secs(5);

/// The state directory, locked twice: by the launcher, and by the server on the directory that is its own. Whoever holds a copy
/// of a lock's descriptor can release it, so the server is not given the launcher's; and it may outlive the launcher, so it
/// has one.
pub struct State {
    lock: OwnedFd,
    server_lock: OwnedFd,
    server: PathBuf,
}

impl State {
    /// Opens or makes the directory, takes its lock, and gives `server/` to `uid`.
    pub fn open(path: &Path, uid: u32) -> Result<Self, SysError> {
        let path = std::path::absolute(path).on("resolve", path.display().to_string())?;
        passable(&path, uid)?;
        let name = path.display().to_string();
        make(&path)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let directory = open(&path, flags, Mode::empty()).on("open", &*name).map_err(|error| match error.errno() {
            Errno::ENOTDIR | Errno::ELOOP => error.hint("--state-dir must be a directory, not a link to one"),
            _ => error,
        })?;
        let directory = File::from(fd::lift(directory).on("fcntl", &*name)?);
        let meta = directory.metadata().on("fstat", &*name)?;
        if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(SysError::new("use", name, Errno::EPERM)
                .hint("it must belong to root, and nobody else may write to it; choose another --state-dir"));
        }
        lock(&directory, &name, Duration::ZERO)?;
        // Passed through to `server/`, and no more.
        fchmod(&directory, Mode::from_bits_truncate(0o711)).on("fchmod", &*name)?;
        let server_lock = give(directory.as_fd(), &path, uid)?;
        Ok(Self { lock: directory.into(), server_lock: server_lock.into(), server: path.join(SERVER) })
    }

    /// The server's lock and directory. For the server, which closes the launcher's descriptor by its number.
    pub fn into_server(self) -> (OwnedFd, PathBuf) {
        std::mem::forget(self.lock);
        (self.server_lock, self.server)
    }
}

/// Whether `uid` can pass through every directory above `path` that is there. Asked before anything is made: the server, which comes
/// there as `uid`, could only say that it cannot open its files.
fn passable(path: &Path, uid: u32) -> Result<(), SysError> {
    let above = path.parent().unwrap_or(path);
    // As it is written, and where links on the way lead.
    let real = above.ancestors().find_map(|directory| directory.canonicalize().ok()).unwrap_or_default();
    for directory in above.ancestors().chain(real.ancestors()) {
        let Ok(meta) = std::fs::metadata(directory) else { continue };
        let bit = match () {
            () if meta.uid() == uid => 0o100,
            () if meta.gid() == uid => 0o010,
            () => 0o001,
        };
        if meta.is_dir() && meta.mode() & bit == 0 {
            let (name, mode) = (directory.display().to_string(), meta.mode() & 0o7777);
            let hint = format!(
                "its mode {mode:04o} keeps uid {uid} (server_uid), which the server runs as, from passing through to --state-dir; \
                 chmod {:04o} {name}, or choose another --state-dir",
                mode | bit
            );
            return Err(SysError::new("pass through", name, Errno::EACCES).hint(hint));
        }
    }
    Ok(())
}

/// Makes the directory and those above it that are missing, each so that it can be passed through, whatever the umask.
fn make(path: &Path) -> Result<(), SysError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make(above)?;
    }
    let name = path.display().to_string();
    std::fs::create_dir(path).on("mkdir", &*name)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711)).on("chmod", name)
}

fn lock(directory: &File, name: &str, patience: Duration) -> Result<(), SysError> {
    if file::lock_within(directory, patience) {
        return Ok(());
    }
    Err(SysError::new("flock", name, Errno::EWOULDBLOCK)
        .hint("another taskman-server runs on this state directory; stop it, or give this one its own --state-dir"))
}

fn give(directory: BorrowedFd<'_>, path: &Path, uid: u32) -> Result<File, SysError> {
    let name = path.join(SERVER).display().to_string();
    match mkdirat(directory, SERVER, Mode::from_bits_truncate(0o700)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(SysError::new("mkdir", name, errno)),
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let server = openat(directory, SERVER, flags, Mode::empty()).on("open", &*name)?;
    let server = File::from(fd::lift(server).on("fcntl", &*name)?);
    // The launcher's lock is ours, so whoever has this one has lost its launcher, and ends because of it.
    lock(&server, &name, OTHER_HALF)?;
    let meta = server.metadata().on("fstat", &*name)?;
    let owner = meta.uid();
    // Just made, or its own. What another uid wrote is not handed over: server_uid was changed, and its files with it must be.
    if owner != 0 && owner != uid {
        return Err(SysError::new("use", name.clone(), Errno::EPERM)
            .hint(format!("it belongs to uid {owner}, server_uid is {uid}; chown -R it, or set server_uid back")));
    }
    // While it is still root's, and only if it must be: the mode of another's directory takes a capability that nothing else here
    // does, and that a container may not have.
    if meta.mode() & 0o7777 != 0o700 {
        fchmod(&server, Mode::from_bits_truncate(0o700)).on("fchmod", &*name)?;
    }
    fchown(&server, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).on("fchown", &*name).map(|()| server)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: u32 = 1_899_999_999;

    /// A place that anyone can pass through.
    fn place() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), 0o711);
        directory
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        State::open(path, UID).map(|_| ()).unwrap_err().to_string()
    }

    /// A child that another test has forked holds the launcher's lock until it executes its program.
    #[allow(clippy::disallowed_methods)]
    fn reopen(path: &Path, uid: u32) -> Result<State, SysError> {
        let is_launchers =
            |error: &SysError| error.errno() == Errno::EWOULDBLOCK && !error.to_string().contains("state/server");
        for _ in 0..1000 {
            match State::open(path, uid) {
                Err(error) if is_launchers(&error) => std::thread::sleep(Duration::from_millis(10)),
                other => return other,
            }
        }
        State::open(path, uid)
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // another process, played by a thread
    fn the_directory_is_roots_and_one_in_it_is_the_servers() {
        let directory = place();
        let path = directory.path().join("a/state");
        let state = State::open(&path, UID).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o711));
        let meta = std::fs::metadata(&state.server).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (UID, UID, 0o700));
        let second = refusal(&path);
        assert!(second.contains("another taskman-server") && second.contains("a/state"), "{second}");
        // A server that releases what it holds lets nobody in while the launcher lives; one that outlives it keeps others out.
        File::from(state.server_lock.try_clone().unwrap()).unlock().unwrap();
        assert!(refusal(&path).contains("another taskman-server"));
        drop(state);
        let State { lock, server_lock, .. } = reopen(&path, UID).unwrap();
        drop(lock);
        assert!(refusal(&path).contains("another taskman-server"));
        // One that ends meanwhile is waited for.
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(server_lock);
        });
        reopen(&path, UID).unwrap();
        ending.join().unwrap();
        assert!(reopen(&path, UID + 1).is_err(), "another uid's files were handed over");
    }

    #[test]
    fn links_and_what_others_can_write_to_are_refused() {
        let directory = place();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(refusal(&link).contains("not a link"), "{}", refusal(&link));
        // A name in it that leads away is not followed either.
        let target = directory.path().join("target");
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, real.join(SERVER)).unwrap();
        assert!(State::open(&real, UID).is_err());
        assert_eq!(std::fs::metadata(&target).unwrap().uid(), 0, "a link was followed");
        set_mode(&real, 0o777);
        assert!(refusal(&real).contains("nobody else may write"), "{}", refusal(&real));
    }

    #[test]
    fn a_directory_that_the_server_cannot_pass_is_named() {
        let directory = place();
        let (closed, link) = (directory.path().join("closed"), directory.path().join("link"));
        std::fs::create_dir(&closed).unwrap();
        set_mode(&closed, 0o750);
        std::os::unix::fs::symlink(&closed, &link).unwrap();
        for path in [closed.join("a/state"), link.join("a/state")] {
            let said = refusal(&path);
            assert!(said.contains("closed: EACCES") || said.contains("link: EACCES"), "{said}");
            assert!(said.contains("mode 0750 keeps uid 1899999999") && said.contains("chmod 0751 /"), "{said}");
            assert!(!closed.join("a").exists(), "something was made");
        }
        set_mode(&closed, 0o751);
        State::open(&closed.join("a/state"), UID).unwrap();
        assert_eq!(std::fs::metadata(closed.join("a")).unwrap().mode() & 0o7777, 0o711);
        assert!(passable(Path::new("/nowhere/at/all"), UID).is_ok(), "what is missing is made");
    }
}
