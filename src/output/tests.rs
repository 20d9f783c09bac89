//! What readers rely on, shown with true pipes: every byte once and in order, whoever reads, stops, floods or dies.

use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;
/// A reserve that no disk has.
const NO_DISK: u64 = u64::MAX;

/// Bytes that differ from place to place; no segment's length divides the period.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 7u32;
    let period: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(99_991)
    .collect();
    period.iter().copied().cycle().take(len).collect()
}

pub(super) fn outputs(dir: &TempDir, stored_per_task: u64, reserve: u64) -> Outputs {
    Outputs::open(dir.path(), Policy { stored_per_task, reserve }).unwrap()
}

pub(super) fn pipe() -> (OwnedFd, std::fs::File) {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    (read, write.into())
}

/// Prepares and records.
pub(super) fn begin(
    outputs: &Outputs,
    task: TaskId,
    source: Source,
    pipe: OwnedFd,
    allowance: Arc<Allowance>,
) -> Result<Arc<Log>, SysError> {
    outputs.record(outputs.prepare(task, source)?, pipe, allowance)
}

pub(super) fn unlimited() -> Arc<Allowance> {
    Arc::new(Allowance::new(u64::MAX))
}

/// Waits, without looking twice, until the progress is as wanted.
pub(super) fn wait(log: &Log, wanted: impl FnMut(&Progress) -> bool) -> Progress {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut progress = log.progress();
    let waited =
        async { tokio::time::timeout(Duration::from_secs(60), progress.wait_for(wanted)).await.map(|p| *p.unwrap()) };
    runtime.block_on(waited).expect("the progress comes within a minute")
}

pub(super) fn wait_closed(log: &Log) -> Progress {
    wait(log, |progress| progress.closed.is_some())
}

/// Follows an output to its end; gives the pieces to `each`.
fn follow(log: &Log, mut offset: u64, mut each: impl FnMut(&Piece)) -> u64 {
    loop {
        let now = wait(log, |progress| progress.end > offset || progress.closed.is_some());
        while offset < now.end {
            let cached = log.read_cached(offset, LARGEST_PIECE);
            let piece = cached.unwrap_or_else(|| log.read_at(offset, LARGEST_PIECE).unwrap());
            assert!(piece.bytes.len() <= LARGEST_PIECE);
            assert_eq!(piece.offset, offset + piece.omitted);
            assert!(piece.next() > offset, "a reader before the end makes progress");
            offset = piece.next();
            each(&piece);
        }
        if now.closed.is_some() {
            return offset;
        }
    }
}

/// All that is stored, and how much of the rest a reader was told of.
fn read_all(log: &Log) -> (Vec<u8>, u64) {
    let (mut bytes, mut omitted) = (Vec::new(), 0);
    follow(log, 0, |piece| {
        bytes.extend_from_slice(&piece.bytes);
        omitted += piece.omitted;
    });
    (bytes, omitted)
}

fn closed(end: u64, closed: Closed) -> Progress {
    Progress { end, closed: Some(closed), ..Progress::default() }
}

#[test]
fn fifty_readers_of_a_flood_each_see_every_byte_once() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, 256 * MIB, 0);
    let task = TaskId::random();
    let bytes = pattern(24 << 20);
    let (read, mut write) = pipe();
    let log = begin(&outputs, task, Source::All, read, unlimited()).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..50 {
            let (log, bytes) = (log.clone(), &bytes);
            // Some join late, at any offset.
            let from = reader * reader * 7_919;
            scope.spawn(move || {
                let check = |piece: &Piece| assert!(piece.bytes == bytes[piece.offset as usize..piece.next() as usize]);
                assert_eq!(follow(&log, from, check), bytes.len() as u64);
            });
        }
        // One that never reads, and one that looked once and stopped: nobody waits for them.
        let _stopped = log.progress();
        scope.spawn(|| log.read_at(0, 10).unwrap());
        for chunk in bytes.chunks(100_003) {
            write.write_all(chunk).unwrap();
        }
        drop(write);
    });
    assert_eq!(log.now(), closed(bytes.len() as u64, Closed::Eof));
    // After the end and after a restart: the same, from any offset.
    drop(outputs);
    let outputs = Outputs::open(dir.path(), Policy { stored_per_task: 1, reserve: 0 }).unwrap();
    let again = outputs.load(task, Source::All).unwrap();
    assert_eq!(again.now(), log.now());
    assert!(read_all(&again).0 == bytes);
    assert_eq!(again.read_at(bytes.len() as u64 - 5, 100).unwrap().bytes, bytes[bytes.len() - 5..]);
}

#[test]
fn a_few_bytes_wake_a_reader_at_once() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, MIB, 0);
    let (read, mut write) = pipe();
    let log = begin(&outputs, TaskId::random(), Source::All, read, unlimited()).unwrap();
    for (at, word) in ["one ", "two ", "three"].into_iter().enumerate() {
        let before = log.now().end;
        write.write_all(word.as_bytes()).unwrap();
        assert_eq!(wait(&log, |p| p.end > before).end, before + word.len() as u64, "word {at}");
        let piece = log.read_at(before, 100).unwrap();
        assert_eq!((piece.offset, piece.omitted, &piece.bytes[..]), (before, 0, word.as_bytes()));
        // Just written, so in memory; a filesystem that cannot tell has no answer, but never another one.
        assert!(log.read_cached(before, 100).is_none_or(|cached| cached == piece), "word {at}");
    }
    // At the end and beyond there is nothing, and nothing is omitted.
    for offset in [13, 14, 1000, u64::MAX] {
        assert_eq!(log.read_at(offset, 100).unwrap(), Piece { offset, omitted: 0, bytes: bytes::Bytes::new() });
    }
}

#[test]
fn beyond_the_cap_head_and_tail_are_kept_and_the_rest_is_counted() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, MIB, 0);
    let task = TaskId::random();
    let bytes = pattern(10 << 20);
    let (read, mut write) = pipe();
    let log = begin(&outputs, task, Source::All, read, unlimited()).unwrap();
    write.write_all(&bytes).unwrap();
    drop(write);
    let end = wait_closed(&log);
    // Segments of 64 KiB, 8 of head and 8 of tail; the end falls on a boundary.
    let kept = MIB as usize / 2;
    let omitted = bytes.len() as u64 - MIB;
    let whole =
        Progress { omitted, truncation: Some(Truncation::OutputCap), ..closed(bytes.len() as u64, Closed::Eof) };
    assert_eq!(end, whole);
    let expected = [&bytes[..kept], &bytes[bytes.len() - kept..]].concat();
    drop(outputs);
    let outputs = Outputs::open(dir.path(), Policy { stored_per_task: MIB, reserve: 0 }).unwrap();
    for log in [log, outputs.load(task, Source::All).unwrap()] {
        assert_eq!(log.now(), whole);
        let (read, told) = read_all(&log);
        assert!(read == expected);
        assert_eq!(told, omitted);
        // Inside the middle a reader jumps.
        let piece = log.read_at(5 * MIB, 10).unwrap();
        assert_eq!((piece.offset, piece.omitted), (10 * MIB - kept as u64, 5 * MIB - kept as u64));
    }
    let on_disk: u64 = segments(&outputs.directory(task, Source::All)).unwrap().iter().map(|s| s.len).sum();
    assert_eq!(on_disk, MIB);
}

#[test]
fn a_full_disk_truncates_and_flags_and_the_task_goes_on() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, MIB, NO_DISK);
    let task = TaskId::random();
    let (read, mut write) = pipe();
    let log = begin(&outputs, task, Source::All, read, unlimited()).unwrap();
    write.write_all(&pattern(3 << 20)).unwrap(); // would hang if the pipe were not emptied
    drop(write);
    let full = Progress { omitted: 3 * MIB, truncation: Some(Truncation::DiskFull), ..closed(3 * MIB, Closed::Eof) };
    assert_eq!(wait_closed(&log), full);
    assert_eq!(read_all(&log), (Vec::new(), 3 * MIB));
    assert_eq!(outputs.load(task, Source::All).unwrap().now(), full);
}

#[test]
fn a_full_disk_is_noted_before_the_end() {
    let dir = TempDir::new().unwrap();
    let before = outputs(&dir, MIB, NO_DISK);
    let task = TaskId::random();
    let (read, mut write) = pipe();
    let log = begin(&before, task, Source::All, read, unlimited()).unwrap();
    write.write_all(b"lost").unwrap();
    wait(&log, |p| p.end == 4);
    drop(before); // the closers finish their queue; the output is never closed
    let after = outputs(&dir, MIB, 0).load(task, Source::All).unwrap().now();
    assert_eq!(after.truncation, Some(Truncation::DiskFull));
    assert_eq!(after.closed, Some(Closed::BySupervisor));
}

#[test]
fn the_end_is_noted_where_not_a_block_is_left() {
    let dir = TempDir::new().unwrap();
    meta::reserve(dir.path()).unwrap();
    // What is written aside meets a full disk.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("meta.new")).unwrap();
    let end = Progress { end: u64::MAX, truncation: Some(Truncation::DiskFull), ..closed(0, Closed::BySupervisor) };
    meta::write(dir.path(), &end.into()).unwrap();
    let read = meta::read(dir.path()).unwrap().unwrap();
    assert_eq!((read.end, read.truncation, read.closed), (end.end, end.truncation, end.closed));
    assert_eq!(fs::metadata(dir.path().join("meta")).unwrap().len(), 128, "no more than was reserved");
}

#[test]
fn exactly_the_output_limit_is_stored_whichever_stream_reaches_it() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, 16 * MIB, 0);
    let task = TaskId::random();
    let allowance = Arc::new(Allowance::new(200_000));
    let exceeded = allowance.exceeded();
    let bytes = pattern(500_000);
    let (read_out, mut out) = pipe();
    let (read_err, mut err) = pipe();
    let stdout = begin(&outputs, task, Source::Stdout, read_out, allowance.clone()).unwrap();
    let stderr = begin(&outputs, task, Source::Stderr, read_err, allowance.clone()).unwrap();
    out.write_all(&bytes[..150_000]).unwrap();
    wait(&stdout, |p| p.end == 150_000);
    err.write_all(&bytes[..50_000]).unwrap();
    wait(&stderr, |p| p.end == 50_000);
    assert!(!*exceeded.borrow(), "the limit itself is allowed");
    err.write_all(&bytes).unwrap(); // would hang if the pipe were not emptied
    out.write_all(&bytes).unwrap();
    drop((out, err));
    assert_eq!(wait_closed(&stdout), closed(150_000, Closed::Eof));
    assert_eq!(wait_closed(&stderr), closed(50_000, Closed::Eof));
    assert!(*exceeded.borrow());
    assert!(read_all(&stdout).0 == bytes[..150_000] && read_all(&stderr).0 == bytes[..50_000]);
}

#[test]
fn a_writer_that_never_closes_delays_nothing() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, 16 * MIB, 0);
    let (read, mut write) = pipe();
    let log = begin(&outputs, TaskId::random(), Source::All, read, unlimited()).unwrap();
    write.write_all(b"all there was").unwrap();
    log.finish(); // at once: what is in the pipe is not lost
    assert_eq!(wait_closed(&log), closed(13, Closed::BySupervisor));
    assert_eq!(read_all(&log).0, b"all there was");
    crate::sys::fd::wait_hung_up(&write);
    assert_eq!(write.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    log.finish(); // a second time is nothing
}

#[test]
fn a_writer_that_never_stops_delays_nothing() {
    let dir = TempDir::new().unwrap();
    // Nothing is allowed: the end cannot be told by how much was stored.
    for limit in [u64::MAX, 0] {
        let outputs = outputs(&dir, MIB, 0);
        let (read, mut write) = pipe();
        let log = begin(&outputs, TaskId::random(), Source::All, read, Arc::new(Allowance::new(limit))).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || while write.write_all(&[7; 4096]).is_ok() {});
            log.finish();
            assert_eq!(wait_closed(&log).closed, Some(Closed::BySupervisor));
        });
    }
}

#[test]
fn packets_tiny_pipes_and_sockets_are_read_to_the_byte() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, MIB, 0);
    let bytes = pattern(900_000);
    // Packets do not divide segments, and a read shorter than a packet would lose the rest of it.
    let (packets, mut in_packets) = pipe();
    fcntl(&in_packets, FcntlArg::F_SETFL(OFlag::O_DIRECT)).unwrap();
    let (tiny, mut in_tiny) = pipe();
    let (socket, mut in_socket) = UnixStream::pair().unwrap();
    let record = |pipe: OwnedFd| begin(&outputs, TaskId::random(), Source::All, pipe, unlimited()).unwrap();
    let logs = [record(packets), record(tiny), record(socket.into())];
    fcntl(in_tiny.as_fd(), FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    for chunk in bytes.chunks(777) {
        in_packets.write_all(chunk).unwrap();
        in_tiny.write_all(chunk).unwrap();
        in_socket.write_all(chunk).unwrap(); // cannot be spliced to a file: read and write
    }
    drop((in_packets, in_tiny, in_socket));
    for (which, log) in logs.iter().enumerate() {
        assert_eq!(wait_closed(log), closed(900_000, Closed::Eof), "log {which}");
        assert!(read_all(log).0 == bytes, "log {which}");
    }
}

#[test]
fn after_a_crash_everything_written_is_read() {
    let dir = TempDir::new().unwrap();
    let task = TaskId::random();
    let bytes = pattern(300_000);
    let before = outputs(&dir, 16 * MIB, 0);
    let (read, mut write) = pipe();
    let log = begin(&before, task, Source::Stderr, read, unlimited()).unwrap();
    write.write_all(&bytes).unwrap();
    wait(&log, |p| p.end == 300_000);
    drop(before);
    let stream = dir.path().join(task.to_string()).join("stderr");
    assert!(meta::read(&stream).unwrap().is_none(), "not closed");
    // What a crash can leave beside the segments, and a meta file that says nothing.
    fs::write(stream.join("meta.new"), b"{\"end\":").unwrap();
    fs::write(stream.join("meta"), b"\0\0\0").unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    let after = outputs(&dir, 16 * MIB, 0);
    assert_eq!(after.tasks().unwrap(), [task]);
    let log = after.load(task, Source::Stderr).unwrap();
    assert_eq!(log.now(), closed(300_000, Closed::BySupervisor));
    assert!(read_all(&log).0 == bytes);
    assert_eq!(after.load(task, Source::All).unwrap_err().errno(), nix::errno::Errno::ENOENT);
    after.remove(task).unwrap();
    after.remove(task).unwrap();
    assert_eq!(after.tasks().unwrap(), []);
    assert_eq!(log.read_at(0, 1).unwrap_err().errno(), nix::errno::Errno::ENOENT);
}

#[test]
fn hundreds_of_live_outputs_hold_no_file_while_they_are_silent_and_none_starves() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, MIB, 0);
    let mut all = Vec::new();
    for _ in 0..200 {
        let (read, write) = pipe();
        all.push((begin(&outputs, TaskId::random(), Source::All, read, unlimited()).unwrap(), write));
    }
    let enough = AtomicBool::new(false);
    let flooded = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut flood = all[0].1.try_clone().unwrap();
        let (enough, flooded) = (&enough, &flooded);
        scope.spawn(move || {
            while !enough.load(Ordering::Relaxed) {
                flood.write_all(&[0; 64 << 10]).unwrap();
                flooded.fetch_add(64 << 10, Ordering::Relaxed);
            }
        });
        for (log, write) in &mut all[1..] {
            write.write_all(b"here").unwrap();
            wait(log, |p| p.end == 4); // while the flood goes on
        }
        enough.store(true, Ordering::Relaxed);
    });
    let flooded = flooded.into_inner();
    wait(&all[0].0, |p| p.end == flooded);
    let open = || {
        let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        files.filter(|file| file.starts_with(dir.path())).count()
    };
    assert_eq!(open(), 0);
    let logs: Vec<_> = all.into_iter().map(|(log, _)| log).collect();
    assert_eq!(wait_closed(&logs[0]).end, flooded);
    assert!(logs[1..].iter().all(|log| wait_closed(log) == closed(4, Closed::Eof)));
    assert_eq!(open(), 0);
}

#[test]
fn one_stream_is_recorded_once() {
    let dir = TempDir::new().unwrap();
    let outputs = outputs(&dir, MIB, 0);
    let task = TaskId::random();
    let (read, _write) = pipe();
    let log = begin(&outputs, task, Source::All, read, unlimited()).unwrap();
    assert!(Arc::ptr_eq(&outputs.load(task, Source::All).unwrap(), &log), "a live output is loaded as it is");
    let again = begin(&outputs, task, Source::All, pipe().0, unlimited()).unwrap_err();
    assert_eq!(again.errno(), nix::errno::Errno::EEXIST);
    log.finish();
    wait_closed(&log);
    assert!(outputs.live().is_empty(), "an ended output costs no memory");
}
