//! A uid of its own for every task, from a range that belongs to nobody else.
//!
//! The last sweep goes by uid, so a uid must name one task. A lease is a lock on one byte of one file: the kernel
//! releases it when the launcher dies, however it dies, and other launchers on this host see it at once. A free byte is
//! not enough: the uid is taken only when no process and no IPC object of it exists.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::{RUN_DIR, leftovers};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::task::spec::SpecError;

/// Uids that no account of the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The first uid.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Default for UidRange {
    /// Above every range that distributions, subuid tools and systemd hand out.
    fn default() -> Self {
        Self { first: 1_900_000_000, count: 65_536 }
    }
}

impl std::str::FromStr for UidRange {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong =
            || SpecError::new("uid_range", format!("{text:?} is not FIRST:COUNT; write for example 1900000000:65536"));
        let (first, count) = text.split_once(':').ok_or_else(wrong)?;
        let range = Self { first: first.parse().map_err(|_| wrong())?, count: count.parse().map_err(|_| wrong())? };
        // Below 65536 live accounts; the top two values mean "nobody" and "no change" to the kernel.
        if range.first < 65_536
            || range.count == 0
            || range.first.checked_add(range.count).is_none_or(|end| end >= u32::MAX - 1)
        {
            return Err(SpecError::new(
                "uid_range",
                format!("{text:?} must start at 65536 or above and hold at least one uid"),
            ));
        }
        Ok(range)
    }
}

impl UidRange {
    /// Whether `uid` lies in the range.
    pub fn contains(&self, uid: u32) -> bool {
        uid >= self.first && uid - self.first < self.count
    }
}

/// The range and the file whose bytes stand for its uids.
pub struct Pool {
    range: UidRange,
    path: String,
}

/// One uid, this task's alone until the lease is dropped.
#[derive(Debug)]
pub struct Lease {
    /// The uid, and gid.
    pub uid: u32,
    /// Holds the lock; closing it gives the uid back.
    _lock: File,
}

impl Pool {
    /// Opens the pool, making its lock file on the first use of the host.
    pub fn open(range: UidRange) -> Result<Self, SysError> {
        // With its mode from the start: a launcher that dies right here leaves no directory that others can write to.
        match std::fs::DirBuilder::new().mode(0o700).create(RUN_DIR) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).on("mkdir", RUN_DIR),
        }
        Ok(Self { range, path: format!("{RUN_DIR}/uids") })
    }

    /// Takes a free uid, beginning the search at a random place so that a uid is not used again soon.
    pub fn take(&self, entropy: u64) -> Result<Lease, SysError> {
        let start = (entropy % u64::from(self.range.count)) as u32;
        let mut reason = "every uid of the range runs a task";
        for step in 0..self.range.count {
            let uid = self.range.first + (start + step) % self.range.count;
            if off(Defence::UidPool) {
                let lock = self.lock_file()?;
                return Ok(Lease { uid: self.range.first, _lock: lock });
            }
            let Some(lock) = self.try_lock(uid)? else { continue };
            if leftovers::of_uid(uid)?.is_empty() {
                return Ok(Lease { uid, _lock: lock });
            }
            reason = "processes or IPC objects of its uids exist";
        }
        let UidRange { first, count } = self.range;
        Err(SysError::new("lease a uid from", format!("{first}:{count}"), Errno::EAGAIN)
            .hint(format!("{reason}; wait for tasks to end or give a larger --uid-range")))
    }

    fn lock_file(&self) -> Result<File, SysError> {
        // A description of its own per lease: open-file-description locks end when the last copy of it is closed.
        File::options().write(true).create(true).truncate(false).mode(0o600).open(&self.path).on("open", &*self.path)
    }

    fn try_lock(&self, uid: u32) -> Result<Option<File>, SysError> {
        let file = self.lock_file()?;
        let byte = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: i64::from(uid),
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&byte)) {
            Ok(_) => Ok(Some(file)),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(errno) => Err(SysError::new("lock", format!("byte {uid} of {}", self.path), errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_reach_real_accounts_are_refused() {
        assert_eq!("70000:10".parse::<UidRange>().unwrap(), UidRange { first: 70_000, count: 10 });
        for bad in ["", "70000", "0:10", "1000:10", "70000:0", "4294967290:10", "a:b", "70000:-1"] {
            assert_eq!(bad.parse::<UidRange>().unwrap_err().field, "uid_range", "{bad}");
        }
    }
}
