//! Mounts as objects: trees that are cloned, made read-only as a whole, and then attached.
//!
//! A bind made read-only by remounting leaves its submounts writable; `mount_setattr` with `AT_RECURSIVE` does not, and
//! it acts before anyone can see the tree.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// `MOUNT_ATTR_*` that every mount of a sandbox has.
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
/// No device opens through this mount.
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
/// Nothing is written through this mount.
pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// A private copy of the mount tree below `path`, attached nowhere.
pub fn clone_tree(at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as u32 | libc::AT_EMPTY_PATH as u32;
    // SAFETY: `path` is a C string; the result is a new descriptor that nobody else owns.
    unsafe {
        Errno::result(libc::syscall(libc::SYS_open_tree, at.as_raw_fd(), path.as_ptr(), flags))
            .map(|raw| OwnedFd::from_raw_fd(raw as i32))
    }
}

/// Sets attributes on a tree's mounts: on all of them, or on its first alone.
pub fn set_attributes(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel reads `attr`, whose size it is told, and the empty C string.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Attaches a tree on top of `target`.
pub fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: both paths are empty C strings.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_move_mount, tree.as_raw_fd(), c"".as_ptr(), target.as_raw_fd(), c"".as_ptr(), flags)
    })
    .map(drop)
}
