//! Whether somebody has piped something into a command that would leave it unread.

use std::io::{Seek, stdin};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::stat::{SFlag, fstat};

/// Whoever writes at the other end of a pipe may be a moment later than we are: `echo x | taskman start …`.
const MOMENT: Duration = Duration::from_millis(100);

/// Whether standard input has something to read. A terminal has not, nor has a pipe that nobody writes to.
pub fn is_there() -> bool {
    let input = stdin();
    let Ok(stat) = fstat(&input) else { return false };
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => {
            // The same open file, so the same place in it.
            let file = input.as_fd().try_clone_to_owned().map(std::fs::File::from);
            file.and_then(|mut file| file.stream_position()).is_ok_and(|at| at < stat.st_size.unsigned_abs())
        }
        SFlag::S_IFIFO => comes_within(MOMENT),
        // Its end can be read too, and is nothing.
        SFlag::S_IFSOCK => {
            let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
            comes_within(MOMENT) && recv(input.as_raw_fd(), &mut [0], flags).is_ok_and(|length| length > 0)
        }
        _ => false,
    }
}

fn comes_within(time: Duration) -> bool {
    let input = stdin();
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    poll(&mut fds, timeout).is_ok() && fds[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLIN))
}
