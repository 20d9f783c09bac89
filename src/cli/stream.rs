//! `taskman stream`: a task's output, byte by byte as it was written.

use std::os::fd::AsFd;
use std::process::ExitCode;

use super::connection::{Connection, Failure, execute, tell};
use super::follow::{Followed, Follower, INTERRUPTED, Interrupt, farewell};
use super::limits::named_by_clap;
use super::sink::Sink;
use super::{OutputFormat, json};
use crate::client::{Begin, Client, OutputRequest, OutputSource};
use crate::task::id::{TaskId, TaskName};
use crate::task::units;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman stream <task-id> --user-id <user-id> [--server-address <host:port>] [--offset N | --tail SIZE] [--stdout | --stderr] [--no-follow] [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  Stream real-time output from a running task identified by its unique task ID.
  This command continuously sends the task's stdout and stderr output to your terminal, from the start of the output
  to its end. Ctrl-C ends the stream, not the task. A lost connection is made again, and nothing is lost or repeated.

{all-args}{after-help}",
    after_help = "\
Example:
  $ taskman stream a7da14c7-b47a-4535-a263-5bb26e503002 --user-id client001"
)]
pub struct Args {
    /// The task: its id (UUID), or the beginning of it
    #[arg(value_name = "task-id", value_parser = named_by_clap::<TaskName>)]
    task: TaskName,
    /// Begin at this byte
    #[arg(long, value_name = "N", conflicts_with = "tail", allow_negative_numbers = true)]
    offset: Option<u64>,
    /// Begin this many bytes before the end
    #[arg(long, value_name = "SIZE", value_parser = tail, allow_hyphen_values = true)]
    tail: Option<u64>,
    /// Only standard output, of a task started with --split-output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only standard error, of a task started with --split-output; it is written to standard output
    #[arg(long)]
    stderr: bool,
    /// End with what is there now
    #[arg(long)]
    no_follow: bool,
    #[command(flatten)]
    connection: Connection,
}

fn tail(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { units::bytes(text) }
}

pub fn run(args: &Args) -> ExitCode {
    execute(stream(args))
}

async fn stream(args: &Args) -> Result<ExitCode, Failure> {
    let mut interrupt = Interrupt::catch()?;
    let connected = async {
        let client = args.connection.open().await?;
        let request = request(args, client.find(&args.task).await?);
        Ok::<_, Failure>((follower(&client, request).await?, request))
    };
    let (mut follower, request) = tokio::select! {
        () = interrupt.pressed() => return Ok(ExitCode::from(INTERRUPTED)),
        follower = connected => follower?,
    };
    match follower.follow(&mut interrupt).await? {
        Followed::Ended(end) => {
            if args.connection.output == OutputFormat::Json {
                let (task_id, omitted_bytes) = (request.task.to_string(), follower.omitted);
                let streamed = json::Streamed { task_id, omitted_bytes, end: json::stream_end(end) };
                eprint(&json::line(&streamed));
            }
            Ok(ExitCode::SUCCESS)
        }
        Followed::Interrupted => {
            farewell(&args.connection, &request, &follower.written, false).iter().for_each(|line| tell(line));
            Ok(ExitCode::from(INTERRUPTED))
        }
        Followed::Unread => Ok(ExitCode::SUCCESS),
    }
}

fn request(args: &Args, task: TaskId) -> OutputRequest {
    OutputRequest {
        task,
        begin: args.tail.map_or(Begin::Offset(args.offset.unwrap_or(0)), Begin::Tail),
        follow: !args.no_follow,
        source: match (args.stdout, args.stderr) {
            (true, _) => OutputSource::Stdout,
            (_, true) => OutputSource::Stderr,
            _ => OutputSource::All,
        },
    }
}

/// Follows a task's output to this process's own.
pub async fn follower(client: &Client, request: OutputRequest) -> Result<Follower, Failure> {
    let output = client.stream(request).await?;
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let sink = |fd| Sink::new(fd).map_err(|error| Failure::Local("standard output", error));
    // What was asked for alone goes to standard output, so that it can be piped.
    let alone = request.source == OutputSource::Stderr;
    let errors = sink(if alone { stdout.as_fd() } else { stderr.as_fd() })?;
    Ok(Follower::new(output, sink(stdout.as_fd())?, errors))
}

/// Text on standard error as it is; a closed one leaves nobody to tell.
pub fn eprint(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
}
