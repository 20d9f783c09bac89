//! Files of a task's uid, where such a process could have written, and POSIX queues, which are files too.
//!
//! Everything is reached by descriptor from the roots down, one level at a time: no link is followed and no mount is crossed, on
//! the way to a look as on the way to a removal.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::lease::Leases;
use super::shown;
use super::walk::{Bounds, Walk};
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};

/// Where POSIX message queues have names.
pub const QUEUES: &str = "/dev/mqueue";
/// Where POSIX shared memory has names.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// One file.
#[derive(Debug, Clone)]
pub struct File {
    root: PathBuf,
    below: PathBuf,
    uid: u32,
    directory: bool,
}

/// A place of which nobody knows what is there.
#[derive(Debug, Clone)]
pub struct Unseen {
    path: PathBuf,
    why: String,
}

/// Every file below `roots` of a uid that nobody has, what is in a directory before the directory; and where it could not look.
pub fn find(roots: &[PathBuf], leases: &Leases, bounds: Bounds) -> Result<(Vec<File>, Vec<Unseen>), SysError> {
    let mut walk = Walk::new(leases, bounds);
    for root in roots {
        walk.below(root)?;
    }
    let (mut found, unseen) = (walk.found, walk.unseen);
    // A root may lie in another one.
    found.sort_by_key(|file| std::cmp::Reverse(file.path()));
    found.dedup_by_key(|file| file.path());
    Ok((found, unseen.into_iter().map(|(path, why)| Unseen { path, why }).collect()))
}

impl Unseen {
    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let detail = format!("not looked into: {}; a lift may accept that", self.why);
        let kind = if off(Defence::UnseenApart) { LeftoverKind::File } else { LeftoverKind::Unseen };
        Leftover { kind, name: shown(&self.path), detail }
    }

    /// Nothing is known to be there.
    pub fn sweep(&self) -> Result<(), SysError> {
        let error = SysError::new("readdir", shown(&self.path), Errno::E2BIG);
        Err(error.hint("see by hand whether files of tasks are in it"))
    }
}

impl File {
    pub(super) fn new(root: &Path, below: PathBuf, uid: u32, directory: bool) -> Self {
        Self { root: root.to_owned(), below, uid, directory }
    }

    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether it is what a launcher looks for before it hands a uid out.
    pub fn is_ipc(&self) -> bool {
        [QUEUES, SHARED_MEMORY].contains(&self.root.to_str().unwrap_or_default())
    }

    fn path(&self) -> PathBuf {
        self.root.join(&self.below)
    }

    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let kind = if self.root == Path::new(QUEUES) { LeftoverKind::Ipc } else { LeftoverKind::File };
        let what = if self.directory { "directory of" } else { "of" };
        let detail = format!("{what} uid {}", self.uid);
        Leftover { kind, name: shown(&self.path()), detail }
    }

    /// Removes it, if it still is that uid's.
    pub fn sweep(&self) -> Result<(), SysError> {
        let path = shown(&self.path());
        let (Some(parent), Some(name)) = (self.below.parent(), self.below.file_name()) else {
            return Err(SysError::new("unlink", path, Errno::EINVAL));
        };
        // One level at a time: the way there may be longer than any path.
        let step = |dir: OwnedFd, name: &OsStr| open_below(&dir, name, OFlag::O_PATH);
        let parent = match open_root(&self.root).and_then(|top| parent.iter().try_fold(top, step)) {
            Ok(parent) => parent,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno).on("open", shown(parent)),
        };
        let meta = match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(meta) if meta.st_uid == self.uid => meta,
            Ok(_) | Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno).on("stat", path),
        };
        let flags = if is_directory(meta.st_mode) { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        unlinkat(&parent, name, flags).on("unlink", path).map_err(|error| match error.errno() {
            Errno::ENOTEMPTY => error.hint("files of others are in it; they are not ours to remove"),
            _ => error,
        })
    }
}

pub(super) fn open_root(root: &Path) -> Result<OwnedFd, Errno> {
    open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

/// The directory of this name in `dir`, and no other: no link, no mount.
pub(super) fn open_below(dir: impl AsFd, name: &OsStr, access: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(access | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW).resolve(resolve);
    openat2(dir, name, how)
}

pub(super) fn is_directory(mode: libc::mode_t) -> bool {
    SFlag::from_bits_truncate(mode & libc::S_IFMT) == SFlag::S_IFDIR
}
