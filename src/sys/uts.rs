//! The names of the calling process's UTS namespace.

use nix::errno::Errno;

/// Forgets the NIS domain name, which a new UTS namespace copies from the host.
pub fn clear_domain_name() -> Result<(), Errno> {
    let none = "(none)";
    // SAFETY: the kernel reads `len` bytes of a string that outlives the call.
    Errno::result(unsafe { libc::setdomainname(none.as_ptr().cast(), none.len()) }).map(drop)
}
