//! Variables that are for this process alone.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// Takes a variable out of the environment, for good: its value is wiped where it stood, for `/proc/PID/environ` shows that
/// place, of this process and of each that is forked off it. Called before there is a thread.
pub fn take(name: &CStr) -> Option<OsString> {
    // SAFETY: single-threaded: nobody reads or changes the environment meanwhile. What getenv returns ends in NUL, and belongs
    // to this process: it is on the stack that the kernel made, or was put there by setenv.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        let copy = CStr::from_ptr(value).to_bytes().to_vec();
        value.write_bytes(0, copy.len());
        // Fails for an empty name or one with `=` alone; such a one was not found.
        libc::unsetenv(name.as_ptr());
        Some(OsString::from_vec(copy))
    }
}
