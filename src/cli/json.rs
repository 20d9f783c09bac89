//! `--output json`: stable for scripts. Keys are only ever added; what means the same as in the report of `taskman run` has
//! the same name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use super::table::rfc3339;
use crate::client::{StreamEnd, TaskStatusResponse, outcome, steers};
use crate::proto::limits::LimitFields;
use crate::proto::task_manager as proto;
use crate::task::limits::Limits;
use crate::task::outcome::Outcome;
use crate::task::report::{Check, Containment, Usage, Verdict};

/// What `start` prints.
#[derive(Debug, Serialize)]
pub struct Started {
    /// The new task.
    pub task_id: String,
}

/// What `stop` prints: the request was received.
#[derive(Debug, Serialize)]
pub struct Stopping {
    /// The task.
    pub task_id: String,
}

/// What `signal` prints: the signal was delivered.
#[derive(Debug, Serialize)]
pub struct Signalled<'a> {
    /// The task.
    pub task_id: String,
    /// As it was asked for.
    pub signal: &'a str,
}

/// What `list` prints.
#[derive(Debug, Serialize)]
pub struct Tasks {
    /// Newest first.
    pub tasks: Vec<Task>,
}

/// What `stream` prints to standard error at the end; the output itself is never touched.
#[derive(Debug, Serialize)]
pub struct Streamed {
    /// The task.
    pub task_id: String,
    /// Bytes that are not stored.
    pub omitted_bytes: u64,
    /// `eof`, `closed_by_supervisor`, `not_followed`, or nothing if the server does not say.
    pub end: Option<&'static str>,
}

/// What `get-status` and `wait` print, and `list` for each task.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // named as in proto/task.proto and in the report
pub struct Task {
    pub task_id: String,
    pub owner: String,
    pub command: String,
    pub args: Vec<String>,
    /// As in the table: `JOB_STATUS_STARTED` and so on.
    pub status: &'static str,
    pub process_id: i32,
    /// None while it runs.
    pub outcome: Option<Outcome>,
    pub termination_source: Option<String>,
    pub ending: bool,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub usage: Option<Usage>,
    pub limits: Option<Limits>,
    pub reduced: Vec<String>,
    pub containment: Option<Containment>,
    pub labels: BTreeMap<String, String>,
    pub profile: String,
    pub split_output: bool,
    pub output: Output,
}

/// What is stored of the output.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Output {
    pub bytes: u64,
    pub omitted_bytes: u64,
    pub truncation: Option<String>,
}

impl From<&TaskStatusResponse> for Task {
    fn from(task: &TaskStatusResponse) -> Self {
        Self {
            task_id: task.task_id.clone(),
            owner: task.owner.clone(),
            command: task.command.clone(),
            args: task.args.clone(),
            status: task.status().as_str_name(),
            process_id: task.process_id,
            outcome: outcome(task),
            termination_source: some(&task.termination_source),
            ending: task.ending,
            started_at: rfc3339(task.start_time.as_ref()),
            ended_at: rfc3339(task.end_time.as_ref()),
            usage: task.usage.as_ref().map(|used| usage(used, task.output_bytes)),
            limits: task.limits.as_ref().map(|in_force| limits(in_force, task.timeout.as_ref())),
            reduced: task.reduced.clone(),
            containment: task.containment.as_ref().map(containment),
            labels: task.labels.clone().into_iter().collect(),
            profile: task.profile.clone(),
            split_output: task.split_output,
            output: Output {
                bytes: task.output_bytes,
                omitted_bytes: task.output_omitted_bytes,
                truncation: some(&task.output_truncation),
            },
        }
    }
}

/// The name of a stream's end.
pub fn stream_end(end: StreamEnd) -> Option<&'static str> {
    match end {
        StreamEnd::Unspecified => None,
        StreamEnd::Eof => Some("eof"),
        StreamEnd::ClosedBySupervisor => Some("closed_by_supervisor"),
        StreamEnd::NotFollowed => Some("not_followed"),
    }
}

fn usage(usage: &proto::Usage, output_bytes: u64) -> Usage {
    Usage {
        wall_ms: usage.wall_ms,
        cpu_user_ms: usage.cpu_user_ms,
        cpu_system_ms: usage.cpu_system_ms,
        memory_peak_bytes: usage.memory_peak_bytes,
        pids_peak: usage.pids_peak,
        output_bytes,
        overshoot_ms: usage.overshoot_ms,
    }
}

fn containment(containment: &proto::ContainmentProof) -> Containment {
    let check = |check: &proto::containment_proof::Check| Check {
        name: Cow::Owned(check.name.clone()),
        value: check.value.clone(),
        ok: check.ok,
    };
    let verdict = match containment.verdict.as_str() {
        "proven" => Verdict::Proven,
        "violated" => Verdict::Violated,
        _ => Verdict::Unproven,
    };
    Containment { verdict, checks: containment.checks.iter().map(check).collect() }
}

/// As the server says them; what it leaves out is 0.
fn limits(limits: &proto::Limits, timeout: Option<&prost_types::Duration>) -> Limits {
    let fields = LimitFields { limits: *limits, timeout: timeout.copied() };
    let mut shown = Limits::NONE;
    fields.asked().unwrap_or_default().iter().for_each(|(limit, value)| limit.set(&mut shown, value));
    shown
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// One line of JSON. What steers a terminal is escaped in it, which is the same to a program: another user's words may be in it.
pub fn line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // All of them are of one UTF-16 unit.
        if steers(c) {
            line += &format!("\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table::tests::example;

    #[test]
    fn a_task_has_every_documented_key_with_the_reports_names() {
        let task = TaskStatusResponse {
            usage: Some(proto::Usage { wall_ms: 5, ..Default::default() }),
            limits: Some(proto::Limits {
                memory_bytes: 7,
                cpu_time: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
                ..Default::default()
            }),
            timeout: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
            containment: Some(proto::ContainmentProof {
                verdict: "proven".into(),
                checks: vec![proto::containment_proof::Check { name: "n".into(), value: "v".into(), ok: Some(true) }],
            }),
            output_bytes: 9,
            detail: "exited with code 0".into(),
            profile: "default".into(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            ..example()
        };
        let seen: serde_json::Value = serde_json::from_str(&line(&Task::from(&task))).unwrap();
        let wanted = serde_json::json!({
            "task_id": "a7da14c7-b47a-4535-a263-5bb26e503002", "owner": "client001",
            "command": "/bin/ls", "args": ["/myFolder"], "status": "JOB_STATUS_EXITED_OK", "process_id": 2345,
            "outcome": {"status": "exited_ok", "exit_code": 0, "signal": null, "reason": "exit", "detail": "exited with code 0"},
            "termination_source": null, "ending": false,
            "started_at": "2024-11-10T22:58:00.005Z", "ended_at": "2024-11-10T23:00:00.000Z",
            "usage": {"wall_ms": 5, "cpu_user_ms": 0, "cpu_system_ms": 0, "memory_peak_bytes": 0, "pids_peak": 0, "output_bytes": 9},
            "limits": {"memory_bytes": 7, "cpus": 0.0, "cpu_time_ms": 1500, "timeout_ms": 2000, "pids": 0, "io_read_bps": 0,
                "io_write_bps": 0, "output_bytes": 0, "nofile": 0, "fsize_bytes": 0, "disk_bytes": 0, "inodes": 0},
            "reduced": [], "containment": {"verdict": "proven", "checks": [{"name": "n", "value": "v", "ok": true}]},
            "labels": {"a": "b"}, "profile": "default", "split_output": false,
            "output": {"bytes": 9, "omitted_bytes": 0, "truncation": null},
        });
        assert_eq!(seen, wanted);
        let running = TaskStatusResponse { status: proto::JobStatus::Started.into(), ..Default::default() };
        let seen = serde_json::to_value(Task::from(&running)).unwrap();
        assert_eq!(
            (&seen["outcome"], &seen["ended_at"], &seen["usage"]),
            (&serde_json::Value::Null, &serde_json::Value::Null, &serde_json::Value::Null)
        );
    }

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        let args = vec![
            "\u{9b}31m".to_owned(),
            "a\u{202e}b\u{2066}".into(),
            "\u{7f}\u{85}\u{2028}".into(),
            "ü😀\n\u{1b}".into(),
        ];
        let text = line(&Task::from(&TaskStatusResponse { args: args.clone(), ..example() }));
        assert!(!text.trim_end_matches('\n').chars().any(steers), "{text:?}");
        assert!(text.contains("\\u009b31m") && text.contains("a\\u202eb") && text.contains("ü😀"), "{text}");
        let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(seen["args"], serde_json::json!(args), "the same to a program");
    }

    #[test]
    fn limits_have_the_names_of_the_report() {
        let keys = |value: serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let here = serde_json::to_value(limits(&proto::Limits::default(), None)).unwrap();
        assert_eq!(keys(here), keys(serde_json::to_value(crate::Limits::default()).unwrap()));
    }
}
