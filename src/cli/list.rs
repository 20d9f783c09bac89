//! `taskman list`: one's tasks, newest first; an administrator's view of everyone's.

use std::process::ExitCode;

use clap::ValueEnum;

use super::connection::{Connection, Failure, execute, print};
use super::limits::pairs;
use super::{OutputFormat, json, table};
use crate::client::{JobStatus, ListTasksRequest, TaskStatusResponse};

/// As many as a server gives at once.
const PAGE: u32 = 1000;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman list --user-id <user-id> [--server-address <host:port>] [--all | --owner <user-id>] [--state STATE] [--label NAME=VALUE] [--limit N] [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  List your tasks, newest first. Administrators may list those of others.

{all-args}{after-help}",
    after_help = "\
Example:
  $ taskman list --user-id client001 --state running --label build=42"
)]
pub struct Args {
    /// The tasks of everyone; for administrators
    #[arg(long, conflicts_with = "owner")]
    all: bool,
    /// The tasks of this user; for administrators
    #[arg(long, value_name = "user-id")]
    owner: Option<String>,
    /// Only tasks in this state; may be repeated
    #[arg(long, value_enum, value_name = "STATE")]
    state: Vec<State>,
    /// Only tasks with this label; may be repeated, then with all of them
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    limit: u32,
    #[command(flatten)]
    connection: Connection,
}

/// The states of the service, as people write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// It runs
    #[value(alias = "started")]
    Running,
    /// It exited with code 0
    #[value(alias = "exited-ok")]
    Exited,
    /// It exited with another code
    #[value(alias = "exited-error")]
    Failed,
    /// A signal ended it
    Signaled,
    /// Nobody was left to see how it ended
    Unknown,
}

impl From<State> for JobStatus {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Started,
            State::Exited => Self::ExitedOk,
            State::Failed => Self::ExitedError,
            State::Signaled => Self::Signaled,
            State::Unknown => Self::Unknown,
        }
    }
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        let tasks = pages(args).await?;
        print(&match args.connection.output {
            OutputFormat::Table => table::list(&tasks),
            OutputFormat::Json => json::line(&json::Tasks { tasks: tasks.iter().map(json::Task::from).collect() }),
        })?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn pages(args: &Args) -> Result<Vec<TaskStatusResponse>, Failure> {
    let labels = pairs("label", &args.label)?;
    let mut request = ListTasksRequest {
        status: args.state.iter().map(|state| JobStatus::from(*state).into()).collect(),
        labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        owner: args.owner.clone().unwrap_or_default(),
        all_owners: args.all,
        ..Default::default()
    };
    let client = args.connection.open().await?;
    let mut tasks = Vec::new();
    loop {
        let left = args.limit.saturating_sub(tasks.len() as u32);
        request.page_size = left.min(PAGE);
        let page = client.list(request.clone()).await?;
        tasks.extend(page.tasks);
        tasks.truncate(args.limit as usize);
        if page.next_page_token.is_empty() || tasks.len() >= args.limit as usize {
            return Ok(tasks);
        }
        request.page_token = page.next_page_token;
    }
}
