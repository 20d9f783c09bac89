//! `taskman run`: one task, no server. The command line is the launcher of its own task.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::streams::{open_anew, tell};
use super::{FAILURE, OutputFormat};
use crate::error::{Context, StartError, SysError};
use crate::launch::{Launcher, Sink, UidRange, Wait};
use crate::task::limits::Limits;
use crate::task::outcome::Reason;
use crate::task::profile::Profile;
use crate::task::report::Report;
use crate::task::spec::{BindRo, SpecError, TaskSpec};
use crate::task::units;

/// Signals that ask `taskman run` to stop its task.
const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

#[derive(clap::Args)]
// So that a negative limit is told what is wrong with it, not that it is an unknown option.
#[command(allow_negative_numbers = true)]
#[command(after_help = "\
Exit codes:
  the task's own; 128+n when signal n ended it; 124 when time ran out; 137 for memory and output limits;
  125 when taskman failed; 126 when the command cannot be executed; 127 when it does not exist

Example:
  taskman run --memory 64M --cpus 0.5 --timeout 10s --report out.json -- python3 -c 'print(6 * 7)'")]
pub struct Args {
    /// Memory of all processes together, tmpfs included; swap is always 0
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "512M", help_heading = "Limits")]
    memory: u64,
    /// Share of processor time; 1.5 is one and a half processors
    #[arg(long, value_name = "N", value_parser = units::cpus, default_value = "1", help_heading = "Limits")]
    cpus: f64,
    /// Processor time of all processes together
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "600s", help_heading = "Limits")]
    cpu_time: Duration,
    /// Time from start to end
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "600s", help_heading = "Limits")]
    timeout: Duration,
    /// Processes and threads at once
    #[arg(long, value_name = "N", value_parser = units::count, default_value = "128", help_heading = "Limits")]
    pids: u64,
    /// Bytes per second read from each disk behind the sandbox
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "256M", help_heading = "Limits")]
    io_read_bps: u64,
    /// Bytes per second written to each disk behind the sandbox
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "256M", help_heading = "Limits")]
    io_write_bps: u64,
    /// Standard output and standard error together; one byte more ends the task
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "64M", help_heading = "Limits")]
    output_limit: u64,
    /// Open files per process
    #[arg(long, value_name = "N", value_parser = units::count, default_value = "1024", help_heading = "Limits")]
    nofile: u64,
    /// Size of any one file
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "256M", help_heading = "Limits")]
    fsize: u64,
    /// Size of /task, and of /tmp and /dev/shm each; their pages count as memory too
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "256M", help_heading = "Limits")]
    disk: u64,
    /// Files and directories in each of them
    #[arg(long, value_name = "N", value_parser = units::count, default_value = "16384", help_heading = "Limits")]
    inodes: u64,

    /// Set an environment variable; nothing is inherited
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Shape")]
    env: Vec<String>,
    /// Working directory inside
    #[arg(long, value_name = "DIR", default_value = "/task", help_heading = "Shape")]
    workdir: String,
    /// Host name inside
    #[arg(long, value_name = "NAME", default_value = "taskman", help_heading = "Shape")]
    hostname: String,
    /// What the task finds inside: default, or judge (/proc holds its own processes and nothing more)
    #[arg(long, value_name = "NAME", default_value = "default", help_heading = "Shape")]
    profile: Profile,
    /// Show a file or directory of the host read-only inside
    #[arg(long, value_name = "SRC[:DST]", help_heading = "Shape")]
    bind_ro: Vec<BindRo>,
    /// Uids to run tasks under, none of which may belong to an account
    #[arg(
        long,
        value_name = "FIRST:COUNT",
        env = "TASKMAN_UID_RANGE",
        default_value = "1900000000:65536",
        help_heading = "Shape"
    )]
    uid_range: UidRange,

    /// Start even if this host cannot enforce everything; the report lists what is reduced
    #[arg(long)]
    no_strict: bool,
    /// Time between SIGTERM and the kill of everything, when stopped
    #[arg(long, value_name = "TIME", value_parser = units::grace, default_value = "10s")]
    grace: Duration,
    /// Write the report, with the exact outcome and the proof, to this file as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// table: a line about the end when it was not a plain exit; json: the report as one line, both on stderr
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    /// Say nothing about the end
    #[arg(long, short)]
    quiet: bool,

    /// The command and its arguments, after --
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the task and returns its exit code.
pub fn run(args: &Args) -> ExitCode {
    match execute(args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "taskman: error: {error}");
            ExitCode::from(error.downcast_ref::<StartError>().map_or(FAILURE, StartError::exit_code))
        }
    }
}

fn execute(args: &Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let spec = spec(args).map_err(StartError::from)?;
    // Opened first: a report that cannot be written is found out before anything runs.
    let report_file = args.report.as_deref().map(ReportFile::open).transpose()?;
    let stop_on = catch_stop_signals()?;
    let launcher = Launcher::with_uids(args.uid_range)?;
    let task = launcher.start(spec)?;
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let [input, output, errors] = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].map(open_anew);
    let report = task.wait_with(Wait {
        // A new reader of a FIFO is not told of writers that were gone before it, so the old one is waited on.
        input: Some(stdin.as_fd()),
        input_anew: input.as_ref().map(AsFd::as_fd),
        stdout: Sink::Fd(output.as_ref().map_or(stdout.as_fd(), AsFd::as_fd)),
        stderr: Sink::Fd(errors.as_ref().map_or(stderr.as_fd(), AsFd::as_fd)),
        stop_on: Some(&stop_on),
        grace: Some(args.grace),
    })?;
    let errors = errors.as_ref().map_or(stderr.as_fd(), AsFd::as_fd);
    show(args, &report, report_file, errors, &stop_on)?;
    let code = if report.containment.is_proven() { report.outcome.shell_code() } else { FAILURE };
    Ok(ExitCode::from(code))
}

fn spec(args: &Args) -> Result<TaskSpec, SpecError> {
    let (command, arguments) = args.command.split_first().ok_or_else(|| SpecError::new("command", "is missing"))?;
    let mut spec = TaskSpec::new(command, arguments)?
        .with_limits(Limits {
            memory_bytes: args.memory,
            cpus: args.cpus,
            cpu_time: args.cpu_time,
            timeout: args.timeout,
            pids: args.pids,
            io_read_bps: args.io_read_bps,
            io_write_bps: args.io_write_bps,
            output_bytes: args.output_limit,
            nofile: args.nofile,
            fsize_bytes: args.fsize,
            disk_bytes: args.disk,
            inodes: args.inodes,
        })?
        .with_workdir(&args.workdir)?
        .with_hostname(&args.hostname)?;
    for variable in &args.env {
        let (name, value) =
            variable.split_once('=').ok_or_else(|| SpecError::new("env", format!("{variable:?} is not NAME=VALUE")))?;
        spec = spec.with_env(name, value)?;
    }
    spec.profile = args.profile;
    spec.binds.clone_from(&args.bind_ro);
    spec.strict = !args.no_strict;
    Ok(spec)
}

/// Where the report goes. Until there is one, an earlier report stays as it is; if there is none, no file is left.
struct ReportFile {
    path: PathBuf,
    file: File,
    made: bool,
}

impl ReportFile {
    fn open(path: &Path) -> Result<Self, SysError> {
        let made = !path.exists();
        let file =
            File::options().write(true).create(true).truncate(false).open(path).on("open", path.display().to_string());
        Ok(Self { path: path.to_owned(), file: file.map_err(|e| e.hint("--report needs a writable place"))?, made })
    }

    fn write(mut self, json: &str) -> Result<(), SysError> {
        self.made = false;
        if self.file.metadata().is_ok_and(|meta| meta.is_file()) {
            self.file.set_len(0).on("ftruncate", self.path.display().to_string())?;
        }
        writeln!(self.file, "{json}").on("write", self.path.display().to_string())
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.made {
            // An empty file of ours; if it cannot be removed, the start error that led here matters more.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Stop signals are read from a descriptor, so that they cannot interrupt anything halfway.
fn catch_stop_signals() -> Result<SignalFd, SysError> {
    let signals = SigSet::from_iter(STOP);
    signals.thread_block().on("sigprocmask", "stop signals")?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).on("signalfd", "stop signals")
}

fn show(
    args: &Args,
    report: &Report,
    file: Option<ReportFile>,
    errors: BorrowedFd<'_>,
    stop_on: &SignalFd,
) -> Result<(), SysError> {
    let json = serde_json::to_string(report).unwrap_or_default();
    file.map(|file| file.write(&json)).transpose()?;
    let plain = matches!(report.outcome.reason, Reason::Exit | Reason::Signal) && report.containment.is_proven();
    match args.output {
        _ if args.quiet => {}
        OutputFormat::Json => tell(&format!("{json}\n"), errors, stop_on),
        OutputFormat::Table if plain && !errors.is_terminal() => {}
        OutputFormat::Table => tell(&format!("taskman: {}\n", summary(report)), errors, stop_on),
    }
    Ok(())
}

/// One line for people: how it ended, what it used, whether anything is left.
fn summary(report: &Report) -> String {
    let usage = &report.usage;
    let failed: Vec<String> = report
        .containment
        .checks
        .iter()
        .filter(|check| check.ok != Some(true))
        .map(|check| format!("{}: {}", check.name, check.value))
        .collect();
    let containment = match failed.as_slice() {
        [] => format!("containment proven by {} checks", report.containment.checks.len()),
        failed => {
            format!("CONTAINMENT {}: {}", format!("{:?}", report.containment.verdict).to_uppercase(), failed.join("; "))
        }
    };
    let reduced =
        if report.reduced.is_empty() { String::new() } else { format!(" · reduced: {}", report.reduced.join("; ")) };
    format!(
        "{} · {:.2} s, {:.2} s cpu, {} memory · {containment}{reduced}",
        report.outcome.detail,
        usage.wall_ms as f64 / 1e3,
        (usage.cpu_user_ms + usage.cpu_system_ms) as f64 / 1e3,
        units::human_bytes(usage.memory_peak_bytes),
    )
}
