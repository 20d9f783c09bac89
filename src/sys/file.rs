//! Files: reading one without waiting for a disk, without asking for its size, or not to its end; and waiting for one's lock, but not for ever.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};

/// Most files of proc are smaller; what is not takes another read for each doubling.
const ROOM: usize = 4 << 10;

/// Reads at `offset` into `buffer`, but only what is in memory already: EAGAIN where the disk would have to be asked, EOPNOTSUPP on a
/// filesystem that cannot tell. Says how many bytes.
pub fn read_cached(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: the slice is the whole of the buffer, which nobody else holds.
    let read = unsafe { libc::preadv2(file.as_fd().as_raw_fd(), &slice, 1, offset, libc::RWF_NOWAIT) };
    Ok(Errno::result(read)? as usize)
}

/// The whole text of a file, in as few calls as it takes: those of proc have no size to go by, and are asked for none.
/// Bytes that are no text stand as U+FFFD.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut bytes, mut length) = (vec![0; ROOM], 0);
    loop {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if length == bytes.len() {
            bytes.resize(2 * length, 0);
        }
    }
    bytes.truncate(length);
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The lines within the first `most` bytes of a file, whole ones alone where there is more of it.
pub fn first_lines(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(ROOM);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == most {
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Takes the lock of a file; false if others have held it for all of `patience`.
pub fn lock_within(file: &File, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    while file.try_lock().is_err() {
        if Instant::now() >= until {
            return false;
        }
        let _ = poll(&mut [], PollTimeout::from(5u8));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_file_only_whole_lines_of_its_beginning_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        std::fs::write(&path, "uid\n1900\n19001\n").unwrap();
        assert_eq!(first_lines(&path, 1000).unwrap(), "uid\n1900\n19001\n");
        // A number that is cut is another number.
        assert_eq!(first_lines(&path, 13).unwrap(), "uid\n1900\n");
        assert_eq!(first_lines(&path, 2).unwrap(), "");
        assert!(first_lines(dir.path().join("none"), 1).is_err());
    }
}
