//! The kernel's key rings.

use nix::errno::Errno;

/// Leaves the inherited session keyring for a new, empty one.
pub fn join_empty_session() -> Result<(), Errno> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is touched.
    match Errno::result(unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    }) {
        // A kernel without keys has none to inherit.
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
