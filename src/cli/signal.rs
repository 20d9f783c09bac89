//! `taskman signal`: a signal to a task's main process.

use std::process::ExitCode;

use super::connection::{Connection, execute, print};
use super::limits::named_by_clap;
use super::{OutputFormat, json};
use crate::task::id::TaskName;

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
    /// The task: its id (UUID), or the beginning of it
    #[arg(value_name = "task-id", value_parser = named_by_clap::<TaskName>)]
    task: TaskName,
    /// A name (SIGUSR1, USR1) or a number, also with the dash of kill(1): -9
    #[arg(value_name = "signal", allow_negative_numbers = true, value_parser = |text: &str| Ok::<_, String>(text.trim_start_matches('-').to_owned()))]
    signal: String,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        let client = args.connection.open().await?;
        let task = client.find(&args.task).await?;
        client.signal(task, &args.signal).await?;
        print(&match args.connection.output {
            OutputFormat::Table => format!("Task {} was sent {}.\n", task, args.signal),
            OutputFormat::Json => json::line(&json::Signalled { task_id: task.to_string(), signal: &args.signal }),
        })?;
        Ok(ExitCode::SUCCESS)
    })
}
