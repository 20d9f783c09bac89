//! One line for people about a task's end.

use super::json;
use crate::client::one_line;
use crate::task::outcome::Outcome;
use crate::task::report::{Containment, Usage};
use crate::task::units;

/// The line about a task at a server; none while it runs.
pub fn of(task: &json::Task) -> Option<String> {
    let (outcome, usage, containment) = (task.outcome.as_ref()?, task.usage.as_ref()?, task.containment.as_ref()?);
    Some(one_line(&summary(outcome, usage, containment, &task.reduced)))
}

/// How it ended, what it used, whether anything is left.
pub fn summary(outcome: &Outcome, usage: &Usage, containment: &Containment, reduced: &[String]) -> String {
    let failed: Vec<String> = containment
        .checks
        .iter()
        .filter(|check| check.ok != Some(true))
        .map(|check| format!("{}: {}", check.name, check.value))
        .collect();
    let proof = match failed.as_slice() {
        [] if containment.is_proven() => format!("containment proven by {} checks", containment.checks.len()),
        failed => format!("CONTAINMENT {}: {}", format!("{:?}", containment.verdict).to_uppercase(), failed.join("; ")),
    };
    let reduced = if reduced.is_empty() { String::new() } else { format!(" · reduced: {}", reduced.join("; ")) };
    format!(
        "{} · {:.2} s, {:.2} s cpu, {} memory · {proof}{reduced}",
        outcome.detail,
        usage.wall_ms as f64 / 1e3,
        (usage.cpu_user_ms + usage.cpu_system_ms) as f64 / 1e3,
        units::human_bytes(usage.memory_peak_bytes),
    )
}
