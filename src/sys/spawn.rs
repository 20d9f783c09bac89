//! A program in a process of its own, with exactly the descriptors it is meant to have.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::fexecve;

use super::clone::{self, Side};
use super::fd;
use super::pidfd::PidFd;

/// Executes `program` with `socket` as standard input, standard output empty, standard error as here, and nothing else open. The program
/// need not claim a number as its own to find it: standard input is nobody's. Both descriptors must be [lifted](fd::lift).
///
/// Nothing of this process goes on in the new one, not even to be dropped: that could kill what this one watches over.
pub fn spawn(
    program: BorrowedFd<'_>,
    args: &[CString],
    env: &[CString],
    socket: BorrowedFd<'_>,
) -> Result<PidFd, Errno> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = fd::lift(null.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::ENOENT)))?.into())?;
    match clone::clone3(&[], None)? {
        Side::Parent(_, pidfd) => Ok(pidfd.expect("clone3 gives one").into()),
        Side::Child(child) => {
            let _ = fd::place(&child, socket, 0, false)
                .and_then(|()| fd::place(&child, &null, 1, false))
                .and_then(|()| fd::close_range(&child, 3, Some(program.as_raw_fd() - 1)))
                .and_then(|()| fd::close_range(&child, program.as_raw_fd() + 1, None))
                .and_then(|()| fexecve(program, args, env));
            // SAFETY: ends this process alone; its creator sees the code.
            unsafe { libc::_exit(127) }
        }
    }
}

/// The socket of a program that was started by [`spawn`]; it is not passed on.
pub fn given_socket() -> std::io::Result<OwnedFd> {
    std::io::stdin().as_fd().try_clone_to_owned()
}
