//! A program in a process of its own, with exactly the descriptors it is meant to have.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::fexecve;

use super::clone::{self, Side};
use super::fd;
use super::pidfd::PidFd;

/// The number under which a spawned program finds its socket.
const SOCKET: RawFd = 3;

/// Executes `program` with `socket` as descriptor 3, standard input and output empty, standard error as here, and nothing else
/// open. Both descriptors must be [lifted](fd::lift).
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
    match clone::clone3(0, None)? {
        Side::Parent(_, pidfd) => Ok(pidfd.expect("clone3 gives one").into()),
        Side::Child => {
            let _ = fd::place(&null, 0, false)
                .and_then(|()| fd::place(&null, 1, false))
                .and_then(|()| fd::place(socket, SOCKET, false))
                .and_then(|()| fd::close_all_but(&[fd::placed(SOCKET), program]))
                .and_then(|()| fexecve(program, args, env));
            // SAFETY: ends this process alone; its creator sees the code.
            unsafe { libc::_exit(127) }
        }
    }
}

/// The socket of a program that was started by [`spawn`]; it is not passed on.
pub fn given_socket() -> Result<OwnedFd, Errno> {
    fcntl(fd::placed(SOCKET), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: it is open, and called once, first of all: nobody else in this process can own it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(SOCKET) })
}
