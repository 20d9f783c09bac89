//! What a status means, in the types the rest of the library uses.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as Unknown, StrDeserializer};

use crate::proto::task_manager::{JobStatus, TaskStatusResponse};
use crate::task::outcome::{ExitKind, ExitStatus, Outcome, Reason};

/// How and why a task ended; none while it runs.
pub fn outcome(response: &TaskStatusResponse) -> Option<Outcome> {
    let kind = match response.status() {
        JobStatus::Started => return None,
        JobStatus::ExitedOk => ExitKind::ExitedOk,
        JobStatus::ExitedError => ExitKind::ExitedError,
        JobStatus::Signaled => ExitKind::Signaled,
        JobStatus::Unknown => ExitKind::Unknown,
    };
    Some(Outcome {
        status: ExitStatus::from_parts(kind, response.exit_code, Some(&response.termination_signal)),
        reason: reason(&response.reason, kind),
        detail: response.detail.clone(),
        by_client: response.reason == Reason::Signal.name() && response.termination_source == "user",
    })
}

/// What `taskman wait` and `taskman start --follow` exit with, as `taskman run` does; none while it runs.
///
/// A task whose containment is not proven is taskman's failure, whatever the task itself did.
pub fn shell_code(response: &TaskStatusResponse) -> Option<u8> {
    let proven = response.containment.as_ref().is_none_or(|containment| containment.verdict == "proven");
    outcome(response).map(|outcome| if proven { outcome.shell_code() } else { 125 })
}

/// A server of the source design gives none; a newer one may give one that is not known here.
fn reason(name: &str, kind: ExitKind) -> Reason {
    let known =
        Reason::deserialize(IntoDeserializer::<Unknown>::into_deserializer(name) as StrDeserializer<'_, Unknown>);
    known.unwrap_or(match kind {
        ExitKind::ExitedOk | ExitKind::ExitedError => Reason::Exit,
        ExitKind::Signaled => Reason::Signal,
        ExitKind::Unknown => Reason::ServerLost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::task_manager::ContainmentProof;

    fn ended(status: JobStatus, exit_code: Option<i32>, signal: &str, reason: &str) -> TaskStatusResponse {
        TaskStatusResponse {
            status: status.into(),
            exit_code,
            termination_signal: signal.into(),
            reason: reason.into(),
            ..Default::default()
        }
    }

    #[test]
    fn exit_codes_are_those_of_run() {
        let cases = [
            (ended(JobStatus::ExitedOk, Some(0), "", "exit"), Some(0)),
            (ended(JobStatus::ExitedError, Some(3), "", "exit"), Some(3)),
            (ended(JobStatus::Signaled, None, "SIGSEGV", "signal"), Some(139)),
            (ended(JobStatus::Signaled, None, "SIGTERM", "stopped"), Some(143)),
            (ended(JobStatus::ExitedOk, Some(0), "", "stopped"), Some(0)),
            (ended(JobStatus::Signaled, None, "SIGRTMIN+3", "signal"), Some(165)),
            (ended(JobStatus::Signaled, None, "SIGKILL", "wall_time"), Some(124)),
            (ended(JobStatus::Signaled, None, "SIGKILL", "cpu_time"), Some(124)),
            (ended(JobStatus::ExitedError, Some(1), "", "oom"), Some(137)),
            (ended(JobStatus::Signaled, None, "SIGKILL", "output_limit"), Some(137)),
            (ended(JobStatus::Signaled, None, "SIGKILL", "containment"), Some(125)),
            (ended(JobStatus::Unknown, None, "", "server_lost"), Some(125)),
            (ended(JobStatus::Signaled, None, "SIGTERM", "server_shutdown"), Some(143)),
            (ended(JobStatus::Started, None, "", ""), None),
            // A server of the source design.
            (ended(JobStatus::Signaled, None, "SIGKILL", ""), Some(137)),
            (ended(JobStatus::ExitedError, Some(7), "", ""), Some(7)),
        ];
        for (response, code) in cases {
            assert_eq!(shell_code(&response), code, "{response:?}");
        }
    }

    #[test]
    fn an_unproven_end_is_not_the_tasks_success() {
        let with = |verdict: &str| {
            let containment = Some(ContainmentProof { verdict: verdict.into(), checks: Vec::new() });
            shell_code(&TaskStatusResponse { containment, ..ended(JobStatus::ExitedOk, Some(0), "", "exit") })
        };
        assert_eq!([with("proven"), with("unproven"), with("violated")], [Some(0), Some(125), Some(125)]);
    }
}
