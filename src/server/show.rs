//! A record in the protocol's words.

use super::keep;
use super::registry::Live;
use crate::proto::containment::timestamp;
use crate::proto::limits::LimitFields;
use crate::proto::task_manager as pb;
use crate::task::outcome::{ExitKind, Outcome, Reason};
use crate::task::record::{Record, StoredOutput, Truncation};

/// A live task, with what it has written so far.
pub fn live(live: &Live) -> pb::TaskStatusResponse {
    let record = live.record().clone();
    let output = keep::stored(live.logs());
    let mut status = show(&record, &output);
    status.ending = live.is_ending() && record.end.is_none();
    status
}

/// A recorded task.
pub fn record(record: &Record) -> pb::TaskStatusResponse {
    let output = record.end.as_ref().map(|end| end.output.clone()).unwrap_or_default();
    show(record, &output)
}

fn show(record: &Record, output: &StoredOutput) -> pb::TaskStatusResponse {
    let LimitFields { limits, timeout } = LimitFields::from(&record.limits);
    let mut status = pb::TaskStatusResponse {
        task_id: record.id.to_string(),
        process_id: record.process_id,
        status: pb::JobStatus::Started.into(),
        start_time: Some(timestamp(record.started_at)),
        owner: record.owner.clone(),
        command: record.command.clone(),
        args: record.args.clone(),
        reduced: record.reduced.clone(),
        limits: Some(limits),
        timeout,
        labels: record.labels.clone(),
        profile: record.profile.clone(),
        output_bytes: output.bytes,
        output_omitted_bytes: output.omitted,
        output_truncation: output.truncation.map(truncation).unwrap_or_default().to_owned(),
        split_output: record.split_output,
        ..Default::default()
    };
    let Some(end) = &record.end else { return status };
    let outcome = &end.outcome;
    status.exit_code = outcome.status.code();
    status.status = job_status(outcome.status.kind()).into();
    status.termination_signal = outcome.status.signal().unwrap_or_default();
    status.termination_source = source(outcome).to_owned();
    status.end_time = Some(timestamp(end.ended_at));
    status.reason = outcome.reason.name().to_owned();
    status.detail.clone_from(&outcome.detail);
    status.usage = Some(pb::Usage {
        wall_ms: end.usage.wall_ms,
        cpu_user_ms: end.usage.cpu_user_ms,
        cpu_system_ms: end.usage.cpu_system_ms,
        memory_peak_bytes: end.usage.memory_peak_bytes,
        pids_peak: end.usage.pids_peak,
        overshoot_ms: end.usage.overshoot_ms,
    });
    let checks = end.containment.checks.iter();
    status.containment = Some(pb::ContainmentProof {
        verdict: format!("{:?}", end.containment.verdict).to_lowercase(),
        checks: checks
            .map(|check| pb::containment_proof::Check {
                name: check.name.to_string(),
                value: check.value.clone(),
                ok: check.ok,
            })
            .collect(),
    });
    status
}

fn job_status(kind: ExitKind) -> pb::JobStatus {
    match kind {
        ExitKind::ExitedOk => pb::JobStatus::ExitedOk,
        ExitKind::ExitedError => pb::JobStatus::ExitedError,
        ExitKind::Signaled => pb::JobStatus::Signaled,
        ExitKind::Unknown => pb::JobStatus::Unknown,
    }
}

/// Who brought the end about, in the source design's words ("user, system, oom, etc").
fn source(outcome: &Outcome) -> &'static str {
    match outcome.reason {
        Reason::Exit => "",
        Reason::Signal if outcome.by_client => "user",
        Reason::Signal => "task",
        Reason::Stopped => "user",
        Reason::Containment | Reason::ServerShutdown | Reason::ServerLost => "system",
        limit => limit.name(),
    }
}

fn truncation(truncation: Truncation) -> &'static str {
    match truncation {
        Truncation::OutputCap => "output_cap",
        Truncation::DiskFull => "disk_full",
    }
}
