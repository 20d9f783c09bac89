//! `taskman run`: one task, no server. The command line is the launcher of its own task.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::json;
use super::limits::{LimitFlags, ShapeFlags, UNITS, as_typed, named_by_clap};
use super::streams::{open_anew, tell};
use super::summary::summary;
use super::{FAILURE, OutputFormat};
use crate::error::{Context, StartError, SysError};
use crate::launch::{Launcher, Sink, UidRange, Wait};
use crate::mutation::{Defence, off};
use crate::task::outcome::Reason;
use crate::task::profile::Profile;
use crate::task::report::Report;
use crate::task::request::TaskRequest;
use crate::task::spec::{SpecError, TaskSpec};
use crate::task::units;

/// Signals that ask `taskman run` to stop its task.
const STOP: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

#[derive(clap::Args)]
#[command(override_usage = "taskman run [OPTIONS] -- <COMMAND> [ARGS]...")]
#[command(after_help = format!("\
{UNITS}

Exit codes:
  the task's own; 128+n when signal n ended it; 124 when time ran out; 137 for memory and output limits;
  125 when taskman failed; 126 when the command cannot be executed; 127 when it does not exist

Example:
  taskman run --memory 64M --cpus 0.5 --timeout 10s --report out.json -- python3 -c 'print(6 * 7)'"))]
pub struct Args {
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    shape: ShapeFlags,
    /// What the task finds inside: default, judge (/proc holds its own processes and nothing more), or filters (default, and
    /// programs may put seccomp filters on themselves)
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = named_by_clap::<Profile>, help_heading = "Shape")]
    profile: Profile,
    /// Uids to run tasks under, none of which may belong to an account
    #[arg(
        long,
        value_name = "FIRST:COUNT",
        env = "TASKMAN_UID_RANGE",
        default_value = "1900000000:65536",
        value_parser = named_by_clap::<UidRange>,
        allow_hyphen_values = true,
        help_heading = "Shape"
    )]
    uid_range: UidRange,

    /// Start even if this host cannot enforce everything; the report lists what is reduced
    #[arg(long)]
    no_strict: bool,
    /// Time between SIGTERM and the kill of everything, when stopped
    #[arg(long, value_name = "TIME", value_parser = units::grace, default_value = "10s", allow_hyphen_values = true)]
    grace: Duration,
    /// Write the report, with the exact outcome and the proof, to this file as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// table: a line about the end, if stderr is a terminal or a limit or containment ended it; json: the report as one line; both on
    /// stderr
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
            let _ = writeln!(std::io::stderr(), "taskman: error: {}", as_typed(&error.to_string()));
            ExitCode::from(error.downcast_ref::<StartError>().map_or(FAILURE, StartError::exit_code))
        }
    }
}

fn execute(args: &Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let spec = spec(args).map_err(StartError::from)?;
    if args.report.as_deref() == Some(Path::new("-")) {
        let why = "takes a file, and - is none; --output json writes the report to standard error (or write ./-)";
        return Err(SpecError::new("--report", why).into());
    }
    // Opened first: a report that cannot be written is found out before anything runs.
    let report_file = args.report.as_deref().map(ReportFile::open).transpose()?;
    let stop_on = catch_stop_signals()?;
    note_few_cpus(args, &spec);
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

/// More than there are cannot be had, and is no reason to refuse. There are as many as this process may use: a CPU set or a quota
/// may leave fewer than the host has.
fn note_few_cpus(args: &Args, spec: &TaskSpec) {
    let there = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if !args.quiet && spec.limits.cpus > there as f64 {
        let _ = writeln!(std::io::stderr(), "taskman: --cpus {}: {there} are available here", spec.limits.cpus);
    }
}

fn spec(args: &Args) -> Result<TaskSpec, SpecError> {
    let (command, arguments) = args.command.split_first().ok_or_else(|| SpecError::new("command", "is missing"))?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let request = TaskRequest {
        env: args.shape.variables()?.into_iter().map(owned).collect(),
        working_dir: args.shape.workdir.clone(),
        hostname: args.shape.hostname.clone(),
        limits: args.limits.over_defaults(),
        bind_ro: args.shape.bind_ro.iter().map(ToString::to_string).collect(),
        split_output: true,
        ..TaskRequest::new(command, arguments)
    };
    let mut spec = request.validate()?;
    spec.profile = args.profile;
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
    /// Root opens what somebody else may have put there: no symlink is followed, and no FIFO is waited for.
    fn open(path: &Path) -> Result<Self, SysError> {
        let made = !path.exists();
        let careful = if off(Defence::PlantedReport) { 0 } else { libc::O_NOFOLLOW | libc::O_NONBLOCK };
        let file = File::options().write(true).create(true).truncate(false).custom_flags(careful).open(path);
        let file = file.on("open", path.display().to_string()).map_err(|error| {
            let hint = match error.errno() {
                Errno::ELOOP => "--report follows no symbolic link; name the file itself",
                Errno::ENXIO => "--report waits for no reader; open the other end of the pipe first",
                _ => "--report needs a writable place",
            };
            error.hint(hint)
        })?;
        Ok(Self { path: path.to_owned(), file, made })
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
    file.map(|file| file.write(json::line(report).trim_end())).transpose()?;
    let plain = matches!(report.outcome.reason, Reason::Exit | Reason::Signal) && report.containment.is_proven();
    match args.output {
        _ if args.quiet => {}
        OutputFormat::Json => tell(&json::line(report), errors, stop_on),
        OutputFormat::Table if plain && !errors.is_terminal() => {}
        OutputFormat::Table => {
            let line = summary(&report.outcome, &report.usage, &report.containment, &report.reduced);
            tell(&format!("taskman: {line}\n"), errors, stop_on);
        }
    }
    Ok(())
}
