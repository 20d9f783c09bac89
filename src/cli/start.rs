//! `taskman start`: a task at a server, followed or not.

use std::io::IsTerminal;
use std::process::ExitCode;

use super::connection::{Connection, Failure, Patience, execute, print, tell};
use super::follow::{Followed, INTERRUPTED, Interrupt, farewell};
use super::limits::{LimitFlags, ShapeFlags, UNITS, pairs};
use super::stream::{eprint, follower};
use super::wait::until_ended;
use super::{FAILURE, OutputFormat, input, json, summary, table};
use crate::client::{Client, ClientError, OutputRequest, StartTaskRequest, TaskStatusResponse, shell_code};
use crate::task::id::TaskId;
use crate::task::outcome::{Outcome, Reason};
use crate::task::spec::SpecError;

/// What a shell gives for a program that wrote to a closed pipe.
const UNREAD: u8 = 128 + 13;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman start --user-id <user-id> [--server-address <host:port>] [limits…] [--follow] [--help] -- <command> [args...]",
    help_template = "\
Usage:
  {usage}

Description:
  Start a new task by executing the specified command. The --user-id flag is required to identify the client
  initiating the request. A limit that is not given is the profile's; nothing can be higher than it.

{all-args}{after-help}",
    after_help = format!("\
{UNITS}

Exit codes with --follow:
  the task's own; 128+n when signal n ended it; 124 when time ran out; 137 for memory and output limits;
  130 after Ctrl-C, which does not stop the task
Exit codes of a task that was not started:
  125 when taskman failed; 126 when the command cannot be executed; 127 when it does not exist

Example:
  $ taskman start --user-id client001 -- ls /myFolder")
)]
pub struct Args {
    /// The command to execute, followed by any optional arguments, separated by spaces (e.g., ls /myFolder or sh -c
    /// 'command with spaces'). The binary can be a full path or must exist in the system's PATH
    #[arg(required = true, last = true, value_name = "command")]
    command: Vec<String>,

    /// Stream the output until the task has ended, and exit as it did
    #[arg(long)]
    follow: bool,
    /// Print the task's id alone, as in ID=$(taskman start -q -- …)
    #[arg(long, short, conflicts_with_all = ["follow", "output"])]
    quiet: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    limits: LimitFlags,
    #[command(flatten)]
    shape: ShapeFlags,
    /// A profile of the server's configuration [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Shape")]
    profile: Option<String>,
    /// Attach a label to list by; may be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Shape")]
    label: Vec<String>,
    /// Keep standard output and standard error apart; by default they are one stream in true order
    #[arg(long, help_heading = "Shape")]
    split_output: bool,
    /// Leave what was piped in unread: a task at a server gets no input
    #[arg(long, help_heading = "Shape")]
    no_stdin: bool,
}

pub fn run(args: &Args) -> ExitCode {
    execute(start(args))
}

async fn start(args: &Args) -> Result<ExitCode, Failure> {
    let request = request(args)?;
    if !args.no_stdin && input::is_there() {
        let why = "has something to read, and a task at a server gets no input; say --no-stdin to leave it, or use `taskman run`";
        return Err(SpecError::new("standard input", why).into());
    }
    if !args.follow {
        let client = args.connection.open().await?;
        let task = once(&client, request).await?;
        print(&if args.quiet { format!("{task}\n") } else { shown(args.connection.output, task) })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut interrupt = Interrupt::catch()?;
    let started = async {
        let client = args.connection.open().await?;
        let task = once(&client, request).await?;
        Ok::<_, Failure>((client, task))
    };
    let (client, task) = tokio::select! {
        () = interrupt.pressed() => {
            tell(&format!("interrupted before the server answered; see `taskman list{}`", args.connection.flags()));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        started = started => started?,
    };
    match args.connection.output {
        OutputFormat::Table => tell(&format!("task {task} started")),
        OutputFormat::Json => eprint(&shown(OutputFormat::Json, task)),
    }
    follow(args, &client, task, &mut interrupt).await
}

async fn follow(args: &Args, client: &Client, task: TaskId, interrupt: &mut Interrupt) -> Result<ExitCode, Failure> {
    let request = OutputRequest::all(task);
    let mut follower = follower(client, request).await?;
    let status = match follower.follow(interrupt).await? {
        Followed::Ended(_) => tokio::select! {
            () = interrupt.pressed() => None,
            status = until_ended(client, task, None) => Some(status?),
        },
        Followed::Interrupted => None,
        Followed::Unread => return Ok(ExitCode::from(UNREAD)),
    };
    let Some(status) = status else {
        farewell(&args.connection, &request, &follower.written, true).iter().for_each(|line| tell(line));
        return Ok(ExitCode::from(INTERRUPTED));
    };
    about_the_end(args.connection.output, &status);
    Ok(ExitCode::from(shell_code(&status).unwrap_or(FAILURE)))
}

/// Starts the task once, also when the answer was lost on the way: the token makes a repetition harmless.
async fn once(client: &Client, request: StartTaskRequest) -> Result<TaskId, ClientError> {
    let mut patience = Patience::default();
    loop {
        match client.start(request.clone()).await {
            Err(error @ (ClientError::Lost(_) | ClientError::Unreachable { .. })) => patience.after(error).await?,
            answer => return answer,
        }
    }
}

fn request(args: &Args) -> Result<StartTaskRequest, SpecError> {
    let (command, arguments) = args.command.split_first().ok_or_else(|| SpecError::new("command", "is missing"))?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut request = StartTaskRequest {
        command: command.clone(),
        args: arguments.to_vec(),
        env: args.shape.variables()?.into_iter().map(owned).collect(),
        working_dir: args.shape.workdir.clone().unwrap_or_default(),
        hostname: args.shape.hostname.clone().unwrap_or_default(),
        bind_ro: args.shape.bind_ro.iter().map(ToString::to_string).collect(),
        labels: pairs("label", &args.label)?.into_iter().map(owned).collect(),
        client_token: TaskId::random().to_string(),
        profile: args.profile.clone().unwrap_or_default(),
        split_output: args.split_output,
        ..Default::default()
    };
    args.limits.request(&mut request);
    Ok(request)
}

fn shown(output: OutputFormat, task: TaskId) -> String {
    match output {
        OutputFormat::Table => table::table(["TASK ID"], &[[task.to_string()]]),
        OutputFormat::Json => json::line(&json::Started { task_id: task.to_string() }),
    }
}

/// As `run` does: a line when it was not a plain end, or for people; the whole status as JSON.
fn about_the_end(output: OutputFormat, status: &TaskStatusResponse) {
    let task = json::Task::from(status);
    if output == OutputFormat::Json {
        return eprint(&json::line(&task));
    }
    let plain = |outcome: &Outcome| matches!(outcome.reason, Reason::Exit | Reason::Signal);
    let is_plain = task.outcome.as_ref().is_some_and(plain)
        && task.containment.as_ref().is_some_and(|containment| containment.is_proven());
    if let (false, Some(line)) = (is_plain && !std::io::stderr().is_terminal(), summary::of(&task)) {
        tell(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing::{Fake, TASK};

    #[test]
    fn start_prints_the_source_designs_table() {
        let wanted = format!("TASK ID\n-------\n{TASK}\n");
        assert_eq!(shown(OutputFormat::Table, TASK.parse().unwrap()), wanted);
        assert_eq!(shown(OutputFormat::Json, TASK.parse().unwrap()), format!("{{\"task_id\":\"{TASK}\"}}\n"));
    }

    #[tokio::test]
    async fn a_refusal_is_not_repeated() {
        let fake = Fake::default();
        fake.starts.lock().unwrap().push(tonic::Status::resource_exhausted("200 tasks are running"));
        let client = fake.client().await;
        let request = || StartTaskRequest { command: "x".into(), ..Default::default() };
        assert_eq!(once(&client, request()).await.unwrap_err().to_string(), "200 tasks are running");
        assert_eq!(once(&client, request()).await.unwrap().to_string(), TASK);
        assert_eq!(fake.started.lock().unwrap().len(), 2);
    }
}
