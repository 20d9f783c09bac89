//! Resources: every limit bites, takes only its own task with it, and is named in the outcome.

mod bounds;
mod charged;
mod direct;
mod litter;
mod memory;
mod objects;
mod pages;
mod sockets;
mod time;
mod unkillable;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [
        bounds::cases(),
        memory::cases(),
        sockets::cases(),
        charged::cases(),
        objects::cases(),
        direct::cases(),
        time::cases(),
        litter::cases(),
        unkillable::cases(),
        pages::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A line of `/proc/meminfo`, in bytes: the whole host's.
pub fn meminfo(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap_or("");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}
