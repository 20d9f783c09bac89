//! Who asked for a task, written on its group: whoever finds something of the task there can say whose it is, without asking
//! the server, and as long as the group lives.

use std::ffi::CStr;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::error::{Context, SysError};
use crate::sys::xattr;

/// The owner's name, as text. In the namespace that only root reads and writes.
const OWNER: &CStr = c"trusted.taskman.owner";

/// Writes it on the version 2 directory of the group `name`.
pub(super) fn note(dir: impl AsFd, name: &str, owner: &str) -> Result<(), SysError> {
    xattr::set(dir, OWNER, owner.as_bytes()).on("fsetxattr", format!("{} of {name}", OWNER.to_string_lossy()))
}

/// Who asked for the task of this version 2 directory; none if nobody is named, as for `taskman run`.
pub fn owner_of(dir: impl AsFd) -> Result<Option<String>, SysError> {
    match xattr::get(dir, OWNER) {
        Ok(owner) => Ok(Some(String::from_utf8_lossy(&owner).into_owned())),
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
        Err(errno) => Err(SysError::new("fgetxattr", OWNER.to_string_lossy(), errno)),
    }
}
