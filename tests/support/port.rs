//! A port that stays a test's own over restarts of its server.
//!
//! One that the kernel hands out may, between the end of a server and its restart, become another test's, be it for an outgoing
//! connection. So it comes from below those, and a lock holds it.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use nix::fcntl::{FcntlArg, fcntl};

/// Below the kernel's own, which begin at 32768.
const PORTS: Range<u16> = 20_000..32_000;

/// Nobody else's for as long as it lives.
#[derive(Debug)]
pub struct Port {
    /// Its number.
    pub number: u16,
    _lease: File,
}

impl Port {
    /// One that nobody has.
    pub fn lease() -> Self {
        let path = std::env::temp_dir().join("taskman-test-ports");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).expect("the file of leases");
        // Each process begins elsewhere, so that it need not try all that others have.
        let skipped = std::process::id() as usize * 97 % PORTS.len();
        let is_free = |number: &u16| locks(&file, *number) && TcpListener::bind((Ipv4Addr::LOCALHOST, *number)).is_ok();
        let number = PORTS.cycle().skip(skipped).take(PORTS.len()).find(is_free).expect("a free port");
        Self { number, _lease: file }
    }
}

/// Takes the byte of this number. What was taken on the way to a free one goes with the file.
fn locks(file: &File, number: u16) -> bool {
    let byte = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: number.into(),
        l_len: 1,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&byte)).is_ok()
}
