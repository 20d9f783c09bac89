//! The end of a run, for people: a table on the terminal, and a page in the target directory.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::bench;
use super::place::own_groups;
use super::record::{Outcome, Record};
use crate::ids::{TIER_1, Tested};
use crate::support::pace;

/// The whole run, when it is over.
pub struct Report<'a> {
    pub records: &'a [Record],
    /// How many cases there are, run or not.
    pub cases: usize,
}

impl Report<'_> {
    /// One line for each case: what was tried how often, how it ended, and what was measured.
    pub fn table(&self) -> String {
        let mut text =
            format!("\n{:<5} {:>4} {:>6} {:>8}  {:<8} evidence\n", "case", "tier", "trials", "seconds", "outcome");
        for record in self.records {
            let Record { id, tier, trials, outcome, took, .. } = record;
            let seen = match outcome {
                Outcome::Held => record.evidence(),
                Outcome::Skipped(why) | Outcome::Failed(why) => one_line(why),
            };
            let (word, seconds) = (outcome.word(), took.as_secs_f64());
            let _ = writeln!(text, "{id:<5} {tier:>4} {trials:>6} {seconds:>8.1}  {word:<8} {}", cut(&seen, 160));
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.records.iter().filter(|record| is(&record.outcome)).count()
    }

    fn summary(&self) -> String {
        let (held, skipped) = (self.count(|o| *o == Outcome::Held), self.count(|o| matches!(o, Outcome::Skipped(_))));
        let failed = self.records.len() - held - skipped;
        let trials: usize = self.records.iter().map(|record| record.trials).sum();
        let facts: u64 = self.records.iter().map(|record| record.facts).sum();
        let mut text = format!(
            "{} of {} cases: {held} held, {skipped} skipped, {failed} failed; {trials} trials, {facts} facts",
            self.records.len(),
            self.cases
        );
        let arms: usize = self.records.iter().map(|record| record.skipped.len()).sum();
        if arms > 0 {
            let _ = write!(text, ". NOT ASKED FOR: {arms} mutation arms");
        }
        if pace::slow() > 1 {
            let _ = write!(text, ". SLOW MACHINE: deadlines are multiplied by {}", pace::slow());
        }
        if pace::fewer() > 1 {
            let _ = write!(text, ". NOT DEEP: trials of races are divided by {}", pace::fewer());
        }
        if bench::warm() {
            text.push_str(". WARM: tasks ran in sandboxes that were built before their command was known");
        }
        if self.records.len() < self.cases {
            text.push_str(". FILTERED RUN: the other cases were not asked for, and nothing is said about them");
        }
        text
    }

    fn page(&self) -> String {
        let mut page = String::from("# Containment: the last run of the adversarial suite\n\n");
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let _ = writeln!(page, "- when: {now}\n- kernel: {}\n- control groups: {}", kernel(), layout());
        let _ = writeln!(page, "- {}", self.summary());
        page.push_str(
            "\nA trial is one task of the shipped program under attack. A fact is one thing that was asked of the kernel, or of \
             the task's report, and was as it must be.\n\n\
             | case | tier | trials | outcome | evidence |\n|---|---|---|---|---|\n",
        );
        for record in self.records {
            let Record { id, tier, trials, outcome, .. } = record;
            let _ = writeln!(page, "| {id} | {tier} | {trials} | {} | {} |", outcome.word(), cell(&record.evidence()));
        }
        self.records.iter().for_each(|record| describe(&mut page, record));
        page.push_str("\n## Tier 1 that is shown elsewhere\n\n| case | where |\n|---|---|\n");
        for (id, tested) in TIER_1 {
            if let Tested::By(tests) = tested {
                let _ = writeln!(page, "| {id} | `{}` |", tests.join("`, `"));
            }
        }
        page
    }

    /// Writes the page; says where.
    pub fn write(&self) -> Result<PathBuf, String> {
        // Cargo keeps this file in the target directory itself, above the directories of targets and profiles.
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = tmp.ancestors().find(|dir| dir.join(".rustc_info.json").exists()).or(tmp.parent());
        let path = target.ok_or("no target directory")?.join("containment-report.md");
        fs::write(&path, self.page()).map_err(|e| format!("write {}: {e}", path.display()))?;
        Ok(path)
    }
}

fn describe(page: &mut String, record: &Record) {
    let Record { id, tier, what, control, trials, facts, canaries, outcome, took, .. } = record;
    let _ = writeln!(page, "\n## {id} (tier {tier}): {what}\n");
    let _ = writeln!(page, "- outcome: {} after {:.1} s", outcome.word(), took.as_secs_f64());
    match outcome {
        Outcome::Held => {}
        Outcome::Skipped(why) | Outcome::Failed(why) => {
            let _ = writeln!(page, "- why: {}", one_line(why));
        }
    }
    let _ = writeln!(page, "- control arm: {}", one_line(control));
    let _ = writeln!(page, "- contained arm: {trials} trials, {facts} facts held, {canaries} canaries well");
    for line in &record.evidence {
        let _ = writeln!(page, "  - {}", one_line(line));
    }
    for (names, seen) in &record.mutations {
        let _ = writeln!(page, "- mutation arm, without `{names}`: red, as it must be: {}", cut(&one_line(seen), 400));
    }
    if !record.skipped.is_empty() {
        let _ = writeln!(page, "- mutation arm: not asked for (`{}`)", record.skipped.join("`, `"));
    } else if *outcome == Outcome::Held && record.mutations.is_empty() {
        page.push_str("- mutation arm: none, for there is no single defence to switch off\n");
    }
    if *outcome == Outcome::Held {
        page.push_str("- ledger: equal before and after each arm\n");
    }
}

fn kernel() -> String {
    let output = Command::new("uname").args(["-srvm"]).output();
    output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// Which hierarchies there are, by what they control.
fn layout() -> String {
    let names = own_groups().into_iter().map(|(controllers, _)| controllers);
    let (v2, v1): (Vec<String>, Vec<String>) = names.partition(String::is_empty);
    match (v2.is_empty(), v1.is_empty()) {
        (false, true) => "version 2 alone".to_owned(),
        (false, false) => format!("hybrid: version 2 for processes, version 1 for {}", v1.join(" and ")),
        _ => format!("version 1 alone: {}", v1.join(" and ")),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text inside a table of markdown.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most).chain(['…']).collect()
}
