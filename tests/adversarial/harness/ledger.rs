//! What the host holds on account of this suite, before and after. Equal, or the case is red.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::bench::Bench;
use super::{mutant, proc};
use crate::support::pace;

/// Named sets of things, each thing one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger(BTreeMap<&'static str, BTreeSet<String>>);

impl Ledger {
    /// Asks the kernel for everything.
    pub fn take(bench: &Bench) -> Self {
        mutant::reap();
        let uids = bench.uid_range();
        let ours = bench.ours();
        let namespaces = |kind: &'static str| {
            let own = proc::ns_of(std::process::id() as i32, kind);
            let of = |pid: &i32| proc::ns_of(*pid, kind).filter(|ns| Some(*ns) != own).map(|ns| ns.to_string());
            ours.iter().filter_map(of).collect::<BTreeSet<_>>()
        };
        let own_fds = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let own_fds = own_fds.filter_map(|e| Some((e.file_name(), fs::read_link(e.path()).ok()?)));
        let own_fds = own_fds.filter(|(_, to)| !to.ends_with("fd")).map(|(fd, to)| format!("{fd:?} {}", to.display()));
        let threads = proc::status_of(std::process::id() as i32).and_then(|s| s.get("Threads").cloned());
        let mut sets = BTreeMap::new();
        sets.insert("process", ours.iter().map(|pid| proc::describe(*pid)).collect());
        sets.insert("network namespace", namespaces("net"));
        sets.insert("mount namespace", namespaces("mnt"));
        sets.insert("control group", bench.place.task_dirs().iter().map(|p| p.display().to_string()).collect());
        sets.insert("hierarchy", hierarchies());
        sets.insert("mount", lines("/proc/self/mountinfo").collect());
        sets.insert("sysv ipc", sysv_objects(&uids).into_iter().map(|(kind, id)| format!("{kind} {id}")).collect());
        sets.insert("message queue", message_queues(&uids));
        sets.insert("key", keys(&uids));
        sets.insert("file", files_of(&uids).into_iter().map(|p| p.display().to_string()).collect());
        sets.insert("report file", listing(bench.work_dir()));
        sets.insert("fd of the suite", own_fds.collect());
        sets.insert("thread of the suite", threads.into_iter().collect());
        Self(sets)
    }

    /// What differs, one line each: `+` came, `-` went.
    pub fn difference(&self, after: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, before) in &self.0 {
            let now = &after.0[name];
            lines.extend(now.difference(before).map(|x| format!("+ {name}: {x}")));
            lines.extend(before.difference(now).map(|x| format!("- {name}: {x}")));
        }
        lines
    }

    /// Compares with the host as it is now. The kernel frees some things late (a network namespace, a key), so a
    /// difference has two seconds to go away; what is still there then is a leak.
    pub fn settle(&self, bench: &Bench) -> Result<(), String> {
        let deadline = Instant::now() + pace::time(Duration::from_secs(2));
        loop {
            let late = Instant::now() > deadline;
            let difference = self.difference(&Self::take(bench));
            if difference.is_empty() {
                return Ok(());
            }
            if late {
                return Err(format!("the ledger differs:\n  {}", difference.join("\n  ")));
            }
            nix::poll::poll(&mut [], 20u8).ok();
        }
    }
}

fn lines(path: &str) -> impl Iterator<Item = String> + use<> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Control group hierarchies of the kernel: a mount can make one, which then outlives it.
fn hierarchies() -> BTreeSet<String> {
    proc::cgroup_of(std::process::id() as i32).into_iter().map(|(name, _)| name).collect()
}

fn listing(dir: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name());
    names.map(|n| n.to_string_lossy().into_owned()).collect()
}

/// SysV objects of these uids as arguments of ipcrm: `("-m", "12")`.
pub fn sysv_objects(uids: &Range<u32>) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for (file, flag) in [("shm", "-m"), ("sem", "-s"), ("msg", "-q")] {
        let mut rows = lines(&format!("/proc/sysvipc/{file}"));
        let header: Vec<String> = rows.next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let column = |name: &str| header.iter().position(|h| h == name);
        let columns = [column("uid"), column("cuid")];
        for row in rows {
            let cells: Vec<&str> = row.split_whitespace().collect();
            let cell = |i: Option<usize>| i.and_then(|i| cells.get(i)).and_then(|c| c.parse::<u32>().ok());
            if columns.iter().filter_map(|c| cell(*c)).any(|uid| uids.contains(&uid)) {
                found.push((flag, cells.get(1).copied().unwrap_or("").to_owned()));
            }
        }
    }
    found
}

/// POSIX message queues of these uids in the host's IPC namespace.
pub fn message_queues(uids: &Range<u32>) -> BTreeSet<String> {
    let text = in_queues("stat -c '%u %n' * 2>/dev/null", &[]);
    let of_task = |line: &&str| line.split(' ').next().and_then(|u| u.parse().ok()).is_some_and(|u| uids.contains(&u));
    text.lines().filter(of_task).filter_map(|line| line.split_once(' ')).map(|(_, name)| name.to_owned()).collect()
}

/// Removes queues by name.
pub fn remove_queues(names: &BTreeSet<String>) {
    if !names.is_empty() {
        in_queues(r#"rm -f -- "$@""#, &names.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Runs a script in the directory of all queues. It is mounted in a mount namespace of its own, so that looking
/// changes nothing.
fn in_queues(script: &str, args: &[&str]) -> String {
    let script = format!("mount -t mqueue none /proc && cd /proc && {script}");
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script, "sh"]).args(args).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
}

/// Keys and key quotas of these uids.
fn keys(uids: &Range<u32>) -> BTreeSet<String> {
    let in_range = |text: &str| text.trim_end_matches(':').parse().is_ok_and(|uid: u32| uids.contains(&uid));
    let quota = lines("/proc/key-users").filter(|l| l.split_whitespace().next().is_some_and(in_range));
    let keys = lines("/proc/keys").filter(|l| l.split_whitespace().nth(5).is_some_and(in_range));
    quota.chain(keys).collect()
}

/// Files of these uids where a stranger can make one. A directory two levels down is entered only when anyone may
/// write to it, or it is theirs: no task can have made a file in another.
pub fn files_of(uids: &Range<u32>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo: Vec<(PathBuf, usize)> =
        ["/dev/shm", "/tmp", "/run", "/var/tmp", "/dev/mqueue"].iter().map(|p| (PathBuf::from(p), 0)).collect();
    while let Some((dir, depth)) = todo.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if uids.contains(&meta.uid()) {
                found.push(entry.path());
            }
            if meta.is_dir() && (depth < 2 || meta.mode() & 0o002 != 0) {
                todo.push((entry.path(), depth + 1));
            }
        }
    }
    found
}
