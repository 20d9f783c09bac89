//! The `taskman` command: parse, call the library, show, and exit with a code that means something.

mod audit;
#[cfg(feature = "server")]
mod certs;
mod completions;
mod connection;
mod containment;
mod desk;
mod doctor;
mod follow;
mod get_status;
mod health;
mod incident;
mod input;
pub mod json;
mod limits;
mod list;
mod run;
mod signal;
mod sink;
mod start;
mod stop;
mod stream;
mod streams;
mod summary;
mod table;
mod wait;

use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

/// Taskman's own failure, also in its arguments; the codes of `run` are those of env(1) and timeout(1).
pub const FAILURE: u8 = 125;

/// Runs any Linux command, contained, and proves that nothing of it is left.
#[derive(Parser)]
#[command(
    name = "taskman",
    version,
    after_help = "\
Examples:
  here:         taskman run --memory 64M --timeout 10s -- python3 -c 'print(6 * 7)'
  at a server:  taskman start --user-id client001 --follow -- python3 -c 'print(6 * 7)'"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// The flags of a command are made once it is named: those of all cost a start more than all it asks of the host. They come
// last, so a doc comment on a struct of flags would take the place of the command's own words here.
#[derive(Subcommand)]
#[command(defer = true)]
enum Command {
    /// Run a command in a sandbox of its own and exit as it does; needs root, but no server
    Run(Box<run::Args>),
    /// Start a command as a task at a server
    Start(Box<start::Args>),
    /// Show whether a task runs, and how it ended
    GetStatus(get_status::Args),
    /// Stop a running task
    Stop(stop::Args),
    /// Stream a task's output
    Stream(stream::Args),
    /// List tasks, newest first
    List(list::Args),
    /// Wait until a task has ended, and exit as it did
    Wait(wait::Args),
    /// Send a signal to a task
    Signal(signal::Args),
    /// Show whether a worker takes tasks; quarantine it, recover it, and lift the quarantine
    Health(health::Args),
    /// Audit a worker's containment now, and show what was found
    Audit(audit::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
    /// Say what this host can enforce, what it cannot, and how to change that
    Doctor(doctor::Args),
    /// Make, issue, revoke and list the certificates of a server and its users
    #[cfg(feature = "server")]
    Certs(certs::Args),
    #[cfg(not(feature = "server"))]
    #[command(hide = true, disable_help_flag = true)]
    Certs {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
}

/// Tables for people, JSON for machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text for people
    #[default]
    Table,
    /// JSON for machines
    Json,
}

/// The whole command line; man pages and completions are made of it too.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommand("run", |run| run.defer(|run| limits::shown_for_run(run::Args::augment_args(run))))
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed.map(|cli| cli.command) {
        Ok(Command::Run(args)) => run::run(&args),
        Ok(Command::Start(args)) => start::run(&args),
        Ok(Command::GetStatus(args)) => get_status::run(&args),
        Ok(Command::Stop(args)) => stop::run(&args),
        Ok(Command::Stream(args)) => stream::run(&args),
        Ok(Command::List(args)) => list::run(&args),
        Ok(Command::Wait(args)) => wait::run(&args),
        Ok(Command::Signal(args)) => signal::run(&args),
        Ok(Command::Health(args)) => health::run(&args),
        Ok(Command::Audit(args)) => audit::run(&args),
        Ok(Command::Completions(args)) => completions::run(&args, command()),
        Ok(Command::Doctor(args)) => doctor::run(args),
        #[cfg(feature = "server")]
        Ok(Command::Certs(args)) => certs::run(args),
        #[cfg(not(feature = "server"))]
        Ok(Command::Certs { .. }) => {
            eprintln!(
                "taskman: error: this build has no `certs` (hint: cargo run --release --features server -- certs …)"
            );
            ExitCode::from(FAILURE)
        }
        Err(error) => crate::usage::explain("taskman", error, FAILURE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `-1s` as a word of its own is told what is wrong with it, and not taken for an option.
    #[test]
    fn every_number_may_be_negative_until_it_is_read() {
        let mut cli = command();
        cli.build();
        let mut commands: Vec<_> = cli.get_subcommands().collect();
        let mut seen = Vec::new();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands());
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
                if !["N", "TIME", "SIZE", "FIRST:COUNT"].contains(&name) {
                    continue;
                }
                let taken = arg.is_allow_hyphen_values_set() || name == "N" && arg.is_allow_negative_numbers_set();
                assert!(taken, "{} {arg}", command.get_name());
                seen.push(arg.to_string());
            }
        }
        assert!(seen.len() > 25, "only {seen:?}");
    }

    #[test]
    fn an_error_names_what_it_is_about_once() {
        let lines: [(&[&str], &str); 5] = [
            (&["run", "--bind-ro", "x", "--", "true"], "bind_ro"),
            (&["run", "--uid-range", "x", "--", "true"], "uid_range"),
            (&["run", "--profile", "x", "--", "true"], "profile:"),
            (&["doctor", "--uid-range", "x"], "uid_range"),
            (&["stop", "x", "--user-id", "u"], "task_id"),
        ];
        for (words, field) in lines {
            let error =
                command().try_get_matches_from(std::iter::once(&"taskman").chain(words)).unwrap_err().to_string();
            assert!(error.contains("invalid value 'x' for '") && !error.contains(field), "{error}");
        }
    }

    #[test]
    fn the_command_line_is_sound_and_every_command_has_an_example() {
        let mut cli = command();
        let words = |cli: &clap::Command| cli.get_subcommands().map(|c| c.get_about().cloned()).collect::<Vec<_>>();
        let here = words(&cli);
        cli.clone().debug_assert();
        cli.build();
        assert_eq!(words(&cli)[..here.len()], here, "a struct of flags has a doc comment");
        for command in cli.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "{} has no example:\n{help}", command.get_name());
        }
    }
}
