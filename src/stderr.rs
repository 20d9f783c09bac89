//! Standard error, for whose reader nobody waits: a logger that stops reading would keep every task's limits from being enforced.
//!
//! What finds no room is dropped, and counted in a line of its own once somebody reads again.

use std::fs::File;
use std::io::{Stderr, stderr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use crate::log::{Level, prefix};
use crate::sys::fd;

/// So long is waited for room, once: a reader that is only slow loses nothing. Until somebody reads again, there is no second wait.
const PATIENCE: Duration = Duration::from_millis(100);
/// What a pipe that has room takes at once.
const PIECE: usize = 4096;

/// What was opened is never closed: a process opens it once, or twice.
static OUTPUT: Mutex<Option<&'static Output>> = Mutex::new(None);
static LOST: Mutex<Lost> = Mutex::new(Lost { lines: 0, torn: false });

/// Writes one line, if it finds room.
pub fn write(line: &[u8]) {
    let mut lost = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    lost.write(output(), line);
}

/// What a process that is to give up its privilege must keep open: it could not open it any more.
#[cfg(feature = "server")]
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    match output() {
        Output::Own(file) => Some(file.as_fd()),
        Output::Socket(_) | Output::Shared(..) => None,
    }
}

/// Opens it again. Whoever has inherited the open file could take away the flag that says not to wait.
#[cfg(feature = "server")]
pub fn reopen() {
    *OUTPUT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Output::open());
}

fn output() -> &'static Output {
    OUTPUT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Output::open)
}

/// Where it leads.
enum Output {
    /// A pipe or terminal, opened anew: the flag that says not to wait is this open file's, and not the one's that others share.
    Own(OwnedFd),
    /// A socket can be told with each call.
    Socket(Stderr),
    /// A file, or what cannot be opened anew, with how much is written at once.
    Shared(Stderr, usize),
}

impl Output {
    fn open() -> &'static Self {
        Box::leak(Box::new(Self::find()))
    }

    fn find() -> Self {
        let path = format!("/proc/self/fd/{}", stderr().as_raw_fd());
        let kind = std::fs::metadata(&path).ok().map(|meta| meta.file_type());
        if kind.is_some_and(|kind| kind.is_socket()) {
            return Self::Socket(stderr());
        }
        if kind.is_none_or(|kind| !kind.is_fifo() && !kind.is_char_device()) {
            return Self::Shared(stderr(), usize::MAX);
        }
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let opened = File::options().write(true).custom_flags(flags).open(path);
        match opened.ok().and_then(|file| fd::lift(file.into()).ok()) {
            Some(own) => Self::Own(own),
            None => Self::Shared(stderr(), PIECE),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(own) => own.as_fd(),
            Self::Socket(shared) | Self::Shared(shared, _) => shared.as_fd(),
        }
    }

    /// How much of the text was taken.
    fn write(&self, text: &[u8], deadline: Instant) -> usize {
        let mut taken = 0;
        while taken < text.len() {
            let rest = &text[taken..];
            let result = match self {
                Self::Own(own) => nix::unistd::write(own, rest),
                Self::Socket(socket) => send(socket.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL),
                Self::Shared(..) if !self.has_room(deadline) => break,
                Self::Shared(shared, piece) => nix::unistd::write(shared, &rest[..rest.len().min(*piece)]),
            };
            match result {
                Ok(length) => taken += length,
                Err(Errno::EAGAIN) if self.has_room(deadline) => {}
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        taken
    }

    fn has_room(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut ends = [PollFd::new(self.as_fd(), PollFlags::POLLOUT)];
        poll(&mut ends, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)).is_ok_and(|ready| ready > 0)
    }
}

/// What was not written.
struct Lost {
    lines: u64,
    /// The last line has no end.
    torn: bool,
}

impl Lost {
    fn write(&mut self, output: &Output, line: &[u8]) {
        let deadline = Instant::now() + if self.lines == 0 { PATIENCE } else { Duration::ZERO };
        let mut text = Vec::new();
        if self.torn {
            text.push(b'\n');
        }
        if self.lines > 0 {
            let lines = self.lines;
            let mark = prefix(Level::Warning);
            text.extend(format!("{mark}taskman: {lines} lines were dropped: nobody read standard error\n").bytes());
        }
        let notice = text.len();
        text.extend(line);
        match output.write(&text, deadline) {
            taken if taken == text.len() => *self = Self { lines: 0, torn: false },
            0 => self.lines += 1,
            taken if taken < notice => *self = Self { lines: self.lines + 1, torn: true },
            taken => *self = Self { lines: 1, torn: taken > notice },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write};

    use super::*;

    /// A pipe of this size with 4096 bytes in it, and what writes to it without waiting.
    fn pipe(size: i32) -> (PipeReader, PipeWriter, Output) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETPIPE_SZ(size)).unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let own = File::options().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).unwrap();
        writer.write_all(&[b'x'; 4096]).unwrap();
        (reader, writer, Output::Own(own.into()))
    }

    #[test]
    fn a_reader_that_stalls_is_waited_for_once_and_told_what_it_missed() {
        let (mut reader, writer, output) = pipe(4096);
        let mut lost = Lost { lines: 0, torn: false };
        let began = Instant::now();
        for _ in 0..1000 {
            lost.write(&output, b"lost\n");
        }
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < 10 * PATIENCE, "{:?}", began.elapsed());
        reader.read_exact(&mut [0; 4096]).unwrap();
        lost.write(&output, b"heard\n");
        lost.write(&output, b"and again\n");
        drop((writer, output));
        let mut heard = String::new();
        reader.read_to_string(&mut heard).unwrap();
        let notice = "taskman: 1000 lines were dropped: nobody read standard error";
        assert_eq!(heard.lines().collect::<Vec<_>>(), [notice, "heard", "and again"]);
    }

    #[test]
    fn a_line_that_was_torn_is_ended_before_the_next() {
        let (mut reader, writer, output) = pipe(8192);
        let mut lost = Lost { lines: 0, torn: false };
        lost.write(&output, &[b'y'; 6000]);
        assert!(lost.torn && lost.lines == 1);
        reader.read_exact(&mut [0; 8192]).unwrap();
        lost.write(&output, b"heard\n");
        drop((writer, output));
        let mut heard = String::new();
        reader.read_to_string(&mut heard).unwrap();
        assert!(heard.starts_with("\ntaskman: 1 lines were dropped") && heard.ends_with("\nheard\n"), "{heard:?}");
    }
}
