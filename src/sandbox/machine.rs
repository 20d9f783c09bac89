//! A machine of the task's size, as text: what `/proc` shows where the kernel would show the host.

use std::io::{BufRead, BufReader};
use std::time::{SystemTime, UNIX_EPOCH};

/// The task's machine has no history: its load is not counted by anyone.
pub const LOADAVG: &str = "0.00 0.00 0.00 1/1 2\n";

/// Memory of the size of the task's limit. The figures stand still: what is used at the moment is the cgroup's to know.
pub fn meminfo(memory_bytes: u64) -> String {
    let total = memory_bytes / 1024;
    let zero = [
        "Buffers",
        "Cached",
        "SwapCached",
        "Active",
        "Inactive",
        "SwapTotal",
        "SwapFree",
        "Dirty",
        "Writeback",
        "Mapped",
        "Shmem",
        "Slab",
        "SReclaimable",
        "SUnreclaim",
    ];
    let mut text = String::new();
    for (name, kib) in
        [("MemTotal", total), ("MemFree", total), ("MemAvailable", total)].into_iter().chain(zero.map(|name| (name, 0)))
    {
        text += &format!("{:<16}{kib:>8} kB\n", format!("{name}:"));
    }
    text
}

/// As many processors as the task may use. They start counting at the task's start.
pub fn stat(processors: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut text = String::from("cpu  0 0 0 0 0 0 0 0 0 0\n");
    for number in 0..processors {
        text += &format!("cpu{number} 0 0 0 0 0 0 0 0 0 0\n");
    }
    text + &format!(
        "intr 0\nctxt 0\nbtime {now}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"
    )
}

/// The host's description of its first processors: the model is no secret, any program can ask the processor itself.
pub fn cpuinfo(processors: usize) -> std::io::Result<String> {
    let mut text = String::new();
    let mut seen = 0;
    for line in BufReader::new(std::fs::File::open("/proc/cpuinfo")?).lines() {
        let line = line?;
        text += &line;
        text.push('\n');
        seen += usize::from(line.is_empty());
        if seen == processors {
            break;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_the_size_of_the_limits() {
        assert!(meminfo(64 << 20).starts_with("MemTotal:          65536 kB\n"));
        assert_eq!(stat(3).matches("\ncpu").count(), 3);
        assert_eq!(cpuinfo(1).unwrap().matches("processor\t").count(), 1);
    }
}
