//! A uid of its own for every task, from a range that belongs to nobody else.
//!
//! The last sweep goes by uid, so a uid must name one task. A lease is a lock on one byte of one file: the kernel
//! releases it when the launcher dies, however it dies, and other launchers on this host see it at once. A free byte is
//! not enough: the uid is taken only when no process and no IPC object of it exists.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::leftovers;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::place::{UID_LOCKS, UidRange, open_uid_locks};
use crate::sys::bytelock;

/// The uids that may be handed out.
pub struct Pool {
    range: UidRange,
    locks: Mutex<Arc<Locks>>,
}

/// The lock file, opened once for all leases: a launcher with thousands of tasks has few descriptors for each. The kernel
/// does not keep locks of one description apart, so who has which is known here.
#[derive(Debug)]
struct Locks {
    file: File,
    /// Whichever file they were leased by.
    held: Arc<Mutex<HashSet<u32>>>,
}

/// One uid, this task's alone until the lease is dropped.
#[derive(Debug)]
pub struct Lease {
    /// The uid, and gid.
    pub uid: u32,
    locks: Arc<Locks>,
}

impl Pool {
    /// Opens the pool, making its lock file on the first use of the host.
    pub fn open(range: UidRange) -> Result<Self, SysError> {
        Ok(Self { range, locks: Mutex::new(Arc::new(Locks::open(Arc::default())?)) })
    }

    /// Takes a free uid, beginning the search at a random place so that a uid is not used again soon.
    pub fn take(&self, entropy: u64) -> Result<Lease, SysError> {
        let locks = self.locks()?;
        if off(Defence::UidPool) {
            return Ok(Lease { uid: self.range.first, locks });
        }
        let start = (entropy % u64::from(self.range.count)) as u32;
        let mut reason = "every uid of the range runs a task";
        for step in 0..self.range.count {
            let uid = self.range.first + (start + step) % self.range.count;
            let Some(lease) = Lease::take(&locks, uid)? else { continue };
            if leftovers::of_uid(uid)?.is_empty() {
                return Ok(lease);
            }
            reason = "processes or IPC objects of its uids exist";
        }
        let UidRange { first, count } = self.range;
        Err(SysError::new("lease a uid from", format!("{first}:{count}"), Errno::EAGAIN)
            .hint(format!("{reason}; wait for tasks to end or give a larger --uid-range")))
    }

    /// The file that all launchers of this host look at; another one if somebody has removed it since.
    fn locks(&self) -> Result<Arc<Locks>, SysError> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = locks.file.metadata().on("fstat", UID_LOCKS)?;
        let is_ours = |there: Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
        if !std::fs::metadata(UID_LOCKS).is_ok_and(is_ours) {
            *locks = Arc::new(Locks::open(Arc::clone(&locks.held))?);
        }
        Ok(Arc::clone(&locks))
    }
}

impl Locks {
    fn open(held: Arc<Mutex<HashSet<u32>>>) -> Result<Self, SysError> {
        Ok(Self { file: open_uid_locks()?, held })
    }

    fn held(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Takes this uid; none if a task has it, of this launcher or of another.
    fn take(locks: &Arc<Locks>, uid: u32) -> Result<Option<Self>, SysError> {
        let mut held = locks.held();
        if held.contains(&uid) || !bytelock::take(&locks.file, uid).on("lock", format!("byte {uid} of {UID_LOCKS}"))? {
            return Ok(None);
        }
        held.insert(uid);
        Ok(Some(Self { uid, locks: Arc::clone(locks) }))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.locks.held().remove(&self.uid) {
            // Should the kernel keep it, the uid is this launcher's alone until it ends.
            let _ = bytelock::release(&self.locks.file, self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_uid_is_leased_once_by_whichever_pool_and_free_when_dropped() {
        // Of this process's own, so that tests beside it take none of them.
        let range = UidRange { first: 1_913_000_000 + std::process::id() % 100_000 * 2, count: 2 };
        let (one, other) = (Pool::open(range).unwrap(), Pool::open(range).unwrap());
        let first = one.take(0).unwrap();
        let second = one.take(0).unwrap();
        assert_eq!((first.uid, second.uid), (range.first, range.first + 1));
        for pool in [&one, &other] {
            assert_eq!(pool.take(0).unwrap_err().errno(), Errno::EAGAIN);
        }
        drop(first);
        let third = other.take(1).unwrap();
        assert_eq!(third.uid, range.first, "the other one is still taken");
        assert_eq!(one.take(0).unwrap_err().errno(), Errno::EAGAIN);
    }
}
