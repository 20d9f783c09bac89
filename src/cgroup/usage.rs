//! What the task used, from the group's own counters: sampling processes would miss the short-lived ones.

use std::time::Duration;

use nix::errno::Errno;

use super::file;
use super::file::Dir;
use super::group::Group;
use super::layout::Controller;
use crate::error::SysError;

/// What does not fit below a limit and makes the kernel kill is no larger: it lets greater allocations fail (its costly order, 3).
const LARGEST_CHARGE: u64 = 8 * 4096;

/// A group's counters since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupUsage {
    /// Processor time in user mode.
    pub cpu_user: Duration,
    /// Processor time in the kernel.
    pub cpu_system: Duration,
    /// Most memory at once, of all kinds. Kernels before 5.19 keep no peak in version 2; there it is the present value.
    pub memory_peak: u64,
    /// Most processes and threads at once, without sandbox-init. Kernels before 6.1 keep no peak; there it is the present
    /// value.
    pub pids_peak: u64,
}

impl Group {
    /// Processor time of all processes of the group so far, the dead ones included.
    pub fn cpu_time(&self) -> Result<Duration, SysError> {
        Ok(Duration::from_micros(file::keyed(&self.cpu_stat()?, "usage_usec").unwrap_or(0)))
    }

    /// All counters.
    pub fn usage(&self) -> Result<GroupUsage, SysError> {
        let cpu = self.cpu_stat()?;
        let micros = |key| Duration::from_micros(file::keyed(&cpu, key).unwrap_or(0));
        let memory_peak = match self.half(Controller::Memory) {
            Some(half) => self.number(half, "memory.max_usage_in_bytes")?,
            None => self.first_of(Dir::Open(&self.v2), ["memory.peak", "memory.current"])?,
        };
        let pids = self.half(Controller::Pids).unwrap_or(Dir::Open(&self.v2));
        let pids_peak = self.first_of(pids, ["pids.peak", "pids.current"])?.saturating_sub(1);
        Ok(GroupUsage { cpu_user: micros("user_usec"), cpu_system: micros("system_usec"), memory_peak, pids_peak })
    }

    /// How often the kernel killed for want of memory in this group.
    pub fn oom_kills(&self) -> Result<u64, SysError> {
        let text = match self.half(Controller::Memory) {
            Some(half) => file::read_from(half, &self.name, "memory.oom_control")?,
            None => match file::read_from(&self.v2, &self.name, "memory.events") {
                // Without the controller, the kernel kills nobody for this group's sake.
                Err(error) if error.errno() == Errno::ENOENT => return Ok(0),
                other => other?,
            },
        };
        Ok(file::keyed(&text, "oom_kill").unwrap_or(0))
    }

    /// Whether this group's own memory limit was ever reached. One that was killed for want of memory without that had less than
    /// its limit to take: a group above it, as a container's, had no more.
    pub fn reached_memory_limit(&self) -> Result<bool, SysError> {
        let Some(half) = self.half(Controller::Memory) else {
            let events = file::read_from(&self.v2, &self.name, "memory.events")?;
            return Ok(file::keyed(&events, "max").unwrap_or(0) > 0);
        };
        // The limit with swap is the same and is looked at first, and Linux 6.18 counts no failures there: the peak tells.
        let limit = self.number(half, "memory.limit_in_bytes")?;
        let peak = self.number(half, "memory.max_usage_in_bytes")?;
        Ok(self.number(half, "memory.failcnt")? > 0 || peak.saturating_add(LARGEST_CHARGE) >= limit)
    }

    /// Every version 2 group counts processor time, whichever controllers it has; so the v1 cpuacct is not needed.
    fn cpu_stat(&self) -> Result<String, SysError> {
        file::read_from(&self.v2, &self.name, "cpu.stat")
    }

    fn number(&self, dir: Dir<'_>, name: &str) -> Result<u64, SysError> {
        parse(&file::read_from(dir, &self.name, name)?, name, &self.name)
    }

    /// The first of the files that exists; 0 if the controller is missing, which strict mode refuses.
    fn first_of(&self, dir: Dir<'_>, files: [&str; 2]) -> Result<u64, SysError> {
        for name in files {
            match self.number(dir, name) {
                Err(error) if error.errno() == Errno::ENOENT => {}
                other => return other,
            }
        }
        Ok(0)
    }
}

fn parse(text: &str, file: &str, group: &str) -> Result<u64, SysError> {
    text.trim().parse().map_err(|_| SysError::new("read", format!("{file} of {group}: {text:?}"), Errno::EBADMSG))
}
