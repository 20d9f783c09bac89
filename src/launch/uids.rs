//! A uid of its own for every task, from a range that belongs to nobody else.
//!
//! The last sweep goes by uid, so a uid must name one task. A lease is a lock on one byte of one file: the kernel
//! releases it when the launcher dies, however it dies, and other launchers on this host see it at once. A free byte is
//! not enough: the uid is taken only when no process and no IPC object of it exists.

use std::fs::File;

use nix::errno::Errno;

use super::leftovers;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::place::{UID_LOCKS, UidRange, open_uid_locks};
use crate::sys::bytelock;

/// The uids that may be handed out.
pub struct Pool {
    range: UidRange,
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
        open_uid_locks().map(|_| Self { range })
    }

    /// Takes a free uid, beginning the search at a random place so that a uid is not used again soon.
    pub fn take(&self, entropy: u64) -> Result<Lease, SysError> {
        let start = (entropy % u64::from(self.range.count)) as u32;
        let mut reason = "every uid of the range runs a task";
        for step in 0..self.range.count {
            let uid = self.range.first + (start + step) % self.range.count;
            if off(Defence::UidPool) {
                let lock = open_uid_locks()?;
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

    fn try_lock(&self, uid: u32) -> Result<Option<File>, SysError> {
        let file = open_uid_locks()?;
        let taken = bytelock::take(&file, uid).on("lock", format!("byte {uid} of {UID_LOCKS}"))?;
        Ok(taken.then_some(file))
    }
}
