//! How far a process has read the journal, so that it reads a line once.
//!
//! What stands before that is not read again by this process: the journal has up to four mebibytes, and is asked for with each
//! start and each finding. A journal that is another file by now, has become shorter, or has another text just before the place
//! is read from its beginning.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::health::{Health, Reason};
use super::journal::{Entry, Line};
use crate::task::record::now;

/// So much of the text before a place must be as it was.
const SAME: usize = 256;

/// What tells that nobody has written: file system, file, and length. Nothing of a file that is not there or is empty.
pub type Stamp = (u64, u64, u64);

/// Of this file.
pub fn stamp(meta: &Metadata) -> Stamp {
    if meta.len() == 0 { Stamp::default() } else { (meta.dev(), meta.ino(), meta.len()) }
}

/// A place between two lines.
#[derive(Debug, Clone, Default)]
pub struct Place {
    offset: u64,
    /// The end of the text before it.
    before: Vec<u8>,
    /// What the lines before it add up to.
    sum: Health,
    /// The file when it was read.
    stamp: Stamp,
    /// What all of it adds up to, with a line that was torn off.
    total: Health,
}

impl Place {
    /// What everything that was read adds up to.
    pub fn total(&self) -> &Health {
        &self.total
    }

    /// The file when it was read.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Whether the last line had no end.
    pub fn is_torn(&self) -> bool {
        self.stamp.2 != self.offset
    }

    /// Reads from here to the end. Gives the lines that are new.
    pub fn read_on(&mut self, file: &File) -> io::Result<Vec<Line>> {
        let known = self.total.seq;
        if !self.is_of(file)? {
            *self = Self::default();
        }
        let text = read_from(file, self.offset)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = Vec::new();
        for written in in_lines(&text[..whole]) {
            lines.push(self.take(written));
        }
        if whole > 0 {
            self.before = text[whole.saturating_sub(SAME)..whole].to_vec();
            self.offset += whole as u64;
        }
        self.total = self.sum.clone();
        // A line without its end is damaged, or about to be written: it is read again.
        if whole < text.len() {
            let line = parse(&text[whole..], &self.sum);
            self.total.add(&line);
            lines.push(line);
        }
        let (meta, length) = (file.metadata()?, self.offset + (text.len() - whole) as u64);
        self.stamp = if length == 0 { Stamp::default() } else { (meta.dev(), meta.ino(), length) };
        lines.retain(|line| line.seq > known);
        Ok(lines)
    }

    fn take(&mut self, written: &[u8]) -> Line {
        let line = parse(written, &self.sum);
        self.sum.add(&line);
        line
    }

    /// Whether what was read is still there.
    fn is_of(&self, file: &File) -> io::Result<bool> {
        let (meta, (dev, ino, _)) = (file.metadata()?, self.stamp);
        if (meta.dev(), meta.ino()) != (dev, ino) || meta.len() < self.offset {
            return Ok(false);
        }
        let mut found = vec![0; self.before.len()];
        file.read_exact_at(&mut found, self.offset - self.before.len() as u64)?;
        Ok(found == self.before)
    }
}

/// The same journal in no more than about `keep` bytes: the lines at its end as they are, after one that is the sum of the others.
pub fn shortened(file: &File, keep: usize) -> io::Result<Vec<u8>> {
    let text = read_from(file, 0)?;
    let from = text.len().saturating_sub(keep);
    let split = text[from..].iter().position(|byte| *byte == b'\n').map_or(0, |end| from + end + 1);
    let mut place = Place::default();
    in_lines(&text[..split]).for_each(|written| _ = place.take(written));
    let line = Line { seq: place.sum.seq, at: now(), entry: Entry::Checkpoint { sum: place.sum } };
    Ok([line.text().as_bytes(), &text[split..]].concat())
}

fn read_from(mut file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.read_to_end(&mut text)?;
    Ok(text)
}

fn in_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// The line that follows these. Only the first of a file may stand for lines that are not there.
fn parse(written: &[u8], sum: &Health) -> Line {
    let seq = sum.seq + 1;
    let fits = |line: &Line| match line.entry {
        Entry::Checkpoint { .. } => sum.seq == 0,
        _ => line.seq == seq,
    };
    serde_json::from_slice(written).ok().filter(fits).unwrap_or_else(|| damaged(seq))
}

fn damaged(seq: u64) -> Line {
    let detail = format!("line {seq} of the containment journal cannot be read");
    Line { seq, at: 0, entry: Entry::Quarantined { reason: Reason::StateDamaged, detail, by: "journal".into() } }
}
