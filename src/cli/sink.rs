//! Where output goes: this process's standard streams, written without ever blocking the connection.
//!
//! A reader that stops reading (a paused terminal, a full pipe) must neither hide Ctrl-C nor keep this client from answering
//! the server's questions whether it lives. Nothing is buffered here: what was counted as written was written.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::streams::open_anew;

/// What a pipe that was found writable takes without blocking.
const ATOMIC: usize = 4096;

/// A standard stream.
pub struct Sink {
    kind: Kind,
}

enum Kind {
    /// A file, or a device that is always ready.
    Direct(OwnedFd),
    /// A pipe or terminal, opened anew as one that does not block.
    Anew(AsyncFd<OwnedFd>),
    /// A socket: told for each call not to block.
    Socket(AsyncFd<OwnedFd>),
    /// One that could not be opened anew, and whose mode is not ours to change.
    Shared(AsyncFd<OwnedFd>),
}

impl Sink {
    /// Must be called inside the runtime.
    pub fn new(stream: BorrowedFd<'_>) -> Result<Self> {
        let copy = stream.try_clone_to_owned()?;
        // Its successor is unsafe, for types that do not own what they register; an `OwnedFd` does.
        #[allow(deprecated)]
        let watch = |fd: OwnedFd| AsyncFd::with_interest(fd, Interest::WRITABLE);
        let file = SFlag::from_bits_truncate(fstat(stream)?.st_mode) & SFlag::S_IFMT;
        let kind = match (file, open_anew(stream)) {
            (_, Some(anew)) => watch(anew).map(Kind::Anew),
            (SFlag::S_IFSOCK, None) => watch(stream.try_clone_to_owned()?).map(Kind::Socket),
            (_, None) => watch(stream.try_clone_to_owned()?).map(Kind::Shared),
        };
        // What cannot be watched is always ready.
        Ok(Self { kind: kind.unwrap_or(Kind::Direct(copy)) })
    }

    /// Writes all, and counts in `place` what was written, also when this is dropped halfway.
    pub async fn write(&mut self, mut rest: &[u8], place: &mut u64) -> Result<()> {
        while !rest.is_empty() {
            let attempt = match &self.kind {
                Kind::Direct(fd) => write(fd, rest).map_err(Error::from),
                Kind::Anew(fd) => ready(fd, |fd| write(fd, rest)).await,
                Kind::Socket(fd) => ready(fd, |fd| send_some(fd, rest)).await,
                Kind::Shared(fd) => ready(fd, |fd| write_some(fd, rest)).await,
            };
            match attempt {
                Ok(count) => {
                    rest = &rest[count..];
                    *place += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

async fn ready(fd: &AsyncFd<OwnedFd>, call: impl Fn(BorrowedFd<'_>) -> nix::Result<usize>) -> Result<usize> {
    fd.async_io(Interest::WRITABLE, |fd| call(fd.as_fd()).map_err(Error::from)).await
}

fn send_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> nix::Result<usize> {
    use std::os::fd::AsRawFd;
    send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
}

fn write_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> nix::Result<usize> {
    match poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::ZERO)? {
        0 => Err(Errno::EAGAIN),
        _ => write(fd, &bytes[..bytes.len().min(ATOMIC)]),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_full_pipe_blocks_nothing_else_and_what_was_written_is_counted() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut sink = Sink::new(writer.as_fd()).unwrap();
        let (bytes, mut place) = (vec![7; 1 << 20], 10);
        let paused = tokio::time::timeout(Duration::from_millis(50), sink.write(&bytes, &mut place)).await;
        assert!(paused.is_err(), "a pipe of 64 KiB took a mebibyte");
        drop((sink, writer));
        let mut seen = Vec::new();
        reader.read_to_end(&mut seen).unwrap();
        assert_eq!(place - 10, seen.len() as u64);
        assert!(!seen.is_empty());
    }

    #[tokio::test]
    async fn a_closed_pipe_is_an_error_and_a_file_and_a_socket_take_everything() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut sink = Sink::new(writer.as_fd()).unwrap();
        drop(reader);
        crate::sys::fd::wait_hung_up(&writer);
        let mut place = 0;
        assert_eq!(sink.write(b"x", &mut place).await.unwrap_err().kind(), ErrorKind::BrokenPipe);

        let mut file = tempfile::tempfile().unwrap();
        Sink::new(file.as_fd()).unwrap().write(&[1; 100_000], &mut place).await.unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), 100_000);

        let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
        Sink::new(near.as_fd()).unwrap().write(b"hello", &mut place).await.unwrap();
        drop(near);
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), place), ("hello", 100_005));

        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        Sink::new(null.as_fd()).unwrap().write(b"x", &mut place).await.unwrap();
    }
}
