//! What the server keeps of a task, from the moment its start was answered.
//!
//! The environment is not in it: that is where secrets are.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::id::TaskId;
use super::limits::Limits;
use super::outcome::Outcome;
use super::report::{Containment, Usage};

/// Milliseconds since 1970.
pub type UnixMillis = i64;

/// Now.
pub fn now() -> UnixMillis {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as UnixMillis)
}

/// The end of the year 9999, in milliseconds.
const LAST_MOMENT: UnixMillis = 253_402_300_799_999;

/// A moment for people and programs, in UTC; one that no calendar has is cut to the nearest.
pub fn rfc3339(at: UnixMillis) -> String {
    let since = Duration::from_millis(at.clamp(0, LAST_MOMENT).unsigned_abs());
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// One task, running or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The task.
    pub id: TaskId,
    /// Who started it.
    pub owner: String,
    /// What it runs.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The profile of the server's configuration it runs under.
    pub profile: String,
    /// The limits in force.
    pub limits: Limits,
    /// Limits and defences that the host could not enforce.
    pub reduced: Vec<String>,
    /// Whether standard output and standard error are kept apart.
    pub split_output: bool,
    /// The token of the request that started it, and a digest of that request.
    pub token: Option<Token>,
    /// The main process's pid on the host.
    pub process_id: i32,
    /// When its command was executed.
    pub started_at: UnixMillis,
    /// How it ended; none while it runs.
    pub end: Option<End>,
}

/// Makes a start repeatable: the same token with the same request is the same task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// As the client chose it.
    pub token: String,
    /// Of everything else in the request.
    pub digest: String,
}

/// A final record's second half.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How and why.
    pub outcome: Outcome,
    /// When its last process was gone.
    pub ended_at: UnixMillis,
    /// What it used.
    pub usage: Usage,
    /// What the kernel said was left of it.
    pub containment: Containment,
    /// What is stored of its output.
    pub output: StoredOutput,
}

/// What is stored of a task's output, both streams together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOutput {
    /// Bytes the task wrote.
    pub bytes: u64,
    /// Bytes of them that are not stored.
    pub omitted: u64,
    /// Why they are not.
    pub truncation: Option<Truncation>,
}

/// Why output is not stored in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncation {
    /// It was larger than the server keeps per task: head and tail are there, the middle is not.
    OutputCap,
    /// The disk was full.
    DiskFull,
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn no_moment_is_too_odd_to_be_written() {
        assert_eq!(rfc3339(1_767_323_045_678), "2026-01-02T03:04:05.678Z");
        for at in [i64::MIN, -1, 0, i64::MAX] {
            assert_eq!(rfc3339(at).len(), "2026-01-02T03:04:05.678Z".len(), "{at}");
        }
    }
}
