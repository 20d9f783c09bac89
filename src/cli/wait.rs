//! `taskman wait`: until a task has ended; exits as it did.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::connection::{Connection, Failure, Patience, execute, print, tell};
use super::limits::named_by_clap;
use super::{OutputFormat, json, summary, table};
use crate::client::{Client, TaskStatusResponse, shell_code};
use crate::task::id::{TaskId, TaskName};
use crate::task::units;

/// As timeout(1): the time was over.
const TIMED_OUT: u8 = 124;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman wait <task-id> --user-id <user-id> [--server-address <host:port>] [--timeout TIME] [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  Wait until a task has ended and everything of it is gone, print its status, and exit with its exit code.

{all-args}{after-help}",
    after_help = "\
Exit codes:
  the task's own; 128+n when signal n ended it; 124 when its time ran out, or the time to wait; 137 for memory and
  output limits; 125 when taskman failed

Example:
  $ taskman wait a7da14c7-b47a-4535-a263-5bb26e503002 --user-id client001 --timeout 5m"
)]
pub struct Args {
    /// The task: its id (UUID), or the beginning of it
    #[arg(value_name = "task-id", value_parser = named_by_clap::<TaskName>)]
    task: TaskName,
    /// Give up after this time; the task goes on [default: wait without end]
    #[arg(long, value_name = "TIME", value_parser = units::grace, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        let client = args.connection.open().await?;
        let task = client.find(&args.task).await?;
        let status = until_ended(&client, task, args.timeout).await?;
        print(&match args.connection.output {
            OutputFormat::Table => table::status(&status),
            OutputFormat::Json => json::line(&json::Task::from(&status)),
        })?;
        if let (OutputFormat::Table, Some(line)) = (args.connection.output, summary::of(&json::Task::from(&status))) {
            tell(&line);
        }
        Ok(match shell_code(&status) {
            Some(code) => ExitCode::from(code),
            None => {
                let waited = args.timeout.unwrap_or_default();
                tell(&format!("task {} still runs after {}", task, humantime::format_duration(waited)));
                ExitCode::from(TIMED_OUT)
            }
        })
    })
}

/// Waits over lost connections, which change nothing about the task.
pub async fn until_ended(
    client: &Client,
    task: TaskId,
    timeout: Option<Duration>,
) -> Result<TaskStatusResponse, Failure> {
    let begun = Instant::now();
    let mut patience = Patience::default();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        match client.wait(task, left).await {
            Ok(status) if shell_code(&status).is_some() => return Ok(status),
            // A server may answer earlier than it was asked to.
            Ok(status) if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) => return Ok(status),
            Ok(_) => patience = Patience::default(),
            Err(error) => patience.after(error).await?,
        }
    }
}
