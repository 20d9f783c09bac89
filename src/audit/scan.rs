//! A full look at the host: every group of ours, every process, and what ended tasks may have left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use super::auditor::{Auditor, Source, log};
use super::clean::Extent;
use super::facts::{self, Facts};
use super::judge::Fault;
use super::process::Process;
use super::tasks::Known;
use crate::cgroup::Dead;
use crate::containment::{Audited, Cause, Kind, Leftover, LeftoverKind};
use crate::mutation::{Defence, off};
use crate::place::GroupName;
use crate::sys::file;
use crate::task::id::TaskId;

/// Between two looks at what an ended task has left in its group: the launcher had its own time before it said so.
const ENDED: Duration = Duration::from_secs(1);
/// Things of one look that are written down each by itself; of a flood, the rest is one finding.
const EACH: usize = 64;
/// Dead processes that a finding names beside the first.
const NAMED: usize = 7;

impl Auditor {
    /// Looks at everything once. What looks wrong is a suspect; [`Auditor::recheck`] follows.
    pub fn scan(&mut self) -> (u64, u64) {
        let begun = Instant::now();
        let groups = self.groups();
        self.tasks.keep(|name| groups.contains(name));
        let mut wanted = BTreeSet::new();
        for name in &groups {
            self.beat();
            self.tasks.meet(&self.layout, name);
            wanted.extend(self.members(name));
        }
        for pid in facts::pids() {
            self.beat();
            if wanted.contains(&pid) {
                continue;
            }
            if facts::glance(pid).is_some_and(|((uids, depth), _)| {
                depth >= 2 || uids.iter().any(|uid| self.setup.uid_range.contains(*uid))
            }) {
                wanted.insert(pid);
            }
        }
        let mut seen: Vec<Facts> = Vec::with_capacity(wanted.len());
        for pid in wanted {
            self.beat();
            seen.extend(Facts::read(pid));
        }
        // First what they show of their tasks, then what is to be thought of each.
        for facts in &seen {
            self.beat();
            self.learn(facts);
        }
        self.look_at_zombies(&seen);
        self.look_at_ended(&seen);
        let ours = seen.iter().filter(|facts| self.group_of(facts).is_some()).count();
        for facts in seen {
            self.beat();
            self.suspect(facts, &Source::Scan);
        }
        self.forget_reported();
        self.done.scans.push(begun.elapsed().as_micros() as u64);
        // A sandbox that stands ready is nobody's task yet.
        let tasks = groups.iter().filter_map(|name| self.tasks.of_group(name)).filter(|known| known.owner.is_some());
        (tasks.count() as u64, ours as u64)
    }

    /// A scan with its re-checks. What is not a process is for [`super::desk::Work`] to find.
    pub fn audit(&mut self) -> Audited {
        let begun = Instant::now();
        self.found.clear();
        let (tasks, processes) = self.scan();
        self.settle();
        let findings = std::mem::take(&mut self.found);
        Audited { findings, leftovers: Vec::new(), tasks, processes, micros: begun.elapsed().as_micros() as u64 }
    }

    /// Re-checks every suspect once.
    pub fn settle(&mut self) {
        while let Some(due) = self.next_first_recheck() {
            let wait = due.saturating_duration_since(Instant::now());
            let timeout = nix::poll::PollTimeout::try_from(wait + Duration::from_millis(1));
            let _ = nix::poll::poll(&mut [], timeout.unwrap_or(nix::poll::PollTimeout::ZERO));
            self.recheck();
        }
    }

    /// Writes down what no living task accounts for, each thing once for as long as it is there.
    pub(super) fn report_things(&mut self, extent: Extent, left: &[Leftover]) {
        let names: BTreeSet<_> = left.iter().map(|thing| (thing.kind, thing.name.clone())).collect();
        self.reported_things.retain(|name| !extent.sees(name.0) || names.contains(name));
        // Processes, and the uids they keep, are judged one by one.
        let is_thing = |thing: &&Leftover| !matches!(thing.kind, LeftoverKind::Process | LeftoverKind::Uid);
        let mut new: Vec<&Leftover> = left.iter().filter(is_thing).collect();
        new.retain(|thing| self.reported_things.insert((thing.kind, thing.name.clone())));
        // Not a finding: nothing was found there. Anyone can make a place that takes too long to look into.
        let (unseen, new): (Vec<_>, Vec<_>) = new.into_iter().partition(|thing| thing.kind == LeftoverKind::Unseen);
        for place in unseen {
            log(&format!("{}: {}", place.name, place.detail));
        }
        for thing in new.iter().take(EACH) {
            self.record_thing(thing);
            self.beat();
        }
        if let Some(next) = new.get(EACH) {
            let detail = format!("and {} more; taskman health --verify-clean lists them", new.len() - EACH - 1);
            self.record_thing(&Leftover { detail, ..(*next).clone() });
        }
    }

    /// The groups of this instance.
    fn groups(&self) -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(&self.layout.base().dir) else { return BTreeSet::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| GroupName::parse(name).is_some_and(|name| name.instance == self.setup.instance)).collect()
    }

    /// Who is in the group of this name.
    pub(super) fn members(&self, name: &str) -> Vec<i32> {
        let list = file::text(self.layout.base().dir.join(name).join("cgroup.procs")).unwrap_or_default();
        list.lines().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// A dead process of a task is its parent's to reap. A payload may leave its own; sandbox-init and the launcher may not.
    pub(super) fn look_at_zombies(&mut self, seen: &[Facts]) {
        let bound = Duration::from_millis(self.setup.zombie_ms);
        let now = Instant::now();
        let (mut waiting, mut overdue) = (HashMap::new(), Vec::new());
        // A client can leave a hundred thousand of them.
        for facts in seen.iter().filter(|facts| facts.is_dead()) {
            self.beat();
            if !self.is_left_to_us(facts) {
                continue;
            }
            let name = (facts.pid, facts.start_time);
            let since = self.zombies.get(&name).copied().unwrap_or(now);
            waiting.insert(name, since);
            if now.duration_since(since) >= bound && !self.reported.contains_key(&name) {
                overdue.push(facts.clone());
            }
        }
        self.zombies = waiting;
        // By owner, and whether the launcher left them: of a thousand tasks, one finding.
        let mut told = BTreeMap::<_, Vec<_>>::new();
        for facts in overdue {
            self.beat();
            self.reported.insert((facts.pid, facts.start_time), true);
            let group = self.group_of(&facts);
            let task = group.as_ref().and_then(|name| self.tasks.of_group_mut(name));
            // A payload can keep its sandbox's first process from running: all that it spoils is its own share of processes.
            // It is told of once, and takes no worker from others.
            let is_launchers = Some(facts.ppid) == self.setup.launcher;
            if !is_launchers && task.as_ref().is_some_and(|task| task.zombies_told) {
                continue;
            }
            let (id, owner) = task.map_or((None, None), |task| {
                task.zombies_told |= !is_launchers;
                (Some(task.group.task), task.owner.clone())
            });
            told.entry((is_launchers, owner)).or_default().push((id, facts));
        }
        for ((grave, owner), dead) in told {
            let (task, first) = dead[0].clone();
            let mut faults = vec![format!("dead for more than {bound:?}, and process {} does not reap it", first.ppid)];
            let task_of =
                |id: &Option<TaskId>| id.map_or_else(|| "no known task".to_owned(), |id| format!("task {id}"));
            let named = dead.iter().skip(1).take(NAMED);
            faults.extend(named.map(|(id, facts)| format!("the same of process {} of {}", facts.pid, task_of(id))));
            if dead.len() > NAMED + 1 {
                faults.push(format!("and of {} more", dead.len() - NAMED - 1));
            }
            let fault = Fault {
                kind: Kind::ZombieDetected,
                task,
                owner,
                group: None,
                uid: None,
                faults,
                cause: Cause::SupervisorCrash,
                why: "its parent should have reaped it".to_owned(),
                proven: true,
                grave,
            };
            self.record_gone(first, fault, &Source::Scan);
            self.beat();
        }
    }

    fn is_left_to_us(&self, facts: &Facts) -> bool {
        let task = self.group_of(facts);
        let task = task.and_then(|name| self.tasks.of_group(&name));
        match task.and_then(|task| task.init.as_ref()) {
            Some((init, ..)) => facts.ppid == *init || Some(facts.ppid) == self.setup.launcher,
            None => self.setup.uid_range.contains(facts.uid[0]) && Some(facts.ppid) == self.setup.launcher,
        }
    }

    /// A task that was reported as ended, and still has processes: they could not be killed. Of those that were killed, in a group that
    /// the launcher still holds, its owner is told: they keep its uid and its place, and are no way out.
    fn look_at_ended(&mut self, seen: &[Facts]) {
        let overdue = |task: &Known| !task.undead_told && task.ended.is_some_and(|at| at.elapsed() >= ENDED);
        for facts in seen.iter().filter(|facts| !facts.is_dead()) {
            let Some(name) = self.group_of(facts) else { continue };
            // One finding for all of them: what is done for one is done for all.
            let Some(task) = self.tasks.of_group_mut(&name).filter(|task| overdue(task)) else { continue };
            task.undead_told = true;
            let (id, owner, uid) = (task.group.task, task.owner.clone(), task.uid);
            let dies = (facts.exiting || facts.killed) && !Dead::is_at(&self.layout.base().dir.join(&name));
            let fault = Fault {
                kind: Kind::PostCleanupLeak,
                task: Some(id),
                owner,
                group: Some(name),
                uid,
                faults: vec!["its task has ended, and it has not".to_owned()],
                cause: Cause::SupervisorCrash,
                why: "it was killed and does not die".to_owned(),
                proven: true,
                grave: !dies || off(Defence::SlowDeath),
            };
            self.beat();
            if dies {
                self.record_dying(facts, fault);
            } else if let Some(process) =
                Process::look(facts.pid).filter(|now| now.facts.start_time == facts.start_time)
            {
                self.reported.insert((facts.pid, facts.start_time), true);
                self.act(process, fault, &Source::Scan);
            }
            self.beat();
        }
    }
}
