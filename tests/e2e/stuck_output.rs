//! A writer that holds the lock of its own pipe: the kernel keeps it over a page fault, and a page can take as long as its
//! owner likes. Here the page never comes, which inside a sandbox would be a file behind a throttled disk.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use taskman::output::{Allowance, Outputs, Policy, Source};
use taskman::task::id::TaskId;

use crate::support::{pace, wait_until};

/// Writes from memory whose first touch waits for an answer (userfaultfd) that nobody gives; says so on standard error first.
const STUCK: &str = r#"
import ctypes, fcntl, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(323, 0)
assert fd >= 0, os.strerror(ctypes.get_errno())
fcntl.ioctl(fd, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
fcntl.ioctl(fd, 0xC020AA00, struct.pack("QQQQ", page, 4096, 1, 0))
os.write(1, b"before\n")
sys.stderr.write("x"); sys.stderr.flush()
libc.write(1, ctypes.c_void_p(page), ctypes.c_size_t(4096))
"#;

struct Stuck(Child);

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_task_that_holds_its_pipe_holds_up_nobody_elses_output() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = Outputs::open(dir.path(), Policy { stored_per_task: 1 << 20, reserve: 0 }).unwrap();
    let record = |pipe: OwnedFd| {
        let place = outputs.prepare(TaskId::random(), Source::All).unwrap();
        let log = outputs.record(place, pipe, Arc::new(Allowance::new(1 << 20)));
        log.unwrap()
    };

    let mut stuck = Command::new("/usr/bin/python3");
    stuck.args(["-c", STUCK]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut stuck = Stuck(stuck.spawn().unwrap());
    let held = stuck.0.stdout.take().unwrap();
    let mut told = [0];
    std::io::Read::read_exact(stuck.0.stderr.as_mut().unwrap(), &mut told).expect("the writer is about to hang");
    // It is in write(1, …).
    let calls = format!("/proc/{}/syscall", stuck.0.id());
    wait_until("the writer hangs", || std::fs::read_to_string(&calls).unwrap().starts_with("1 0x1 ").then_some(()));
    // Its first line makes the pipe ready, so that a thread of the pump goes for it, and waits for the lock.
    let held = record(held.into());

    for round in 0..20 {
        let (pipe, mut writer) = std::io::pipe().unwrap();
        let log = record(pipe.into());
        std::io::Write::write_all(&mut writer, b"hello").unwrap();
        let deadline = Instant::now() + pace::time(Duration::from_secs(20));
        while log.now().end < 5 {
            assert!(Instant::now() < deadline, "round {round}: another task's output does not arrive");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(writer);
        log.finish();
        while log.now().closed.is_none() {
            assert!(Instant::now() < deadline, "round {round}: another task's output does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert_eq!(held.now().end, 0, "the pipe was not held, and this test shows nothing");
    drop(stuck);
    let deadline = Instant::now() + pace::time(Duration::from_secs(20));
    while held.now().end < 7 {
        assert!(Instant::now() < deadline, "what was written before is lost");
        std::thread::sleep(Duration::from_millis(2));
    }
}
