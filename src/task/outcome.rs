//! How a task ended. Exit code, signal and *why* are separate: 137 is never a guess.

use serde::{Deserialize, Serialize};

use super::signal;

/// The kernel's part: how the main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited, with this code.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
    /// Nobody was left to see how.
    Unknown,
}

/// An [`ExitStatus`] without its number, as lists are filtered and the v1 API names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitKind {
    /// Exited with code 0.
    ExitedOk,
    /// Exited with another code.
    ExitedError,
    /// Ended by a signal.
    Signaled,
    /// Nobody was left to see how.
    Unknown,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It exited by itself.
    Exit,
    /// A signal: of its own doing, or sent by a client.
    Signal,
    /// Its owner or an administrator stopped it.
    Stopped,
    /// It ran out of memory.
    Oom,
    /// It ran longer than its timeout.
    WallTime,
    /// It used more processor time than allowed.
    CpuTime,
    /// It wrote more output than allowed.
    OutputLimit,
    /// Its containment failed, or was attacked, and it was ended for that.
    Containment,
    /// The server was told to stop while it ran.
    ServerShutdown,
    /// The server died while it ran; how the task itself ended, nobody was left to see.
    ServerLost,
}

/// A final outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct Outcome {
    /// How the main process ended.
    pub status: ExitStatus,
    /// Why.
    pub reason: Reason,
    /// The reason in words, with the figures that belong to it.
    pub detail: String,
    /// The signal that ended it is one that a client had sent.
    pub by_client: bool,
}

/// An outcome in reports, rows and packets: the number beside its kind, and a signal by its name.
#[derive(Serialize, Deserialize)]
struct Form {
    status: ExitKind,
    exit_code: Option<i32>,
    signal: Option<String>,
    reason: Reason,
    detail: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_client: bool,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Exit,
        Self::Signal,
        Self::Stopped,
        Self::Oom,
        Self::WallTime,
        Self::CpuTime,
        Self::OutputLimit,
        Self::Containment,
        Self::ServerShutdown,
        Self::ServerLost,
    ];

    /// The name in reports, statuses and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Stopped => "stopped",
            Self::Oom => "oom",
            Self::WallTime => "wall_time",
            Self::CpuTime => "cpu_time",
            Self::OutputLimit => "output_limit",
            Self::Containment => "containment",
            Self::ServerShutdown => "server_shutdown",
            Self::ServerLost => "server_lost",
        }
    }
}

impl ExitStatus {
    /// From its parts; unknown where the part that belongs to the kind is missing.
    pub fn from_parts(kind: ExitKind, exit_code: Option<i32>, signal: Option<&str>) -> Self {
        let status = match kind {
            ExitKind::ExitedOk | ExitKind::ExitedError => exit_code.map(Self::Exited),
            ExitKind::Signaled => signal.and_then(signal::number).map(Self::Signaled),
            ExitKind::Unknown => None,
        };
        status.unwrap_or(Self::Unknown)
    }

    /// Without the number.
    pub fn kind(self) -> ExitKind {
        match self {
            Self::Exited(0) => ExitKind::ExitedOk,
            Self::Exited(_) => ExitKind::ExitedError,
            Self::Signaled(_) => ExitKind::Signaled,
            Self::Unknown => ExitKind::Unknown,
        }
    }

    /// The exit code, if it exited.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            _ => None,
        }
    }

    /// The name of the signal that ended it, if one did.
    pub fn signal(self) -> Option<String> {
        match self {
            Self::Signaled(number) => Some(signal::name(number)),
            _ => None,
        }
    }
}

impl Outcome {
    /// Of a task that ran when the server died.
    pub fn server_lost() -> Self {
        Self {
            status: ExitStatus::Unknown,
            reason: Reason::ServerLost,
            detail: "was running when the server died, and died with it".to_owned(),
            by_client: false,
        }
    }

    /// The exit code `taskman run` ends with: the task's own, 128+n for signal n, 124 for time limits, 137 for the
    /// others whatever the main process died of.
    pub fn shell_code(&self) -> u8 {
        match (self.reason, self.status) {
            (Reason::WallTime | Reason::CpuTime, _) => 124,
            (Reason::Oom | Reason::OutputLimit, _) => 128 + 9,
            (Reason::Containment | Reason::ServerLost, _) => 125,
            (_, ExitStatus::Exited(code)) => code as u8,
            (_, ExitStatus::Signaled(signal)) => (128 + signal) as u8,
            (_, ExitStatus::Unknown) => 125,
        }
    }
}

impl From<Form> for Outcome {
    fn from(form: Form) -> Self {
        let Form { status, exit_code, signal, reason, detail, by_client } = form;
        Self { status: ExitStatus::from_parts(status, exit_code, signal.as_deref()), reason, detail, by_client }
    }
}

impl From<Outcome> for Form {
    fn from(outcome: Outcome) -> Self {
        let Outcome { status, reason, detail, by_client } = outcome;
        Self { status: status.kind(), exit_code: status.code(), signal: status.signal(), reason, detail, by_client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_was_read_back_is_the_same() {
        for (status, code) in [
            (ExitStatus::Exited(0), 0),
            (ExitStatus::Exited(3), 3),
            (ExitStatus::Signaled(11), 139),
            (ExitStatus::Signaled(37), 165),
            (ExitStatus::Unknown, 125),
        ] {
            let outcome = Outcome { status, reason: Reason::Stopped, detail: "why".to_owned(), by_client: false };
            let text = serde_json::to_string(&outcome).unwrap();
            let back: Outcome = serde_json::from_str(&text).unwrap();
            assert_eq!((&back, back.shell_code()), (&outcome, code), "{text}");
        }
    }

    #[test]
    fn a_row_of_an_earlier_version_is_read() {
        let row = r#"{"status":"signaled","exit_code":null,"signal":"SIGSEGV","reason":"signal","detail":"d"}"#;
        let outcome: Outcome = serde_json::from_str(row).unwrap();
        assert_eq!((outcome.status, outcome.shell_code()), (ExitStatus::Signaled(11), 139));
        assert_eq!(serde_json::to_string(&outcome).unwrap(), row);
        // Of a signal that this version does not know, nothing is made up.
        let odd: Outcome = serde_json::from_str(&row.replace("SIGSEGV", "SIGODD")).unwrap();
        assert_eq!(odd.status, ExitStatus::Unknown);
    }
}
