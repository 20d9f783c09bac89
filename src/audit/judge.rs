//! Is this process ours, and is it where and what it must be? One pure function over facts; everything the auditor does
//! follows from its answer.

use std::time::Duration;

use super::facts::{Facts, SHARED};
use super::tasks::{Known, Tasks};
use crate::cgroup::Layout;
use crate::containment::{Cause, Kind};
use crate::mutation::{Defence, off};
use crate::place::{GroupName, UidRange};
use crate::task::id::TaskId;

/// A sandbox confines itself within this; the launcher gives up on it sooner.
pub const CONFINES_WITHIN: Duration = Duration::from_secs(60);

/// Ancestors that are asked for; who has more of them is not proven to be anybody's.
const GENERATIONS: usize = 1024;

/// What a judgement goes by, beside the facts.
pub struct World<'a> {
    /// Where groups are.
    pub layout: &'a Layout,
    /// Which groups are ours.
    pub instance: &'a str,
    /// Which uids are tasks'.
    pub range: UidRange,
    /// What is known.
    pub tasks: &'a Tasks,
    /// Parent of every sandbox-init, where there is one.
    pub launcher: Option<i32>,
    /// Device and inode of taskman's own program, which a sandbox is until it executes another.
    pub own_exe: Option<(u64, u64)>,
    /// Clock ticks since boot, now.
    pub ticks: u64,
    /// Whether a launcher holds this uid.
    pub is_leased: &'a dyn Fn(u32) -> bool,
    /// Whether a task's first process still lives.
    pub lives: &'a dyn Fn(&Known) -> bool,
    /// The PID namespace of a process.
    pub pid_namespace: &'a dyn Fn(i32) -> Option<u64>,
    /// The parent of a process.
    pub parent: &'a dyn Fn(i32) -> Option<i32>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Not a task's process, or another instance's.
    NotOurs,
    /// A task's, as it must be, or still confining itself.
    Fine,
    /// Not as it must be.
    Fault(Fault),
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub task: Option<TaskId>,
    pub owner: Option<String>,
    /// The name of its task's group, while that lives.
    pub group: Option<String>,
    /// The uid by which more of it may be found.
    pub uid: Option<u32>,
    /// What was expected and what was seen.
    pub faults: Vec<String>,
    pub cause: Cause,
    pub why: String,
    /// By uid, group or PID namespace it can only be a task's of this instance; without that, nothing is signalled.
    pub proven: bool,
    /// It says something of this worker, and not of another instance, or of a task that harms itself alone.
    pub grave: bool,
}

/// Judges one process.
pub fn judge(facts: &Facts, world: &World<'_>) -> Verdict {
    if facts.exiting {
        return Verdict::NotOurs;
    }
    let group = group_of(facts.v2_path(), world.layout, world.instance);
    let uid = facts.uid.iter().copied().find(|uid| world.range.contains(*uid));
    // The number of a namespace is free again as soon as its first process is gone.
    let by_namespace = || {
        let task = world.tasks.of_pid_namespace(*facts.namespaces.get("pid")?)?;
        (world.lives)(task).then_some(task)
    };
    let by_uid = uid.and_then(|uid| world.tasks.of_uid(uid));
    let by_group = || group.as_ref().and_then(|name| world.tasks.of_group(name));
    match by_uid.or_else(by_namespace).or_else(by_group) {
        Some(task) => judge_member(facts, task, world),
        None => judge_stray(facts, uid, world),
    }
}

/// A process that carries something of a living task.
fn judge_member(facts: &Facts, task: &Known, world: &World<'_>) -> Verdict {
    let name = task.group.to_string();
    let in_group = group_of(facts.v2_path(), world.layout, world.instance).as_ref() == Some(&name);
    let has_uid = facts.uid.iter().any(|uid| world.range.contains(*uid));
    let in_namespace = is_in_namespace_of(task, facts);
    let confining = in_group && in_namespace != Some(false) && is_confining(facts, task, world);
    let parent = if confining { Ok(()) } else { parent_is_inside(facts, task, world) };

    let mut faults = Vec::new();
    if !in_group {
        faults.push(format!("control group: expected {name}, found {:?}", facts.v2_path()));
    }
    let halves = if confining && !has_uid { Vec::new() } else { misplaced(facts, &name, world.layout) };
    let placed_elsewhere = !in_group || !halves.is_empty();
    faults.extend(halves);
    if !confining {
        faults.extend(unconfined(facts, task));
    }
    faults.extend(parent.as_ref().err().cloned());
    if faults.is_empty() {
        return Verdict::Fine;
    }
    let kind = if placed_elsewhere { Kind::OrphanDetected } else { Kind::ConfinementLost };
    // Whoever only stands in the group, or came into the namespace from outside, may be an operator's, and what such a one
    // has started; when that is left alone, even the sandbox's first process is its parent.
    let proven = has_uid || (in_group && in_namespace == Some(true) && is_born_inside(facts, task, world));
    let (cause, why) = cause_of(facts, task, in_group, in_namespace, parent.is_err());
    Verdict::Fault(Fault {
        kind,
        task: Some(task.group.task),
        owner: task.owner.clone(),
        group: Some(name),
        uid: task.uid,
        faults,
        cause,
        why,
        proven,
        grave: true,
    })
}

/// A process that carries a task's uid, and no living task of ours has it.
fn judge_stray(facts: &Facts, uid: Option<u32>, world: &World<'_>) -> Verdict {
    let Some(uid) = uid else { return Verdict::NotOurs };
    // In a group of ours it is a task that we are about to learn of; in another's, another's.
    if facts.v2_path().split('/').any(|part| GroupName::parse(part).is_some()) {
        return Verdict::NotOurs;
    }
    let place = format!("control group: expected a task's, found {:?}", facts.v2_path());
    if (world.is_leased)(uid) {
        // A launcher that lives has this uid, and it is not ours: its auditor will know.
        return Verdict::Fault(Fault {
            kind: Kind::OrphanDetected,
            task: None,
            owner: None,
            group: None,
            uid: Some(uid),
            faults: vec![place, format!("uid {uid} is leased by a launcher that is not ours")],
            cause: Cause::Unknown,
            why: "it belongs to another instance, or its task was never seen".to_owned(),
            proven: false,
            grave: false,
        });
    }
    let last = world.tasks.last_of_uid(uid);
    Verdict::Fault(Fault {
        kind: Kind::PostCleanupLeak,
        task: last.as_ref().map(|(task, _)| *task),
        owner: last.and_then(|(_, owner)| owner),
        group: None,
        uid: Some(uid),
        faults: vec![place, format!("uid {uid} is a task's, and no task has it")],
        cause: Cause::SupervisorCrash,
        why: "its task has ended, or never was one: no launcher holds its uid".to_owned(),
        proven: true,
        grave: true,
    })
}

/// The name of the group of this instance that a path leads to, or into. Groups of ours lie directly below the group that this
/// launcher makes them in: elsewhere, as in a group that was delegated to a user, anyone may have made one of that name.
pub fn group_of(path: &str, layout: &Layout, instance: &str) -> Option<String> {
    if off(Defence::OwnGroups) {
        let ours = |part: &&str| GroupName::parse(part).is_some_and(|name| name.instance == instance);
        return path.split('/').find(ours).map(str::to_owned);
    }
    let below = path.strip_prefix(layout.base().cgroup.trim_end_matches('/'))?.strip_prefix('/')?;
    let name = below.split('/').next()?;
    GroupName::parse(name).is_some_and(|group| group.instance == instance).then(|| name.to_owned())
}

/// None where nobody can say: the first process has not been seen yet, or this one's namespaces cannot be read, as without
/// CAP_SYS_PTRACE. What is not known is no fault.
fn is_in_namespace_of(task: &Known, facts: &Facts) -> Option<bool> {
    let (_, _, namespaces) = task.init.as_ref()?;
    Some(namespaces.get("pid")? == facts.namespaces.get("pid")?)
}

/// The first two processes of a sandbox take everything off themselves. They may lack it until they have been seen with
/// everything, and the second one only while it is still taskman's own program, as far as that can be read.
fn is_confining(facts: &Facts, task: &Known, world: &World<'_>) -> bool {
    let young = world.ticks.saturating_sub(facts.start_time) < CONFINES_WITHIN.as_secs() * ticks_per_second();
    match facts.inner() {
        1 => young && !task.seen_confined[0],
        2 => young && !task.seen_confined[1] && (facts.exe.is_none() || facts.exe == world.own_exe),
        _ => false,
    }
}

/// Marks a process of the first two that has everything on.
pub fn note_confined(facts: &Facts, task: &mut Known) {
    if let inner @ 1..=2 = facts.inner()
        && unconfined(facts, task).is_empty()
    {
        task.seen_confined[inner as usize - 1] = true;
    }
}

/// Version 1 hierarchies in which it is not in its task's group.
fn misplaced(facts: &Facts, name: &str, layout: &Layout) -> Vec<String> {
    let halves = layout.v1().iter().filter_map(|half| Some((half, half.controllers.first()?.v1_name())));
    let wrong = halves.filter_map(|(half, controller)| {
        let found = facts.v1_path(controller).unwrap_or("none");
        (found != format!("{}/{name}", half.cgroup.trim_end_matches('/')))
            .then(|| format!("control group of {controller}: expected {name}, found {found:?}"))
    });
    wrong.collect()
}

/// What of its confinement it lacks.
fn unconfined(facts: &Facts, task: &Known) -> Vec<String> {
    let mut lacks = Vec::new();
    match task.uid {
        Some(uid) if facts.uid == [uid; 4] && facts.gid == [uid; 4] => {}
        Some(uid) => lacks.push(format!("uid and gid: expected {uid}, found {:?} and {:?}", facts.uid, facts.gid)),
        None => lacks.push(format!("uid: expected one of a task, found {:?}", facts.uid)),
    }
    let names = ["inheritable", "permitted", "effective", "bounding", "ambient"];
    for (name, set) in names.iter().zip(facts.caps).filter(|(_, set)| *set != 0) {
        lacks.push(format!("{name} capabilities: expected none, found {set:016x}"));
    }
    if !facts.no_new_privs {
        lacks.push("no_new_privs: expected 1, found 0".to_owned());
    }
    if facts.seccomp != 2 {
        lacks.push(format!("seccomp: expected 2, found {}", facts.seccomp));
    }
    if let Some((_, _, expected)) = &task.init {
        for name in SHARED {
            // One that could not be read says nothing.
            if let (Some(expected), Some(found)) = (expected.get(name), facts.namespaces.get(name))
                && expected != found
            {
                lacks.push(format!("{name} namespace: expected {expected}, found {found}"));
            }
        }
    }
    lacks
}

/// The parent of a sandbox's process is in the sandbox; that of its first one is the launcher.
fn parent_is_inside(facts: &Facts, task: &Known, world: &World<'_>) -> Result<(), String> {
    let Some((init, _, namespaces)) = &task.init else { return Ok(()) };
    if facts.pid == *init {
        return match world.launcher {
            Some(launcher) if facts.ppid != launcher => {
                Err(format!("parent: expected the launcher {launcher}, found {}", facts.ppid))
            }
            _ => Ok(()),
        };
    }
    match (world.pid_namespace)(facts.ppid) {
        // The parent has died since, and by now it is another one, which the next look sees; or it cannot be read.
        None => Ok(()),
        found if namespaces.get("pid").is_none_or(|expected| found == Some(*expected)) => Ok(()),
        _ => Err(format!("parent: expected one of its sandbox, found {}", facts.ppid)),
    }
}

/// All its ancestors are of the sandbox, up to the first process there.
fn is_born_inside(facts: &Facts, task: &Known, world: &World<'_>) -> bool {
    let Some((init, ..)) = &task.init else { return false };
    let mut process = (facts.pid, facts.ppid);
    for _ in 0..GENERATIONS {
        if process.0 == *init {
            return world.launcher.is_none_or(|launcher| process.1 == launcher);
        }
        let namespace = (world.pid_namespace)(process.1);
        if namespace.is_none() || namespace != facts.namespaces.get("pid").copied() {
            return false;
        }
        process = (process.1, (world.parent)(process.1).unwrap_or(0));
    }
    false
}

fn cause_of(facts: &Facts, task: &Known, in_group: bool, in_namespace: Option<bool>, foreign: bool) -> (Cause, String) {
    if in_namespace == Some(false) {
        return (Cause::NamespaceEscape, "it is in another PID namespace than its task".to_owned());
    }
    if foreign {
        return (Cause::DoubleFork, format!("its parent {} is not of its sandbox", facts.ppid));
    }
    if in_group {
        return match facts.uid.iter().all(|uid| Some(*uid) == task.uid) {
            true => (Cause::Unknown, "it is in its group and its namespaces, with less than everything on".to_owned()),
            false => (Cause::Unknown, "it is in its group and its namespaces, with another uid".to_owned()),
        };
    }
    let own = task.group.to_string();
    let in_some = facts.cgroup.iter().any(|line| line.rsplit('/').next() == Some(own.as_str()));
    match in_some {
        true => (Cause::MigrationFailure, "it is in its group in some hierarchies, and in others not".to_owned()),
        false => (Cause::SpawnRace, "it is in its group in no hierarchy".to_owned()),
    }
}

fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().map_or(100, |ticks| ticks.max(1) as u64)
}

/// Clock ticks since boot, as start times count them.
pub fn ticks_now() -> u64 {
    let since_boot =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec() as u64);
    since_boot * ticks_per_second()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
