//! What a task may use. All limits are on by default; there is no "unlimited".

mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use table::{AskedLimits, LIMITS, Limit, Quantity, Unit};

use super::spec::SpecError;
use super::units::exact_bytes;
use crate::mutation::{Defence, off};

/// The longest that a page of a host file stays in a task's io queue, in seconds. Under the 5 s after which a launcher counts as silent
/// and an end as violated, because taskman's own pages may be among them.
const LONGEST_WAIT: u64 = 4;

/// The least io limit of a task with this much memory.
///
/// A page of a host file is locked while it is read, and whoever needs it waits, root and other tasks too. A read beyond the io
/// limit waits in a queue of the task's own, first in, first out; so the wait is all that the task has queued, divided by the
/// limit. What it can queue is bounded by its memory, because each locked page is charged to it. It is not bounded by its
/// pids: of a process that is killed while it waits, the read stays queued. Reads past the page cache would stand in the same
/// queue and are charged to nobody, so the filter refuses them (`O_DIRECT`).
pub const fn least_io_bps(memory_bytes: u64) -> u64 {
    memory_bytes.div_ceil(LONGEST_WAIT)
}

/// A task's limits, each enforced by the kernel or from outside the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory of all its processes, including tmpfs, shared memory and the kernel's part; swap is always 0.
    pub memory_bytes: u64,
    /// Share of processor time: 1.5 is one and a half processors.
    pub cpus: f64,
    /// Processor time of all its processes together.
    #[serde(rename = "cpu_time_ms", with = "millis")]
    pub cpu_time: Duration,
    /// Time from start to end.
    #[serde(rename = "timeout_ms", with = "millis")]
    pub timeout: Duration,
    /// Processes and threads at once.
    pub pids: u64,
    /// Bytes per second read from each disk behind the sandbox; [`least_io_bps`] at least.
    pub io_read_bps: u64,
    /// Bytes per second written to each disk behind the sandbox; as much at least.
    pub io_write_bps: u64,
    /// Bytes of standard output and standard error together.
    pub output_bytes: u64,
    /// Open files per process.
    pub nofile: u64,
    /// Size of any one file.
    pub fsize_bytes: u64,
    /// Size of `/task`; `/tmp` and `/dev/shm` have the same each. Their pages count as memory too.
    pub disk_bytes: u64,
    /// Files and directories in each of them.
    pub inodes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            cpus: 1.0,
            cpu_time: Duration::from_secs(600),
            timeout: Duration::from_secs(600),
            pids: 128,
            io_read_bps: 256 << 20,
            io_write_bps: 256 << 20,
            output_bytes: 64 << 20,
            nofile: 1024,
            fsize_bytes: 256 << 20,
            disk_bytes: 256 << 20,
            inodes: 16384,
        }
    }
}

impl Limits {
    /// Of a task that was given nothing at all; no task is.
    pub(crate) const NONE: Self = Self {
        memory_bytes: 0,
        cpus: 0.0,
        cpu_time: Duration::ZERO,
        timeout: Duration::ZERO,
        pids: 0,
        io_read_bps: 0,
        io_write_bps: 0,
        output_bytes: 0,
        nofile: 0,
        fsize_bytes: 0,
        disk_bytes: 0,
        inodes: 0,
    };

    /// Checks that no limit is less than a task can run with.
    pub fn validate(&self) -> Result<(), SpecError> {
        if !self.cpus.is_finite() {
            return Err(SpecError::new("cpus", "must be a number"));
        }
        for limit in &LIMITS {
            if limit.get(self) < limit.least {
                return Err(SpecError::new(limit.name, limit.too_little()));
            }
        }
        let least = least_io_bps(self.memory_bytes);
        for (field, value) in [("io_read_bps", self.io_read_bps), ("io_write_bps", self.io_write_bps)] {
            if value < least && !off(Defence::IoFloor) {
                let (least, memory) = (exact_bytes(least), exact_bytes(self.memory_bytes));
                return Err(SpecError::new(
                    field,
                    format!(
                        "must be at least {least} with a memory of {memory}, or others could wait for more than \
                         {LONGEST_WAIT} s for files that the task reads; give more, or less memory"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// A duration as a whole number of milliseconds.
mod millis {
    use super::*;

    pub fn serialize<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(duration.as_millis() as u64)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_limits_have_a_floor_that_follows_the_memory() {
        let with = |memory_bytes, io_read_bps, io_write_bps| {
            let limits = Limits { memory_bytes, io_read_bps, io_write_bps, ..Limits::default() };
            limits.validate().map_err(|error| error.to_string())
        };
        assert_eq!(with(512 << 20, 128 << 20, 128 << 20), Ok(()));
        assert_eq!(with(8 << 20, 2 << 20, 2 << 20), Ok(()));
        let refused = with(512 << 20, (128 << 20) - 1, 128 << 20).unwrap_err();
        assert!(refused.starts_with("io_read_bps: must be at least 128M with a memory of 512M, or "), "{refused}");
        let refused = with(u64::MAX, u64::MAX / 4 + 1, 1).unwrap_err();
        assert!(refused.starts_with("io_write_bps: must be at least 4194304T with a memory of "), "{refused}");
        assert_eq!(with(8 << 20, 0, 2 << 20).unwrap_err(), "io_read_bps: must be at least 1");
        assert_eq!(Limits::default().validate(), Ok(()));
    }
}
