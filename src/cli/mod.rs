//! The `taskman` command: parse, call the library, show, and exit with a code that means something.

mod doctor;
mod run;
mod streams;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Taskman's own failure, also in its arguments; the codes of `run` are those of env(1) and timeout(1).
pub const FAILURE: u8 = 125;

/// Runs any Linux command, contained, and proves that nothing of it is left.
#[derive(Parser)]
#[command(
    name = "taskman",
    version,
    after_help = "Example:\n  taskman run --memory 64M --timeout 10s -- python3 -c 'print(6 * 7)'"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command in a sandbox of its own and exit as it does; needs root, but no server
    Run(Box<run::Args>),
    /// Say what this host can enforce, what it cannot, and how to change that
    Doctor(doctor::Args),
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

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Run(args) }) => run::run(&args),
        Ok(Cli { command: Command::Doctor(args) }) => doctor::run(args),
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(FAILURE) } else { ExitCode::SUCCESS };
            // A closed stderr leaves nobody to tell.
            let _ = error.print();
            code
        }
    }
}
