//! A case and the five things that are done with it: ledger, control, contained, mutation, ledger again.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::bench::{self, Bench};
use super::ledger::Ledger;
use super::mutant;
use super::record::{self, Outcome, Record};
use crate::support::pace;

/// One behaviour and its exact outcome.
pub struct Case {
    /// As in the table of containment cases: `P01`.
    pub id: &'static str,
    /// 1 blocks a release.
    pub tier: u8,
    /// What the payload tries.
    pub what: &'static str,
    /// What is switched off in the mutation arms: one arm per entry, whose names (comma-separated where two layers
    /// stop the same attack) go to `TASKMAN_MUTATION`.
    pub defence: &'static [&'static str],
    /// The same probe without taskman.
    pub control: fn(&Bench) -> Control,
    /// The probe under taskman. `Err(breach(…))`: it was not contained, and this is what was seen.
    pub attack: fn(&Bench, Arm) -> Result<(), Fail>,
}

/// What the control arm says about this kernel.
pub enum Control {
    /// The probe does here what it is meant to do, so its failure under taskman means something.
    Works,
    /// It cannot work on this kernel: the case is a loud skip.
    Cannot(String),
    /// It should have worked: the probe or the suite is at fault, and the case fails.
    Broken(String),
}

impl From<Result<(), Fail>> for Control {
    fn from(result: Result<(), Fail>) -> Self {
        result.map_or_else(|fail| Self::Broken(fail.to_string()), |()| Self::Works)
    }
}

/// Which binary an attack meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// The shipped one.
    Contained,
    /// The one with these defences off.
    Mutant(&'static str),
}

impl Arm {
    /// Races need many trials against the shipped binary, and few against one that should fall: `mutant` is what has made each of
    /// them red, so the short run tries the shipped one at least as often. A slow machine makes fewer.
    pub fn trials(self, contained: usize, mutant: usize) -> usize {
        if self == Self::Contained { pace::race(contained, mutant) } else { mutant }
    }

    /// The shipped binary may meet a machine that stalls; a mutant that never does what is waited for is not waited for as long.
    pub fn limit(self, contained: Duration, mutant: Duration) -> Duration {
        if self == Self::Contained { contained } else { mutant }
    }

    /// Measures milliseconds until they are as promised. A machine that stalls is late once, and a fault is late every time, so
    /// the shipped binary is measured up to five times, and a mutant once.
    pub fn in_time(
        self,
        what: &str,
        promised: RangeInclusive<u128>,
        mut measure: impl FnMut() -> Result<u128, Fail>,
    ) -> Result<u128, Fail> {
        let mut seen = Vec::new();
        for _ in 0..if self == Self::Contained { 5 } else { 1 } {
            let millis = measure()?;
            if promised.contains(&millis) {
                record::held(1);
                return Ok(millis);
            }
            seen.push(millis);
        }
        Err(breach(format!("{what} after {seen:?} ms, in place of {promised:?}")))
    }
}

/// Why an attack did not end as it must.
#[derive(Debug)]
pub enum Fail {
    /// Not contained. In a mutation arm, this and only this is the red that is wanted.
    Breach(String),
    /// Nothing was learned about containment: taskman did not start, the canary failed, the suite is at fault.
    Broken(String),
}

impl std::fmt::Display for Fail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Breach(what) => write!(f, "not contained: {what}"),
            Self::Broken(what) => write!(f, "broken: {what}"),
        }
    }
}

/// Not contained.
pub fn breach(what: impl Into<String>) -> Fail {
    Fail::Breach(what.into())
}

/// Nothing learned.
pub fn broken(what: impl Into<String>) -> Fail {
    Fail::Broken(what.into())
}

/// `ensure!(fact, "what was seen {}", x)`: returns a breach when the fact does not hold.
#[macro_export]
macro_rules! ensure {
    ($fact:expr, $($what:tt)+) => {
        if $fact {
            $crate::harness::record::held(1);
        } else {
            return Err($crate::harness::breach(format!($($what)+)));
        }
    };
}

/// `require!(fact, …)`: returns "broken" when the fact does not hold; for what the case needs, not what it tests.
#[macro_export]
macro_rules! require {
    ($fact:expr, $($what:tt)+) => {
        if !$fact {
            return Err($crate::harness::broken(format!($($what)+)));
        }
    };
}

impl Case {
    /// As it is called in a list of tests.
    pub fn name(&self) -> String {
        format!("{} (tier {}) {}", self.id, self.tier, self.what)
    }

    /// Runs it. `TASKMAN_ADV_ARMS=control` stops after the control arm, `TASKMAN_ADV_ARMS=contained` before the mutation arms, and
    /// either is said; `TASKMAN_ADV_MODE=warm` runs the contained arm in warm sandboxes.
    pub fn run(&self, bench: &Bench) -> Record {
        let start = Instant::now();
        let mut record = self.record();
        // A case that panics is in the table too.
        let result = catch_unwind(AssertUnwindSafe(|| self.arms(bench, &mut record))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or("panicked".to_owned()))
        });
        record.took = start.elapsed();
        record.outcome = result.unwrap_or_else(Outcome::Failed);
        record
    }

    /// Before anything is known of it.
    pub fn record(&self) -> Record {
        Record {
            id: self.id.to_owned(),
            tier: self.tier,
            what: self.what.to_owned(),
            control: "not run".to_owned(),
            trials: 0,
            facts: 0,
            canaries: 0,
            evidence: Vec::new(),
            mutations: Vec::new(),
            skipped: Vec::new(),
            outcome: Outcome::Held,
            took: Duration::ZERO,
        }
    }

    fn arms(&self, bench: &Bench, record: &mut Record) -> Result<Outcome, String> {
        let start = Instant::now();
        println!("\n  {} tier {}: {}", self.id, self.tier, self.what);
        let before = Ledger::take(bench);
        let control = (self.control)(bench);
        mutant::sweep(bench);
        match control {
            Control::Works => record.control = "works on this kernel".to_owned(),
            Control::Cannot(why) => {
                println!("    SKIP {}: the control arm cannot work here: {why}", self.id);
                record.control = format!("cannot work here: {why}");
                before.settle(bench).map_err(|e| format!("after the control arm {e}"))?;
                return Ok(Outcome::Skipped(why));
            }
            Control::Broken(why) => {
                record.control = format!("BROKEN: {why}");
                return Err(format!("control arm: {why}"));
            }
        }
        println!("    control: works on this kernel");
        before.settle(bench).map_err(|e| format!("after the control arm {e}"))?;
        let arms = std::env::var("TASKMAN_ADV_ARMS").unwrap_or_default();
        if arms == "control" {
            return Ok(Outcome::Skipped("only the control arm was asked for".to_owned()));
        }
        let result = self.contained(bench, &before, record);
        mutant::sweep(bench);
        result?;
        println!("    contained: holds ({:.1} s)", start.elapsed().as_secs_f64());
        if self.defence.is_empty() {
            println!("    NO MUTATION ARM for {}", self.id);
        }
        if arms == "contained" || bench::warm() {
            record.skipped = self.defence.iter().map(ToString::to_string).collect();
            println!("    MUTATION ARMS of {} not asked for: {}", self.id, self.defence.join(" and "));
            return Ok(Outcome::Held);
        }
        for names in self.defence {
            bench.mutant()?;
            let result = (self.attack)(bench, Arm::Mutant(names));
            mutant::sweep(bench);
            match result {
                Err(Fail::Breach(seen)) => {
                    println!("    without {names}: red, as it must be: {seen}");
                    record.mutations.push((names.to_string(), seen));
                }
                Err(Fail::Broken(why)) => return Err(format!("without {names} nothing was learned: {why}")),
                Ok(()) => return Err(format!("stays green without its defence ({names})")),
            }
            before.settle(bench).map_err(|e| format!("after the mutation arm {names} {e}"))?;
        }
        println!("    {} done in {:.1} s", self.id, start.elapsed().as_secs_f64());
        Ok(Outcome::Held)
    }

    fn contained(&self, bench: &Bench, before: &Ledger, record: &mut Record) -> Result<(), String> {
        let (tasks, canaries, facts) = (bench.tasks(), bench.canaries(), record::facts());
        bench.take_notes();
        let attacked = (self.attack)(bench, Arm::Contained);
        let under_way = bench.canaries() - canaries;
        record.evidence = bench.take_notes();
        record.facts = record::facts() - facts;
        record.canaries = under_way;
        record.trials = bench.tasks() - tasks - under_way;
        attacked.map_err(|e| format!("contained arm: {e}"))?;
        if under_way == 0 {
            return Err("the attack ran no canary while it was under way".to_owned());
        }
        bench.canary().map_err(|e| format!("after the attack: {e}"))?;
        record.canaries += 1;
        before.settle(bench).map_err(|e| format!("after the contained arm {e}"))
    }
}
