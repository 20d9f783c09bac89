//! `taskman completions`: a script that makes a shell complete taskman's command line.

use std::process::ExitCode;

use super::connection::print;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  $ taskman completions bash > /etc/bash_completion.d/taskman")]
pub struct Args {
    /// For which shell
    shell: clap_complete::Shell,
}

pub fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "taskman", &mut script);
    // A reader that went away has seen what it wanted.
    let _ = print(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}
