//! The record of one task: outcome, usage, limits, and the proof of its containment.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{id::TaskId, limits::Limits, outcome::Outcome};

/// What `--report FILE` holds. The JSON form is stable.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The task.
    pub task_id: TaskId,
    /// What was run.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// How and why it ended.
    pub outcome: Outcome,
    /// When the command was executed (RFC 3339).
    pub started_at: String,
    /// When its last process was gone.
    pub ended_at: String,
    /// What it used, as its control groups counted it.
    pub usage: Usage,
    /// The limits it ran under.
    pub limits: Limits,
    /// Limits and defences that this host could not enforce (`--no-strict` only).
    pub reduced: Vec<String>,
    /// What the kernel said was left of it.
    pub containment: Containment,
}

/// Resources used by all processes of the task together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // named as in docs/run.md
pub struct Usage {
    pub wall_ms: u64,
    pub cpu_user_ms: u64,
    pub cpu_system_ms: u64,
    pub memory_peak_bytes: u64,
    pub pids_peak: u64,
    pub output_bytes: u64,
    /// How far it was over its wall or processor time when that was noticed; absent below 100 ms, which is the usual.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overshoot_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The verdict over all checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check was made and found nothing left.
    Proven,
    /// Something was left; the check says what.
    Violated,
    /// A check could not be made.
    Unproven,
}

/// One question put to the kernel, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was asked.
    pub name: Cow<'static, str>,
    /// What was read.
    pub value: String,
    /// Whether that is what containment needs; `None` when the kernel could not be asked.
    pub ok: Option<bool>,
}

/// The proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containment {
    /// Over all checks.
    pub verdict: Verdict,
    /// One by one.
    pub checks: Vec<Check>,
}

impl Containment {
    /// Draws the verdict from the checks: one violation violates, one unmade check leaves it unproven.
    pub fn from_checks(checks: Vec<Check>) -> Self {
        let verdict = if checks.iter().any(|c| c.ok == Some(false)) {
            Verdict::Violated
        } else if checks.is_empty() || checks.iter().any(|c| c.ok.is_none()) {
            Verdict::Unproven
        } else {
            Verdict::Proven
        };
        Self { verdict, checks }
    }

    /// Whether nothing of the task is left, as far as the kernel knows.
    pub fn is_proven(&self) -> bool {
        self.verdict == Verdict::Proven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ok: Option<bool>) -> Check {
        Check { name: "x".into(), value: String::new(), ok }
    }

    #[test]
    fn an_unmade_check_is_never_a_proof() {
        let verdict =
            |oks: &[Option<bool>]| Containment::from_checks(oks.iter().map(|ok| check(*ok)).collect()).verdict;
        assert_eq!(verdict(&[Some(true), Some(true)]), Verdict::Proven);
        assert_eq!(verdict(&[Some(true), None]), Verdict::Unproven);
        assert_eq!(verdict(&[]), Verdict::Unproven);
        assert_eq!(verdict(&[None, Some(false)]), Verdict::Violated);
    }
}
