//! The small file beside an output's segments that says what they alone cannot: how it ended.
//!
//! It is replaced as a whole (written aside, synced, renamed): it is there as it was written, or not at all. On a full disk
//! that is not possible, and then of all times it has something to say: so blanks take its place from the beginning, and
//! are written over. That is one write within one sector; if it tears all the same, the segments alone have to do.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::log::{Closed, Progress};
use crate::error::{Context, SysError};
use crate::task::record::Truncation;

const NAME: &str = "meta";
const ASIDE: &str = "meta.new";

/// The file's length, filled up with blanks; the longest text has 80 bytes.
const LENGTH: usize = 128;

/// What the file holds, as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    /// Bytes that the task wrote; with no `closed`, at least as many.
    pub(super) end: u64,
    pub(super) truncation: Option<Truncation>,
    pub(super) closed: Option<Closed>,
}

impl From<Progress> for Meta {
    fn from(progress: Progress) -> Self {
        Self { end: progress.end, truncation: progress.truncation, closed: progress.closed }
    }
}

/// What is known of the output in `dir`; none when it was never closed, or when the file says nothing sensible: then the
/// segments alone have to do.
pub(super) fn read(dir: &Path) -> Result<Option<Meta>, SysError> {
    let path = dir.join(NAME);
    match fs::read(&path) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).on("read", path.display().to_string()),
    }
}

/// Takes the file's place on the disk.
pub(super) fn reserve(dir: &Path) -> Result<(), SysError> {
    let path = dir.join(NAME);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(&[b' '; LENGTH])).on("write", path.display().to_string())
}

/// Replaces what the file says, durably.
pub(super) fn write(dir: &Path, meta: &Meta) -> Result<(), SysError> {
    let (path, aside) = (dir.join(NAME), dir.join(ASIDE));
    let object = || path.display().to_string();
    let mut text = serde_json::to_vec(meta).map_err(|_| SysError::new("serialize", object(), Errno::EINVAL))?;
    text.resize(LENGTH.max(text.len()), b' ');
    let replaced = File::options().write(true).create(true).truncate(true).mode(0o600).open(&aside);
    let replaced = replaced.and_then(|file| fill(&file, &text)).and_then(|()| fs::rename(&aside, &path));
    if let Err(e) = replaced {
        let _ = fs::remove_file(&aside);
        if !matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return Err(e).on("write", object());
        }
        File::options().write(true).open(&path).and_then(|file| fill(&file, &text)).on("write", object())?;
    }
    sync_directory(dir)
}

fn fill(file: &File, text: &[u8]) -> std::io::Result<()> {
    file.write_all_at(text, 0)?;
    file.sync_data()
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(dir: &Path) -> Result<(), SysError> {
    File::open(dir).and_then(|dir| dir.sync_all()).on("fsync", dir.display().to_string())
}
