//! Processes: of a uid that nobody leases, or in a group that nobody holds.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use super::lease::Leases;
use super::shown;
use crate::audit::facts::{self, Facts};
use crate::audit::process;
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};
use crate::place::UidRange;
use crate::sys::user;

/// A killed process is given this long to end.
const PATIENCE: Duration = Duration::from_secs(1);
/// Of a longer range, only the first are asked for one by one; the others' processes are found in the list of all.
const MOST_UIDS: usize = 1_000_000;

/// One process.
#[derive(Debug, Clone)]
pub struct Process {
    facts: Facts,
    /// The uid by which it is a task's, if it is.
    uid: Option<u32>,
    /// The group of a dead launcher that it is in.
    group: Option<String>,
}

/// Who is in these groups, by pid.
pub fn members<'a>(groups: impl Iterator<Item = &'a Path>) -> HashMap<i32, String> {
    let members = |group: &Path| {
        // A group that is gone by now has nobody in it.
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| Some((pid.parse().ok()?, shown(group)))).collect::<Vec<(i32, String)>>()
    };
    groups.flat_map(members).collect()
}

/// Every process of a uid that nobody has, and every one of `members`.
pub fn find(leases: &Leases, members: &HashMap<i32, String>) -> Result<Vec<Process>, SysError> {
    let pids = facts::pids();
    if pids.is_empty() {
        // This one is always there: it was not a look at a host without processes, but none at all.
        return Err(SysError::new("readdir", "/proc", Errno::EIO));
    }
    let mut found = Vec::new();
    for pid in pids {
        let Some(((uids, _), _)) = facts::glance(pid) else { continue };
        let mut uid = None;
        for candidate in uids {
            if leases.is_nobodys(candidate)? {
                uid = Some(candidate);
            }
        }
        let group = members.get(&pid).cloned();
        if (uid.is_some() || group.is_some())
            && let Some(facts) = Facts::read(pid)
        {
            found.push(Process { facts, uid, group });
        }
    }
    Ok(found)
}

/// The uids that nobody has and that run something, zombies included. The kernel is asked for each: a process that forks and
/// exits all the time is never in a list, and always in this answer.
pub fn busy_uids(leases: &Leases) -> Result<BTreeSet<u32>, SysError> {
    let UidRange { first, count } = leases.range();
    let mut busy = BTreeSet::new();
    for uid in (first..first + count).take(MOST_UIDS) {
        if user::has_processes(uid).on("getpriority", format!("uid {uid}"))? && leases.is_nobodys(uid)? {
            busy.insert(uid);
        }
    }
    Ok(busy)
}

/// Ends what has forked away from being killed one by one, if anything has. The caller holds the uid.
pub fn end_all_of(uid: u32) -> Result<(), SysError> {
    if user::has_processes(uid).on("getpriority", format!("uid {uid}"))? {
        user::kill_all_of(uid).on("kill", format!("everything of uid {uid}"))?;
    }
    Ok(())
}

impl Process {
    /// The uid by which it is a task's.
    pub fn task_uid(&self) -> Option<u32> {
        self.uid
    }

    /// Whether it only waits to be reaped.
    pub fn is_dead(&self) -> bool {
        self.facts.is_dead()
    }

    /// Whose it is, whatever it is called and however often it forks.
    pub fn owner(&self) -> String {
        self.uid.map(|uid| uid.to_string()).or_else(|| self.group.clone()).unwrap_or_default()
    }

    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let Facts { pid, ppid, start_time, comm, uid, .. } = &self.facts;
        let uid = self.uid.unwrap_or(uid[0]);
        let place = self.group.as_ref().map(|group| format!(", in {group}")).unwrap_or_default();
        let state = if self.facts.is_dead() { format!(", dead, not reaped by {ppid}") } else { String::new() };
        let detail = format!("{comm:?} of uid {uid}, child of {ppid}, started at tick {start_time}{place}{state}");
        Leftover { kind: LeftoverKind::Process, name: pid.to_string(), detail }
    }

    /// Kills it, if it still is who it was and runs under a task's uid. One that does not is left to its group's kill.
    pub fn sweep(&self) -> Result<(), SysError> {
        let pid = self.facts.pid;
        let same = |now: &process::Process| now.facts.start_time == self.facts.start_time;
        let Some(process) = process::Process::look(pid).filter(same) else { return Ok(()) };
        if self.uid.is_some_and(|uid| process.facts.uid.contains(&uid)) {
            match process.kill() {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno).on("kill", pid.to_string()),
            }
        }
        if process.wait_dead(PATIENCE) {
            return Ok(());
        }
        let error = SysError::new("wait", format!("the end of {pid}"), Errno::ETIMEDOUT);
        Err(error.hint(match self.uid {
            Some(_) => {
                "it was killed and does not die: it waits for a device or a file system; see its /proc/PID/stack"
            }
            None => "it runs under no task's uid, so it was not signalled; find out who put it there",
        }))
    }
}
