//! A lock on one byte of a file, held by an open description: it ends when the last copy of that is closed, however its
//! holder dies.

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

/// Takes the byte's lock for `file`'s description, which is open for writing; false if another one has it.
pub fn take(file: &File, byte: u32) -> Result<bool, Errno> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&span(byte, libc::F_WRLCK))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives the byte back, for every process that holds a copy of the description.
pub fn release(file: &File, byte: u32) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&span(byte, libc::F_UNLCK))).map(drop)
}

/// Whether no other description has the byte's lock. Looks, and takes nothing.
pub fn is_free(file: &File, byte: u32) -> Result<bool, Errno> {
    let mut seen = span(byte, libc::F_WRLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut seen))?;
    Ok(seen.l_type == libc::F_UNLCK as i16)
}

fn span(byte: u32, kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: i64::from(byte), l_len: 1, l_pid: 0 }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_byte_is_taken_once_and_free_when_its_holder_is_gone() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(path.path()).unwrap();
        let (holder, other) = (open(), open());
        assert!(take(&holder, 7).unwrap());
        assert!(!take(&other, 7).unwrap() && !is_free(&other, 7).unwrap());
        assert!(take(&other, 8).unwrap(), "each byte stands for itself");
        release(&other, 8).unwrap();
        assert!(is_free(&holder, 8).unwrap());
        drop(holder);
        // A child that a test beside this one has forked has a copy until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_free(&other, 7).unwrap() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(is_free(&other, 7).unwrap() && take(&other, 7).unwrap());
    }
}
