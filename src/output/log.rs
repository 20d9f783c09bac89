//! One output, as its readers see it: progress that wakes them, and reading at any offset.
//!
//! A reader holds no lock while it reads and keeps no descriptor between two pieces, so a thousand of them cost the pump
//! nothing and a stopped one costs nobody anything. Its file may go while it looks for it: the layout is changed *before*
//! a segment is unlinked, so looking again shows where to go on.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::buffer::Buffer;
use super::layout::{Cut, Layout};
use super::pump::Pump;
use crate::error::{Context, SysError};
use crate::sys::file;
use crate::task::record::{StoredOutput, Truncation};

/// The most that one read returns.
pub const LARGEST_PIECE: usize = 256 << 10;

/// How far an output has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the task wrote, up to its output limit.
    pub end: u64,
    /// Bytes of them that are not stored.
    pub omitted: u64,
    /// Why they are not.
    pub truncation: Option<Truncation>,
    /// Set once nothing more will come and all of it is on disk.
    pub closed: Option<Closed>,
}

impl From<Progress> for StoredOutput {
    fn from(progress: Progress) -> Self {
        Self { bytes: progress.end, omitted: progress.omitted, truncation: progress.truncation }
    }
}

/// Why nothing more will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// Every writer had closed: the output is complete.
    Eof,
    /// The task had ended and a writer had not closed; or the server died before it could see the end.
    BySupervisor,
}

/// A run of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The offset of the first byte, or of where to go on when there is none.
    pub offset: u64,
    /// Bytes between the offset asked for and this one that are not stored.
    pub omitted: u64,
    /// The bytes, as they were written.
    pub bytes: Bytes,
}

impl Piece {
    /// Where the next piece begins.
    pub fn next(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The output of one stream of one task, live or not.
#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    /// Held for arithmetic alone, never across a system call that could wait.
    layout: Mutex<Layout>,
    progress: watch::Sender<Progress>,
    /// One writer of the meta file at a time.
    meta: Mutex<()>,
    /// Whom to ask for the end of a live output; the key is the pump's.
    pump: Option<(Weak<Pump>, u64)>,
}

impl Log {
    /// A live output, empty so far.
    pub(super) fn live(dir: PathBuf, pump: Weak<Pump>, key: u64) -> Self {
        let progress = watch::Sender::new(Progress::default());
        Self { dir, layout: Mutex::default(), progress, meta: Mutex::default(), pump: Some((pump, key)) }
    }

    /// An output that nobody writes any more.
    pub(super) fn ended(dir: PathBuf, layout: Layout, truncation: Option<Truncation>, closed: Closed) -> Self {
        let (end, omitted) = (layout.end(), layout.omitted());
        let progress = watch::Sender::new(Progress { end, omitted, truncation, closed: Some(closed) });
        Self { dir, layout: Mutex::new(layout), progress, meta: Mutex::default(), pump: None }
    }

    /// Wakes its holder on news. Copy the value out of the guard at once: the pump waits for whoever holds one.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// How far it has come.
    pub fn now(&self) -> Progress {
        *self.progress.borrow()
    }

    /// At most `max` bytes (and never more than [`LARGEST_PIECE`]) from `offset` on; none when there are none yet, or
    /// past the end.
    ///
    /// Reads a file: from async code, call it where blocking is allowed, or [`Log::read_cached`] first.
    pub fn read_at(&self, offset: u64, max: usize) -> Result<Piece, SysError> {
        let mut looked = None;
        loop {
            let spot = self.layout().locate(offset, max.min(LARGEST_PIECE));
            let Some(first) = spot.segment else {
                return Ok(Piece { offset: spot.offset, omitted: spot.omitted, bytes: Bytes::new() });
            };
            let path = segment_path(&self.dir, first);
            let mut buffer = Buffer::of(spot.len);
            let read = File::open(&path).and_then(|file| file.read_exact_at(buffer.room(), spot.offset - first));
            match read {
                Ok(()) => return Ok(Piece { offset: spot.offset, omitted: spot.omitted, bytes: buffer.filled() }),
                // Shorter than the layout says only if somebody else cut the file.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    let short = SysError::new("read", path.display().to_string(), Errno::EIO);
                    return Err(short.hint("the file is shorter than what was stored in it"));
                }
                // The segment went since the layout was looked at; the same segment missing twice is missing.
                Err(e) if e.kind() == ErrorKind::NotFound && looked != Some(first) => looked = Some(first),
                Err(e) => return Err(e).on("read", path.display().to_string()),
            }
        }
    }

    /// The same where the bytes are in memory and nobody has to wait for the disk; none if not, and then `read_at` knows more.
    pub fn read_cached(&self, offset: u64, max: usize) -> Option<Piece> {
        let spot = self.layout().locate(offset, max.min(LARGEST_PIECE));
        let first = spot.segment?;
        let file = File::open(segment_path(&self.dir, first)).ok()?;
        let mut buffer = Buffer::of(spot.len);
        let read = file::read_cached(&file, spot.offset - first, buffer.room()).ok()?;
        let piece = || Piece { offset: spot.offset, omitted: spot.omitted, bytes: buffer.filled() };
        (read == spot.len).then(piece)
    }

    /// The task is dead: stores what is still in the pipe and closes. Answers at once; `progress` tells when it is done.
    pub fn finish(&self) {
        if let Some((pump, key)) = &self.pump
            && let Some(pump) = pump.upgrade()
        {
            pump.finish(*key);
        }
    }

    /// Where its segments lie.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is stored, for the pump and the closer.
    pub(super) fn layout(&self) -> MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `write`, which is told whether the output is still open, as the only writer of the meta file.
    pub(super) fn with_meta(&self, write: impl FnOnce(bool) -> Result<(), SysError>) {
        let _alone = self.meta.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(self.now().closed.is_none()) {
            tracing::error!(%error, "the end of a task's output is not on disk");
        }
    }

    /// Makes room for a segment at the end: which is its first offset, and what has to be unlinked for it.
    pub(super) fn begin_segment(&self, cut: &Cut) -> (u64, Option<PathBuf>) {
        let mut layout = self.layout();
        let gone = layout.begin(cut);
        let first = layout.end();
        drop(layout);
        if gone.is_some() {
            self.publish(Some(Truncation::OutputCap), None);
        }
        (first, gone.map(|gone| segment_path(&self.dir, gone.first)))
    }

    /// Tells the readers what the layout says by now. A truncation stays; a later one of another kind is the one told.
    pub(super) fn publish(&self, truncation: Option<Truncation>, closed: Option<Closed>) {
        let layout = self.layout();
        let (end, omitted) = (layout.end(), layout.omitted());
        drop(layout);
        self.progress.send_if_modified(|progress| {
            let truncation = truncation.or(progress.truncation);
            let news = Progress { end, omitted, truncation, closed: closed.or(progress.closed) };
            std::mem::replace(progress, news) != news
        });
    }
}

/// Zero-padded to the length of the largest offset: names sort as offsets do.
pub(super) fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:020}"))
}
