//! Loading a system call filter.

use nix::errno::Errno;

/// Puts `filter` on the calling thread, for good, and on all it will create.
pub fn install(filter: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads `len` instructions from `filter`, which outlives the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })
        .map(drop)
}
