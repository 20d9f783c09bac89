//! Reads and writes of interface files of a group, so that an error names file, value and group.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open as open_path, openat};
use nix::sys::stat::Mode;
use nix::unistd::{read, write};

use crate::error::SysError;

/// Larger than any file that is read here but `cgroup.procs`, which is read to its end in pieces of this size.
const PIECE: usize = 4096;

/// A group's directory. That of version 2 is open, because it is locked; those of version 1 are not: a launcher with thousands
/// of tasks has few descriptors for each.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dir<'a> {
    Open(&'a File),
    At(&'a Path),
}

impl<'a> From<&'a File> for Dir<'a> {
    fn from(dir: &'a File) -> Self {
        Self::Open(dir)
    }
}

impl Dir<'_> {
    fn open(self, file: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlag::O_CLOEXEC;
        match self {
            Self::Open(dir) => openat(dir, file, flags, Mode::empty()),
            Self::At(path) => open_path(&path.join(file), flags, Mode::empty()),
        }
    }
}

/// Opens `file` of the group directory `dir`, which is called `name`.
pub(super) fn open<'a>(dir: impl Into<Dir<'a>>, name: &str, file: &str, flags: OFlag) -> Result<OwnedFd, SysError> {
    let opened = dir.into().open(file, flags);
    opened.map_err(|errno| hinted(SysError::new("open", format!("{file} of {name}"), errno)))
}

/// Writes `value`, whole, to an open interface file.
pub(super) fn put(fd: &OwnedFd, name: &str, file: &str, value: &str) -> Result<(), SysError> {
    match write(fd, value.as_bytes()) {
        Ok(_) => Ok(()),
        Err(errno) => Err(hinted(SysError::new("write", format!("{value:?} to {file} of {name}"), errno))),
    }
}

/// Opens and writes.
pub(super) fn write_to<'a>(dir: impl Into<Dir<'a>>, name: &str, file: &str, value: &str) -> Result<(), SysError> {
    let opened = dir
        .into()
        .open(file, OFlag::O_WRONLY)
        .map_err(|errno| hinted(SysError::new("write", format!("{value:?} to {file} of {name}"), errno)))?;
    put(&opened, name, file, value)
}

/// Opens and reads to the end.
pub(super) fn read_from<'a>(dir: impl Into<Dir<'a>>, name: &str, file: &str) -> Result<String, SysError> {
    let opened = open(dir, name, file, OFlag::O_RDONLY)?;
    read_all(&opened).map_err(|errno| SysError::new("read", format!("{file} of {name}"), errno))
}

/// Reads an open file from where it stands to its end.
pub(super) fn read_all(fd: &OwnedFd) -> Result<String, Errno> {
    let (mut bytes, mut piece) = (Vec::new(), [0; PIECE]);
    loop {
        match read(fd, &mut piece)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The number after `key` in a file of `key value` lines.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// What an errno of cgroupfs usually means; the bare name misleads.
fn hinted(error: SysError) -> SysError {
    match error.errno() {
        Errno::EACCES | Errno::EPERM => error.hint("needs root and a delegated cgroup; see taskman doctor"),
        Errno::ENOENT => {
            error.hint("the controller is not enabled here or the kernel lacks the file; see taskman doctor")
        }
        Errno::EROFS => {
            error.hint("cgroupfs is mounted read-only; in a container, start it privileged or remount it rw")
        }
        Errno::EINVAL => error.hint("the value is out of the kernel's range or above what the parent group allows"),
        Errno::ENODEV => error.hint("the group was removed meanwhile, or no such block device exists"),
        _ => error,
    }
}
