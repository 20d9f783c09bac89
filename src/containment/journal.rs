//! The journal: one JSON object per line, appended under a lock and on disk before anybody goes on.
//!
//! A line that cannot be read counts as a quarantine for damage, at the place where it stands: whoever loses or forges a line
//! gets a worker that takes no tasks, not one that forgot why.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::finding::{IncidentId, Kind};
use super::health::{Health, Reason};
use crate::error::{Context, SysError};
use crate::sys::file;
use crate::task::id::TaskId;
use crate::task::record::{UnixMillis, now};

/// An entry takes milliseconds to write, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // see the types of the fields
pub enum Entry {
    Finding { id: IncidentId, kind: Kind, task: Option<TaskId>, owner: Option<String> },
    Quarantined { reason: Reason, detail: String, by: String },
    Recovered { by: String, swept: u64, left: u64 },
    Lifted { by: String, reason: String },
}

/// An entry with its number and time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Counted from 1 without gaps.
    pub seq: u64,
    /// When.
    pub at: UnixMillis,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The journal of a state directory.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// Of this state directory; the file is made by the first entry.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("containment.jsonl") }
    }

    /// Every line, in order.
    pub fn read(&self) -> Result<Vec<Line>, SysError> {
        match File::open(&self.path) {
            Ok(file) => read(&file).on("read", self.shown()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).on("open", self.shown()),
        }
    }

    /// What all lines add up to.
    pub fn health(&self) -> Result<Health, SysError> {
        let mut health = Health::default();
        self.read()?.iter().for_each(|line| health.add(line));
        Ok(health)
    }

    /// The same, but nothing of a line that is half written: an error while somebody writes one, and no wait for it.
    pub fn settled(&self) -> Result<Health, SysError> {
        let shown = self.shown();
        let mut health = Health::default();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(health),
            Err(error) => return Err(error).on("open", shown),
        };
        if file.try_lock_shared().is_err() {
            return Err(SysError::new("flock", shown, Errno::EWOULDBLOCK).hint("it is being written to; try again"));
        }
        read(&file).on("read", shown)?.iter().for_each(|line| health.add(line));
        Ok(health)
    }

    /// Appends an entry; it is on disk when this returns.
    pub fn append(&self, entry: Entry) -> Result<Line, SysError> {
        let shown = self.shown();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&self.path).on("open", &*shown)?;
        // The auditor, the launcher and an operator's command may all have something to say.
        lock(&file, &shown)?;
        let seq = read(&file).on("read", &*shown)?.last().map_or(0, |line| line.seq) + 1;
        let line = Line { seq, at: now(), entry };
        let mut text = serde_json::to_string(&line).expect("plain data is always JSON");
        text.push('\n');
        if ends_torn(&mut file).on("read", &*shown)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes()).on("write", &*shown)?;
        file.sync_all().on("fsync", &*shown)?;
        Ok(line)
    }

    /// Changes whenever a line was added, by whomever.
    pub fn size(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |meta| meta.len())
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// Takes the lock within a bound: whoever holds it may be stopped, and the launcher must not be stopped with it.
fn lock(file: &File, shown: &str) -> Result<(), SysError> {
    if file::lock_within(file, PATIENCE) {
        return Ok(());
    }
    let error = SysError::new("flock", shown, Errno::ETIMEDOUT);
    Err(error.hint("a process that is stopped holds its lock; see `fuser -v` of the file"))
}

fn read(mut file: &File) -> std::io::Result<Vec<Line>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    let mut lines: Vec<Line> = Vec::new();
    for written in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let seq = lines.last().map_or(0, |line| line.seq) + 1;
        let line = serde_json::from_slice(written).ok().filter(|line: &Line| line.seq == seq);
        lines.push(line.unwrap_or_else(|| damaged(seq)));
    }
    Ok(lines)
}

fn damaged(seq: u64) -> Line {
    let detail = format!("line {seq} of the containment journal cannot be read");
    Line { seq, at: 0, entry: Entry::Quarantined { reason: Reason::StateDamaged, detail, by: "journal".into() } }
}

fn ends_torn(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarantined() -> Entry {
        Entry::Quarantined { reason: Reason::Manual, detail: "a \"drill\"\nof two lines".into(), by: "admin".into() }
    }

    fn lifted() -> Entry {
        Entry::Lifted { by: "admin".into(), reason: "done".into() }
    }

    #[test]
    fn a_quarantine_is_there_for_the_next_reader_and_so_is_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        assert_eq!(journal.health().unwrap(), Health::default());
        journal.append(quarantined()).unwrap();
        assert_eq!(Journal::new(dir.path()).health().unwrap().quarantine.unwrap().reason, Reason::Manual);
        assert_eq!(journal.append(lifted()).unwrap().seq, 2);
        assert_eq!(Journal::new(dir.path()).health().unwrap().quarantine, None);
    }

    #[test]
    fn who_must_not_wait_is_told_that_a_line_is_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        assert_eq!(journal.settled().unwrap(), Health::default());
        journal.append(quarantined()).unwrap();
        assert_eq!(journal.settled().unwrap(), journal.health().unwrap());
        let writer = File::open(dir.path().join("containment.jsonl")).unwrap();
        writer.lock().unwrap();
        assert_eq!(journal.settled().unwrap_err().errno(), Errno::EWOULDBLOCK);
        drop(writer);
        assert!(journal.settled().unwrap().quarantine.is_some());
    }

    #[test]
    fn a_damaged_line_is_a_quarantine_until_an_administrator_lifts_it() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        journal.append(lifted()).unwrap();
        let file = dir.path().join("containment.jsonl");
        let whole = std::fs::read(&file).unwrap();
        for damage in [&b"{\"seq\":2,\"at\""[..], b"garbage\n", b"\xff\n"] {
            std::fs::write(&file, [&whole, damage].concat()).unwrap();
            assert_eq!(journal.health().unwrap().quarantine.unwrap().reason, Reason::StateDamaged);
            let line = journal.append(lifted()).unwrap();
            assert_eq!((line.seq, journal.health().unwrap().quarantine), (3, None));
        }
        // A line that was cut out leaves a gap.
        journal.append(quarantined()).unwrap();
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        let without: String =
            text.lines().filter(|line| !line.contains("\"seq\":3")).map(|l| format!("{l}\n")).collect();
        std::fs::write(&file, without).unwrap();
        assert_eq!(journal.health().unwrap().quarantine.unwrap().reason, Reason::StateDamaged);
    }
}
