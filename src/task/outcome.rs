//! How a task ended. Exit code, signal and *why* are separate: 137 is never a guess.

use serde::{Deserialize, Serialize};

/// The kernel's part: how the main process ended, in the source design's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
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
pub struct Outcome {
    /// How the main process ended.
    pub status: Status,
    /// Its exit code, when it exited.
    pub exit_code: Option<i32>,
    /// The signal's name, when a signal ended it.
    pub signal: Option<String>,
    /// Why.
    pub reason: Reason,
    /// The reason in words, with the figures that belong to it.
    pub detail: String,
    /// The signal that ended it is one that a client had sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
    #[serde(skip)]
    pub(crate) signal_number: Option<i32>,
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

impl Outcome {
    /// Of a task that ran when the server died.
    pub fn server_lost() -> Self {
        Self {
            status: Status::Unknown,
            exit_code: None,
            signal: None,
            reason: Reason::ServerLost,
            detail: "was running when the server died, and died with it".to_owned(),
            by_client: false,
            signal_number: None,
        }
    }

    /// The exit code `taskman run` ends with: the task's own, 128+n for signal n, 124 for time limits, 137 for the
    /// others whatever the main process died of.
    pub fn shell_code(&self) -> u8 {
        match (self.reason, self.exit_code, self.signal_number) {
            (Reason::WallTime | Reason::CpuTime, ..) => 124,
            (Reason::Oom | Reason::OutputLimit, ..) => 128 + 9,
            (Reason::Containment | Reason::ServerLost, ..) => 125,
            (_, Some(code), _) => code as u8,
            (_, None, Some(signal)) => (128 + signal) as u8,
            (_, None, None) => 125,
        }
    }
}
