//! A command line that was not understood: what is wrong with it, what was meant, and an exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Prints what is wrong, or the help that was asked for; exits with `failure` if something is wrong.
pub fn explain(program: &str, mut error: clap::Error, failure: u8) -> ExitCode {
    if !error.use_stderr() {
        // A reader that went away has seen what it wanted.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if let Some(tip) = tip(&error) {
        let tips = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    // Whoever says nothing is shown the help, which is no error. A closed standard error leaves nobody to tell.
    if error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = write!(std::io::stderr(), "{program}: ");
    }
    let _ = error.print();
    ExitCode::from(failure)
}

/// What was meant by a word that came before `--`, where a command comes after it.
fn tip(error: &clap::Error) -> Option<String> {
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg)? else { return None };
    let ContextValue::StyledStr(usage) = error.get(ContextKind::Usage)? else { return None };
    let is_command = error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-');
    let is_command = is_command && usage.to_string().contains("-- <");
    is_command.then(|| format!("a command and its arguments come after --, as in: -- {word} …"))
}
