//! What tasks write: from their pipes to disk, and from disk to any number of readers.
//!
//! ```text
//!  pipe ──splice──▶ segment files ──pread──▶ readers, each at its own offset
//!    └─ pump threads, epoll ─▶ Progress (watch) ──wakes──┘
//! ```
//!
//! Output lives on disk and in the page cache, never in this process: memory does not grow with output or with readers,
//! and a reader that stops costs nothing but itself. A task is never held up by its readers; only the disk's own speed is
//! felt by its writers, through the pipe.
//!
//! # On disk
//!
//! `output/<task>/<all|stdout|stderr>/` holds one stream:
//!
//! - segments, named by the offset of their first byte in 20 digits: the bytes as written, nothing else. All but the last
//!   are 1/16 of the cap, between 64 KiB and 8 MiB.
//! - `meta`, blank at first, then JSON, replaced as a whole: `{"end": bytes written, "truncation": null | "output_cap" | "disk_full",
//!   "closed": "eof" | "by_supervisor" | null}`. Written and synced with the segments when the output is closed, and once
//!   before, when storing stops.
//!
//! With a blank `meta`, the server died first: the segments' names and lengths say what is stored, and the output counts as
//! closed by the supervisor. Bytes that were counted and not stored after the disk was full are then not known.
//!
//! # What is not stored
//!
//! - Beyond the cap, the middle: the first and the last half of the cap are kept, by whole segments; streams kept apart
//!   have half of the cap each.
//! - When the disk has less than the reserve and one segment free, or refuses a write: everything from there on, for good.
//!   Each live output can be one segment into the reserve.
//! - Beyond the task's output limit ([`Allowance`]): nothing is stored and nothing is counted; the task is to be ended.
//!
//! In all three the pipe is still emptied. The bytes that are not stored keep their place in the count of offsets.

mod allowance;
mod buffer;
mod close;
mod layout;
mod log;
mod meta;
mod pump;
mod recording;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Context, SysError};
use crate::task::id::TaskId;
use crate::task::record::Truncation;

pub use allowance::Allowance;
pub use buffer::held;
pub use log::{Closed, LARGEST_PIECE, Log, Piece, Progress};

use close::Live;
use layout::{Cut, Layout, Segment};
use pump::Pump;
use recording::Recording;

/// Which of a task's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Both, in the order they were written: one pipe.
    All,
    /// Standard output alone.
    Stdout,
    /// Standard error alone.
    Stderr,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// How much is stored.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Bytes kept per task.
    pub stored_per_task: u64,
    /// Bytes left free on the disk.
    pub reserve: u64,
}

/// The place of an output that nothing was written to yet.
#[derive(Debug)]
pub struct Prepared {
    dir: PathBuf,
    /// Which of its task's streams it is for.
    pub source: Source,
}

/// All outputs of one server.
#[derive(Debug)]
pub struct Outputs {
    dir: PathBuf,
    policy: Policy,
    /// Until the end, before which nothing more may go to the closers.
    pump: Option<Arc<Pump>>,
    live: Live,
    closers: Vec<JoinHandle<()>>,
}

impl Outputs {
    /// Opens, or begins, the directory that holds them and starts the pump.
    pub fn open(dir: &Path, policy: Policy) -> Result<Self, SysError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).on("mkdir", dir.display().to_string())?;
        let live = Live::default();
        let (closers, work) = channel();
        let threads = close::start(work, &live)?;
        let pump = Pump::start(closers)?;
        Ok(Self { dir: dir.to_owned(), policy, pump: Some(pump), live, closers: threads })
    }

    /// Makes the place of an output that is about to come.
    ///
    /// Fails on a disk so full that not even the output's directory can be made; then [`Outputs::remove`] the rest of it.
    pub fn prepare(&self, task: TaskId, source: Source) -> Result<Prepared, SysError> {
        let dir = self.directory(task, source);
        let new = |dir: &Path, again| {
            let made = DirBuilder::new().recursive(again).mode(0o700).create(dir);
            made.on("mkdir", dir.display().to_string())
        };
        new(&self.dir.join(task.to_string()), true)?;
        new(&dir, false)?;
        meta::reserve(&dir)?;
        Ok(Prepared { dir, source })
    }

    /// Stores what comes out of `pipe` from now on. The task's streams share its `allowance`.
    pub fn record(
        &self,
        Prepared { dir, source }: Prepared,
        pipe: OwnedFd,
        allowance: Arc<Allowance>,
    ) -> Result<Arc<Log>, SysError> {
        let pump = self.pump.as_ref().expect("taken by drop alone");
        let key = pump.key();
        let log = Arc::new(Log::live(dir.clone(), Arc::downgrade(pump), key));
        let cut = Cut::new(self.policy.stored_per_task, source);
        let recording = Recording::new(pipe, log.clone(), allowance, cut, self.policy.reserve)?;
        self.live().insert(dir.clone(), log.clone());
        pump.record(key, recording).inspect_err(|_| drop(self.live().remove(&dir)))?;
        Ok(log)
    }

    /// The output of a task, live, ended or from before a restart. ENOENT when none is stored.
    pub fn load(&self, task: TaskId, source: Source) -> Result<Arc<Log>, SysError> {
        let dir = self.directory(task, source);
        if let Some(log) = self.live().get(&dir) {
            return Ok(log.clone());
        }
        let segments = segments(&dir)?;
        let meta = meta::read(&dir)?;
        let layout = Layout::recovered(segments, meta.as_ref().map_or(0, |meta| meta.end));
        let noted = meta.as_ref().and_then(|meta| meta.truncation);
        let truncation = noted.or((layout.omitted() > 0).then_some(Truncation::OutputCap));
        let closed = meta.and_then(|meta| meta.closed).unwrap_or(Closed::BySupervisor);
        Ok(Arc::new(Log::ended(dir, layout, truncation, closed)))
    }

    /// The output of a task that was lost before anything of it could be stored.
    pub fn nothing(&self, task: TaskId, source: Source) -> Arc<Log> {
        let layout = Layout::recovered(Vec::new(), 0);
        Arc::new(Log::ended(self.directory(task, source), layout, None, Closed::BySupervisor))
    }

    /// Forgets the output of an ended task. Nothing stored is no error.
    pub fn remove(&self, task: TaskId) -> Result<(), SysError> {
        let dir = self.dir.join(task.to_string());
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e).on("unlink", dir.display().to_string()),
            _ => Ok(()),
        }
    }

    /// Every task that something is stored of.
    pub fn tasks(&self) -> Result<Vec<TaskId>, SysError> {
        let names = names(&self.dir)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    fn directory(&self, task: TaskId, source: Source) -> PathBuf {
        self.dir.join(task.to_string()).join(source.name())
    }

    fn live(&self) -> MutexGuard<'_, std::collections::HashMap<PathBuf, Arc<Log>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outputs {
    /// Ends the threads. Outputs that are not closed stay as after a crash.
    fn drop(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.stop();
        }
        for thread in self.closers.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The segments of a stream, as they lie on disk.
fn segments(dir: &Path) -> Result<Vec<Segment>, SysError> {
    let mut segments = Vec::new();
    for name in names(dir)? {
        if let Some(first) = name.parse().ok().filter(|first| format!("{first:020}") == name) {
            let path = dir.join(name);
            let len = fs::metadata(&path).on("stat", path.display().to_string())?.len();
            segments.push(Segment { first, len });
        }
    }
    Ok(segments)
}

fn names(dir: &Path) -> Result<Vec<String>, SysError> {
    let read = || fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    let names: std::io::Result<Vec<String>> = read();
    names.on("readdir", dir.display().to_string())
}
