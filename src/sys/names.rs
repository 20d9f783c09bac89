//! Names of hosts, looked up by what is inside this program alone.
//!
//! The C library would load the modules that `/etc/nsswitch.conf` names, which are built for another copy of it: in a static
//! program they crash.

use nix::errno::Errno;

unsafe extern "C" {
    fn __nss_configure_lookup(database: *const libc::c_char, services: *const libc::c_char) -> libc::c_int;
}

/// From here on hosts come from `/etc/hosts` and DNS. Called before the first lookup.
pub fn use_builtin_lookups() -> Result<(), Errno> {
    // SAFETY: both are strings that end in NUL and live for ever; no other thread looks anything up yet.
    Errno::result(unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) }).map(drop)
}
