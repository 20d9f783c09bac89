//! From the containment journal into the audit log: every line once, over crashes and restarts.
//!
//! The number of the last line is kept in a file, written when its record is on disk for certain. A crash between the two
//! is found at the next start: the records themselves carry their numbers.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use super::audit_log::{AuditLog, Entry, Origin};
use super::link::Link;
use crate::containment::{self, Answer, Line, Query};
use crate::error::{Context, SysError};
use crate::task::id::TaskId;

/// How much of the audit log's end is looked at after a crash: what can be written between a record and its number.
const TAIL: u64 = 1 << 20;
/// When lines are missing and the auditor cannot say them, it is asked again after this.
const AGAIN: Duration = Duration::from_secs(5);

/// The records of the journal's lines.
pub struct Records {
    audit: AuditLog,
    file: PathBuf,
    last: u64,
}

impl Records {
    /// Of the server's directory, with its audit log.
    pub fn open(directory: &Path, audit: AuditLog) -> Result<Self, SysError> {
        let file = directory.join("journal-seq");
        let kept = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().unwrap_or(0),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error).on("read", file.display().to_string()),
        };
        let last = recorded(&directory.join("audit.log"))?.max(recorded(&directory.join("audit.log.1"))?).max(kept);
        Ok(Self { audit, file, last })
    }

    /// Records what comes, until nothing more can come; begins with what the journal has by now.
    pub async fn keep(mut self, link: Arc<Link>, mut lines: mpsc::UnboundedReceiver<Vec<Line>>, told: impl Fn(&Line)) {
        let mut behind = !self.catch_up(&link, &told).await;
        loop {
            let come = if behind {
                match tokio::time::timeout(AGAIN, lines.recv()).await {
                    Ok(come) => come,
                    Err(_) => Some(Vec::new()),
                }
            } else {
                lines.recv().await
            };
            let Some(come) = come else { return };
            let next = come.iter().find(|line| line.seq > self.last);
            let whole = next.is_none_or(|line| line.seq == self.last + 1);
            behind = (behind || !whole) && !self.catch_up(&link, &told).await;
            if !behind {
                behind = !self.record(come, &told).await;
            }
        }
    }

    /// Asks for what is missing; false if it could not be had.
    async fn catch_up(&mut self, link: &Link, told: &impl Fn(&Line)) -> bool {
        let mut after = self.last.saturating_sub(1);
        loop {
            match link.containment(Query::Journal { after }).await {
                // The last line that is recorded is not there: this is another journal, and all of it is new.
                Answer::Journal(lines) if lines.is_empty() && after < self.last => {
                    tracing::error!(
                        recorded = self.last,
                        "the containment journal has lost lines; it is recorded anew"
                    );
                    (self.last, after) = (0, 0);
                }
                Answer::Journal(lines) if lines.is_empty() => return true,
                Answer::Journal(lines) => {
                    if !self.record(lines, told).await {
                        return false;
                    }
                    after = self.last;
                }
                other => {
                    tracing::warn!(?other, "the containment journal cannot be read now; it is asked for again");
                    return false;
                }
            }
        }
    }

    /// Records and counts the lines that are new; false if the disk would not have them.
    async fn record(&mut self, lines: Vec<Line>, told: &impl Fn(&Line)) -> bool {
        let new: Vec<Line> = lines.into_iter().filter(|line| line.seq > self.last).collect();
        let Some(last) = new.last().map(|line| line.seq) else { return true };
        let Self { audit, file, .. } = self;
        let mut written = Ok(());
        for line in &new {
            written = audit.record_now(&Words::from(line).entry(line));
            if written.is_err() {
                break;
            }
            told(line);
            self.last = line.seq;
        }
        let (audit, file, reached) = (audit.clone(), file.clone(), self.last);
        let kept = tokio::task::spawn_blocking(move || keep(&audit, &file, reached)).await;
        for error in [written.err(), kept.ok().and_then(Result::err)].into_iter().flatten() {
            tracing::error!(%error, "the containment journal is not safely in the audit log");
        }
        self.last == last
    }
}

/// The records first, then the number.
fn keep(audit: &AuditLog, file: &Path, last: u64) -> Result<(), SysError> {
    audit.flush()?;
    let fresh = file.with_extension("new");
    let shown = fresh.display().to_string();
    let mut to = File::create(&fresh).on("create", &*shown)?;
    to.write_all(format!("{last}\n").as_bytes()).and_then(|()| to.sync_all()).on("write", &*shown)?;
    fs::rename(&fresh, file).on("rename", shown)
}

/// The highest number in the end of an audit log.
fn recorded(path: &Path) -> Result<u64, SysError> {
    let shown = path.display().to_string();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error).on("open", shown),
    };
    let size = file.metadata().on("fstat", &*shown)?.len();
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL))).and_then(|_| file.read_to_end(&mut end)).on("read", shown)?;
    let lines = end.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(lines.filter_map(|line| line["journal"].as_u64()).max().unwrap_or(0))
}

/// A line in the audit log's words.
struct Words {
    identity: String,
    verb: &'static str,
    task: Option<TaskId>,
    outcome: &'static str,
    reason: String,
}

impl From<&Line> for Words {
    fn from(line: &Line) -> Self {
        use containment::Entry as Happened;
        match line.entry.clone() {
            Happened::Finding { id, kind, task, owner } => Self {
                identity: "auditor".to_owned(),
                verb: "finding",
                task,
                outcome: kind.name(),
                reason: match owner {
                    Some(owner) => format!("incident {id}, of {owner}"),
                    None => format!("incident {id}"),
                },
            },
            Happened::Quarantined { reason, detail, by } => {
                Self { identity: by, verb: "quarantine", task: None, outcome: reason.name(), reason: detail }
            }
            Happened::Recovered { by, swept, left } => Self {
                identity: by,
                verb: "recover",
                task: None,
                outcome: if left == 0 { "ok" } else { "incomplete" },
                reason: format!("{swept} swept, {left} left"),
            },
            Happened::Lifted { by, reason } => {
                Self { identity: by, verb: "unquarantine", task: None, outcome: "ok", reason }
            }
            // Only where lines that were not recorded are not there any more.
            Happened::Checkpoint { sum } => Self {
                identity: "journal".to_owned(),
                verb: "checkpoint",
                task: None,
                outcome: "incomplete",
                reason: format!("earlier lines were summed up; {} findings so far", sum.findings_total),
            },
        }
    }
}

impl Words {
    fn entry(&self, line: &Line) -> Entry<'_> {
        Entry {
            identity: Some(&self.identity),
            peer: None,
            verb: self.verb,
            task: self.task,
            outcome: self.outcome,
            reason: &self.reason,
            journal: Some(Origin { seq: line.seq, at: line.at }),
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
