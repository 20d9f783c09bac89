//! Which bytes of an output are stored, and in which segment: pure arithmetic, so that it can be tested against a model.
//!
//! Offsets count the bytes that the task wrote. What is not stored keeps its place in that count, so a reader's position
//! means the same before and after the middle went.

use super::Source;

/// The smallest segment.
const SMALLEST: u64 = 64 << 10;
/// The largest segment.
const LARGEST: u64 = 8 << 20;

/// How an output is cut into segments, and how many of them are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of a full segment.
    pub(super) segment: u64,
    head: usize,
    tail: usize,
}

impl Cut {
    /// For one stream of a task of which at most `stored_per_task` bytes are kept: streams kept apart have half each.
    ///
    /// At least one segment of head and two of tail are kept, however small the cap: the last one may have just begun.
    pub(super) fn new(stored_per_task: u64, source: Source) -> Self {
        let cap = match source {
            Source::All => stored_per_task,
            Source::Stdout | Source::Stderr => stored_per_task / 2,
        };
        let segment = (cap / 16).clamp(SMALLEST, LARGEST);
        let half = usize::try_from(cap / 2 / segment).unwrap_or(usize::MAX / 2);
        Self { segment, head: half.max(1), tail: half.max(2) }
    }
}

/// A stored run of bytes: the file is named by its first offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) len: u64,
}

impl Segment {
    fn end(&self) -> u64 {
        self.first + self.len
    }
}

/// Where the bytes that a reader asked for are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    /// The offset of the first byte there is, at or after the one asked for.
    pub(super) offset: u64,
    /// Bytes between the two that are not stored.
    pub(super) omitted: u64,
    /// The segment that holds it; none when nothing more is stored.
    pub(super) segment: Option<u64>,
    /// Bytes that can be read there.
    pub(super) len: usize,
}

/// What is stored of one output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// In order, none of them overlapping.
    segments: Vec<Segment>,
    /// Bytes that the task wrote.
    end: u64,
}

impl Layout {
    /// What a directory of segments and the recorded end say. Each segment is believed up to the next one's start.
    pub(super) fn recovered(mut segments: Vec<Segment>, end: u64) -> Self {
        segments.sort_by_key(|segment| segment.first);
        for at in 1..segments.len() {
            let next = segments[at].first;
            let before = &mut segments[at - 1];
            before.len = before.len.min(next - before.first);
        }
        segments.retain(|segment| segment.len > 0);
        let stored = segments.last().map_or(0, Segment::end);
        Self { segments, end: end.max(stored) }
    }

    /// Bytes that the task wrote.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of them that are not stored.
    pub(super) fn omitted(&self) -> u64 {
        self.end - self.segments.iter().map(|segment| segment.len).sum::<u64>()
    }

    /// The first offsets of all segments.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().map(|segment| segment.first)
    }

    /// Begins a segment at the end. Returns the segment that has to go for it.
    pub(super) fn begin(&mut self, cut: &Cut) -> Option<Segment> {
        let gone = (self.segments.len() >= cut.head + cut.tail).then(|| self.segments.remove(cut.head));
        self.segments.push(Segment { first: self.end, len: 0 });
        gone
    }

    /// `len` bytes more are stored in the last segment.
    pub(super) fn extend(&mut self, len: u64) {
        let last = self.segments.last_mut().expect("bytes are stored in a segment that was begun");
        last.len += len;
        self.end += len;
    }

    /// `len` bytes more were written by the task and are not stored.
    pub(super) fn skip(&mut self, len: u64) {
        self.end += len;
    }

    /// Where to read at most `max` bytes from `offset` on. Past the end there is nothing, and nothing is omitted.
    pub(super) fn locate(&self, offset: u64, max: usize) -> Spot {
        let at = self.segments.partition_point(|segment| segment.end() <= offset);
        match self.segments.get(at).filter(|segment| segment.len > 0) {
            Some(segment) => {
                let from = offset.max(segment.first);
                let len = usize::try_from(segment.end() - from).unwrap_or(usize::MAX).min(max);
                Spot { offset: from, omitted: from - offset, segment: Some(segment.first), len }
            }
            None => {
                let omitted = self.end.saturating_sub(offset);
                Spot { offset: offset + omitted, omitted, segment: None, len: 0 }
            }
        }
    }
}
