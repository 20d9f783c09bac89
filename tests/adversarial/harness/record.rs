//! What is kept of a case that ran: numbers and sentences, for the table at the end and for the report.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Facts that were asked for and held since the suite began; `ensure!` counts them.
static FACTS: AtomicU64 = AtomicU64::new(0);

/// Counts facts that held.
pub fn held(facts: u64) {
    FACTS.fetch_add(facts, Relaxed);
}

/// How many facts have held so far.
pub fn facts() -> u64 {
    FACTS.load(Relaxed)
}

/// How a case ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The attack was contained, and not contained without its defence.
    Held,
    /// Nothing was shown here, and why.
    Skipped(String),
    /// Red, and what was seen.
    Failed(String),
}

impl Outcome {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Skipped(_) => "SKIPPED",
            Self::Failed(_) => "FAILED",
        }
    }
}

/// One case of the last run, as the process that ran it hands it over.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub tier: u8,
    pub what: String,
    /// What the control arm showed.
    pub control: String,
    /// How often the attack was made on the shipped program.
    pub trials: usize,
    /// How many facts were asked for meanwhile, each of which held.
    pub facts: u64,
    /// How many harmless tasks ran well meanwhile and afterwards.
    pub canaries: usize,
    /// What the contained arm measured.
    pub evidence: Vec<String>,
    /// What was switched off, and what was then seen.
    pub mutations: Vec<(String, String)>,
    /// Mutation arms that were not asked for.
    pub skipped: Vec<String>,
    pub outcome: Outcome,
    pub took: Duration,
}

impl Record {
    /// The numbers that every case has, and those it measured.
    pub fn evidence(&self) -> String {
        let mut parts = self.evidence.clone();
        if self.facts > 0 {
            parts.push(format!("{} facts held, {} canaries well", self.facts, self.canaries));
        }
        parts.join("; ")
    }
}
