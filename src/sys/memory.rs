//! What the allocator does with memory that is free.

/// Bytes that may be free and kept.
const KEPT: i32 = 16 << 20;

/// Has the allocator keep some of what is freed. It gives back to the kernel at once what is large or lies last, and the kernel clears
/// each page before it gives it out again: a client that reads a GiB of output had up to 157,000 page faults, as it happened to lie.
/// For the whole process, so for programs to call and not for libraries.
pub fn keep_freed() {
    for option in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: sets a number of the allocator's own, under its lock; nothing that is allocated changes.
        let _ = unsafe { libc::mallopt(option, KEPT) }; // only speed depends on it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> i64 {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD).unwrap();
        usage.minor_page_faults()
    }

    #[test]
    fn what_is_freed_and_needed_again_is_not_cleared_again() {
        keep_freed();
        let use_some = || std::hint::black_box((0..8).map(|_| vec![1_u8; 1 << 20]).collect::<Vec<_>>());
        drop(use_some());
        let ten_times = || {
            let before = faults();
            (0..10).for_each(|_| drop(use_some()));
            faults() - before
        };
        // A test beside this one that forks makes each page fault once more.
        let fewest = std::iter::repeat_with(ten_times).take(20).find(|faults| *faults < 4000);
        assert!(fewest.is_some(), "4000 faults and more for 10 times 8 MiB, which are 2048 pages");
    }
}
