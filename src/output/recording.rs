//! The writing side of one output: a pipe whose other end a hostile program holds, and the segment being filled.
//!
//! The program may write in packets, change the pipe's size, read from the pipe itself, or leave its end open for ever.
//! So nothing here waits for the pipe, no read is shorter than a packet (the rest of one would be lost), and neither a
//! full disk nor a used-up allowance stops the reading: the program never hangs because of what becomes of its output.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::read;

use super::allowance::Allowance;
use super::layout::Cut;
use super::log::{Closed, Log, segment_path};
use crate::error::{Context, SysError};
use crate::task::record::Truncation;

/// Asked of the kernel for each pipe: with one writer of 1 GiB about a third faster than the usual 64 KiB, and 1 MiB is no
/// faster. Its pages are charged to whoever writes.
const PIPE_SIZE: i32 = 256 << 10;
/// For what is read and not spliced: more than any packet.
const SCRATCH: usize = 64 << 10;
/// Bytes taken from one pipe before the next has its turn.
const TURN: u64 = 1 << 20;

/// How often a file is tried that cannot be opened for want of descriptors or memory, and how long in between.
const TRIES: usize = 500;
const PAUSE_MS: u8 = 10;

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// What a turn ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The pipe is empty, or others have to have a turn; epoll says which.
    Later,
    /// Nothing will come any more.
    Over(Closed),
}

/// How the bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From the pipe's pages to the file's, without passing through this program: about a quarter faster than `Copy`. The
    /// kernel holds the pipe meanwhile: while the disk stalls, a writer cannot die before this one write is through.
    Splice,
    /// By read and write, where the pipe or the file cannot be spliced.
    Copy,
    /// Not at all: the disk is full. They are counted.
    Count,
}

/// The segment being filled.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    at: u64,
    /// Only during a turn: thousands of tasks that say nothing for hours would each keep one open.
    file: Option<File>,
}

impl Open {
    fn file(&mut self) -> Result<&File, SysError> {
        let mut tries = 0;
        while self.file.is_none() {
            match File::options().write(true).open(&self.path) {
                Ok(file) => self.file = Some(file),
                // Readers open files for a moment, too. Meanwhile what is written waits in the pipe.
                Err(e) if is_passing(&e) && tries < TRIES => {
                    tries += 1;
                    let _ = poll(&mut [], PollTimeout::from(PAUSE_MS));
                }
                Err(e) => return Err(e).on("open", self.path.display().to_string()),
            }
        }
        Ok(self.file.as_ref().expect("opened above"))
    }
}

/// One pipe on its way to the disk.
#[derive(Debug)]
pub(super) struct Recording {
    pipe: OwnedFd,
    log: Arc<Log>,
    allowance: Arc<Allowance>,
    cut: Cut,
    reserve: u64,
    way: Way,
    open: Option<Open>,
    /// Bytes that have left the pipe.
    taken: u64,
    /// Whether the pipe has its size.
    sized: bool,
}

impl Recording {
    /// Prepares the pipe; nothing is read yet.
    pub(super) fn new(
        pipe: OwnedFd,
        log: Arc<Log>,
        allowance: Arc<Allowance>,
        cut: Cut,
        reserve: u64,
    ) -> Result<Self, SysError> {
        let object = || format!("the pipe of {}", log.dir().display());
        let flags = OFlag::from_bits_retain(fcntl(&pipe, FcntlArg::F_GETFL).on("fcntl F_GETFL", object())?);
        fcntl(&pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).on("fcntl F_SETFL", object())?;
        Ok(Self { pipe, log, allowance, cut, reserve, way: Way::Splice, open: None, taken: 0, sized: false })
    }

    /// The pipe, to be watched.
    pub(super) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Its log.
    pub(super) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Moves what is in the pipe, up to a fair share, then tells the readers once. For a pipe that is said to be ready.
    pub(super) fn turn(&mut self) -> Turn {
        if !std::mem::replace(&mut self.sized, true) {
            // Only speed depends on it: past the host's share of pipe pages the kernel refuses, and that is fine. Here and not
            // earlier, because it waits for whoever holds the pipe.
            let _ = fcntl(&self.pipe, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
        }
        let mut left = TURN;
        let turn = loop {
            match self.step(left) {
                Ok(0) => break self.at_zero(),
                Ok(moved) => {
                    left = left.saturating_sub(moved);
                    self.taken += moved;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Turn::Later,
                Err(errno) => {
                    tracing::error!(dir = %self.log.dir().display(), %errno, "reading a task's output failed");
                    break Turn::Over(Closed::BySupervisor);
                }
            }
            // A new segment is begun only for bytes that are known to be there: epoll tells.
            if left == 0 || self.room() == Some(0) {
                break Turn::Later;
            }
        };
        if let Some(open) = &mut self.open {
            open.file = None;
        }
        self.log.publish(None, None);
        turn
    }

    /// The task is dead: moves what is in the pipe, at most as much as fits into one, whoever may still write to it.
    pub(super) fn drain(&mut self) -> Closed {
        let size = fcntl(&self.pipe, FcntlArg::F_GETPIPE_SZ).map_or(0, |size| size as u64);
        let until = self.taken + size;
        loop {
            let ready = self.ready();
            if !ready.contains(PollFlags::POLLIN) {
                return if ready.contains(PollFlags::POLLHUP) { Closed::Eof } else { Closed::BySupervisor };
            }
            match self.turn() {
                Turn::Over(closed) => return closed,
                Turn::Later if self.taken >= until => return Closed::BySupervisor,
                Turn::Later => {}
            }
        }
    }

    /// There is nothing to read: the end, if no writer is left. An empty packet is not the end.
    pub(super) fn at_zero(&self) -> Turn {
        let hung_up = self.ready().contains(PollFlags::POLLHUP);
        if hung_up { Turn::Over(Closed::Eof) } else { Turn::Later }
    }

    fn ready(&self) -> PollFlags {
        let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => fds[0].revents().unwrap_or(PollFlags::empty()),
            Err(_) => PollFlags::POLLIN, // interrupted: reading will tell
        }
    }

    /// Moves some bytes out of the pipe; 0 when there are none and no writer.
    fn step(&mut self, want: u64) -> Result<u64, Errno> {
        if self.way == Way::Splice
            && let Some(moved) = self.splice(want)?
        {
            return Ok(moved);
        }
        let mut scratch = vec![0; SCRATCH];
        let read = read(&self.pipe, &mut scratch)?;
        let granted = self.allowance.take(read as u64) as usize;
        if granted < read {
            self.allowance.exceed();
        }
        self.store(&scratch[..granted]);
        Ok(read as u64)
    }

    /// Splices up to `want` bytes; none when it cannot be done and the bytes are still in the pipe.
    fn splice(&mut self, want: u64) -> Result<Option<u64>, Errno> {
        let granted = self.allowance.take(want);
        // In this order: a segment begun for nothing could cost one of the middle.
        let room = if granted > 0 { self.room_or_begin() } else { None };
        let fits = granted.min(room.unwrap_or(0));
        self.allowance.give_back(granted - fits);
        if fits == 0 {
            return Ok(None);
        }
        let open = self.open.as_mut().expect("there is room in an open segment");
        let mut at = open.at as i64;
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
        let file = match open.file() {
            Ok(file) => file,
            Err(error) => {
                self.allowance.give_back(fits);
                self.stop_storing(&error);
                return Ok(None);
            }
        };
        let spliced = splice(&self.pipe, None, file, Some(&mut at), fits as usize, flags);
        let moved = spliced.unwrap_or(0) as u64;
        self.allowance.give_back(fits - moved);
        match spliced {
            Ok(_) => {
                open.at += moved;
                self.log.layout().extend(moved);
                Ok(Some(moved))
            }
            Err(errno @ (Errno::EAGAIN | Errno::EINTR)) => Err(errno),
            Err(Errno::EINVAL) => {
                self.way = Way::Copy;
                Ok(None)
            }
            Err(errno) => {
                self.stop_storing(&SysError::new("splice", self.log.dir().display().to_string(), errno));
                Ok(None)
            }
        }
    }

    /// Stores bytes that have left the pipe; what cannot be stored is counted.
    fn store(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(room) = self.room_or_begin() else { break };
            let (now, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            let open = self.open.as_mut().expect("there is room in an open segment");
            let at = open.at;
            let object = || self.log.dir().display().to_string();
            match open.file().and_then(|file| file.write_all_at(now, at).on("write", object())) {
                Ok(()) => {
                    open.at += now.len() as u64;
                    self.log.layout().extend(now.len() as u64);
                    bytes = rest;
                }
                Err(error) => self.stop_storing(&error),
            }
        }
        self.log.layout().skip(bytes.len() as u64);
    }

    /// Bytes that fit into the open segment, if there is one.
    fn room(&self) -> Option<u64> {
        self.open.as_ref().map(|open| self.cut.segment - open.at)
    }

    /// The same, beginning a segment where needed; none when nothing is stored any more.
    fn room_or_begin(&mut self) -> Option<u64> {
        if self.way != Way::Count
            && self.room().unwrap_or(0) == 0
            && let Err(error) = self.begin_segment()
        {
            self.stop_storing(&error);
        }
        self.room()
    }

    fn begin_segment(&mut self) -> Result<(), SysError> {
        self.open = None;
        let (first, gone) = self.log.begin_segment(&self.cut);
        if let Some(gone) = gone {
            fs::remove_file(&gone).on("unlink", gone.display().to_string())?;
        }
        let path = segment_path(self.log.dir(), first);
        let object = || path.display().to_string();
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path).on("open", object())?;
        let disk = fstatvfs(&file).on("statvfs", object())?;
        if disk.blocks_available() * disk.fragment_size() < self.reserve.saturating_add(self.cut.segment) {
            return Err(SysError::new("statvfs", object(), Errno::ENOSPC).hint("output.reserve is kept free"));
        }
        self.open = Some(Open { path, at: 0, file: Some(file) });
        Ok(())
    }

    /// For good: an output with holes wherever the disk happened to be full would be worse to read than one that ends.
    fn stop_storing(&mut self, why: &SysError) {
        tracing::warn!(%why, "a task's output is truncated");
        self.way = Way::Count;
        self.open = None;
        self.log.publish(Some(Truncation::DiskFull), None);
    }

    /// Whether storing has stopped, for whoever notes it on disk.
    pub(super) fn stopped_storing(&self) -> bool {
        self.way == Way::Count
    }
}
