//! Extended attributes of open files: systemd marks a delegated cgroup with one, and taskman notes in another where the
//! version 1 halves of a group are, in the one place that lives exactly as long as the group.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Longer values are not taskman's and not systemd's.
const MAX_VALUE: usize = 16 << 10;

/// The attribute's value; `ENODATA` if there is none of that name.
pub fn get(fd: impl AsFd, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0u8; MAX_VALUE];
    // SAFETY: the kernel writes at most value.len() bytes, all of which `value` owns; `name` ends with NUL.
    let length =
        unsafe { libc::fgetxattr(fd.as_fd().as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(Errno::result(length)? as usize);
    Ok(value)
}

/// Sets the attribute, replacing an old value.
pub fn set(fd: impl AsFd, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: the kernel reads exactly value.len() bytes of `value`; `name` ends with NUL.
    let done = unsafe { libc::fsetxattr(fd.as_fd().as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(done).map(drop)
}
