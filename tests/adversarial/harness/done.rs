//! What is known of a probe once it has ended: its status, its output, and the report if one was written.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::case::{Fail, broken};

/// What is known once taskman has ended.
pub struct Done {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub out_total: u64,
    pub report: Option<Value>,
    pub took: Duration,
    pub ended: Instant,
}

impl Done {
    /// The exit code; 128+n when it died of a signal itself.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// A field of the report by JSON pointer: `done.field("/outcome/reason")?`. No report: the start failed.
    pub fn field(&self, pointer: &str) -> Result<&Value, Fail> {
        let report = self.report.as_ref();
        let report = report.ok_or_else(|| broken(format!("no report (exit {}): {}", self.code(), cut(&self.err))))?;
        report.pointer(pointer).ok_or_else(|| broken(format!("the report has no {pointer}")))
    }

    /// The reason of the outcome.
    pub fn reason(&self) -> Result<&str, Fail> {
        Ok(self.field("/outcome/reason")?.as_str().unwrap_or(""))
    }

    /// The verdict on containment.
    pub fn verdict(&self) -> Result<&str, Fail> {
        Ok(self.field("/containment/verdict")?.as_str().unwrap_or(""))
    }
}

/// The beginning of a text, for messages.
pub fn cut(text: &str) -> &str {
    let mut end = text.len().min(400);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
