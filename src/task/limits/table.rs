//! The one table of limits. The command line's flags, the keys of a profile, the API's fields and every check of them come from it.

use std::fmt;
use std::time::Duration;

use super::{Limits, least_io_bps};
use crate::task::units;

/// What a limit is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A size: `512M`.
    Bytes,
    /// A number of CPUs: `0.5`.
    Cpus,
    /// A span of time: `90s`.
    Time,
    /// A whole number.
    Count,
}

/// The value of a limit; those of one limit are of one kind, and only they are compared.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
#[allow(missing_docs)] // the kinds of Unit
pub enum Quantity {
    Bytes(u64),
    Cpus(f64),
    Time(Duration),
    Count(u64),
}

/// One limit: a row of [`LIMITS`].
#[derive(Debug)]
pub struct Limit {
    /// In profiles and in errors.
    pub name: &'static str,
    /// On the command line, after the dashes.
    pub flag: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// No task can run with less.
    pub least: Quantity,
    /// What the least is needed for, where that is more than anything at all.
    pub needed_to: Option<&'static str>,
    /// In the help of the command line.
    pub help: &'static str,
    get: fn(&Limits) -> Quantity,
    set: fn(&mut Limits, Quantity),
}

/// `field: "flag", unit, least, what that is needed to, help`; the name is the flag's with underscores.
macro_rules! limit {
    ($field:ident, $name:literal, $flag:literal, $unit:ident, $least:expr, $needed_to:expr, $help:literal) => {
        Limit {
            name: $name,
            flag: $flag,
            unit: Unit::$unit,
            least: Quantity::$unit($least),
            needed_to: $needed_to,
            help: $help,
            get: |limits| Quantity::$unit(limits.$field),
            set: |limits, quantity| {
                if let Quantity::$unit(value) = quantity {
                    limits.$field = value;
                }
            },
        }
    };
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// All of them, in the order of the help. Defaults are those of [`Limits::default`].
#[rustfmt::skip]
pub static LIMITS: [Limit; 12] = [
    limit!(memory_bytes, "memory", "memory", Bytes, 8 << 20, Some("build the sandbox"),
        "Memory of all processes together, tmpfs included; swap is always 0"),
    limit!(cpus, "cpus", "cpus", Cpus, 0.01, None,
        "Share of CPU time; 1.5 is one and a half CPUs"),
    limit!(cpu_time, "cpu_time", "cpu-time", Time, MILLISECOND, None,
        "CPU time of all processes together"),
    limit!(timeout, "timeout", "timeout", Time, MILLISECOND, None,
        "Time from start to end; then everything is killed, without a SIGTERM before"),
    limit!(pids, "pids", "pids", Count, 1, None,
        "Processes and threads at once"),
    limit!(io_read_bps, "io_read_bps", "io-read-bps", Bytes, 1, None,
        "Bytes per second read from each disk behind the sandbox; at least a quarter of --memory"),
    limit!(io_write_bps, "io_write_bps", "io-write-bps", Bytes, 1, None,
        "Bytes per second written to each disk behind the sandbox; at least a quarter of --memory"),
    limit!(output_bytes, "output_limit", "output-limit", Bytes, 1, None,
        "Standard output and standard error together; one byte more ends the task"),
    limit!(nofile, "nofile", "nofile", Count, 16, Some("let a program load its libraries"),
        "Open files per process"),
    limit!(fsize_bytes, "fsize", "fsize", Bytes, 1, None,
        "Size of any one file"),
    limit!(disk_bytes, "disk", "disk", Bytes, 1, None,
        "Size of /task, and of /tmp and /dev/shm each; their pages count as memory too"),
    limit!(inodes, "inodes", "inodes", Count, 1, None,
        "Files and directories in each of them"),
];

impl Limit {
    /// The row of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        LIMITS.iter().find(|limit| limit.name == name)
    }

    /// Its value.
    pub fn get(&self, limits: &Limits) -> Quantity {
        (self.get)(limits)
    }

    /// Replaces its value by another of the same unit.
    pub fn set(&self, limits: &mut Limits, quantity: Quantity) {
        (self.set)(limits, quantity);
    }

    /// What is said of less than the least.
    pub(super) fn too_little(&self) -> String {
        match self.needed_to {
            Some(what) => format!("at least {} are needed to {what}", self.least),
            None => format!("must be at least {}", self.least),
        }
    }
}

impl Unit {
    /// A value as people write it.
    pub fn parse(self, text: &str) -> Result<Quantity, String> {
        Ok(match self {
            Self::Bytes => Quantity::Bytes(units::bytes(text)?),
            Self::Cpus => Quantity::Cpus(units::cpus(text)?),
            Self::Time => Quantity::Time(units::duration(text)?),
            Self::Count => Quantity::Count(units::count(text)?),
        })
    }
}

/// As [`Unit::parse`] reads it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&units::exact_bytes(*bytes)),
            Self::Cpus(cpus) => write!(f, "{cpus}"),
            Self::Time(time) => write!(f, "{time:?}"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}

/// The limits that a request names. For the others something else decides: defaults, or a profile.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct AskedLimits([Option<Quantity>; LIMITS.len()]);

impl AskedLimits {
    /// From each row's value, if it has one.
    pub fn from_each<E>(value: impl FnMut(&'static Limit) -> Result<Option<Quantity>, E>) -> Result<Self, E> {
        let mut asked = Self::default();
        let values = LIMITS.iter().map(value);
        asked.0.iter_mut().zip(values).try_for_each(|(place, value)| value.map(|value| *place = value))?;
        Ok(asked)
    }

    /// Those that are named.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Limit, Quantity)> {
        LIMITS.iter().zip(self.0).filter_map(|(limit, value)| Some((limit, value?)))
    }

    /// All limits, with those of `base` for the others. Whoever asks for much memory, and says nothing of io, is not told of
    /// a floor.
    pub fn over(&self, base: &Limits) -> Limits {
        let mut limits = base.clone();
        self.iter().for_each(|(limit, value)| limit.set(&mut limits, value));
        let floor = Quantity::Bytes(least_io_bps(limits.memory_bytes));
        for (limit, value) in LIMITS.iter().zip(self.0) {
            let is_io = matches!(limit.name, "io_read_bps" | "io_write_bps");
            if is_io && value.is_none() && limit.get(&limits) < floor {
                limit.set(&mut limits, floor);
            }
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_row() {
        let mut changed = Limits::default();
        for limit in &LIMITS {
            assert_eq!(limit.name, limit.flag.replace('-', "_"));
            assert_eq!(limit.unit.parse(&limit.get(&Limits::default()).to_string()), Ok(limit.get(&Limits::default())));
            let before = changed.clone();
            limit.set(&mut changed, limit.least);
            assert_ne!(changed, before, "{}", limit.name);
            assert_eq!(limit.get(&changed), limit.least);
        }
        // All fields, by their number in JSON.
        let fields = serde_json::to_value(&changed).unwrap();
        assert_eq!(fields.as_object().unwrap().len(), LIMITS.len());
    }

    #[test]
    fn less_than_the_least_is_refused_by_name() {
        for limit in &LIMITS {
            let mut limits = Limits { io_read_bps: 1 << 40, io_write_bps: 1 << 40, ..Limits::default() };
            limit.set(&mut limits, limit.least);
            let floor = limit.name.starts_with("io_");
            assert_eq!(limits.validate().is_ok(), !floor, "{}", limit.name);
            let less = match limit.least {
                Quantity::Bytes(least) => Quantity::Bytes(least - 1),
                Quantity::Count(least) => Quantity::Count(least - 1),
                Quantity::Time(_) => Quantity::Time(Duration::ZERO),
                Quantity::Cpus(_) => Quantity::Cpus(f64::NAN),
            };
            limit.set(&mut limits, less);
            assert_eq!(limits.validate().unwrap_err().field, limit.name);
        }
        let endless = Limits { cpus: f64::INFINITY, ..Limits::default() };
        assert_eq!(endless.validate().unwrap_err().to_string(), "cpus: must be a number");
    }
}
