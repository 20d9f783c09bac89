//! What a task may use. All limits are on by default; there is no "unlimited".

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::SpecError;

/// The least memory a sandbox can be built in; below it the set-up itself would be killed.
pub const MIN_MEMORY: u64 = 8 << 20;

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
    /// Bytes per second read from each disk behind the sandbox.
    pub io_read_bps: u64,
    /// Bytes per second written to each disk behind the sandbox.
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
    /// Checks what no single field's parser can know.
    pub fn validate(&self) -> Result<(), SpecError> {
        if self.memory_bytes < MIN_MEMORY {
            return Err(SpecError::new(
                "memory",
                format!("at least {}M are needed to build the sandbox", MIN_MEMORY >> 20),
            ));
        }
        if self.nofile < 16 {
            return Err(SpecError::new("nofile", "at least 16 are needed for a program to load its libraries"));
        }
        if !self.cpus.is_finite() || self.cpus < 0.01 {
            return Err(SpecError::new("cpus", "must lie between 0.01 and 8192"));
        }
        for (field, value) in [
            ("pids", self.pids),
            ("io_read_bps", self.io_read_bps),
            ("io_write_bps", self.io_write_bps),
            ("output_limit", self.output_bytes),
            ("fsize", self.fsize_bytes),
            ("disk", self.disk_bytes),
            ("inodes", self.inodes),
        ] {
            if value == 0 {
                return Err(SpecError::new(field, "must be at least 1"));
            }
        }
        if self.timeout.is_zero() || self.cpu_time.is_zero() {
            return Err(SpecError::new("timeout", "must be at least 1ms"));
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
