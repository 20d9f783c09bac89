//! `taskman health`: whether a worker takes tasks; its quarantine, its recovery, and the end of both.

use std::process::ExitCode;

use serde::Serialize;
use tonic::Code;

use super::connection::{Failure, execute, print, tell};
use super::desk::{Desk, Place};
use super::{OutputFormat, containment, json};
use crate::client::ClientError;
use crate::containment::{Leftover, Swept, stated_reason};

/// It was asked and the answer is no: quarantined, not clean, not lifted.
const NO: u8 = 1;

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    override_usage = "taskman health [--quarantine --reason WHY | --recover | --verify-clean | --unquarantine --reason WHY [--accept NAME]] (--user-id <user-id> | --state-dir DIR) [--help]",
    help_template = "\
Usage:
  {usage}

Description:
  Show whether a worker takes tasks, and why not; quarantine it, sweep what was left behind, verify that nothing is, and
  lift the quarantine. For administrators, over the network; or for root on the worker, with --state-dir.

{all-args}{after-help}",
    after_help = "\
Exit codes:
  0 as asked; 1 when it takes no tasks, something is left, something could not be swept, or
  quarantine is not lifted; 125 when taskman failed

Example:
  $ taskman health --user-id admin
  $ taskman health --state-dir /var/lib/taskman --verify-clean
  $ taskman health --user-id admin --unquarantine --reason 'ticket 7: kernel updated'"
)]
pub struct Args {
    #[command(flatten)]
    verb: Verb,
    /// Why; kept with who and when
    #[arg(long, value_name = "WHY", value_parser = stated_reason)]
    reason: Option<String>,
    /// With --unquarantine: accept that this place, which --verify-clean lists as unseen, was not looked into
    #[arg(long, value_name = "NAME", requires = "unquarantine")]
    accept: Vec<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Verb {
    /// Refuse new tasks until it is lifted; running ones go on. Needs --reason
    #[arg(long, requires = "reason")]
    quarantine: bool,
    /// Take tasks again; refused unless nothing is left. Needs --reason
    #[arg(long, requires = "reason")]
    unquarantine: bool,
    /// Sweep what is this worker's and no living task's, and say what became of each thing
    #[arg(long, conflicts_with = "reason")]
    recover: bool,
    /// Say what is left that no living task accounts for
    #[arg(long, conflicts_with = "reason")]
    verify_clean: bool,
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        let desk = args.place.open().await?;
        let output = args.place.output;
        match (&args.reason, &args.verb) {
            (Some(reason), Verb { quarantine: true, .. }) => {
                print(&containment::health(output, &desk.quarantine(reason).await?))?;
                Ok(ExitCode::SUCCESS)
            }
            (Some(reason), Verb { unquarantine: true, .. }) => lift(&desk, output, reason, &args.accept).await,
            (Some(_), _) => Err(Failure::Refused("--reason goes with --quarantine or --unquarantine".to_owned())),
            (None, Verb { recover: true, .. }) => {
                let swept = desk.recover().await?;
                print(&shown_swept(output, &swept))?;
                Ok(code(swept.iter().all(|thing| thing.error.is_none())))
            }
            (None, Verb { verify_clean: true, .. }) => {
                let left = desk.verify_clean().await?;
                print(&shown_left(output, &left))?;
                Ok(code(left.is_empty()))
            }
            (None, _) => {
                let health = desk.health().await?;
                print(&containment::health(output, &health))?;
                Ok(code(health.can_accept))
            }
        }
    })
}

/// A refusal is told with everything that is in the way.
async fn lift(desk: &Desk, output: OutputFormat, reason: &str, accept: &[String]) -> Result<ExitCode, Failure> {
    let refusal = match desk.lift(reason, accept).await {
        Ok(health) => {
            print(&containment::health(output, &health))?;
            if desk.is_beside_server()? {
                tell("a running server takes tasks again within a second");
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(refusal @ Failure::Refused(_)) => refusal,
        Err(refusal @ Failure::Client(ClientError::Status { code: Code::FailedPrecondition, .. })) => refusal,
        Err(other) => return Err(other),
    };
    tell(&format!("error: {refusal}"));
    print(&shown_left(output, &desk.verify_clean().await?))?;
    Ok(ExitCode::from(NO))
}

fn code(yes: bool) -> ExitCode {
    if yes { ExitCode::SUCCESS } else { ExitCode::from(NO) }
}

/// The JSON forms. Fields are only ever added.
#[derive(Serialize)]
struct Verified<'a> {
    clean: bool,
    leftovers: &'a [Leftover],
}

#[derive(Serialize)]
struct Recovered<'a> {
    /// Whether all of it is gone.
    clean: bool,
    swept: &'a [Swept],
}

fn shown_left(output: OutputFormat, left: &[Leftover]) -> String {
    match output {
        OutputFormat::Json => json::line(&Verified { clean: left.is_empty(), leftovers: left }),
        OutputFormat::Table if left.is_empty() => "clean: nothing is left\n".to_owned(),
        OutputFormat::Table => containment::leftovers(left),
    }
}

fn shown_swept(output: OutputFormat, swept: &[Swept]) -> String {
    match output {
        OutputFormat::Json => json::line(&Recovered { clean: swept.iter().all(|thing| thing.error.is_none()), swept }),
        OutputFormat::Table if swept.is_empty() => "nothing was left to sweep\n".to_owned(),
        OutputFormat::Table => containment::swept(swept),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::containment::LeftoverKind;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        _args: Args,
    }

    #[test]
    fn one_thing_is_asked_at_a_time_and_what_is_kept_has_a_reason() {
        let accepted = |words: &str| Alone::try_parse_from(words.split(' ')).is_ok();
        for good in [
            "health",
            "health --recover",
            "health --verify-clean",
            "health --quarantine --reason x",
            "health --unquarantine --reason x",
            "health --state-dir d --config f",
        ] {
            assert!(accepted(good), "{good}");
        }
        for bad in [
            "health --quarantine",
            "health --unquarantine",
            "health --quarantine --reason ",
            "health --quarantine --unquarantine --reason x",
            "health --recover --verify-clean",
            "health --recover --reason x",
            "health --config f",
        ] {
            assert!(!accepted(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_left_is_told_to_people_and_to_programs() {
        let thing = Leftover { kind: LeftoverKind::Cgroup, name: "/a\u{1b}".into(), detail: "empty".into() };
        let text = shown_left(OutputFormat::Table, std::slice::from_ref(&thing));
        assert_eq!(text, "LEFT    NAME      DETAIL\n----    ----      ------\ncgroup  /a\\u{1b}  empty\n");
        assert_eq!(shown_left(OutputFormat::Table, &[]), "clean: nothing is left\n");
        assert_eq!(shown_left(OutputFormat::Json, &[]), "{\"clean\":true,\"leftovers\":[]}\n");
        let gone = Swept { leftover: thing.clone(), error: None };
        let stuck = Swept { leftover: thing, error: Some("busy".into()) };
        let text = shown_swept(OutputFormat::Table, &[gone.clone(), stuck.clone()]);
        assert!(text.contains("empty   swept\n") && text.ends_with("empty   still there: busy\n"), "{text}");
        let seen: serde_json::Value = serde_json::from_str(&shown_swept(OutputFormat::Json, &[gone, stuck])).unwrap();
        assert_eq!((&seen["clean"], &seen["swept"][1]["error"]), (&false.into(), &"busy".into()));
        assert_eq!(seen["swept"][0]["leftover"]["kind"], "cgroup");
    }
}
