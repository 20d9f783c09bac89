//! Reading a file without waiting for a disk.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Reads at most `len` bytes at `offset` into the empty `buffer`, but only what is in memory already: EAGAIN where the disk
/// would have to be asked, EOPNOTSUPP on a filesystem that cannot tell.
pub fn read_cached(file: impl AsFd, offset: u64, len: usize, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
    buffer.clear();
    buffer.reserve_exact(len);
    let slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: len };
    let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: the slice is `len` bytes of the buffer's own, which was made that large, and nobody else holds it.
    let read = unsafe { libc::preadv2(file.as_fd().as_raw_fd(), &slice, 1, offset, libc::RWF_NOWAIT) };
    let read = Errno::result(read)? as usize;
    // SAFETY: so many bytes were written by the kernel, and not more than there is room for.
    unsafe { buffer.set_len(read) };
    Ok(read)
}
