//! Files of a certificates directory. Keys are 0600 from the moment they exist, and no file is ever seen half written.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, fsync, geteuid, unlinkat};

use super::CertsError;
use crate::error::{Context, SysError};

/// More than any certificate, key or index of thousands of users needs.
const LARGEST: u64 = 16 << 20;

/// An open directory, locked: one command at a time reads and writes it.
pub(super) struct Directory {
    fd: Flock<OwnedFd>,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory, and makes it (0700) where there is none.
    pub fn create(path: &Path) -> Result<Self, CertsError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .on("mkdir", path.display().to_string())
            .map_err(|error| error.hint("choose a directory that you may write to"))?;
        Self::open(path)
    }

    /// Opens a directory that others cannot change.
    pub fn open(path: &Path) -> Result<Self, CertsError> {
        let shown = path.display().to_string();
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = openat(AT_FDCWD, path, flags, Mode::empty())
            .on("open", &shown)
            .map_err(|error| error.hint("make one with `taskman certs init --certs DIR`"))?;
        let stat = fstat(&fd).on("fstat", &shown)?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(CertsError::Refused(format!(
                "{shown} belongs to or is writable by others, who could put their own authority in it: use a directory of \
                 your own, such as one made with `mkdir -m 700`"
            )));
        }
        let fd =
            Flock::lock(fd, FlockArg::LockExclusive).map_err(|(_, errno)| SysError::new("flock", &shown, errno))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Whether `name` exists, as whatever.
    pub fn exists(&self, name: &str) -> bool {
        fstatat(self.fd.as_fd(), name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// Reads a file. One that is `secret` must be so.
    pub fn read(&self, name: &str, secret: bool) -> Result<String, CertsError> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let fd = openat(self.fd.as_fd(), name, flags, Mode::empty()).map_err(|errno| {
            let error = SysError::new("open", self.shown(name), errno);
            if errno == Errno::ENOENT { error.hint("`taskman certs init --certs DIR` makes it") } else { error }
        })?;
        let mode = fstat(&fd).on("fstat", self.shown(name))?.st_mode;
        if secret && mode & 0o077 != 0 {
            let shown = self.shown(name);
            return Err(CertsError::Refused(format!(
                "{shown} can be read by others; make it yours with `chmod 600 {shown}`"
            )));
        }
        let mut text = String::new();
        File::from(fd).take(LARGEST).read_to_string(&mut text).on("read", self.shown(name))?;
        Ok(text)
    }

    /// Writes a file that must not exist.
    pub fn write_new(&self, name: &str, text: &str, secret: bool) -> Result<(), CertsError> {
        Ok(self.write(name, text, secret, RenameFlags::RENAME_NOREPLACE)?)
    }

    /// Writes a file in place of what is there.
    pub fn replace(&self, name: &str, text: &str, secret: bool) -> Result<(), CertsError> {
        Ok(self.write(name, text, secret, RenameFlags::empty())?)
    }

    fn write(&self, name: &str, text: &str, secret: bool, flags: RenameFlags) -> Result<(), SysError> {
        // User ids do not start with a dot, so no user's file has this name. The lock makes a left-over one ours.
        let temporary = format!(".{name}.new");
        let dir = self.fd.as_fd();
        match unlinkat(dir, temporary.as_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(SysError::new("unlink", self.shown(&temporary), errno)),
        }
        let create = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(dir, temporary.as_str(), create, Mode::from_bits_truncate(0o600))
            .on("open", self.shown(&temporary))?;
        if !secret {
            // A umask must not make a certificate unreadable to the user it is for.
            fchmod(&fd, Mode::from_bits_truncate(0o644)).on("fchmod", self.shown(&temporary))?;
        }
        let mut file = File::from(fd);
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).on("write", self.shown(&temporary))?;
        let renamed = renameat2(dir, temporary.as_str(), dir, name, flags);
        renamed.on("rename", self.shown(name)).map_err(|error| match error.errno() {
            Errno::EEXIST => error.hint("the file is there already and is not overwritten; choose an empty directory"),
            _ => error,
        })?;
        fsync(dir).on("fsync", self.path.display().to_string())
    }

    fn shown(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}
