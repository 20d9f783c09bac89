//! What was tried and what came of it, for people.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::Suite;

/// `(of what, point, fault)` → outcomes and how often each was seen.
type Rows = BTreeMap<(String, usize, String, String), BTreeMap<String, usize>>;

static ROWS: Mutex<Rows> = Mutex::new(BTreeMap::new());

/// One fault at many points; says at the end which failed.
pub struct Tally<'a> {
    suite: &'a Suite,
    what: &'static str,
    fault: &'static str,
    failed: Vec<String>,
}

impl<'a> Tally<'a> {
    pub fn new(suite: &'a Suite, what: &'static str, fault: &'static str) -> Self {
        Self { suite, what, fault, failed: Vec::new() }
    }

    /// A trial at the `at`th point; it panics or says what came of it. False if it has panicked, and all was killed.
    pub fn trial(&mut self, at: usize, point: &str, trial: impl FnOnce() -> String) -> bool {
        let outcome = catch_unwind(AssertUnwindSafe(trial)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
            self.failed.push(format!("{point}: {text}"));
            self.suite.page.clear();
            self.suite.host.clear_away();
            "FAILED".to_owned()
        });
        let passed = outcome != "FAILED";
        let key = (self.what.to_owned(), at, point.to_owned(), self.fault.to_owned());
        *ROWS.lock().unwrap().entry(key).or_default().entry(outcome).or_default() += 1;
        passed
    }

    /// Red if any trial was.
    pub fn end(self) {
        assert!(self.failed.is_empty(), "{}, {}:\n{}", self.what, self.fault, self.failed.join("\n"));
    }
}

/// Prints all rows.
pub fn print() {
    println!("\n{:<8} {:<26} {:<22} {:>6}  outcome", "of", "point", "fault", "trials");
    for ((what, _, point, fault), outcomes) in ROWS.lock().unwrap().iter() {
        for (outcome, times) in outcomes {
            println!("{what:<8} {point:<26} {fault:<22} {times:>6}  {outcome}");
        }
    }
    let trials: usize = ROWS.lock().unwrap().values().flat_map(|outcomes| outcomes.values()).sum();
    println!("{trials} trials");
}
