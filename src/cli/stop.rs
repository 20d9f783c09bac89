//! `taskman stop`: asks a task to end, and kills it when it does not.

use std::process::ExitCode;
use std::time::Duration;

use super::connection::{Connection, execute, print};
use super::limits::named_by_clap;
use super::{OutputFormat, json};
use crate::client::{JobStatus, one_line};
use crate::task::id::TaskName;
use crate::task::units;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman stop <task-id> --user-id <user-id> [--server-address <host:port>] [--grace TIME] [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  Stop a running task identified by its unique task ID: SIGTERM to its main process and, when the grace is over,
  a kill of everything in it. A task that is not running stays as it is.

{all-args}{after-help}",
    after_help = "\
Example:
  $ taskman stop a7da14c7-b47a-4535-a263-5bb26e503002 --user-id client001"
)]
pub struct Args {
    /// The task: its id (UUID), or the beginning of it
    #[arg(value_name = "task-id", value_parser = named_by_clap::<TaskName>)]
    task: TaskName,
    /// Time between SIGTERM and the kill of everything; 0 kills at once [default: the server's, 10s unless configured]
    #[arg(long, value_name = "TIME", value_parser = units::grace, allow_hyphen_values = true)]
    grace: Option<Duration>,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        let client = args.connection.open().await?;
        let task = client.find(&args.task).await?;
        let before = client.get_status(task).await?;
        client.stop(task, args.grace).await?;
        print(&match args.connection.output {
            OutputFormat::Table if before.status() != JobStatus::Started => {
                format!("Task {} had ended: {}.\n", task, one_line(&before.detail))
            }
            OutputFormat::Table => format!("Task {} stop request received.\n", task),
            OutputFormat::Json => json::line(&json::Stopping { task_id: task.to_string() }),
        })?;
        Ok(ExitCode::SUCCESS)
    })
}
