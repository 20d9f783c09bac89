//! Who asked for what, and what they were told: one JSON object per line, only ever appended.
//!
//! A line is one `write` to a file opened with O_APPEND, and everything outside printable ASCII is escaped: nothing that
//! a client sends can end a line, colour a terminal or forge a record. Arguments and environments are never written.
//!
//! With `fsync = "always"` a record is on disk before [`AuditLog::record`] returns; those that wait at the same time
//! share one fsync. With `"interval"` it is on disk within a second. A full file becomes `.1`, `.1` becomes `.2`, and so
//! on; the oldest beyond `keep` goes. How much of a file is one user's: [`Shares`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use super::audit_share::Shares;
use super::error::cut;
use crate::config::{self, Fsync};
use crate::error::{Context, SysError};
use crate::task::id::TaskId;
use crate::task::record::UnixMillis;

const INTERVAL: Duration = Duration::from_secs(1);

/// One request and its answer, or one line of the containment journal.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The name in the certificate; None when it has none that can be used.
    pub identity: Option<&'a str>,
    /// Where it came from; None when it did not come over the network.
    pub peer: Option<SocketAddr>,
    /// What was asked for, as the command line names it.
    pub verb: &'a str,
    /// The task, if one was named or made.
    pub task: Option<TaskId>,
    /// What it was told: `ok`, or the name of the status code.
    pub outcome: &'a str,
    /// Why, if it was refused; else empty.
    pub reason: &'a str,
    /// The line of the containment journal that this is.
    pub journal: Option<Origin>,
}

/// A line of the containment journal.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// Its number.
    pub seq: u64,
    /// When it happened, which may be long before it is recorded here.
    pub at: UnixMillis,
}

/// The line. Fields are only ever added.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    identity: Option<&'a str>,
    peer: Option<SocketAddr>,
    verb: &'a str,
    task: Option<TaskId>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<u64>,
}

/// An open audit log. Clones write to the same one.
#[derive(Clone)]
pub struct AuditLog {
    shared: Arc<Shared>,
    shares: Arc<Shares>,
}

/// One file and those that it was before.
pub(super) struct Shared {
    pub path: PathBuf,
    pub policy: config::AuditLog,
    writer: Mutex<Writer>,
    /// How many records are on disk for certain.
    synced: Mutex<u64>,
    sync_due: AtomicBool,
}

struct Writer {
    file: Arc<File>,
    size: u64,
    written: u64,
    rotations: u64,
    /// The last write stopped in the middle of a line.
    torn: bool,
    /// Full files that are not on disk for certain.
    to_sync: Vec<Arc<File>>,
}

impl AuditLog {
    /// Opens or begins the log at `path`.
    pub fn open(path: &Path, policy: &config::AuditLog) -> Result<Self, SysError> {
        Ok(Self { shared: Shared::open(path.to_owned(), policy)?, shares: Arc::default() })
    }

    /// Appends a record, and waits for the disk if the policy says so. Call it before the request is answered.
    pub async fn record(&self, entry: &Entry<'_>) -> Result<(), SysError> {
        let (shared, number) = self.append(entry)?;
        match self.shared.policy.fsync {
            Fsync::Always => match tokio::task::spawn_blocking(move || shared.sync(number)).await {
                Ok(result) => result,
                Err(_) => Err(SysError::new("fdatasync", "the audit log", nix::errno::Errno::ECANCELED)),
            },
            Fsync::Interval => {
                sync_soon(shared);
                Ok(())
            }
        }
    }

    /// Appends a record whose request nobody waits for any more; it is on disk within a second.
    pub fn record_now(&self, entry: &Entry<'_>) -> Result<(), SysError> {
        sync_soon(self.append(entry)?.0);
        Ok(())
    }

    /// Writes a line to where it belongs; returns its number there.
    fn append(&self, entry: &Entry<'_>) -> Result<(Arc<Shared>, u64), SysError> {
        let line = line(entry, OffsetDateTime::now_utc());
        let shared = match entry.journal {
            // No user's: the auditor says how much there is of it.
            Some(_) => Arc::clone(&self.shared),
            None => self.shares.place(&self.shared, entry.identity.unwrap_or_default(), line.len()),
        };
        let number = shared.append(line.as_bytes())?;
        Ok((shared, number))
    }

    /// Puts everything on disk; for the end of the process.
    pub fn flush(&self) -> Result<(), SysError> {
        let all = self.shares.own().into_iter().chain([Arc::clone(&self.shared)]);
        // One that cannot be written keeps no other from it.
        let done: Vec<_> = all.map(|shared| shared.sync_all()).collect();
        done.into_iter().collect()
    }
}

fn sync_soon(shared: Arc<Shared>) {
    // Outside the runtime the process is ending, and `flush` is what comes next.
    if let Ok(runtime) = tokio::runtime::Handle::try_current()
        && !shared.sync_due.swap(true, Ordering::AcqRel)
    {
        runtime.spawn(sync_later(shared));
    }
}

async fn sync_later(shared: Arc<Shared>) {
    tokio::time::sleep(INTERVAL).await;
    // Before the fsync: a record that is written during it asks for one of its own.
    shared.sync_due.store(false, Ordering::Release);
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || shared.sync_all()).await {
        tracing::error!("the audit log may lose records in a crash: {error}");
    }
}

impl Shared {
    /// Opens or begins the file. A line that a crash cut short is ended, so that the next one stands by itself.
    pub fn open(path: PathBuf, policy: &config::AuditLog) -> Result<Arc<Self>, SysError> {
        let mut file = append(&path, false)?;
        let shown = path.display().to_string();
        let size = file.seek(SeekFrom::End(0)).on("lseek", &shown)?;
        let mut last = [b'\n'];
        if size > 0 {
            file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).on("read", &shown)?;
        }
        let torn = last != [b'\n'];
        let writer = Writer { file: Arc::new(file), size, written: 0, rotations: 0, torn, to_sync: Vec::new() };
        Ok(Arc::new(Self {
            path,
            policy: policy.clone(),
            writer: Mutex::new(writer),
            synced: Mutex::new(0),
            sync_due: AtomicBool::new(false),
        }))
    }

    /// How many files were full.
    pub fn rotations(&self) -> u64 {
        self.lock().rotations
    }

    /// Writes one line, whole; returns its number.
    fn append(&self, line: &[u8]) -> Result<u64, SysError> {
        let mut writer = self.lock();
        if writer.size > 0 && writer.size + line.len() as u64 > self.policy.rotate {
            // Records matter more than the size of a file: without a new file the old one goes on.
            if let Err(error) = self.rotate(&mut writer) {
                tracing::error!("the audit log was not rotated: {error}");
            }
        }
        let whole = if writer.torn { [b"\n", line].concat() } else { line.to_vec() };
        let mut file = &*writer.file;
        let mut done = 0;
        while done < whole.len() {
            match file.write(&whole[done..]) {
                Ok(n) if n > 0 => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                failed => {
                    writer.torn = writer.torn || done > 0;
                    writer.size += done as u64;
                    let error = failed.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    return Err(error).on("write", self.path.display().to_string());
                }
            }
        }
        writer.torn = false;
        writer.size += whole.len() as u64;
        writer.written += 1;
        Ok(writer.written)
    }

    /// The new file is there before any old one moves: a disk that refuses it costs no old records.
    fn rotate(&self, writer: &mut Writer) -> Result<(), SysError> {
        let shown = self.path.display().to_string();
        let numbered = |number: usize| match number {
            0 => self.path.clone(),
            _ => PathBuf::from(format!("{shown}.{number}")),
        };
        let fresh = PathBuf::from(format!("{shown}.new"));
        // Left over from a rotation that was interrupted.
        let _ = fs::remove_file(&fresh);
        let file = append(&fresh, true)?;
        for number in (0..self.policy.keep).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                // There are not that many yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.on("rename", numbered(number).display().to_string())?,
            }
        }
        fs::rename(&fresh, &self.path).on("rename", fresh.display().to_string())?;
        let full = std::mem::replace(&mut writer.file, Arc::new(file));
        writer.to_sync.push(full);
        writer.size = 0;
        writer.rotations += 1;
        writer.torn = false;
        Ok(())
    }

    /// Returns when record `number` is on disk. Whoever comes while another syncs waits, and is mostly done then.
    fn sync(&self, number: u64) -> Result<(), SysError> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= number {
            return Ok(());
        }
        let (files, rotated, written) = {
            let mut writer = self.lock();
            let mut files = std::mem::take(&mut writer.to_sync);
            let rotated = !files.is_empty();
            files.push(writer.file.clone());
            (files, rotated, writer.written)
        };
        for file in files {
            file.sync_data().on("fdatasync", self.path.display().to_string())?;
        }
        if rotated {
            let parent = self.path.parent().unwrap_or(Path::new("."));
            File::open(parent).and_then(|parent| parent.sync_all()).on("fsync", parent.display().to_string())?;
        }
        *synced = written;
        Ok(())
    }

    fn sync_all(&self) -> Result<(), SysError> {
        let written = self.lock().written;
        self.sync(written)
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn append(path: &Path, new: bool) -> Result<File, SysError> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let options = if new { options.create_new(true) } else { options.create(true) };
    options.open(path).on("open", path.display().to_string())
}

/// One line of ASCII. serde_json escapes what ends a line; what steers a terminal beyond that is escaped here.
fn line(entry: &Entry<'_>, at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let happened = entry.journal.and_then(|origin| moment(origin.at));
    let time = happened.unwrap_or(at).format(&format).unwrap_or_default();
    let line = Line {
        time: &time,
        identity: entry.identity.map(cut),
        peer: entry.peer,
        verb: cut(entry.verb),
        task: entry.task,
        outcome: cut(entry.outcome),
        reason: cut(entry.reason),
        journal: entry.journal.map(|origin| origin.seq),
    };
    let json = serde_json::to_string(&line).expect("strings are always JSON");
    let mut ascii = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        if c.is_ascii() && !c.is_ascii_control() {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            ascii.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    ascii.push('\n');
    ascii
}

/// None for a line that was damaged and has no time.
fn moment(at: UnixMillis) -> Option<OffsetDateTime> {
    Some(at)
        .filter(|at| *at > 0)
        .and_then(|at| OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000).ok())
}

#[cfg(test)]
#[path = "audit_log_tests.rs"]
mod tests;
