//! Memory for pieces of output, page by page where files have theirs.
//!
//! Two things cost more than the bytes themselves, each measured with one reader of a stored GiB. A large piece that is freed goes back to the
//! kernel, which clears its pages before it gives them out again: 115,000 page faults, a fifth of what the server did. So large ones
//! are used again. And on some processors (AMD's Zen) a copy from a page to a place a few bytes into another page
//! takes four times as long: 0.45 s in place of 0.1. That is where allocators put large blocks, so a piece begins where a page does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::log::LARGEST_PIECE;

const PAGE: usize = 4096;
/// Room for the largest piece, wherever in a page it begins.
const LARGE: usize = LARGEST_PIECE + PAGE;
/// Idle ones beyond this many go back to the allocator.
const IDLE: usize = 16;

static LARGE_ONES: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory that pieces hold now, read and not yet sent.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

fn idle() -> MutexGuard<'static, Vec<Vec<u8>>> {
    LARGE_ONES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for one piece.
pub(super) struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Buffer {
    /// For so many bytes, at most [`LARGEST_PIECE`].
    pub(super) fn of(len: usize) -> Self {
        // A piece of half the size in a large one would hold twice its share.
        let is_large = len > LARGEST_PIECE / 8 * 7;
        let used = if is_large { idle().pop() } else { None };
        let memory = used.unwrap_or_else(|| vec![0; if is_large { LARGE } else { len + PAGE }]);
        HELD.fetch_add(memory.len(), Ordering::Relaxed);
        let address = memory.as_ptr().addr();
        Self { memory, begin: address.next_multiple_of(PAGE) - address, len }
    }

    /// To read into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..][..self.len]
    }

    /// All of it was read into. It is idle again when nobody holds any of these bytes.
    pub(super) fn filled(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.begin..][..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        HELD.fetch_sub(self.memory.len(), Ordering::Relaxed);
        if self.memory.len() == LARGE {
            let mut idle = idle();
            if idle.len() < IDLE {
                idle.push(std::mem::take(&mut self.memory));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_begins_with_a_page_and_has_the_length_that_was_asked_for() {
        for len in [0, 1, PAGE, LARGEST_PIECE / 2, LARGEST_PIECE - 1, LARGEST_PIECE] {
            let mut buffer = Buffer::of(len);
            assert!(buffer.memory.len() <= len + len / 4 + PAGE && held() >= buffer.memory.len());
            assert_eq!(buffer.room().len(), len);
            buffer.room().fill(b'x');
            let bytes = buffer.filled();
            assert_eq!(bytes, vec![b'x'; len]);
            assert!(bytes.as_ptr().addr().is_multiple_of(PAGE) || len == 0);
        }
    }

    #[test]
    fn a_large_one_is_idle_again_when_nobody_holds_any_of_its_bytes() {
        let buffer = Buffer::of(LARGEST_PIECE);
        let lies_at = buffer.memory.as_ptr();
        let is_idle = || idle().iter().any(|memory| memory.as_ptr() == lies_at);
        let mut bytes = buffer.filled();
        let part = bytes.split_off(LARGEST_PIECE - 1);
        drop(bytes);
        assert!(!is_idle(), "a part of it is still to be sent");
        drop(part);
        // Other tests of this process take some meanwhile, but never all.
        drop((0..2 * IDLE).map(|_| Buffer::of(LARGEST_PIECE)).collect::<Vec<_>>());
        assert!((1..=IDLE).contains(&idle().len()));
    }
}
