//! The journal: one JSON object per line, appended under a lock and on disk before anybody goes on.
//!
//! A line that cannot be read counts as a quarantine for damage, at the place where it stands: whoever loses or forges a line
//! gets a worker that takes no tasks, not one that forgot why.
//!
//! It does not grow without end: a journal over [`MOST`] is written anew, with one line in the place of the older ones that is
//! their sum. The file as it was is kept beside it, until the next time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::finding::{IncidentId, Kind};
use super::health::{Health, Reason};
use super::place::{self, Place, Stamp};
use crate::error::{Context, SysError};
use crate::sys::file;
use crate::task::id::TaskId;
use crate::task::record::{UnixMillis, now};

/// An entry takes milliseconds to write, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(1);
/// A longer journal, of some 25,000 lines, is shortened before the next line.
const MOST: u64 = 4 << 20;
/// To this: nobody who reads it now and then misses a line.
const KEPT: usize = 1 << 20;
/// So often it may have become another file when its lock is had.
const TRIES: usize = 8;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs)] // see the types of the fields
pub enum Entry {
    Finding { id: IncidentId, kind: Kind, task: Option<TaskId>, owner: Option<String> },
    Quarantined { reason: Reason, detail: String, by: String },
    Recovered { by: String, swept: u64, left: u64 },
    Lifted { by: String, reason: String },
    Checkpoint { sum: Health }, // the first of a file, in the place of all lines up to its number
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

impl Line {
    /// As it is written.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("plain data is always JSON") + "\n"
    }
}

/// The journal of a state directory, as far as this process has read it.
#[derive(Debug, Clone)]
pub struct Journal {
    path: PathBuf,
    place: Place,
}

impl Journal {
    /// Of this state directory; the file is made by the first entry.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("containment.jsonl"), place: Place::default() }
    }

    /// Every line, in order.
    pub fn read(&self) -> Result<Vec<Line>, SysError> {
        Self { path: self.path.clone(), place: Place::default() }.news()
    }

    /// What all lines add up to.
    pub fn health(&mut self) -> Result<Health, SysError> {
        self.news()?;
        Ok(self.sum().clone())
    }

    /// What all lines that were read add up to.
    pub fn sum(&self) -> &Health {
        self.place.total()
    }

    /// The lines that were not read yet.
    pub fn news(&mut self) -> Result<Vec<Line>, SysError> {
        let Some(file) = self.open()? else { return Ok(Vec::new()) };
        self.place.read_on(&file).on("read", self.shown())
    }

    /// The same, but nothing of a line that is half written: an error while somebody writes one, and no wait for it.
    pub fn settled_news(&mut self) -> Result<Vec<Line>, SysError> {
        let shown = self.shown();
        let Some(file) = self.open()? else { return Ok(Vec::new()) };
        let mut place = self.place.clone();
        let mut lines = place.read_on(&file).on("read", &*shown)?;
        if place.is_torn() {
            if file.try_lock_shared().is_err() {
                let error = SysError::new("flock", shown, Errno::EWOULDBLOCK);
                return Err(error.hint("it is being written to; try again"));
            }
            // Nobody writes: whole by now, or torn for good.
            place = self.place.clone();
            lines = place.read_on(&file).on("read", shown)?;
        }
        self.place = place;
        Ok(lines)
    }

    /// Whether somebody has written since it was read.
    pub fn has_changed(&self) -> bool {
        fs::metadata(&self.path).map_or(Stamp::default(), |meta| place::stamp(&meta)) != self.place.stamp()
    }

    /// Appends an entry; it is on disk when this returns. It is news to this process as well.
    pub fn append(&self, entry: Entry) -> Result<Line, SysError> {
        let shown = self.shown();
        // The auditor, the launcher and an operator's command may all have something to say.
        let mut file = self.lock_short(true)?;
        let mut place = self.place.clone();
        place.read_on(&file).on("read", &*shown)?;
        let line = Line { seq: place.total().seq + 1, at: now(), entry };
        let mut text = line.text();
        if ends_torn(&mut file).on("read", &*shown)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes()).on("write", &*shown)?;
        file.sync_all().on("fsync", &*shown)?;
        Ok(line)
    }

    /// Shortens it, if it is too long; it may be from before there was a bound.
    pub fn shorten(&self) -> Result<(), SysError> {
        match self.lock_short(false) {
            Err(error) if error.errno() == Errno::ENOENT => Ok(()),
            other => other.map(drop),
        }
    }

    /// None, and nothing read, if there is no file.
    fn open(&mut self) -> Result<Option<File>, SysError> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.place = Place::default();
                Ok(None)
            }
            Err(error) => Err(error).on("open", self.shown()),
        }
    }

    /// The file with its lock held, and not too long: whoever waited for the lock of one that was replaced opens the next.
    fn lock_short(&self, create: bool) -> Result<File, SysError> {
        let shown = self.shown();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(create).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut is_tried = false;
        for _ in 0..TRIES {
            let file = options.open(&self.path).on("open", &*shown)?;
            lock(&file, &shown)?;
            let meta = file.metadata().on("fstat", &*shown)?;
            if fs::metadata(&self.path).map_or(true, |now| (now.dev(), now.ino()) != (meta.dev(), meta.ino())) {
                continue;
            }
            // A disk that is full can still have room for a line.
            if is_tried || meta.len() <= MOST || self.replace(&file).is_err() {
                return Ok(file);
            }
            is_tried = true;
        }
        Err(SysError::new("flock", shown, Errno::ESTALE).hint("somebody replaces the file again and again"))
    }

    /// Puts a shorter one in its place. Whoever reads has the one or the other.
    fn replace(&self, file: &File) -> Result<(), SysError> {
        let shown = self.shown();
        let short = place::shortened(file, KEPT).on("read", &*shown)?;
        let (fresh, old) = (self.path.with_extension("jsonl.new"), self.path.with_extension("jsonl.1"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut to = options.open(&fresh).on("open", &*shown)?;
        to.write_all(&short).and_then(|()| to.sync_all()).on("write", &*shown)?;
        // Without the copy nothing is lost that counts.
        let _ = fs::remove_file(&old);
        let _ = fs::hard_link(&self.path, &old);
        fs::rename(&fresh, &self.path).on("rename", &*shown)?;
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        File::open(directory).and_then(|directory| directory.sync_all()).on("fsync", shown)
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

    fn finding() -> Entry {
        Entry::Finding { id: IncidentId::new(1), kind: Kind::ZombieDetected, task: None, owner: Some("mallory".into()) }
    }

    fn settled(journal: &mut Journal) -> Result<Health, SysError> {
        journal.settled_news()?;
        Ok(journal.sum().clone())
    }

    /// As many findings as this, written as one would have been by one.
    fn write_findings(dir: &Path, count: u64) {
        let text: String = (1..=count).map(|seq| Line { seq, at: 1, entry: finding() }.text()).collect();
        fs::write(dir.join("containment.jsonl"), text).unwrap();
    }

    fn lifted() -> Entry {
        Entry::Lifted { by: "admin".into(), reason: "done".into() }
    }

    #[test]
    fn a_quarantine_is_there_for_the_next_reader_and_so_is_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path());
        assert_eq!(journal.health().unwrap(), Health::default());
        journal.append(quarantined()).unwrap();
        assert_eq!(Journal::new(dir.path()).health().unwrap().quarantine.unwrap().reason, Reason::Manual);
        assert_eq!(journal.append(lifted()).unwrap().seq, 2);
        assert_eq!(Journal::new(dir.path()).health().unwrap().quarantine, None);
    }

    #[test]
    fn who_must_not_wait_is_told_that_a_line_is_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path());
        assert_eq!(settled(&mut journal).unwrap(), Health::default());
        journal.append(quarantined()).unwrap();
        assert_eq!(settled(&mut journal).unwrap(), journal.health().unwrap());
        let mut writer = OpenOptions::new().append(true).open(dir.path().join("containment.jsonl")).unwrap();
        writer.lock().unwrap();
        assert!(settled(&mut journal).unwrap().quarantine.is_some(), "what is whole can be read");
        let text = Line { seq: 2, at: 1, entry: lifted() }.text();
        let (half, rest) = text.split_at(10);
        writer.write_all(half.as_bytes()).unwrap();
        assert_eq!(settled(&mut journal).unwrap_err().errno(), Errno::EWOULDBLOCK);
        writer.write_all(rest.as_bytes()).unwrap();
        assert_eq!(settled(&mut journal).unwrap().quarantine, None);
        writer.write_all(half.as_bytes()).unwrap();
        drop(writer);
        assert_eq!(settled(&mut journal).unwrap().quarantine.unwrap().reason, Reason::StateDamaged);
    }

    #[test]
    fn an_empty_file_is_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path());
        assert!(!journal.has_changed());
        File::create(dir.path().join("containment.jsonl")).unwrap();
        assert!(!journal.has_changed());
        journal.append(quarantined()).unwrap();
        assert!(journal.has_changed());
        journal.news().unwrap();
        assert!(!journal.has_changed());
    }

    #[test]
    fn a_damaged_line_is_a_quarantine_until_an_administrator_lifts_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path());
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

    #[test]
    fn what_was_read_is_not_read_again_unless_it_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("containment.jsonl");
        write_findings(dir.path(), 100);
        let mut journal = Journal::new(dir.path());
        assert_eq!((journal.news().unwrap().len(), journal.has_changed()), (100, false));
        // Whoever read this again would find the damage.
        let written = fs::read(&file).unwrap();
        let garbage = [&b"?".repeat(1000), &written[1000..]].concat();
        fs::write(&file, &garbage).unwrap();
        let line = journal.append(finding()).unwrap();
        assert_eq!((line.seq, journal.has_changed()), (101, true));
        assert_eq!(journal.news().unwrap(), [line]);
        assert_eq!((journal.sum().findings, journal.sum().quarantine.clone()), (101, None));
        assert!(Journal::new(dir.path()).health().unwrap().quarantine.is_some());
        // Shorter, another end, another file.
        let other_end = [&garbage[..garbage.len() - 10], &b"?".repeat(500)].concat();
        for other in [garbage[..5000].to_vec(), other_end, Vec::new()] {
            fs::write(&file, &written).unwrap();
            let mut journal = Journal::new(dir.path());
            assert_eq!(journal.health().unwrap().quarantine, None);
            fs::write(&file, &other).unwrap();
            assert!(journal.has_changed());
            assert_eq!(journal.health().unwrap(), Journal::new(dir.path()).health().unwrap());
        }
        fs::write(&file, &written).unwrap();
        let mut journal = Journal::new(dir.path());
        journal.news().unwrap();
        fs::write(dir.path().join("another"), &garbage).unwrap();
        fs::rename(dir.path().join("another"), &file).unwrap();
        assert!(journal.has_changed() && journal.health().unwrap().quarantine.is_some());
        fs::remove_file(&file).unwrap();
        assert!(journal.has_changed());
        assert_eq!(journal.health().unwrap(), Health::default());
    }

    #[test]
    fn a_torn_line_is_damage_once_and_the_next_has_its_number() {
        let dir = tempfile::tempdir().unwrap();
        write_findings(dir.path(), 3);
        let mut journal = Journal::new(dir.path());
        journal.news().unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.path().join("containment.jsonl")).unwrap();
        file.write_all(b"{\"seq\":4").unwrap();
        assert_eq!(journal.news().unwrap().iter().map(|line| line.seq).collect::<Vec<_>>(), [4]);
        assert_eq!(journal.sum().quarantine.as_ref().unwrap().reason, Reason::StateDamaged);
        assert_eq!(journal.news().unwrap(), []);
        assert_eq!(journal.append(lifted()).unwrap().seq, 5);
        assert_eq!(journal.news().unwrap().iter().map(|line| line.seq).collect::<Vec<_>>(), [5]);
        assert_eq!((journal.sum().seq, journal.sum().quarantine.clone()), (5, None));
        assert_eq!(*journal.sum(), Journal::new(dir.path()).health().unwrap());
    }

    #[test]
    fn a_journal_that_is_too_long_is_shortened_and_adds_up_to_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("containment.jsonl");
        write_findings(dir.path(), 100_000);
        let (mut reader, writer) = (Journal::new(dir.path()), Journal::new(dir.path()));
        assert_eq!(reader.health().unwrap().findings, 100_000);
        let line = writer.append(quarantined()).unwrap();
        assert_eq!(line.seq, 100_001);
        assert!(fs::metadata(&path).unwrap().len() < KEPT as u64 + 4096);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(fs::metadata(path.with_extension("jsonl.1")).unwrap().len() > MOST);
        // Who has read the old one misses nothing, and neither does who comes later.
        assert_eq!(reader.news().unwrap(), [line]);
        assert_eq!(*reader.sum(), Journal::new(dir.path()).health().unwrap());
        assert_eq!((reader.sum().findings, reader.sum().seq), (100_000, 100_001));
        // Again: the sum of a sum, and a quarantine that is in it alone.
        let line = |seq| Line { seq, at: 1, entry: finding() }.text();
        let more: String = (100_002..150_000).map(line).collect();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(more.as_bytes()).unwrap();
        reader.shorten().unwrap();
        let health = Journal::new(dir.path()).health().unwrap();
        assert_eq!((health.findings, health.seq), (149_998, 149_999));
        assert_eq!(health.quarantine.clone().unwrap().reason, Reason::Manual);
        assert_eq!(reader.health().unwrap(), health);
        assert_eq!(reader.append(lifted()).unwrap().seq, 150_000);
        assert_eq!(Journal::new(dir.path()).health().unwrap().quarantine, None);
        // Only as the first line of a file.
        let first = fs::read(&path).unwrap().split_inclusive(|byte| *byte == b'\n').next().unwrap().to_vec();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&first).unwrap();
        assert_eq!(reader.health().unwrap().quarantine.unwrap().reason, Reason::StateDamaged);
    }

    #[test]
    fn writers_that_shorten_it_together_lose_no_line() {
        let dir = tempfile::tempdir().unwrap();
        // A few lines before the bound.
        let one = Line { seq: 10_000, at: 1, entry: finding() }.text().len() as u64;
        write_findings(dir.path(), MOST / one);
        let before = Journal::new(dir.path()).health().unwrap().findings;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut journal = Journal::new(dir.path());
                    for _ in 0..25 {
                        // On a slow disk its turn may not come in time: then it is told so, and has written nothing.
                        while let Err(error) = journal.append(finding()) {
                            assert_eq!(error.errno(), Errno::ETIMEDOUT, "{error}");
                        }
                        journal.news().unwrap();
                    }
                });
            }
        });
        let health = Journal::new(dir.path()).health().unwrap();
        assert_eq!((health.findings, health.quarantine), (before + 100, None));
        assert!(dir.path().join("containment.jsonl.1").exists());
    }
}
