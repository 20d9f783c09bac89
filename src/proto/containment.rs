//! Containment in the protocol's words and back: server and client say the same thing with one text.

use prost_types::Timestamp;
use serde::de::DeserializeOwned;

use super::task_manager as pb;
use crate::containment::{Audited, HealthView, Leftover, Summary, Swept};
use crate::task::record::{UnixMillis, rfc3339};

/// A message that does not say what it must: which field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value:?}, which this version does not know")]
pub struct Unreadable {
    field: &'static str,
    value: String,
}

impl From<&HealthView> for pb::HealthResponse {
    fn from(health: &HealthView) -> Self {
        let since = health.since.as_deref().and_then(|since| humantime::parse_rfc3339(since).ok());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            status: health.status.clone(),
            since: since.map(Timestamp::from),
            reason: text(&health.reason),
            detail: text(&health.detail),
            by: text(&health.by),
            findings: health.findings,
            findings_total: health.findings_total,
            cleanup_failures: health.cleanup_failures,
            cleanup_failures_in_a_row: health.cleanup_failures_in_a_row,
            can_accept: health.can_accept,
            refusal: text(&health.refusal),
            auditor: health.auditor.clone(),
            heartbeat_age_ms: health.heartbeat_age_ms,
            auditor_restarts: health.auditor_restarts,
            runbook: text(&health.runbook),
        }
    }
}

impl From<pb::HealthResponse> for HealthView {
    fn from(health: pb::HealthResponse) -> Self {
        Self {
            status: health.status,
            since: health.since.map(|since| rfc3339(millis(&since))),
            reason: some(health.reason),
            detail: some(health.detail),
            by: some(health.by),
            findings: health.findings,
            findings_total: health.findings_total,
            cleanup_failures: health.cleanup_failures,
            cleanup_failures_in_a_row: health.cleanup_failures_in_a_row,
            can_accept: health.can_accept,
            refusal: some(health.refusal),
            auditor: health.auditor,
            heartbeat_age_ms: health.heartbeat_age_ms,
            auditor_restarts: health.auditor_restarts,
            runbook: some(health.runbook),
        }
    }
}

impl From<&Summary> for pb::Finding {
    fn from(finding: &Summary) -> Self {
        Self {
            id: finding.id.to_string(),
            kind: finding.kind.name().to_owned(),
            detected_at: Some(timestamp(finding.detected_at)),
            task_id: finding.task.map(|task| task.to_string()).unwrap_or_default(),
            owner: finding.owner.clone().unwrap_or_default(),
            pid: finding.pid,
            what: finding.what.clone(),
        }
    }
}

impl TryFrom<pb::Finding> for Summary {
    type Error = Unreadable;

    fn try_from(finding: pb::Finding) -> Result<Self, Unreadable> {
        Ok(Self {
            id: read("id", &finding.id)?,
            kind: read("kind", &finding.kind)?,
            detected_at: finding.detected_at.as_ref().map(millis).unwrap_or_default(),
            task: some(finding.task_id).map(|task| read("task_id", &task)).transpose()?,
            owner: some(finding.owner),
            pid: finding.pid,
            what: finding.what,
        })
    }
}

impl From<&Leftover> for pb::Leftover {
    fn from(leftover: &Leftover) -> Self {
        Self { kind: leftover.kind.to_string(), name: leftover.name.clone(), detail: leftover.detail.clone() }
    }
}

impl TryFrom<pb::Leftover> for Leftover {
    type Error = Unreadable;

    fn try_from(leftover: pb::Leftover) -> Result<Self, Unreadable> {
        Ok(Self { kind: read("kind", &leftover.kind)?, name: leftover.name, detail: leftover.detail })
    }
}

impl From<&Swept> for pb::recover_response::Swept {
    fn from(swept: &Swept) -> Self {
        Self { leftover: Some((&swept.leftover).into()), error: swept.error.clone().unwrap_or_default() }
    }
}

impl TryFrom<pb::recover_response::Swept> for Swept {
    type Error = Unreadable;

    fn try_from(swept: pb::recover_response::Swept) -> Result<Self, Unreadable> {
        Ok(Self { leftover: swept.leftover.unwrap_or_default().try_into()?, error: some(swept.error) })
    }
}

impl From<&Audited> for pb::RunAuditResponse {
    fn from(audited: &Audited) -> Self {
        Self {
            findings: audited.findings.iter().map(Into::into).collect(),
            leftovers: audited.leftovers.iter().map(Into::into).collect(),
            tasks: audited.tasks,
            processes: audited.processes,
            micros: audited.micros,
        }
    }
}

impl TryFrom<pb::RunAuditResponse> for Audited {
    type Error = Unreadable;

    fn try_from(audited: pb::RunAuditResponse) -> Result<Self, Unreadable> {
        Ok(Self {
            findings: all(audited.findings)?,
            leftovers: all(audited.leftovers)?,
            tasks: audited.tasks,
            processes: audited.processes,
            micros: audited.micros,
        })
    }
}

/// Each of them, or the first that cannot be read.
pub fn all<T, U: TryFrom<T>>(messages: Vec<T>) -> Result<Vec<U>, U::Error> {
    messages.into_iter().map(U::try_from).collect()
}

/// Names are written as in JSON, so JSON knows how to read them.
fn read<T: DeserializeOwned>(field: &'static str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_value(text.into()).map_err(|_| Unreadable { field, value: text.to_owned() })
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A moment as the messages carry it.
pub fn timestamp(at: UnixMillis) -> Timestamp {
    Timestamp { seconds: at.div_euclid(1000), nanos: (at.rem_euclid(1000) * 1_000_000) as i32 }
}

fn millis(at: &Timestamp) -> UnixMillis {
    at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containment::{IncidentId, Kind, LeftoverKind};
    use crate::task::id::TaskId;

    #[test]
    fn what_a_server_says_is_what_a_client_hears() {
        let health = HealthView {
            status: "quarantined".into(),
            since: Some("2026-01-02T03:04:05.678Z".into()),
            reason: Some("manual".into()),
            detail: Some("a drill".into()),
            by: Some("admin".into()),
            findings: 1,
            findings_total: 2,
            cleanup_failures: 3,
            cleanup_failures_in_a_row: 4,
            can_accept: false,
            refusal: Some("no".into()),
            auditor: "watching".into(),
            heartbeat_age_ms: Some(0),
            auditor_restarts: 5,
            runbook: Some("r".into()),
        };
        assert_eq!(HealthView::from(pb::HealthResponse::from(&health)), health);
        let well = HealthView {
            since: None,
            reason: None,
            detail: None,
            by: None,
            refusal: None,
            heartbeat_age_ms: None,
            runbook: None,
            ..health
        };
        assert_eq!(HealthView::from(pb::HealthResponse::from(&well)), well);
        let finding = |kind, task, owner, pid| Summary {
            id: IncidentId::new(1_700_000_000_123),
            kind,
            detected_at: 1_700_000_000_123,
            task,
            owner,
            pid,
            what: "x".into(),
        };
        let leftover = Leftover { kind: LeftoverKind::Cgroup, name: "/a".into(), detail: "b".into() };
        let audited = Audited {
            findings: Kind::ALL
                .map(|kind| finding(kind, Some(TaskId::random()), Some("ann".into()), Some(7)))
                .into_iter()
                .chain([finding(Kind::PostCleanupLeak, None, None, None)])
                .collect(),
            leftovers: vec![leftover.clone()],
            tasks: 1,
            processes: 2,
            micros: 3,
        };
        assert_eq!(Audited::try_from(pb::RunAuditResponse::from(&audited)), Ok(audited));
        for error in [None, Some("busy".to_owned())] {
            let swept = Swept { leftover: leftover.clone(), error };
            assert_eq!(Swept::try_from(pb::recover_response::Swept::from(&swept)), Ok(swept));
        }
    }

    #[test]
    fn what_only_a_newer_server_says_is_named() {
        let odd = Leftover::try_from(pb::Leftover { kind: "spirit".into(), ..Default::default() }).unwrap_err();
        assert_eq!(odd.to_string(), "kind is \"spirit\", which this version does not know");
    }
}
