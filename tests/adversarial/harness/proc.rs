//! The host's view of processes: what the suite believes, because no payload can write it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

/// Every process the host shows.
pub fn pids() -> Vec<i32> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    dir.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// `/proc/PID/status` as a map, or nothing when the process is gone.
pub fn status_of(pid: i32) -> Option<BTreeMap<String, String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(text.lines().filter_map(|l| l.split_once(':')).map(|(k, v)| (k.to_owned(), v.trim().to_owned())).collect())
}

/// The fields of `/proc/PID/stat` that the suite asks for.
#[derive(Debug, Clone)]
pub struct Stat {
    pub pid: i32,
    pub comm: String,
    pub state: char,
    pub ppid: i32,
    /// The kernel's flags; 4 is PF_EXITING.
    pub flags: u64,
    pub start: u64,
}

/// `/proc/PID/stat`; the command name may hold spaces and brackets, so it is cut at the last one.
pub fn stat_of(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(") ")?;
    let comm = head.split_once('(')?.1.to_owned();
    let f: Vec<&str> = tail.split(' ').collect();
    Some(Stat {
        pid,
        comm,
        state: f.first()?.chars().next()?,
        ppid: f.get(1)?.parse().ok()?,
        flags: f.get(6)?.parse().ok()?,
        start: f.get(19)?.parse().ok()?,
    })
}

/// The real uid of a process, also of a zombie.
pub fn uid_of(pid: i32) -> Option<u32> {
    status_of(pid)?.get("Uid")?.split_whitespace().next()?.parse().ok()
}

/// Direct children of `pid`.
pub fn children_of(pid: i32) -> Vec<Stat> {
    pids().into_iter().filter_map(stat_of).filter(|s| s.ppid == pid).collect()
}

/// Whether the kernel says that a process is a thread of its own, which no payload can become.
pub fn is_kernel_thread(pid: i32) -> bool {
    // PF_KTHREAD; the line of `status` that says so is not on every kernel.
    stat_of(pid).is_some_and(|stat| stat.flags & 0x0020_0000 != 0)
}

/// Whether any of the four uids of a process, also of a zombie, lies in `range`.
pub fn has_uid(pid: i32, range: &Range<u32>) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uids = status.split_once("\nUid:").and_then(|(_, rest)| rest.lines().next()).unwrap_or("");
    uids.split_whitespace().filter_map(|u| u.parse().ok()).any(|uid: u32| range.contains(&uid))
}

/// Processes (zombies too) of these uids.
pub fn of_uid_range(range: &Range<u32>) -> Vec<i32> {
    pids().into_iter().filter(|pid| has_uid(*pid, range)).collect()
}

/// Whether a process has `nonce` in its arguments or environment.
pub fn carries(pid: i32, nonce: &str) -> bool {
    let holds = |file: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        super::sys::contains(&bytes, nonce)
    };
    holds("cmdline") || holds("environ")
}

/// Processes that carry `nonce`, but for the suite itself.
pub fn with_nonce(nonce: &str) -> Vec<i32> {
    let own = std::process::id() as i32;
    pids().into_iter().filter(|pid| *pid != own && carries(*pid, nonce)).collect()
}

/// The inode of a namespace: `ns_of(pid, "net")`. Nothing for a process that is gone.
pub fn ns_of(pid: i32, kind: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    link.to_str()?.split_once('[')?.1.trim_end_matches(']').parse().ok()
}

/// `/proc/PID/cgroup`: controllers (empty for v2) and path.
pub fn cgroup_of(pid: i32) -> Vec<(String, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let split = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    text.lines().filter_map(split).collect()
}

/// One line that lets a person recognise a process.
pub fn describe(pid: i32) -> String {
    let Some(stat) = stat_of(pid) else { return format!("pid {pid} (gone)") };
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
    let uid = uid_of(pid).map_or_else(|| "?".to_owned(), |u| u.to_string());
    format!("pid {pid} ({}, {}, uid {uid}, {})", stat.comm, stat.state, cmdline.trim())
}
