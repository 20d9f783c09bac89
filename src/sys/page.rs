//! Memory that processes share through a file: for the fault suite, and with the `mutation` feature alone.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU32};

use nix::errno::Errno;

/// Length of the file, which `tests/faults/page.rs` makes.
const LENGTH: usize = 64 << 10;
const NAME: usize = 120;

/// What is in it. Every pattern of bits is a value.
#[repr(C)]
pub struct Page {
    /// What the reader is to do, and its answer.
    pub state: AtomicU32,
    used: AtomicU32,
    name: [AtomicU8; NAME],
    notes: [AtomicU8; LENGTH - NAME - 8],
}

impl Page {
    /// Whether it names `line`.
    pub fn names(&self, line: &[u8]) -> bool {
        line.len() <= NAME && self.name.iter().zip(line).all(|(byte, wanted)| byte.load(SeqCst) == *wanted)
    }

    /// Adds a line to the notes, as long as there is room.
    pub fn note(&self, line: &[u8]) {
        let at = self.used.fetch_add(line.len() as u32, SeqCst) as usize;
        for (place, byte) in self.notes.iter().skip(at).zip(line) {
            place.store(*byte, SeqCst);
        }
    }
}

/// Maps a file of the right length for the rest of this process's life, and of those that it forks.
pub fn map(file: &File) -> Result<&'static Page, Errno> {
    const { assert!(size_of::<Page>() == LENGTH) };
    if file.metadata().map_err(|_| Errno::EIO)?.len() != LENGTH as u64 {
        return Err(Errno::EINVAL);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: the mapping is as long as a page, aligned, never unmapped, and all of it is atomics.
    Ok(unsafe { &*at.cast::<Page>() })
}
