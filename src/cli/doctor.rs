//! `taskman doctor`: what this host can enforce, for people and for scripts.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use super::OutputFormat;
use super::limits::named_by_clap;
use crate::doctor::{Finding, Options, Status, examine, would_start};
use crate::place::UidRange;

// Says what this host can enforce, why it matters, and the command that fixes what is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0 when a task would start in strict mode; 1 when it would be refused; 125 when taskman failed

Example:
  taskman doctor --output json")]
pub struct Args {
    /// How to print the findings
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    /// Uids that tasks get
    #[arg(long, value_name = "FIRST:COUNT", env = "TASKMAN_UID_RANGE", value_parser = named_by_clap::<UidRange>, allow_hyphen_values = true)]
    uid_range: Option<UidRange>,
}

/// The JSON form. Fields are only ever added.
#[derive(Serialize)]
struct Examination<'a> {
    strict_would_start: bool,
    findings: &'a [Finding],
}

/// Examines and prints; succeeds only when strict mode would start a task.
pub fn run(args: Args) -> ExitCode {
    let options = Options { uids: args.uid_range.unwrap_or_default(), ..Options::default() };
    let findings = examine(&options);
    let text = match args.output {
        OutputFormat::Table => table(&findings),
        OutputFormat::Json => json(&findings),
    };
    // A reader that went away has seen what it wanted.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    if would_start(&findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn json(findings: &[Finding]) -> String {
    let examination = Examination { strict_would_start: would_start(findings), findings };
    serde_json::to_string_pretty(&examination).unwrap_or_default() + "\n"
}

/// One line per point; two more, with why and what to do, where something could be better.
fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0).max("CHECK".len());
    let mut text = format!("{:width$}  {:8} SEEN\n", "CHECK", "STATUS");
    for finding in findings {
        text += &format!("{:width$}  {:8} {}\n", finding.name, word(finding.status), finding.seen);
        if finding.status != Status::Ok {
            text += &format!(
                "{:width$}  {:8} why: {}\n{:width$}  {:8} fix: {}\n",
                "", "", finding.why, "", "", finding.fix
            );
        }
    }
    let answer = if would_start(findings) { "yes" } else { "no" };
    text + &format!("\nstrict mode would start a task: {answer}\n")
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Reduced => "reduced",
        Status::Missing => "missing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &str, status: Status, blocks: bool) -> Finding {
        let text = |what: &str| format!("{what} of {name}");
        Finding { name: name.into(), status, seen: text("sight"), why: text("reason"), fix: text("cure"), blocks }
    }

    #[test]
    fn people_get_an_aligned_table_with_the_cure_and_the_answer() {
        let findings = [finding("a", Status::Ok, false), finding("long name", Status::Missing, true)];
        let expected = "\
CHECK      STATUS   SEEN
a          ok       sight of a
long name  missing  sight of long name
                    why: reason of long name
                    fix: cure of long name

strict mode would start a task: no
";
        assert_eq!(table(&findings), expected);
        assert!(table(&findings[..1]).ends_with("strict mode would start a task: yes\n"));
    }

    #[test]
    fn programs_get_stable_fields() {
        let value: serde_json::Value = serde_json::from_str(&json(&[finding("a", Status::Reduced, false)])).unwrap();
        let expected = serde_json::json!({
            "strict_would_start": true,
            "findings": [{"name": "a", "status": "reduced", "seen": "sight of a", "why": "reason of a", "fix": "cure of a", "blocks": false}],
        });
        assert_eq!(value, expected);
    }
}
