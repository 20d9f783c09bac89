//! The output limit of a task: bytes it may still write, shared by its streams.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Bytes left of a task's output limit. Exactly that many are stored; the first byte beyond is news.
#[derive(Debug)]
pub struct Allowance {
    left: AtomicU64,
    exceeded: watch::Sender<bool>,
}

impl Allowance {
    /// `limit` bytes for all streams of one task together.
    pub fn new(limit: u64) -> Self {
        Self { left: AtomicU64::new(limit), exceeded: watch::Sender::new(false) }
    }

    /// Turns true, once, when the task wrote more than its limit.
    pub fn exceeded(&self) -> watch::Receiver<bool> {
        self.exceeded.subscribe()
    }

    /// Up to `want` bytes of what is left. What was not needed is to be given back.
    pub(super) fn take(&self, want: u64) -> u64 {
        let take = |left: u64| Some(left - left.min(want));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.expect("the update always has a value").min(want)
    }

    /// Gives back what was taken and not written.
    pub(super) fn give_back(&self, unused: u64) {
        self.left.fetch_add(unused, Ordering::Relaxed);
    }

    /// A byte came that nothing was left for.
    pub(super) fn exceed(&self) {
        self.exceeded.send_if_modified(|exceeded| !std::mem::replace(exceeded, true));
    }
}
