//! What a probe said about its system calls: `WHERE NAME RESULT`, one line each (see payloads/probe.h).
//!
//! The lines prove which errno a call gave. They are never the whole verdict: each case also looks from outside.

use super::bench::Bench;
use super::case::{Arm, Control, Fail, breach, broken};
use super::done::{Done, cut};
use super::launch::Launch;
use super::record;
use super::run::Run;

/// Where a probe that runs `everywhere` tries: a filter or credential may differ by thread or by child.
pub const EVERYWHERE: [&str; 3] = ["main", "thread", "child"];

/// The lines of one probe.
#[derive(Debug)]
pub struct Answers(Vec<[String; 3]>);

impl Answers {
    /// Reads a probe's standard output.
    pub fn parse(text: &str) -> Self {
        let split = |line: &str| {
            let mut words = line.splitn(3, ' ').map(str::to_owned);
            Some([words.next()?, words.next()?, words.next()?])
        };
        Self(text.lines().filter_map(split).collect())
    }

    /// One result, as `ok` or the errno's name.
    pub fn get(&self, place: &str, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|[at, what, _]| at == place && what == name);
        found.map(|[_, _, result]| result.as_str())
    }

    /// Every result whose name begins so: `(name, result)`.
    pub fn with_prefix(&self, prefix: &str) -> Vec<(&str, &str)> {
        let hit = |l: &&[String; 3]| l[1].starts_with(prefix);
        self.0.iter().filter(hit).map(|[_, name, result]| (name.as_str(), result.as_str())).collect()
    }

    /// Each of these names has exactly this result in each place; another is a breach, none is "broken".
    pub fn all(&self, places: &[&str], wanted: &[(&str, &str)]) -> Result<(), Fail> {
        let mut differ = Vec::new();
        let mut missing = Vec::new();
        for place in places {
            for (name, want) in wanted {
                match self.get(place, name) {
                    Some(got) if got == *want => {}
                    Some(got) => differ.push(format!("{name} in {place}: {got}, not {want}")),
                    None => missing.push(format!("{name} in {place}")),
                }
            }
        }
        if !differ.is_empty() {
            return Err(breach(differ.join("; ")));
        }
        if !missing.is_empty() {
            return Err(broken(format!("the probe said nothing about {}", missing.join(", "))));
        }
        record::held((places.len() * wanted.len()) as u64);
        Ok(())
    }

    /// For control arms: the same, where any difference means that the probe is at fault.
    pub fn works(&self, places: &[&str], wanted: &[(&str, &str)]) -> Control {
        match self.all(places, wanted) {
            Ok(()) => Control::Works,
            Err(fail) => Control::Broken(fail.to_string()),
        }
    }
}

/// Starts a probe, waits until it says `ready`, looks from outside (with a canary beside it when it is contained),
/// ends its standard input and waits for it.
pub fn watch(
    bench: &Bench,
    arm: Option<Arm>,
    launch: Launch<'_>,
    look: impl FnOnce(&mut Run) -> Result<(), Fail>,
) -> Result<(Answers, Done), Fail> {
    let mut run = launch.with_stdin().spawn()?;
    run.wait_line("state ready")?;
    if arm == Some(Arm::Contained) {
        bench.canary()?;
    }
    look(&mut run)?;
    drop(run.stdin());
    let done = run.finish()?;
    if arm == Some(Arm::Contained) {
        ended_well(&done)?;
    }
    Ok((Answers::parse(&done.out), done))
}

/// The task ended by itself with 0, and its containment was proven.
pub fn ended_well(done: &Done) -> Result<(), Fail> {
    let (reason, verdict) = (done.reason()?, done.verdict()?);
    if done.code() == 0 && reason == "exit" && verdict == "proven" {
        return Ok(());
    }
    Err(breach(format!("ended with {} ({reason}, {verdict}): {}", done.code(), cut(&done.err))))
}
