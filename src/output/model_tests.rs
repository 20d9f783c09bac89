//! The log against a vector of bytes that keeps everything: any sequence of writes and reads, any cap, either ending.

use std::io::Write;

use proptest::prelude::*;
use tempfile::TempDir;

use super::tests::{begin, outputs, pattern, pipe, unlimited, wait, wait_closed};
use super::*;

const SEGMENT: usize = 64 << 10;

#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Read { thousandth: usize, max: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop_oneof![1..100usize, 1..200_000usize, Just(SEGMENT), Just(2 * SEGMENT - 1)].prop_map(Step::Write),
        (0..1100usize, 1..400_000usize).prop_map(|(thousandth, max)| Step::Read { thousandth, max }),
    ]
}

/// Whether the byte at `offset` of `end` is stored when `head` and `tail` segments are kept.
fn kept(offset: usize, end: usize, head: usize, tail: usize) -> bool {
    let (mine, last) = (offset / SEGMENT, (end - 1) / SEGMENT);
    mine < head || mine + tail > last
}

/// One read says exactly what the model says.
fn check(log: &Log, written: &[u8], head: usize, tail: usize, offset: usize, max: usize) -> Result<u64, TestCaseError> {
    let end = written.len();
    let piece = log.read_at(offset as u64, max).unwrap();
    let from = (offset..end).find(|at| kept(*at, end, head, tail)).unwrap_or(offset.max(end));
    prop_assert_eq!(piece.offset, from as u64);
    prop_assert_eq!(piece.omitted, (from - offset) as u64);
    let until = (from + piece.bytes.len()).min(end);
    prop_assert!(piece.bytes == written[from.min(end)..until]);
    prop_assert!(piece.bytes.len() <= max && piece.bytes.is_empty() == (from >= end));
    Ok(piece.next())
}

fn check_all(log: &Log, written: &[u8], head: usize, tail: usize) -> Result<(), TestCaseError> {
    let end = written.len();
    let stored = (0..end).filter(|at| kept(*at, end, head, tail)).count();
    prop_assert_eq!((log.now().end, log.now().omitted), (end as u64, (end - stored) as u64));
    prop_assert_eq!(log.now().truncation, (stored < end).then_some(Truncation::OutputCap));
    let mut offset = 0;
    while offset < end {
        offset = check(log, written, head, tail, offset, LARGEST_PIECE)? as usize;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_reads_as_it_was_written(
        steps in prop::collection::vec(step(), 1..24), halves in 1..5usize, crash in any::<bool>()
    ) {
        let (head, tail) = (halves, halves.max(2));
        let cap = (2 * halves * SEGMENT) as u64;
        let dir = TempDir::new().unwrap();
        let before = outputs(&dir, cap, 0);
        let task = TaskId::random();
        let (read, mut write) = pipe();
        let log = begin(&before, task, Source::All, read, unlimited()).unwrap();
        let source = pattern(steps.len() * 200_000);
        let mut end = 0;
        for step in &steps {
            match step {
                Step::Write(len) => {
                    write.write_all(&source[end..end + len]).unwrap();
                    end += len;
                    wait(&log, |p| p.end == end as u64);
                }
                Step::Read { thousandth, max } => {
                    check(&log, &source[..end], head, tail, end * thousandth / 1000, *max)?;
                }
            }
        }
        if !crash {
            log.finish();
            wait_closed(&log);
        }
        check_all(&log, &source[..end], head, tail)?;
        drop(before);
        let after = outputs(&dir, cap, 0).load(task, Source::All).unwrap();
        check_all(&after, &source[..end], head, tail)?;
        prop_assert_eq!(after.now().closed, Some(Closed::BySupervisor));
    }
}
