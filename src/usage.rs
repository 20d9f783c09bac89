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
    // clap's tip would have an option that does not exist run as a command.
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        let sound: Vec<_> = tips.iter().filter(|tip| !tip.to_string().contains(" as a value, use ")).cloned().collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(sound));
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

/// What was meant by a word that is no command of taskman's, or came before `--`, where a command comes after it.
fn tip(error: &clap::Error) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let is_like_another = error.get(ContextKind::SuggestedSubcommand).is_some();
        let here = error.get(ContextKind::Usage)?.to_string().contains("taskman <COMMAND>");
        return (here && !is_like_another).then(|| format!("to run a program of that name: taskman run -- {word} …"));
    }
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg)? else { return None };
    let ContextValue::StyledStr(usage) = error.get(ContextKind::Usage)? else { return None };
    let is_command = error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-');
    let is_command = is_command && usage.to_string().contains("-- <");
    is_command.then(|| format!("a command and its arguments come after --, as in: -- {word} …"))
}
