//! The one table: each limit, its file and its format in version 1 and in version 2.
//!
//! Twin code paths for the two versions drift apart; two columns of one table are read side by side.

use super::device::Device;
use super::layout::Controller;
use crate::mutation::Defence;
use crate::task::limits::Limits;

/// Length of the kernel's default bandwidth period, which version 1 groups start with.
const PERIOD_US: u64 = 100_000;
/// The kernel has no more process ids than this and refuses a larger `pids.max`.
const MAX_PIDS: u64 = 4_194_304;

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory of all kinds.
    Memory,
    /// Memory that the kernel holds in the queues of TCP and UDP sockets.
    SocketMemory,
    /// Swap, of which there is none.
    Swap,
    /// One out-of-memory kill takes the whole task.
    OomGroup,
    /// Processor share.
    Cpu,
    /// Processes and threads.
    Pids,
    /// Bytes read per second and disk.
    IoRead,
    /// Bytes written per second and disk.
    IoWrite,
}

/// One file and what to write to it.
#[derive(Debug)]
pub struct Form {
    /// Name of the interface file.
    pub file: &'static str,
    /// Its content; a [`Form::per_device`] file gets it once per disk, after `major:minor `.
    pub value: fn(&Limits) -> String,
    /// Whether the line names a disk.
    pub per_device: bool,
    /// What takes the limit back, where keeping it would only make a killed task die slowly.
    pub lifted: Option<&'static str>,
}

/// One limit in both versions. Files are written in the order they stand.
#[derive(Debug)]
pub struct Row {
    /// What is limited.
    pub limit: Limit,
    /// By which controller.
    pub controller: Controller,
    /// The switch of the mutation arm.
    pub defence: Defence,
    /// Files in a version 1 hierarchy.
    pub v1: &'static [Form],
    /// Files in the version 2 tree.
    pub v2: &'static [Form],
}

const fn form(file: &'static str, value: fn(&Limits) -> String) -> Form {
    Form { file, value, per_device: false, lifted: None }
}

const fn per_device(file: &'static str, value: fn(&Limits) -> String) -> Form {
    Form { file, value, per_device: true, lifted: None }
}

impl Form {
    const fn lifted(self, value: &'static str) -> Self {
        Self { lifted: Some(value), ..self }
    }
}

/// The table.
pub static ROWS: [Row; 8] = [
    Row {
        limit: Limit::Memory,
        controller: Controller::Memory,
        defence: Defence::Memory,
        v1: &[form("memory.limit_in_bytes", |l| l.memory_bytes.to_string())],
        v2: &[form("memory.max", |l| l.memory_bytes.to_string())],
    },
    Row {
        limit: Limit::SocketMemory,
        controller: Controller::Memory,
        defence: Defence::SocketMemory,
        // Version 1 counts the memory of TCP and UDP sockets only where it is limited, and apart; version 2 always.
        v1: &[form("memory.kmem.tcp.limit_in_bytes", |l| l.memory_bytes.to_string())],
        v2: &[],
    },
    Row {
        limit: Limit::Swap,
        controller: Controller::Swap,
        defence: Defence::Swap,
        // Version 1 limits memory and swap together, so "no more than memory alone", and does not swap by itself. It
        // must follow memory: the sum may never be below the part.
        v1: &[
            form("memory.memsw.limit_in_bytes", |l| l.memory_bytes.to_string()),
            form("memory.swappiness", |_| "0".into()),
        ],
        v2: &[form("memory.swap.max", |_| "0".into())],
    },
    Row {
        limit: Limit::OomGroup,
        controller: Controller::Memory,
        defence: Defence::OomGroup,
        // Version 1 has no such file: there the launcher watches `memory.oom_control` and writes `cgroup.kill`.
        v1: &[],
        v2: &[form("memory.oom.group", |_| "1".into())],
    },
    Row {
        limit: Limit::Cpu,
        controller: Controller::Cpu,
        defence: Defence::Cpu,
        // A new group's period is PERIOD_US already.
        v1: &[form("cpu.cfs_quota_us", |l| quota_us(l).to_string()).lifted("-1")],
        v2: &[form("cpu.max", |l| format!("{} {PERIOD_US}", quota_us(l))).lifted("max")],
    },
    Row {
        limit: Limit::Pids,
        controller: Controller::Pids,
        defence: Defence::Pids,
        v1: &[form("pids.max", pids)],
        v2: &[form("pids.max", pids)],
    },
    Row {
        limit: Limit::IoRead,
        controller: Controller::Io,
        defence: Defence::Io,
        v1: &[per_device("blkio.throttle.read_bps_device", |l| l.io_read_bps.to_string()).lifted("0")],
        v2: &[per_device("io.max", |l| format!("rbps={}", l.io_read_bps)).lifted("rbps=max")],
    },
    Row {
        limit: Limit::IoWrite,
        controller: Controller::Io,
        defence: Defence::Io,
        v1: &[per_device("blkio.throttle.write_bps_device", |l| l.io_write_bps.to_string()).lifted("0")],
        v2: &[per_device("io.max", |l| format!("wbps={}", l.io_write_bps)).lifted("wbps=max")],
    },
];

impl Form {
    /// The lines to write, each with a write of its own.
    pub fn lines(&self, limits: &Limits, devices: &[Device]) -> Vec<String> {
        self.lines_of(&(self.value)(limits), devices)
    }

    /// The lines that take the limit back, if it is one that is taken back.
    pub fn lifting_lines(&self, devices: &[Device]) -> Vec<String> {
        self.lifted.map_or(Vec::new(), |value| self.lines_of(value, devices))
    }

    fn lines_of(&self, value: &str, devices: &[Device]) -> Vec<String> {
        match self.per_device {
            false => vec![value.to_owned()],
            true => devices.iter().map(|device| format!("{device} {value}")).collect(),
        }
    }
}

fn quota_us(limits: &Limits) -> u64 {
    // The kernel refuses less than one millisecond.
    ((limits.cpus * PERIOD_US as f64).round() as u64).max(1000)
}

/// sandbox-init is a process of the group but not of the task.
fn pids(limits: &Limits) -> String {
    limits.pids.saturating_add(1).min(MAX_PIDS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(v2: bool, limits: &Limits) -> Vec<(&'static str, String)> {
        let disk = [Device { major: 254, minor: 0 }];
        let forms = ROWS.iter().flat_map(|row| if v2 { row.v2 } else { row.v1 });
        forms.flat_map(|f| f.lines(limits, &disk).into_iter().map(|line| (f.file, line))).collect()
    }

    #[test]
    fn every_limit_stands_in_both_columns() {
        for row in &ROWS {
            // The one exception: version 2 counts it as memory, without being asked.
            assert_eq!(row.v2.is_empty(), row.limit == Limit::SocketMemory, "{:?} in version 2", row.limit);
            // The one exception: version 1 has no group kill, the launcher does it.
            assert_eq!(row.v1.is_empty(), row.limit == Limit::OomGroup, "{:?} in version 1", row.limit);
        }
    }

    #[test]
    fn the_files_get_what_the_kernel_documents() {
        let limits = Limits {
            memory_bytes: 64 << 20,
            cpus: 0.5,
            pids: 10,
            io_read_bps: 7,
            io_write_bps: 9,
            ..Limits::default()
        };
        let v1 = [
            ("memory.limit_in_bytes", "67108864"),
            ("memory.kmem.tcp.limit_in_bytes", "67108864"),
            ("memory.memsw.limit_in_bytes", "67108864"),
            ("memory.swappiness", "0"),
            ("cpu.cfs_quota_us", "50000"),
            ("pids.max", "11"),
            ("blkio.throttle.read_bps_device", "254:0 7"),
            ("blkio.throttle.write_bps_device", "254:0 9"),
        ];
        let v2 = [
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("cpu.max", "50000 100000"),
            ("pids.max", "11"),
            ("io.max", "254:0 rbps=7"),
            ("io.max", "254:0 wbps=9"),
        ];
        assert_eq!(written(false, &limits), v1.map(|(f, v)| (f, v.to_owned())));
        assert_eq!(written(true, &limits), v2.map(|(f, v)| (f, v.to_owned())));
    }

    #[test]
    fn what_would_slow_a_killed_task_is_taken_back_and_nothing_else() {
        let disk = [Device { major: 254, minor: 0 }];
        let lifted = |forms: fn(&Row) -> &'static [Form]| -> Vec<String> {
            ROWS.iter().flat_map(|row| forms(row).iter().flat_map(|form| form.lifting_lines(&disk))).collect()
        };
        assert_eq!(lifted(|row| row.v1), ["-1", "254:0 0", "254:0 0"]);
        assert_eq!(lifted(|row| row.v2), ["max", "254:0 rbps=max", "254:0 wbps=max"]);
    }

    #[test]
    fn extremes_stay_in_the_kernels_range() {
        let limits = Limits { cpus: 0.01, pids: u64::MAX, ..Limits::default() };
        let v2 = written(true, &limits);
        assert!(
            v2.contains(&("cpu.max", "1000 100000".into())) && v2.contains(&("pids.max", "4194304".into())),
            "{v2:?}"
        );
    }
}
