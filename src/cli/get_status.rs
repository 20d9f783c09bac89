//! `taskman get-status`: a task as it is now.

use std::process::ExitCode;

use super::connection::{Connection, execute, print};
use super::limits::named_by_clap;
use super::{OutputFormat, json, table};
use crate::task::id::TaskName;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman get-status <task-id> --user-id <user-id> [--server-address <host:port>] [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  Retrieve the status of a task using its unique task ID. The command displays details such as whether
  the task is running, start time, process id, and exit code and end time if the process has ended.

{all-args}{after-help}",
    after_help = "\
Example:
  $ taskman get-status a7da14c7-b47a-4535-a263-5bb26e503002 --user-id client001"
)]
pub struct Args {
    /// The task: its id (UUID), or the beginning of it
    #[arg(value_name = "task-id", value_parser = named_by_clap::<TaskName>)]
    task: TaskName,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        let client = args.connection.open().await?;
        let status = client.get_status(client.find(&args.task).await?).await?;
        print(&match args.connection.output {
            OutputFormat::Table => format!("{}\n{}", table::status(&status), table::account(&status)),
            OutputFormat::Json => json::line(&json::Task::from(&status)),
        })?;
        Ok(ExitCode::SUCCESS)
    })
}
