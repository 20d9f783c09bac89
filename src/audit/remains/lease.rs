//! Leases of uids, seen from outside: whether somebody alive has one, and held while its things are swept.

use std::fs::File;

use crate::error::{Context, SysError};
use crate::place::{UID_LOCKS, UidRange, open_uid_locks};
use crate::sys::bytelock;

/// The leases of a range.
pub struct Leases {
    range: UidRange,
    locks: File,
}

/// A uid that no task gets until this is dropped.
pub struct Lease {
    _lock: File,
}

impl Leases {
    /// Of this range.
    pub fn open(range: UidRange) -> Result<Self, SysError> {
        Ok(Self { range, locks: open_uid_locks()? })
    }

    /// The range.
    pub fn range(&self) -> UidRange {
        self.range
    }

    /// Whether `uid` is a task's and nobody alive has it.
    pub fn is_nobodys(&self, uid: u32) -> Result<bool, SysError> {
        Ok(self.range.contains(uid) && bytelock::is_free(&self.locks, uid).on("fcntl", locked(uid))?)
    }

    /// Takes a free one.
    pub fn take(uid: u32) -> Result<Option<Lease>, SysError> {
        let lock = open_uid_locks()?;
        let taken = bytelock::take(&lock, uid).on("lock", locked(uid))?;
        Ok(taken.then_some(Lease { _lock: lock }))
    }
}

fn locked(uid: u32) -> String {
    format!("byte {uid} of {UID_LOCKS}")
}
