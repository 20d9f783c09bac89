//! Health, findings and leftovers as people read them. Names on this page may be a task's own: nothing reaches a terminal raw.

use super::table::table;
use super::{OutputFormat, json};
use crate::client::one_line;
use crate::containment::{Audited, HealthView, Leftover, Summary, Swept};
use crate::task::record::{UnixMillis, rfc3339};

/// Name and value, one per line; what has no value is left out.
pub fn facts(facts: &[(&str, Option<String>)]) -> String {
    let known = || facts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let width = known().map(|(name, _)| name.len()).max().unwrap_or(0);
    known().map(|(name, value)| format!("{name:width$}  {}\n", one_line(value))).collect()
}

/// A moment in UTC, to the millisecond: what came first matters here.
pub fn moment(at: UnixMillis) -> String {
    rfc3339(at).replace('T', " ").trim_end_matches('Z').to_owned()
}

/// What `health` shows.
pub fn health(output: OutputFormat, health: &HealthView) -> String {
    if output == OutputFormat::Json {
        return json::line(health);
    }
    let by = health.by.as_ref().map(|by| format!(" (by {by})")).unwrap_or_default();
    let reason = health.reason.as_ref();
    let reason = reason.map(|reason| format!("{reason}: {}{by}", health.detail.as_deref().unwrap_or("-")));
    let accepts = match &health.refusal {
        Some(why) if !health.can_accept => format!("no: {why}"),
        _ if health.can_accept => "yes".to_owned(),
        _ => "no".to_owned(),
    };
    let heard = health.heartbeat_age_ms.map(|age| format!(", heard {age} ms ago")).unwrap_or_default();
    let again = match health.auditor_restarts {
        0 => String::new(),
        times => format!(", started again {times} times"),
    };
    facts(&[
        ("STATUS", Some(health.status.clone())),
        ("SINCE", health.since.clone()),
        ("REASON", reason),
        ("TAKES TASKS", Some(accepts)),
        ("FINDINGS", Some(format!("{} since the last lift, {} ever", health.findings, health.findings_total))),
        (
            "CLEANUP FAILURES",
            Some(format!("{}, {} of them in a row", health.cleanup_failures, health.cleanup_failures_in_a_row)),
        ),
        ("AUDITOR", Some(format!("{}{heard}{again}", health.auditor))),
        ("RUNBOOK", health.runbook.clone()),
    ])
}

/// What `audit findings` shows.
pub fn findings(findings: &[Summary]) -> String {
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |finding: &Summary| {
        [
            finding.id.to_string(),
            moment(finding.detected_at),
            finding.kind.name().to_owned(),
            dash(finding.pid.map(|pid| pid.to_string())),
            dash(finding.task.map(|task| task.to_string())),
            dash(finding.owner.as_deref().map(one_line)),
            one_line(&finding.what),
        ]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    table(["ID", "DETECTED", "KIND", "PID", "TASK ID", "OWNER", "WHAT"], &rows)
}

/// What `health --verify-clean` shows.
pub fn leftovers(left: &[Leftover]) -> String {
    let row = |thing: &Leftover| [thing.kind.to_string(), one_line(&thing.name), one_line(&thing.detail)];
    table(["LEFT", "NAME", "DETAIL"], &left.iter().map(row).collect::<Vec<_>>())
}

/// What `health --recover` shows.
pub fn swept(swept: &[Swept]) -> String {
    let row = |thing: &Swept| {
        let result = thing.error.as_ref().map_or("swept".to_owned(), |why| format!("still there: {why}"));
        let Leftover { kind, name, detail } = &thing.leftover;
        [kind.to_string(), one_line(name), one_line(detail), one_line(&result)]
    };
    table(["LEFT", "NAME", "DETAIL", "RESULT"], &swept.iter().map(row).collect::<Vec<_>>())
}

/// What `audit run` shows.
pub fn audited(audited: &Audited) -> String {
    let Audited { tasks, processes, micros, .. } = audited;
    let mut text = String::new();
    if !audited.findings.is_empty() {
        text += &findings(&audited.findings);
    }
    if !audited.leftovers.is_empty() {
        text += &leftovers(&audited.leftovers);
    }
    let found = match (audited.findings.len(), audited.leftovers.len()) {
        (0, 0) => "nothing was found".to_owned(),
        (findings, leftovers) => format!("{findings} findings, {leftovers} leftovers"),
    };
    text + &format!("{found}: {tasks} tasks, {processes} processes, {:.1} ms\n", *micros as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containment::{IncidentId, Kind};

    #[test]
    fn people_see_why_no_task_is_taken_and_what_to_read() {
        let view = HealthView {
            status: "quarantined".into(),
            since: Some("2026-01-02T03:04:05.678Z".into()),
            reason: Some("orphan".into()),
            detail: Some("a process was outside".into()),
            by: Some("auditor".into()),
            findings: 1,
            findings_total: 4,
            cleanup_failures: 2,
            cleanup_failures_in_a_row: 1,
            can_accept: false,
            refusal: Some("read the runbook".into()),
            auditor: "watching".into(),
            heartbeat_age_ms: Some(120),
            auditor_restarts: 3,
            runbook: Some("runbooks/worker-quarantine.md".into()),
        };
        let expected = "\
STATUS            quarantined
SINCE             2026-01-02T03:04:05.678Z
REASON            orphan: a process was outside (by auditor)
TAKES TASKS       no: read the runbook
FINDINGS          1 since the last lift, 4 ever
CLEANUP FAILURES  2, 1 of them in a row
AUDITOR           watching, heard 120 ms ago, started again 3 times
RUNBOOK           runbooks/worker-quarantine.md
";
        assert_eq!(health(OutputFormat::Table, &view), expected);
        let seen: serde_json::Value = serde_json::from_str(&health(OutputFormat::Json, &view)).unwrap();
        assert_eq!((&seen["can_accept"], &seen["reason"]), (&false.into(), &"orphan".into()));
    }

    #[test]
    fn an_audit_ends_with_what_was_looked_at() {
        let mut seen = Audited { tasks: 2, processes: 7, micros: 1500, ..Default::default() };
        assert_eq!(audited(&seen), "nothing was found: 2 tasks, 7 processes, 1.5 ms\n");
        seen.findings.push(Summary {
            id: IncidentId::new(1_767_323_045_678),
            kind: Kind::OrphanDetected,
            detected_at: 1_767_323_045_678,
            task: None,
            owner: Some("ann".into()),
            pid: Some(42),
            what: "outside".into(),
        });
        let text = audited(&seen);
        assert!(text.contains("2026-01-02 03:04:05.678  orphan_detected  42   -        ann    outside\n"), "{text}");
        assert!(text.ends_with("1 findings, 0 leftovers: 2 tasks, 7 processes, 1.5 ms\n"), "{text}");
    }
}
