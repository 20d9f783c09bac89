//! `taskman audit`: a full audit now, what was found so far, and everything about one finding.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use super::connection::{execute, print};
use super::desk::Place;
use super::limits::named_by_clap;
use super::{OutputFormat, containment, incident, json};
use crate::containment::{IncidentId, Summary};

#[derive(clap::Args)]
#[command(
    next_line_help = true,
    after_help = "\
For administrators, over the network; or for root on the worker, with --state-dir.

Example:
  $ taskman audit run --user-id admin
  $ taskman audit show 20261116-104500123-1a2b3c4d --state-dir /var/lib/taskman"
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Look at every process and everything tasks leave behind, now; exits with 1 if anything is found
    #[command(after_help = "\
Exit codes:
  0 when nothing was found; 1 when something was; 125 when taskman failed

Example:
  $ taskman audit run --user-id admin")]
    Run {
        #[command(flatten)]
        place: Place,
    },
    /// List what was found, newest first
    #[command(after_help = "Example:\n  $ taskman audit findings --user-id admin --limit 10")]
    Findings {
        /// At most this many
        #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
        limit: u32,
        #[command(flatten)]
        place: Place,
    },
    /// Show everything about one finding
    #[command(after_help = "Example:\n  $ taskman audit show 20261116-104500123-1a2b3c4d --user-id admin")]
    Show {
        /// As `taskman audit findings` shows it
        #[arg(value_name = "ID", value_parser = named_by_clap::<IncidentId>)]
        id: IncidentId,
        #[command(flatten)]
        place: Place,
    },
}

/// The JSON form of `findings`. Fields are only ever added.
#[derive(Serialize)]
struct Findings<'a> {
    findings: &'a [Summary],
}

pub fn run(args: &Args) -> ExitCode {
    execute(async {
        match &args.verb {
            Verb::Run { place } => {
                let audited = place.open().await?.audit().await?;
                print(&match place.output {
                    OutputFormat::Table => containment::audited(&audited),
                    OutputFormat::Json => json::line(&audited),
                })?;
                let clean = audited.findings.is_empty() && audited.leftovers.is_empty();
                return Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Verb::Findings { limit, place } => {
                let findings = place.open().await?.findings(*limit).await?;
                print(&match place.output {
                    OutputFormat::Table if findings.is_empty() => "nothing was found so far\n".to_owned(),
                    OutputFormat::Table => containment::findings(&findings),
                    OutputFormat::Json => json::line(&Findings { findings: &findings }),
                })?;
            }
            Verb::Show { id, place } => {
                let incident = place.open().await?.finding(id).await?;
                print(&match place.output {
                    OutputFormat::Table => incident::report(&incident),
                    OutputFormat::Json => json::line(&incident),
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
