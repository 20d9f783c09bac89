//! Bytes between the task's pipes and whoever reads them, without ever blocking the launcher.
//!
//! The host's descriptors are shared with other processes, so they cannot be made non-blocking. Instead a write is made
//! only when poll says there is room, and is never larger than what a pipe then surely takes. A reader that stops
//! reading therefore holds up the task's output and nothing else: limits are still enforced.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::{read, write};

use crate::mutation::{Defence, off};

/// Room for one read; bounds the launcher's memory per stream.
const BUFFER: usize = 64 * 1024;
/// A pipe that polls writable takes this much at once without blocking (PIPE_BUF).
const PIECE: usize = 4096;

/// One of a task's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where bytes go.
#[derive(Default)]
pub enum Sink<'a> {
    /// Nowhere.
    #[default]
    Discard,
    /// To a descriptor.
    Fd(BorrowedFd<'a>),
    /// To a function.
    Call(&'a mut dyn FnMut(&[u8])),
}

/// What a step brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Bytes taken on.
    pub took: u64,
    /// Whether more came than was allowed; the rest was dropped.
    pub overflow: bool,
}

/// One direction: a source, at most one buffer, a sink.
pub struct Pump<'a> {
    source: Source<'a>,
    sink: Sink<'a>,
    /// The sink's pipe, when this end closes it: the task's standard input.
    target: Option<OwnedFd>,
    buffer: Vec<u8>,
    written: usize,
    task_is_dead: bool,
}

enum Source<'a> {
    Owned(OwnedFd),
    /// What is polled, and what is read.
    Borrowed(BorrowedFd<'a>, BorrowedFd<'a>),
    Ended,
}

impl<'a> Pump<'a> {
    /// From a pipe of the task to a sink.
    pub fn output(source: Option<OwnedFd>, sink: Sink<'a>) -> Self {
        let source = source.map_or(Source::Ended, Source::Owned);
        Self { source, sink, target: None, buffer: Vec::new(), written: 0, task_is_dead: false }
    }

    /// From a descriptor of the host to a pipe of the task; read through `anew`, where there is one.
    pub fn input(source: Option<BorrowedFd<'a>>, anew: Option<BorrowedFd<'a>>, target: Option<OwnedFd>) -> Self {
        let source = source.map_or(Source::Ended, |source| Source::Borrowed(source, anew.unwrap_or(source)));
        Self { source, sink: Sink::Discard, target, buffer: Vec::new(), written: 0, task_is_dead: false }
            .close_if_done()
    }

    /// What to poll for: room in the sink while bytes wait, new bytes otherwise.
    pub fn interest(&self) -> Option<PollFd<'_>> {
        if self.is_waiting() {
            return self.sink_fd().map(|fd| PollFd::new(fd, PollFlags::POLLOUT));
        }
        match &self.source {
            Source::Owned(fd) => Some(PollFd::new(fd.as_fd(), PollFlags::POLLIN)),
            Source::Borrowed(fd, _) => Some(PollFd::new(*fd, PollFlags::POLLIN)),
            Source::Ended => None,
        }
    }

    /// Does one step after poll said it would not block; takes on at most `allowance` bytes from the source.
    pub fn step(&mut self, allowance: u64) -> Step {
        let nothing = Step { took: 0, overflow: false };
        if self.is_waiting() {
            self.flush();
            return nothing;
        }
        self.written = 0;
        // Always with the whole buffer: in packet mode, which a task can set, a pipe drops what a short read leaves over.
        let room = if off(Defence::WholeReads) { allowance.clamp(1, BUFFER as u64) as usize } else { BUFFER };
        self.buffer.resize(room, 0);
        let result = match &self.source {
            Source::Owned(fd) => read(fd, &mut self.buffer),
            Source::Borrowed(_, fd) => read(fd, &mut self.buffer),
            Source::Ended => Ok(0),
        };
        self.buffer.truncate(*result.as_ref().unwrap_or(&0));
        match result {
            Err(Errno::EINTR) => return nothing,
            Err(Errno::EAGAIN) if !self.task_is_dead => return nothing,
            Ok(0) | Err(_) => self.close(),
            Ok(_) => {}
        }
        let overflow = self.buffer.len() as u64 > allowance;
        self.buffer.truncate(usize::try_from(allowance).unwrap_or(usize::MAX));
        let took = self.buffer.len() as u64;
        if let Sink::Call(call) = &mut self.sink
            && took > 0
        {
            call(&self.buffer);
        }
        if self.sink_fd().is_none() {
            self.buffer.clear();
        }
        Step { took, overflow }
    }

    /// Says that nobody will write any more: what is in the pipe is all, whether or not its end of file comes. A task can
    /// withhold that by leaving a copy of its descriptor in a message between sockets.
    pub fn no_more_writers(&mut self) {
        self.task_is_dead = true;
    }

    /// Whether bytes wait for the sink.
    pub fn is_waiting(&self) -> bool {
        self.written < self.buffer.len()
    }

    /// Ends the source: what is buffered is still delivered, nothing more is taken.
    pub fn close(&mut self) {
        self.source = Source::Ended;
        self.target = None;
    }

    /// Whether everything is delivered and nothing can come.
    pub fn is_done(&self) -> bool {
        matches!(self.source, Source::Ended) && !self.is_waiting()
    }

    fn flush(&mut self) {
        let end = self.buffer.len().min(self.written + PIECE);
        let piece = &self.buffer[self.written..end];
        let result = match (self.sink_fd(), piece) {
            (Some(fd), piece) => write(fd, piece),
            (None, piece) => Ok(piece.len()),
        };
        match result {
            Ok(count) => self.written += count,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // The reader is gone. Closing our end hands the task the EPIPE or SIGPIPE it would have had without us.
            Err(_) => {
                self.buffer.clear();
                self.close();
            }
        }
    }

    fn sink_fd(&self) -> Option<BorrowedFd<'_>> {
        match (&self.target, &self.sink) {
            (Some(target), _) => Some(target.as_fd()),
            (None, Sink::Fd(fd)) => Some(*fd),
            _ => None,
        }
    }

    fn close_if_done(mut self) -> Self {
        if matches!(self.source, Source::Ended) {
            self.target = None;
        }
        self
    }
}
