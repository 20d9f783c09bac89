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
    uid: u32,
    locks: File,
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
        let locks = open_uid_locks()?;
        let taken = bytelock::take(&locks, uid).on("lock", locked(uid))?;
        Ok(taken.then(|| Lease { uid, locks }))
    }
}

impl Drop for Lease {
    /// By hand: closing alone would leave it to a child that was forked meanwhile and has a copy. No child drops its copy.
    fn drop(&mut self) {
        // Should the kernel keep it, it ends with the last copy.
        let _ = bytelock::release(&self.locks, self.uid);
    }
}

fn locked(uid: u32) -> String {
    format!("byte {uid} of {UID_LOCKS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_free_when_its_lease_is_dropped_whoever_has_a_copy_of_the_file() {
        // Of this process's own, so that tests beside it do not take it.
        let range = UidRange { first: 1_914_000_000 + std::process::id() % 100_000, count: 1 };
        let leases = Leases::open(range).unwrap();
        let lease = Leases::take(range.first).unwrap().unwrap();
        let _copy = lease.locks.try_clone().unwrap();
        assert!(!leases.is_nobodys(range.first).unwrap() && Leases::take(range.first).unwrap().is_none());
        drop(lease);
        assert!(leases.is_nobodys(range.first).unwrap() && Leases::take(range.first).unwrap().is_some());
    }
}
