//! What the kernel says of one process, in the order that makes it true.
//!
//! A process may be exiting while it is looked at, and the kernel then shows it at the root of every version 1 hierarchy and
//! without namespaces. Its flags are read last: one that is not exiting then was not exiting before. And it may be in the making:
//! a child is shown before it is in its parent's groups, and does not run until it is. Whether it has run is read first.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::sys::file;

/// `PF_EXITING` of the kernel's task flags.
const EXITING: u64 = 4;
/// SIGKILL as one bit of a set of signals.
const KILL: u64 = 1 << 8;
/// Namespaces that a task's processes share, and that never change after its first process was created.
pub const SHARED: [&str; 6] = ["pid", "mnt", "net", "ipc", "uts", "user"];

/// A process, or one thread of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its number on the host.
    pub pid: i32,
    /// Its parent's.
    pub ppid: i32,
    /// Its numbers in the namespaces it is in, outermost first.
    pub nspid: Vec<i32>,
    /// In clock ticks since boot; with the pid it names the process.
    pub start_time: u64,
    /// One letter.
    pub state: char,
    /// Threads of its process, itself included.
    pub thread_count: usize,
    /// Its name.
    pub comm: String,
    /// Real, effective, saved, file system.
    pub uid: [u32; 4],
    /// The same of its gid.
    pub gid: [u32; 4],
    /// Inherited, permitted, effective, bounding, ambient.
    pub caps: [u64; 5],
    /// Whether execve can grant nothing.
    pub no_new_privs: bool,
    /// 2 with a filter.
    pub seccomp: u8,
    /// The lines of its cgroup file.
    pub cgroup: Vec<String>,
    /// By the names of its ns directory; those that could be read.
    pub namespaces: BTreeMap<&'static str, u64>,
    /// Device and inode of its program; none if that cannot be read.
    pub exe: Option<(u64, u64)>,
    /// It has not run yet, so its parent may not have put it into its groups. A kernel that does not count is taken to have let it run.
    pub unborn: bool,
    /// It was killed, and has not begun to exit yet.
    pub killed: bool,
    /// It is on its way out: nothing else here can be relied on.
    pub exiting: bool,
}

impl Facts {
    /// Looks at a process; none if there is none of that number.
    pub fn read(pid: i32) -> Option<Self> {
        let facts = Self::of(&format!("/proc/{pid}"))?;
        // Its first thread may end before the others, and is then shown as dead: they are the process.
        let living = if facts.exiting { facts.threads().into_iter().find(|thread| !thread.exiting) } else { None };
        Some(match living {
            Some(thread) => Self { pid: facts.pid, nspid: facts.nspid, start_time: facts.start_time, ..thread },
            None => facts,
        })
    }

    /// Whether a process of this number and start time is there, be it dead and not reaped.
    pub fn is_there(pid: i32, start_time: u64) -> bool {
        let stat = text(&format!("/proc/{pid}/stat"));
        stat.and_then(|stat| parse_stat(&stat)).is_some_and(|(started, _)| started == start_time)
    }

    /// Looks at every other thread of the process too.
    pub fn threads(&self) -> Vec<Self> {
        if self.thread_count == 1 {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let others = names.filter(|tid| *tid != self.pid.to_string());
        others.filter_map(|tid| Self::of(&format!("/proc/{}/task/{tid}", self.pid))).collect()
    }

    fn of(directory: &str) -> Option<Self> {
        // Nanoseconds on the processor come first in it.
        let unborn = text(&format!("{directory}/schedstat")).is_some_and(|counts| counts.starts_with("0 "));
        // Before the status: whoever executes a program in between is then seen with what it had afterwards, not before.
        let exe = fs::metadata(format!("{directory}/exe")).ok().map(|meta| (meta.dev(), meta.ino()));
        let mut facts = Self { exe, unborn, ..Self::default() };
        facts.read_status(&text(&format!("{directory}/status"))?)?;
        facts.cgroup = text(&format!("{directory}/cgroup"))?.lines().map(str::to_owned).collect();
        for name in SHARED {
            if let Some(inode) = namespace(&format!("{directory}/ns/{name}")) {
                facts.namespaces.insert(name, inode);
            }
        }
        let (start_time, flags) = parse_stat(&text(&format!("{directory}/stat"))?)?;
        facts.start_time = start_time;
        facts.exiting = flags & EXITING != 0 || facts.is_dead();
        Some(facts)
    }

    fn read_status(&mut self, text: &str) -> Option<()> {
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name {
                "Name" => value.clone_into(&mut self.comm),
                "State" => self.state = value.chars().next()?,
                "Pid" => self.pid = value.parse().ok()?,
                "PPid" => self.ppid = value.parse().ok()?,
                "NSpid" => self.nspid = value.split_whitespace().filter_map(|pid| pid.parse().ok()).collect(),
                "Threads" => self.thread_count = value.parse().ok()?,
                "Uid" => self.uid = four(value)?,
                "Gid" => self.gid = four(value)?,
                "CapInh" => self.caps[0] = u64::from_str_radix(value, 16).ok()?,
                "CapPrm" => self.caps[1] = u64::from_str_radix(value, 16).ok()?,
                "CapEff" => self.caps[2] = u64::from_str_radix(value, 16).ok()?,
                "CapBnd" => self.caps[3] = u64::from_str_radix(value, 16).ok()?,
                "CapAmb" => self.caps[4] = u64::from_str_radix(value, 16).ok()?,
                "NoNewPrivs" => self.no_new_privs = value == "1",
                "SigPnd" | "ShdPnd" => self.killed |= u64::from_str_radix(value, 16).ok()? & KILL != 0,
                "Seccomp" => self.seccomp = value.parse().ok()?,
                _ => {}
            }
        }
        Some(())
    }

    /// Dead and not reaped, or being reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Its number in the namespace it was made in.
    pub fn inner(&self) -> i32 {
        self.nspid.last().copied().unwrap_or(self.pid)
    }

    /// Where it is in version 2, as its cgroup file says.
    pub fn v2_path(&self) -> &str {
        self.cgroup.iter().find_map(|line| line.strip_prefix("0::")).unwrap_or_default()
    }

    /// Where it is in the version 1 hierarchy of this controller.
    pub fn v1_path(&self, controller: &str) -> Option<&str> {
        self.cgroup.iter().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names.split(',').any(|name| name == controller).then_some(path)
        })
    }
}

/// The real uids of a process, from its status alone: what most processes of a host are dismissed by.
pub fn glance(pid: i32) -> Option<(([u32; 4], usize), i32)> {
    let text = text(&format!("/proc/{pid}/status"))?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let depth = value("NSpid:")?.split_whitespace().count();
    Some(((four(value("Uid:")?)?, depth), value("Tgid:")?.parse().ok()?))
}

/// The parent of a process, zero where there is none in sight.
pub fn parent(pid: i32) -> Option<i32> {
    let text = text(&format!("/proc/{pid}/status"))?;
    text.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Every process of the host.
pub fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The inode of a namespace, from a link such as `pid:[4026531836]`.
pub fn namespace(link: &str) -> Option<u64> {
    let target = fs::read_link(link).ok()?;
    target.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// A process's name is any bytes it likes: none of them may make it invisible.
fn text(path: &str) -> Option<String> {
    file::text(path).ok()
}

fn four(text: &str) -> Option<[u32; 4]> {
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    numbers.try_into().ok()
}

/// Start time and flags. The name, in parentheses, may hold anything, parentheses too.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(19)?.parse().ok()?, fields.get(6)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_as_it_is() {
        let myself = std::process::id() as i32;
        let facts = Facts::read(myself).unwrap();
        assert_eq!((facts.pid, facts.inner(), facts.uid[0]), (myself, myself, nix::unistd::getuid().as_raw()));
        assert!(
            facts.start_time > 0 && !facts.exiting && !facts.unborn && facts.exe.is_some() && !facts.cgroup.is_empty()
        );
        assert_eq!(facts.namespaces.len(), SHARED.len());
        assert_eq!(glance(myself).unwrap().1, myself);
        assert!(pids().contains(&myself));
        assert_eq!(Facts::read(i32::MAX), None);
    }

    #[test]
    fn a_name_cannot_forge_a_field() {
        let stat = "7 (a) R 1 2 3) S 1 7 7 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(parse_stat(stat), Some((4242, 4_194_308)));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a process to look at
    fn a_name_that_is_no_text_hides_nobody() {
        use std::os::unix::ffi::OsStrExt;
        use std::time::{Duration, Instant};

        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(std::ffi::OsStr::from_bytes(b"a\xff\xfe"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        // The name is the program's own a moment after `spawn` returns: the kernel lets the parent go on before it sets it.
        let wanted = Some("a\u{fffd}\u{fffd}".to_owned());
        let comm = || Facts::read(pid).map(|facts| facts.comm);
        let deadline = Instant::now() + Duration::from_secs(10);
        while comm() != wanted && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let seen = (comm(), glance(pid).map(|(_, process)| process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, (wanted, Some(pid)));
    }

    #[test]
    fn a_place_is_found_by_controller() {
        let cgroup = vec!["9:memory:/m".into(), "4:cpu,cpuacct:/c".into(), "0::/two".into()];
        let facts = Facts { cgroup, ..Facts::default() };
        assert_eq!((facts.v2_path(), facts.v1_path("cpuacct"), facts.v1_path("pids")), ("/two", Some("/c"), None));
    }
}
