//! The service as clients that mean no good find it: cases A01 to A20 and L08, with true binaries over mutual TLS.

mod authorization;
mod ends;
mod floods;
mod handshake;
mod health;
mod readers;
mod requests;
mod secrets;
mod tenants;
mod token;

use crate::support::{Server, wait_until};

/// What a client can make the server hold.
#[derive(Debug, Clone, Copy)]
struct Counters {
    /// Open descriptors.
    fds: usize,
    threads: usize,
    /// Resident memory in KiB.
    rss: u64,
}

impl Counters {
    fn of(server: &Server) -> Self {
        let process = server.half();
        let rss = process.status("VmRSS");
        Self {
            fds: process.list("fd").len(),
            threads: process.list("task").len(),
            rss: rss.trim_end_matches("kB").trim().parse().unwrap(),
        }
    }

    /// Waits until descriptors are back at this count. Threads may be more by those that wait for blocking work (they go
    /// after ten seconds), memory by `more` KiB that the allocator keeps.
    #[track_caller]
    fn again(&self, server: &Server, more: u64) {
        wait_until("the server holds what it held before", || {
            let now = Self::of(server);
            (now.fds <= self.fds && now.threads <= self.threads + 16 && now.rss <= self.rss + more).then_some(())
        });
    }
}
