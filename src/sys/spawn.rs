//! A program in a process of its own, with exactly the descriptors it is meant to have.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
        Side::Child(child) => {
            let _ = fd::place(&child, &null, 0, false)
                .and_then(|()| fd::place(&child, &null, 1, false))
                .and_then(|()| fd::place(&child, socket, SOCKET, false))
                .and_then(|()| fd::close_range(&child, SOCKET + 1, Some(program.as_raw_fd() - 1)))
                .and_then(|()| fd::close_range(&child, program.as_raw_fd() + 1, None))
                .and_then(|()| fexecve(program, args, env));
            // SAFETY: ends this process alone; its creator sees the code.
            unsafe { libc::_exit(127) }
        }
    }
}

/// The socket of a program that was started by [`spawn`]; it is not passed on. EBADF where there is none, and the second time.
pub fn given_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD touches no memory.
    if Errno::result(unsafe { libc::fcntl(SOCKET, libc::F_GETFD) })? & libc::FD_CLOEXEC != 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: it is open, and came here through execve: all that this process opens is closed by that. So nobody owns it yet.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET) };
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(socket)
}
