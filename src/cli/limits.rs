//! The flags that `run` and `start` share, so that they stand once.
//!
//! An absent flag means the default of `run`, or the profile's value at a server. [`shown_for_run`] puts the defaults into
//! the help of `run`, where they are known.

use std::time::Duration;

use crate::client::{self, StartTaskRequest};
use crate::task::limits::{Limits, least_io_bps};
use crate::task::spec::{BindRo, SpecError};
use crate::task::units;

// What a task may use. A value with a hyphen is taken, so that a negative limit is told what is wrong with it.
#[derive(Debug, Default, Clone, PartialEq, clap::Args)]
pub struct LimitFlags {
    /// Memory of all processes together, tmpfs included; swap is always 0
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Limits", allow_hyphen_values = true)]
    memory: Option<u64>,
    /// Share of processor time; 1.5 is one and a half processors
    #[arg(long, value_name = "N", value_parser = units::cpus, help_heading = "Limits", allow_hyphen_values = true)]
    cpus: Option<f64>,
    /// Processor time of all processes together
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Limits", allow_hyphen_values = true)]
    cpu_time: Option<Duration>,
    /// Time from start to end; then everything is killed, without a SIGTERM before
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Limits", allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Processes and threads at once
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Limits", allow_hyphen_values = true)]
    pids: Option<u64>,
    /// Bytes per second read from each disk behind the sandbox; at least a quarter of --memory
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Limits", allow_hyphen_values = true)]
    io_read_bps: Option<u64>,
    /// Bytes per second written to each disk behind the sandbox; at least a quarter of --memory
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Limits", allow_hyphen_values = true)]
    io_write_bps: Option<u64>,
    /// Standard output and standard error together; one byte more ends the task
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Limits", allow_hyphen_values = true)]
    output_limit: Option<u64>,
    /// Open files per process
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Limits", allow_hyphen_values = true)]
    nofile: Option<u64>,
    /// Size of any one file
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Limits", allow_hyphen_values = true)]
    fsize: Option<u64>,
    /// Size of /task, and of /tmp and /dev/shm each; their pages count as memory too
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, help_heading = "Limits", allow_hyphen_values = true)]
    disk: Option<u64>,
    /// Files and directories in each of them
    #[arg(long, value_name = "N", value_parser = units::count, help_heading = "Limits", allow_hyphen_values = true)]
    inodes: Option<u64>,
}

/// What `run` uses where a flag is absent, as people write it.
const DEFAULTS: [(&str, &str); 14] = [
    ("memory", "512M"),
    ("cpus", "1"),
    ("cpu_time", "600s"),
    ("timeout", "600s"),
    ("pids", "128"),
    ("io_read_bps", "256M"),
    ("io_write_bps", "256M"),
    ("output_limit", "64M"),
    ("nofile", "1024"),
    ("fsize", "256M"),
    ("disk", "256M"),
    ("inodes", "16384"),
    ("workdir", "/task"),
    ("hostname", "taskman"),
];

/// Gives the flags their defaults in the command line of `run`. Those of io are the help's alone, because they follow the memory
/// ([`LimitFlags::over`]).
pub fn shown_for_run(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| match DEFAULTS.iter().find(|(flag, _)| arg.get_id() == flag) {
        Some(("io_read_bps" | "io_write_bps", value)) => {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} [default: {value}, or that quarter]"))
        }
        Some((_, value)) => arg.default_value(*value),
        None => arg,
    })
}

/// What follows the options in the help.
pub const UNITS: &str = "\
Sizes:
  bytes, or with K, M, G or T, powers of 1024 (64M, 1.5G, 512KiB)
Times:
  seconds, or with ms, s, m, h or d (500ms, 1.5, 90s, 5m, 7d)";

/// An error about a field of a request, with the field named as its flag was typed: `--io-read-bps: …`.
pub fn as_typed(error: &str) -> String {
    const OTHERS: [&str; 4] = ["env", "bind_ro", "label", "profile"];
    let is_flag = |name: &str| OTHERS.contains(&name) || DEFAULTS.iter().any(|(flag, _)| *flag == name);
    match error.split_once(": ") {
        Some((name, rest)) if is_flag(name) => format!("--{}: {rest}", name.replace('_', "-")),
        _ => error.to_owned(),
    }
}

impl LimitFlags {
    /// All limits, with those of `base` where a flag is absent.
    pub fn over(&self, base: Limits) -> Limits {
        let memory_bytes = self.memory.unwrap_or(base.memory_bytes);
        // Whoever asks for much memory, and says nothing of io, is not told of a floor.
        let io = |asked: Option<u64>, base: u64| asked.unwrap_or(base.max(least_io_bps(memory_bytes)));
        Limits {
            memory_bytes,
            cpus: self.cpus.unwrap_or(base.cpus),
            cpu_time: self.cpu_time.unwrap_or(base.cpu_time),
            timeout: self.timeout.unwrap_or(base.timeout),
            pids: self.pids.unwrap_or(base.pids),
            io_read_bps: io(self.io_read_bps, base.io_read_bps),
            io_write_bps: io(self.io_write_bps, base.io_write_bps),
            output_bytes: self.output_limit.unwrap_or(base.output_bytes),
            nofile: self.nofile.unwrap_or(base.nofile),
            fsize_bytes: self.fsize.unwrap_or(base.fsize_bytes),
            disk_bytes: self.disk.unwrap_or(base.disk_bytes),
            inodes: self.inodes.unwrap_or(base.inodes),
        }
    }

    /// Puts what was asked for into a request; the parsers let no zero through, which would mean "absent" there.
    pub fn request(&self, request: &mut StartTaskRequest) {
        request.timeout = self.timeout.map(client::proto_duration);
        request.limits = Some(client::Limits {
            memory_bytes: self.memory.unwrap_or(0),
            cpus: self.cpus.unwrap_or(0.0),
            cpu_time: self.cpu_time.map(client::proto_duration),
            pids: self.pids.unwrap_or(0),
            io_read_bps: self.io_read_bps.unwrap_or(0),
            io_write_bps: self.io_write_bps.unwrap_or(0),
            output_bytes: self.output_limit.unwrap_or(0),
            nofile: self.nofile.unwrap_or(0),
            fsize_bytes: self.fsize.unwrap_or(0),
            disk_bytes: self.disk.unwrap_or(0),
            inodes: self.inodes.unwrap_or(0),
        });
    }
}

// What a task finds inside.
#[derive(Debug, Default, Clone, PartialEq, Eq, clap::Args)]
pub struct ShapeFlags {
    /// Set an environment variable; nothing is inherited
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Shape")]
    env: Vec<String>,
    /// Working directory inside
    #[arg(long, value_name = "DIR", help_heading = "Shape")]
    pub workdir: Option<String>,
    /// Host name inside
    #[arg(long, value_name = "NAME", help_heading = "Shape")]
    pub hostname: Option<String>,
    /// Show a file or directory of the host read-only inside
    #[arg(long, value_name = "SRC[:DST]", help_heading = "Shape")]
    pub bind_ro: Vec<BindRo>,
}

impl ShapeFlags {
    /// The environment, name by name.
    pub fn variables(&self) -> Result<Vec<(&str, &str)>, SpecError> {
        pairs("env", &self.env)
    }
}

/// `NAME=VALUE`, many times.
pub fn pairs<'a>(field: &'static str, texts: &'a [String]) -> Result<Vec<(&'a str, &'a str)>, SpecError> {
    let split = |text: &'a String| {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        pair.ok_or_else(|| SpecError::new(field, format!("{text:?} is not NAME=VALUE")))
    };
    texts.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parsed(command: clap::Command, flags: &[&str]) -> LimitFlags {
        let words = std::iter::once("x").chain(flags.iter().copied());
        LimitFlags::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn the_defaults_in_the_help_are_the_limits_in_force() {
        let command = shown_for_run(ShapeFlags::augment_args(LimitFlags::augment_args(clap::Command::new("x"))));
        let nothing = Limits { cpus: 0.5, memory_bytes: 1, pids: 1, inodes: 1, ..Limits::default() };
        assert_eq!(parsed(command, &[]).over(nothing), Limits::default());
    }

    #[test]
    fn an_io_limit_that_nobody_asked_for_follows_the_memory() {
        let command = shown_for_run(LimitFlags::augment_args(clap::Command::new("x")));
        let of = |flags: &[&str]| parsed(command.clone(), flags).over(Limits::default());
        assert_eq!(of(&["--memory", "4G"]).io_read_bps, 1 << 30);
        assert_eq!(of(&["--memory", "4G"]).validate(), Ok(()));
        assert_eq!(of(&["--memory", "8M"]).io_write_bps, 256 << 20);
        let asked = of(&["--memory", "4G", "--io-read-bps", "1M"]);
        assert_eq!(
            as_typed(&asked.validate().unwrap_err().to_string()).split(" with").next(),
            Some("--io-read-bps: must be at least 1G")
        );
    }

    #[test]
    fn a_field_is_named_as_its_flag() {
        assert_eq!(as_typed("io_read_bps: 2G is more"), "--io-read-bps: 2G is more");
        assert_eq!(as_typed("task_id: x is not"), "task_id: x is not");
        assert_eq!(as_typed("the task has ended"), "the task has ended");
    }

    #[test]
    fn what_was_not_asked_for_is_left_to_the_server() {
        let command = LimitFlags::augment_args(clap::Command::new("x"));
        let flags = parsed(command.clone(), &[]);
        assert_eq!(flags, LimitFlags::default());
        let mut request = StartTaskRequest::default();
        flags.request(&mut request);
        assert_eq!((request.limits, request.timeout), (Some(client::Limits::default()), None));
        let flags = parsed(command, &["--memory", "64M", "--timeout", "1.5s", "--cpu-time", "2s"]);
        flags.request(&mut request);
        let limits = request.limits.unwrap();
        assert_eq!((limits.memory_bytes, limits.cpu_time.unwrap().seconds, limits.pids), (64 << 20, 2, 0));
        assert_eq!((request.timeout.unwrap().seconds, request.timeout.unwrap().nanos), (1, 500_000_000));
    }
}
