//! What the host sees of a task's process: its descriptors, its mounts, its memory, the files at its root.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bench::Bench;
use super::case::{Fail, broken};
use super::run::Run;
use crate::support::pace;

/// `/proc/PID/fd`: number and target.
pub fn fds_of(pid: i32) -> BTreeMap<u32, String> {
    let dir = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let pair = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, target.to_string_lossy().into_owned()))
    };
    dir.filter_map(pair).collect()
}

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub root: String,
    pub point: String,
    pub kind: String,
    options: Vec<String>,
    /// `shared:N`, `master:N` and the like.
    pub propagation: String,
}

impl Mount {
    /// Whether it has this per-mount option, such as `nosuid`.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }
}

/// The mounts a process has, as the host reads them.
pub fn mounts_of(pid: i32) -> Vec<Mount> {
    mounts_in(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
}

/// The mounts in a text of mountinfo's form.
pub fn mounts_in(mountinfo: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        Some(Mount {
            root: (*left.get(3)?).to_owned(),
            point: (*left.get(4)?).to_owned(),
            kind: right.split(' ').next()?.to_owned(),
            options: left.get(5)?.split(',').map(str::to_owned).collect(),
            propagation: left.get(6..)?.join(" "),
        })
    };
    mountinfo.lines().filter_map(parse).collect()
}

/// A path inside the task, reached by the host through the task's root.
pub fn inside(pid: i32, path: &str) -> PathBuf {
    Path::new(&format!("/proc/{pid}/root")).join(path.trim_start_matches('/'))
}

/// Whether `needle` is anywhere in a process's readable memory.
pub fn memory_holds(pid: i32, needle: &str) -> Result<bool, Fail> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| broken(format!("maps of {pid}: {e}")))?;
    let mut memory = File::open(format!("/proc/{pid}/mem")).map_err(|e| broken(format!("memory of {pid}: {e}")))?;
    let mut read = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(mode)) = (words.next(), words.next()) else { continue };
        if !mode.starts_with('r') || line.ends_with("[vvar]") || line.contains("[vvar_") || line.ends_with("[vsyscall]")
        {
            continue;
        }
        let Some((from, to)) = range.split_once('-') else { continue };
        let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)) else { continue };
        // A mapping that is larger than this is not sandbox-init's; the control arms have none either.
        let mut bytes = vec![0; (to - from).min(64 << 20) as usize];
        memory.seek(SeekFrom::Start(from)).map_err(|e| broken(format!("seek {line}: {e}")))?;
        if memory.read_exact(&mut bytes).is_err() {
            continue;
        }
        read += bytes.len();
        if bytes.windows(needle.len()).any(|window| window == needle.as_bytes()) {
            return Ok(true);
        }
    }
    if read == 0 { Err(broken(format!("nothing of the memory of {pid} could be read"))) } else { Ok(false) }
}

/// A file of the host that nobody has a reason to open, and a watch on it that no path, mount or handle goes round.
pub struct Bait {
    path: PathBuf,
    watch: Run,
}

impl Bait {
    /// Makes the file, world-readable, with some text in it.
    pub fn lay(bench: &Bench, path: PathBuf) -> Result<Self, Fail> {
        fs::write(&path, "the canary's text\n").map_err(|e| broken(format!("bait {}: {e}", path.display())))?;
        let mut watch = bench.direct().probe("l_watch", &[&path.display().to_string()]).with_stdin().spawn()?;
        watch.wait_line("state ready")?;
        Ok(Self { path, watch })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |meta| meta.ino())
    }

    /// Whether anyone has opened or read it since it was laid. The kernel has queued the event before the opener's call
    /// returned; the wait is for the watch to say so: a long one where somebody did open it.
    pub fn was_touched(&mut self, expected: bool) -> Result<bool, Fail> {
        let wait = if expected { pace::time(Duration::from_secs(10)) } else { Duration::from_millis(200) };
        self.watch.pump(wait, |watch| watch.out.text().contains(" touched "))
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
