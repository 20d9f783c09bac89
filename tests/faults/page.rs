//! The suite's side of `src/fault.rs`: a file that the processes under test have mapped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::HostDir;

/// As in `src/sys/page.rs`: state, length of the notes, the armed name, the notes.
const LENGTH: u64 = 64 << 10;
const USED: u64 = 4;
const NAME: u64 = 8;
const NOTES: u64 = 128;

const ARMED: u32 = 1;
const STANDING: u32 = 2;
/// A start takes milliseconds; on a busy host it takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The shared file.
pub struct Page {
    file: File,
    /// For `TASKMAN_FAULT`.
    pub path: PathBuf,
    _dir: HostDir,
}

impl Page {
    pub fn new() -> Self {
        let dir = HostDir::new();
        let path = dir.path("fault");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
        file.set_len(LENGTH).expect("a page");
        Self { file, path, _dir: dir }
    }

    /// Forgets what was noted, and makes the first process that comes to `point` stand still.
    pub fn arm(&self, point: &str) {
        self.put(USED, 0);
        self.file.write_all_at(&[0; (NOTES - NAME) as usize], NAME).expect("write");
        self.file.write_all_at(format!("{point}\n").as_bytes(), NAME).expect("write");
        self.put(0, ARMED);
    }

    /// Waits until a process stands at the armed point.
    #[track_caller]
    pub fn wait_standing(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.number(0) != STANDING {
            assert!(Instant::now() < deadline, "nobody comes to the point; passed: {:?}", self.passed());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on; whoever comes later passes.
    pub fn release(&self) {
        self.put(0, 0);
    }

    /// Forgets what was noted; nobody stands still.
    pub fn clear(&self) {
        self.arm("");
        self.release();
    }

    /// The points that were passed since then, in order.
    pub fn passed(&self) -> Vec<String> {
        let mut notes = vec![0; u64::from(self.number(USED)).min(LENGTH - NOTES) as usize];
        self.file.read_exact_at(&mut notes, NOTES).expect("read");
        String::from_utf8(notes).expect("names").lines().map(str::to_owned).collect()
    }

    fn number(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, at).expect("read");
        u32::from_ne_bytes(bytes)
    }

    fn put(&self, at: u64, number: u32) {
        self.file.write_all_at(&number.to_ne_bytes(), at).expect("write");
    }
}
