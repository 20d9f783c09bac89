//! `taskman signal`: a signal to a task's main process.

use std::process::ExitCode;

use super::connection::{Connection, execute, print};
use super::{OutputFormat, json};
use crate::task::id::TaskId;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman signal <task-id> <signal> --user-id <user-id> [--server-address <host:port>] [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  Send a signal to the main process of a running task. What it makes of it is its own doing; `taskman stop` ends a task.

{all-args}{after-help}",
    after_help = "\
Example:
  $ taskman signal a7da14c7-b47a-4535-a263-5bb26e503002 SIGUSR1 --user-id client001"
)]
pub struct Args {
    /// The unique identifier (UUID) of the task
    #[arg(value_name = "task-id")]
    task: TaskId,
    /// A name (SIGUSR1, USR1) or a number
    #[arg(value_name = "signal")]
    signal: String,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        args.connection.open().await?.signal(args.task, &args.signal).await?;
        print(&match args.connection.output {
            OutputFormat::Table => format!("Task {} was sent {}.\n", args.task, args.signal),
            OutputFormat::Json => json::line(&json::Signalled { task_id: args.task.to_string(), signal: &args.signal }),
        })?;
        Ok(ExitCode::SUCCESS)
    })
}
