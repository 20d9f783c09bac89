//! The end of a task: kill what is left, wait until the kernel says it is gone, remove, and ask again.
//!
//! A check has a value read from the kernel, or it is unproven; nothing here asserts what it did not read.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use std::os::fd::AsFd;

use super::leftovers;
use super::supervise::poll_until;
use super::task::Task;
use crate::cgroup::mountinfo::Mount;
use crate::cgroup::{Group, GroupUsage};
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::place::RUN_DIR;
use crate::sys::pidfd::{Child, PidFd};
use crate::sys::{file, user};
use crate::task::outcome::{ExitStatus, Outcome, Reason};
use crate::task::report::{Check, Containment, Report, Usage};
use crate::task::units::human_bytes;

/// How long killed processes may take to vanish before the task is reported as violated.
pub const VANISH: Duration = Duration::from_secs(5);

/// The same of what is on its way down: a process with much to give back takes long to die, and is none that escaped. Of the service;
/// it tells nobody that the task has ended meanwhile.
pub const SLOWEST: Duration = Duration::from_secs(60);

const CREATED: &str = "set by create before a task exists";

/// A task's cgroup and the init inside it; whatever happens to the launcher's code path, dropping it kills and removes.
pub struct Placement {
    pub group: Group,
    /// None before there is one.
    pub init: Option<Child>,
    /// The end was tried in full; what it could not do would only be waited for again.
    pub tried: bool,
}

impl Placement {
    /// The sandbox's init, whose descriptor must be held.
    pub fn init(&self) -> Result<&PidFd, SysError> {
        self.child().pidfd().on("use", "pidfd of sandbox-init")
    }

    /// The same, held from here on.
    pub fn hold_init(&mut self) -> Result<&PidFd, SysError> {
        self.init.as_mut().expect(CREATED).hold().on("pidfd_open", "sandbox-init")
    }

    /// The sandbox's init, whether its descriptor is held or not.
    pub fn child(&self) -> &Child {
        self.init.as_ref().expect(CREATED)
    }

    /// Whether the sandbox's init has ended; it may not be reaped yet.
    pub fn init_has_ended(&self) -> Result<bool, SysError> {
        self.init()?.has_ended().on("poll", "pidfd of sandbox-init")
    }

    /// Reaps init when it has ended, which a killed one does soon; says whether it did. One that does not, because the kernel
    /// cannot end it or one of its namespace, is left to the checks to report.
    fn reap_init(&self, patience: Duration) -> Result<bool, SysError> {
        if self.init.is_none() {
            return Ok(true);
        }
        let init = self.init()?;
        let deadline = Instant::now() + patience;
        while !poll_until([Some(PollFd::new(init.as_fd(), PollFlags::POLLIN))], Some(deadline))?[0] {
            if Instant::now() >= deadline && !off(Defence::EndDeadline) {
                return Ok(false);
            }
        }
        match waitid(Id::PIDFd(init.as_fd()), WaitPidFlag::WEXITED) {
            Ok(_) | Err(Errno::ECHILD) => Ok(true),
            Err(errno) => Err(SysError::new("waitid", "sandbox-init", errno)),
        }
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        if self.tried || !self.group.exists() {
            return;
        }
        fault::point("dropping");
        if let Some(init) = &mut self.init {
            // One that cannot be waited for leaves the group to the next sweep.
            let _ = init.hold();
        }
        // Best effort: this is the path after an error, which is what gets reported; the next start sweeps the rest.
        if self.group.kill().is_ok() && self.reap_init(VANISH).unwrap_or(false) && self.group.wait_empty(VANISH).is_ok()
        {
            let _ = self.group.remove();
            fault::point("dropped");
        }
    }
}

/// Whether all that is left of a killed group is on its way down. A thread that is neither exiting nor would be if it had a processor
/// waits for something, and nobody knows how long.
pub fn is_going_down(group: &Group) -> bool {
    let threads = |pid: i32| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        entries.filter_map(|entry| file::text(entry.path().join("stat")).ok()).collect::<Vec<_>>()
    };
    let Ok(pids) = group.pids() else { return false };
    let stats: Vec<String> = pids.into_iter().flat_map(threads).collect();
    !off(Defence::SlowDeath) && are_going_down(&stats)
}

/// By the state and flags of each. An init alone that sleeps has nothing left to do but to wait for whoever has entered its PID namespace
/// from outside and is not reaped there.
fn are_going_down(stats: &[String]) -> bool {
    const EXITING: u64 = 4;
    let read = |stat: &String| {
        // The name before them, in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let flags: u64 = fields.get(6)?.parse().ok()?;
        Some(((*fields.first()?).to_owned(), flags & EXITING != 0))
    };
    let threads: Option<Vec<(String, bool)>> = stats.iter().map(read).collect();
    let dies = |(state, exiting): &(String, bool)| *exiting || ["R", "Z", "X"].contains(&state.as_str());
    threads.is_some_and(|all| all.iter().all(dies) && all.iter().any(|(state, _)| state != "S"))
}

/// What the end brought to light.
pub struct Ended {
    pub at: SystemTime,
    wall: Duration,
    left: usize,
    usage: GroupUsage,
    overshoot: Duration,
    oom_kills: u64,
    own_limit: Result<bool, SysError>,
    pub containment: Containment,
}

/// Counts what is left besides init, and kills it all.
pub fn begin(task: &mut Task) -> Result<usize, SysError> {
    fault::point("over");
    task.placement.hold_init()?;
    let group = &task.placement.group;
    let left = count_left(group, task)?;
    if !off(Defence::Kill) {
        group.kill()?;
        if left > 0 {
            group.lift_throttles()?;
        }
    }
    fault::point("killed");
    Ok(left)
}

/// Reaps, measures, removes, proves. What was killed is given `patience` to vanish: once, and not again at each step.
pub fn finish(task: &mut Task, left: usize, mut patience: Duration) -> Result<Ended, SysError> {
    let group = &task.placement.group;
    if !off(Defence::Kill) {
        if !task.placement.reap_init(patience)? {
            patience = Duration::ZERO;
        }
        fault::point("reaped");
        group.wait_empty(patience)?;
        collect_messages()?;
    }
    let wall = task.started.elapsed();
    let usage = group.usage()?;
    let oom_kills = group.oom_kills()?;
    let own_limit = if oom_kills > 0 { group.reached_memory_limit() } else { Ok(true) };
    let populated = group.is_populated();
    fault::point("measured");
    let removed = group.remove_within(patience);
    fault::point("removed");
    let containment = prove(task, populated, removed);
    fault::point("proved");
    task.placement.tried = true;
    let overshoot = task.overshoot;
    Ok(Ended { at: SystemTime::now(), wall, left, usage, overshoot, oom_kills, own_limit, containment })
}

/// Descriptors in messages between sockets that nobody holds any more keep files of the task, and so its memory, until the
/// kernel next looks for such messages: which it does when a socket is closed.
fn collect_messages() -> Result<(), SysError> {
    if off(Defence::CollectMessages) {
        return Ok(());
    }
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::Stream, None, flags).map(drop).on("socketpair", "unix sockets")
}

/// Processes still there when the main process had ended. Frozen first, so that the count is of a set that has stopped growing.
fn count_left(group: &Group, task: &Task) -> Result<usize, SysError> {
    let all_killed = task.main.is_none();
    if all_killed || task.placement.init_has_ended()? {
        return Ok(0);
    }
    let init = task.placement.init()?.kernel_pid().unwrap_or(-1);
    let others = |pids: Vec<i32>| pids.into_iter().filter(|pid| i64::from(*pid) != init).count();
    match others(group.pids()?) {
        0 => Ok(0),
        _ => {
            group.freeze()?;
            group.pids().map(others)
        }
    }
}

fn prove(task: &Task, populated: Result<bool, SysError>, removed: Result<(), SysError>) -> Containment {
    let uid = task.lease.uid;
    let group = &task.placement.group;
    let kernel_pid = task.placement.init().and_then(|init| init.kernel_pid().on("read", "fdinfo of sandbox-init"));
    let id = task.spec.id.to_string();
    Containment::from_checks(vec![
        check("cgroup_empty", populated, |populated| (format!("populated {}", u8::from(*populated)), !populated)),
        check("cgroup_removed", removed.map(|()| group.exists()), |exists| {
            (format!("{} {}", group.name(), if *exists { "exists" } else { "does not exist" }), !exists)
        }),
        check("pid_namespace_gone", kernel_pid, |pid| (format!("pidfd of init: pid {pid}"), *pid == -1)),
        check("uid_unused", user::has_processes(uid).on("getpriority", format!("uid {uid}")), |any| {
            (format!("uid {uid} has {} processes", if *any { "live" } else { "no" }), !any)
        }),
        check("ipc_absent", leftovers::ipc_of_uid(uid), |found| {
            (format!("{} objects {}", found.len(), found.join(", ")), found.is_empty())
        }),
        check("mounts_absent", file::text("/proc/self/mountinfo").on("read", "/proc/self/mountinfo"), |mounts| {
            let found = Mount::all(mounts).filter(|mount| is_of_task(mount, &id)).count();
            (format!("{found} of {} mounts", mounts.lines().count()), found == 0)
        }),
    ])
}

/// By where it is, or by the group it shows: a user may mount file systems of any name at places of any name.
fn is_of_task(mount: &Mount<'_>, id: &str) -> bool {
    let named = |text: &str| text.contains(id);
    (mount.kind.starts_with("cgroup") && named(&mount.root))
        || (mount.point.starts_with(RUN_DIR) && mount.point.to_str().is_some_and(named))
}

fn check<T>(name: &'static str, answer: Result<T, SysError>, judge: impl FnOnce(&T) -> (String, bool)) -> Check {
    match answer {
        Ok(answer) => {
            let (value, ok) = judge(&answer);
            Check { name: name.into(), value: value.trim_end().to_owned(), ok: Some(ok) }
        }
        Err(error) => Check { name: name.into(), value: error.to_string(), ok: None },
    }
}

/// The final record.
pub fn report(task: Task, ended: Ended, output_bytes: u64) -> Report {
    let outcome = outcome(&task, &ended);
    let usage = usage(&ended, output_bytes);
    Report {
        task_id: task.spec.id,
        command: task.spec.command.clone(),
        args: task.spec.args.clone(),
        outcome,
        started_at: humantime::format_rfc3339_millis(task.started_at).to_string(),
        ended_at: humantime::format_rfc3339_millis(ended.at).to_string(),
        usage,
        limits: task.spec.limits.clone(),
        reduced: task.reduced.clone(),
        containment: ended.containment,
    }
}

/// What the task has used.
pub fn usage(ended: &Ended, output_bytes: u64) -> Usage {
    let GroupUsage { cpu_user, cpu_system, memory_peak, pids_peak } = ended.usage;
    Usage {
        wall_ms: ended.wall.as_millis() as u64,
        cpu_user_ms: cpu_user.as_millis() as u64,
        cpu_system_ms: cpu_system.as_millis() as u64,
        memory_peak_bytes: memory_peak,
        pids_peak,
        output_bytes,
        overshoot_ms: ended.overshoot.as_millis() as u64,
    }
}

/// What an out-of-memory end says, given whether the task had reached its own limit.
pub fn oom_detail(task: &Task, own_limit: Result<bool, SysError>) -> String {
    let limit = human_bytes(task.spec.limits.memory_bytes);
    match own_limit {
        Ok(false) => format!("ran out of memory; its limit is {limit}, but a group above it has no more to give"),
        _ => format!("ran out of memory; its limit is {limit}"),
    }
}

/// How and why the task ended.
pub fn outcome(task: &Task, ended: &Ended) -> Outcome {
    // Without a told status the kernel had nobody left to tell: everything, init too, was killed at once.
    let status = task.main.unwrap_or(libc::SIGKILL);
    let status = if libc::WIFEXITED(status) {
        ExitStatus::Exited(libc::WEXITSTATUS(status))
    } else {
        ExitStatus::Signaled(libc::WTERMSIG(status))
    };
    let by_client = status == ExitStatus::Signaled(task.sent.load(Ordering::Relaxed));
    let whose = if by_client { "that a client sent" } else { "of its own doing" };
    let (reason, mut detail) = match &task.ending {
        Some(ending) => (ending.reason, ending.detail.clone()),
        // Told by this group's own counter, whatever the main process made of it.
        None if ended.oom_kills > 0 => (Reason::Oom, oom_detail(task, ended.own_limit.clone())),
        None if task.main.is_none() => (Reason::Containment, "sandbox-init was killed".to_owned()),
        None => match status.signal() {
            Some(name) => (Reason::Signal, format!("killed by {name} {whose}")),
            None => (Reason::Exit, format!("exited with code {}", status.code().unwrap_or_default())),
        },
    };
    if ended.left > 0 {
        detail.push_str(&format!("; left {} processes", ended.left));
    }
    if !ended.containment.is_proven() {
        detail.push_str("; containment is not proven");
    }
    Outcome { status, reason, detail, by_client: by_client && reason == Reason::Signal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_mount_that_is_named_after_a_task_is_not_of_it() {
        let id = "2f1a9c3e-5b7d-4e21-8f00-1234567890ab";
        let is_of_task = |root: &str, point: &str, kind: &str| {
            let line = format!("51 24 0:31 {root} {point} rw,nosuid shared:9 - {kind} some-{id} rw\n");
            let mounts: Vec<Mount<'_>> = Mount::all(&line).collect();
            assert_eq!(mounts.len(), 1, "{line}");
            is_of_task(&mounts[0], id)
        };
        for (root, point, kind) in [
            (format!("/taskman-srv-1.{id}"), "/anywhere".to_owned(), "cgroup2"),
            (format!("/a/taskman-srv-1.{id}/b"), "/anywhere".to_owned(), "cgroup"),
            ("/".to_owned(), format!("{RUN_DIR}/{id}"), "tmpfs"),
        ] {
            assert!(is_of_task(&root, &point, kind), "{root} {point} {kind}");
        }
        for (root, point, kind) in [
            ("/".to_owned(), format!("/home/mallory/{id}"), "fuse"),
            (format!("/mallory/{id}"), "/mnt".to_owned(), "tmpfs"),
            ("/".to_owned(), format!("/home/mallory/taskman-srv-1.{id}"), "cgroup2"),
            ("/".to_owned(), format!("/home{RUN_DIR}/{id}"), "tmpfs"),
            ("/".to_owned(), format!("{RUN_DIR}/another"), "tmpfs"),
        ] {
            assert!(!is_of_task(&root, &point, kind), "{root} {point} {kind}");
        }
    }

    #[test]
    fn one_that_waits_is_not_on_its_way_down() {
        let stat = |(state, flags): &(&str, u64)| {
            format!("7 (a) R 1 2 3) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 4242")
        };
        let dies = |threads: &[(&str, u64)]| are_going_down(&threads.iter().map(stat).collect::<Vec<_>>());
        for threads in [[("D", 4), ("S", 4)], [("S", 4), ("R", 0)], [("Z", 0), ("R", 4)]] {
            assert!(dies(&threads), "{threads:?}");
        }
        for state in ["D", "S", "T"] {
            assert!(!dies(&[("R", 4), (state, 4_194_304)]), "{state}");
        }
        assert!(!dies(&[("S", 4)]), "an init that waits for somebody outside");
        assert!(!dies(&[]) && !are_going_down(&[String::new()]));
    }
}
