//! How a `taskman` ended, and the assertions every test makes about it.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::Value;

/// The six questions every report answers.
pub const CHECKS: [&str; 6] =
    ["cgroup_empty", "cgroup_removed", "pid_namespace_gone", "uid_unused", "ipc_absent", "mounts_absent"];

/// How a `taskman` ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub report: Option<Value>,
    pub elapsed: Duration,
}

/// For messages: enough to see what happened, not ten mebibytes of it.
impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = |text: &str| text.chars().take(2000).collect::<String>();
        writeln!(f, "{} after {:?}", self.status, self.elapsed)?;
        writeln!(f, "stdout ({} bytes): {}", self.stdout.len(), head(&self.text()))?;
        writeln!(f, "stderr: {}", head(&self.stderr))?;
        write!(f, "report: {:#}", self.report.clone().unwrap_or_default())
    }
}

impl Ended {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The report; a run that ended has one.
    #[track_caller]
    pub fn report(&self) -> &Value {
        self.report.as_ref().unwrap_or_else(|| panic!("no report was written: {self:?}"))
    }

    /// A whole number of the report, by JSON pointer.
    #[track_caller]
    pub fn number(&self, pointer: &str) -> u64 {
        let value = self.report().pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("{pointer} is no number in {:#}", self.report()))
    }

    /// Processor time of the report in milliseconds. Its two parts are rounded down, so their sum lacks up to one.
    #[track_caller]
    pub fn cpu_ms(&self) -> u64 {
        self.number("/usage/cpu_user_ms") + self.number("/usage/cpu_system_ms") + 1
    }

    /// Asserts the whole outcome, and that containment was proven by all six checks.
    #[track_caller]
    pub fn assert_outcome(&self, code: i32, status: &str, end: impl Into<End>, reason: &str) -> &Self {
        let end = end.into();
        let outcome = &self.report()["outcome"];
        let seen = (&outcome["status"], &outcome["exit_code"], &outcome["signal"], &outcome["reason"]);
        let (exit_code, signal) = match end {
            End::Code(code) => (Value::from(code), Value::Null),
            End::Signal(name) => (Value::Null, Value::from(name)),
        };
        let wanted = (&Value::from(status), &exit_code, &signal, &Value::from(reason));
        assert_eq!(seen, wanted, "{self:?}");
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self.assert_proven()
    }

    /// Asserts success and gives the output.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.status.code(), Some(0), "stdout {}\nstderr {}", self.text(), self.stderr);
        self.assert_outcome(0, "exited_ok", 0, "exit").text()
    }

    /// Asserts that the kernel was asked all six questions and found nothing left.
    #[track_caller]
    pub fn assert_proven(&self) -> &Self {
        let containment = &self.report()["containment"];
        assert_eq!(containment["verdict"], "proven", "{containment:#}");
        let checks = containment["checks"].as_array().expect("checks");
        let mut names: Vec<_> = checks.iter().filter_map(|check| check["name"].as_str()).collect();
        let mut wanted = CHECKS;
        names.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        for check in checks {
            assert_eq!(check["ok"], true, "{containment:#}");
            assert!(check["value"].as_str().is_some_and(|value| !value.is_empty()), "no value read: {check}");
        }
        self
    }

    /// Asserts that nothing ran: this code, an error naming each of `parts`, no output, no report.
    #[track_caller]
    pub fn assert_refused(&self, code: i32, parts: &[&str]) -> &Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        assert!(self.report.is_none(), "a report of a task that never ran: {self:?}");
        assert!(self.stdout.is_empty(), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is missing in the error: {}", self.stderr);
        }
        self
    }
}

/// How the main process ended, for [`Ended::assert_outcome`].
pub enum End {
    Code(i32),
    Signal(&'static str),
}

impl From<i32> for End {
    fn from(code: i32) -> Self {
        Self::Code(code)
    }
}

impl From<&'static str> for End {
    fn from(name: &'static str) -> Self {
        Self::Signal(name)
    }
}
