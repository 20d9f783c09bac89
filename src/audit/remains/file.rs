//! Files of a task's uid, where such a process could have written, and POSIX queues, which are files too.
//!
//! Everything is reached by descriptor from the roots down: no link is followed and no mount is crossed, on the way to a look
//! as on the way to a removal.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::lease::Leases;
use super::shown;
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};

/// Where POSIX message queues have names.
pub const QUEUES: &str = "/dev/mqueue";
/// Where POSIX shared memory has names.
pub const SHARED_MEMORY: &str = "/dev/shm";
/// More entries than this are not looked at: a look must end, and says so when it has not seen all.
const MOST: usize = 1_000_000;

/// One file, or a directory that could not be looked into.
#[derive(Debug, Clone)]
pub struct File {
    root: PathBuf,
    below: PathBuf,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    /// It is this uid's.
    Of { uid: u32, directory: bool },
    /// Nobody knows what is in it.
    Unseen { why: String },
}

/// Every file below `roots` of a uid that nobody has, what is in a directory before the directory.
pub fn find(roots: &[PathBuf], leases: &Leases) -> Result<Vec<File>, SysError> {
    let mut walk = Walk { leases, left: MOST, found: Vec::new() };
    for root in roots {
        walk.below(root)?;
    }
    let mut found = walk.found;
    // A root may lie in another one.
    found.sort_by_key(|file| std::cmp::Reverse(file.path()));
    found.dedup_by_key(|file| file.path());
    Ok(found)
}

struct Walk<'a> {
    leases: &'a Leases,
    left: usize,
    found: Vec<File>,
}

impl Walk<'_> {
    fn below(&mut self, root: &Path) -> Result<(), SysError> {
        let top = match open_root(root) {
            Ok(top) => top,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno).on("open", shown(root)),
        };
        let mut pending = vec![PathBuf::from(".")];
        while let Some(below) = pending.pop() {
            let unseen = |why| File { root: root.to_owned(), below: below.clone(), state: State::Unseen { why } };
            if self.left == 0 {
                self.found.push(unseen(format!("not looked into: more than {MOST} files")));
                return Ok(());
            }
            match open_below(&top, &below, OFlag::O_RDONLY).and_then(Dir::from_fd) {
                Ok(dir) => self.list(dir, root, &below, &mut pending)?,
                // Gone, or another thing by now; or another file system.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => {}
                Err(errno) => self.found.push(unseen(format!("not looked into: {errno}"))),
            }
        }
        Ok(())
    }

    fn list(&mut self, mut dir: Dir, root: &Path, below: &Path, pending: &mut Vec<PathBuf>) -> Result<(), SysError> {
        let names: Vec<_> = dir.iter().map(|entry| entry.map(|entry| entry.file_name().to_owned())).collect();
        for name in names {
            let name = name.on("readdir", shown(&root.join(below)))?;
            if [c".", c".."].contains(&name.as_c_str()) {
                continue;
            }
            self.left = self.left.saturating_sub(1);
            let Ok(meta) = fstatat(&dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            let below = below.join(OsStr::from_bytes(name.to_bytes()));
            let directory = is_directory(meta.st_mode);
            if self.leases.is_nobodys(meta.st_uid)? {
                let state = State::Of { uid: meta.st_uid, directory };
                self.found.push(File { root: root.to_owned(), below: below.clone(), state });
            }
            if directory {
                pending.push(below);
            }
        }
        Ok(())
    }
}

impl File {
    /// Whose it is.
    pub fn uid(&self) -> Option<u32> {
        match self.state {
            State::Of { uid, .. } => Some(uid),
            State::Unseen { .. } => None,
        }
    }

    /// Whether it is what a launcher looks for before it hands a uid out.
    pub fn is_ipc(&self) -> bool {
        [QUEUES, SHARED_MEMORY].contains(&self.root.to_str().unwrap_or_default())
    }

    fn path(&self) -> PathBuf {
        self.root.join(self.below.strip_prefix(".").unwrap_or(&self.below))
    }

    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let kind = if self.root == Path::new(QUEUES) { LeftoverKind::Ipc } else { LeftoverKind::File };
        let detail = match &self.state {
            State::Of { uid, directory: true } => format!("directory of uid {uid}"),
            State::Of { uid, directory: false } => format!("of uid {uid}"),
            State::Unseen { why } => why.clone(),
        };
        Leftover { kind, name: shown(&self.path()), detail }
    }

    /// Removes it, if it still is that uid's.
    pub fn sweep(&self) -> Result<(), SysError> {
        let path = shown(&self.path());
        let State::Of { uid, .. } = self.state else {
            return Err(
                SysError::new("readdir", path, Errno::E2BIG).hint("see by hand whether files of tasks are in it")
            );
        };
        let (Some(parent), Some(name)) = (self.below.parent(), self.below.file_name()) else {
            return Err(SysError::new("unlink", path, Errno::EINVAL));
        };
        let parent = match open_root(&self.root).and_then(|top| open_below(&top, parent, OFlag::O_PATH)) {
            Ok(parent) => parent,
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno).on("open", shown(parent)),
        };
        let meta = match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(meta) if meta.st_uid == uid => meta,
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

fn open_root(root: &Path) -> Result<OwnedFd, Errno> {
    open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

fn open_below(top: impl AsFd, below: &Path, access: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(access | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW).resolve(resolve);
    openat2(top, below, how)
}

fn is_directory(mode: libc::mode_t) -> bool {
    SFlag::from_bits_truncate(mode & libc::S_IFMT) == SFlag::S_IFDIR
}
