//! The auditor's state, and the way of a suspicion: a check, a re-check, and then an action or nothing.
//!
//! One check is never enough. A process that has just been forked is shown at the root of every hierarchy until the kernel has
//! placed it, for microseconds; so whatever looks wrong is re-checked a moment later, by a descriptor this time.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::bounds::{Files, Rations};
use super::facts::{self, Facts};
use super::judge::{self, Fault, Verdict, World};
use super::process::Process;
use super::remains::Leases;
use super::tasks::Tasks;
use crate::cgroup::{Census, Layout, LayoutError};
use crate::containment::{
    Answer, Entry, FromAuditor, Health, Incidents, Journal, Kind, LeftoverKind, Line, Quarantine, Reason, Scan, Setup,
    Summary,
};
use crate::error::{Context, SysError};
use crate::log::{self, Level};
use crate::task::record::{UnixMillis, now};
use crate::wire;

/// How often it says that it lives.
pub const BEAT: Duration = Duration::from_millis(500);
/// Between the first check and the re-check.
const RECHECK: Duration = Duration::from_millis(2);
/// A child that has not run yet is re-checked until it has, each time after twice as long, so many times doubled at most: its
/// parent may be kept from finishing it for minutes, by a preemptible kernel and busy processes of its own task.
const DOUBLINGS: u32 = 7;
/// Incidents that are looked through for what was written down already.
const REMEMBERED: usize = 1000;

/// What is said in place of an answer that no message can hold.
pub const TOO_LARGE: &str = "there is more than can be told; use taskman on this host with --state-dir";

/// What made the auditor look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A full scan.
    Scan,
    /// It executed a program.
    Exec,
    /// It changed its uid.
    Uid,
    /// It was forked, and is one of the few that are looked at for that.
    Fork,
    /// Someone wrote to the membership of the group `into`.
    Write { writer: String, into: String },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scan => f.write_str("scan"),
            Self::Exec => f.write_str("exec"),
            Self::Uid => f.write_str("uid change"),
            Self::Fork => f.write_str("fork"),
            Self::Write { writer, into } => write!(f, "write to {into} by {writer}"),
        }
    }
}

/// A process that looked wrong once.
pub(super) struct Suspect {
    due: Instant,
    /// Re-checks that found that it had not run yet.
    unborn: u32,
    facts: Facts,
    fault: Fault,
    source: Source,
    /// Should it be gone at the re-check, it was outside nevertheless.
    certain: bool,
}

impl Suspect {
    fn name(&self) -> (i32, u64) {
        (self.facts.pid, self.facts.start_time)
    }
}

/// The auditor.
pub struct Auditor {
    pub(super) setup: Setup,
    pub(super) layout: Layout,
    pub(super) tasks: Tasks,
    pub(super) journal: Journal,
    pub(super) incidents: Incidents,
    pub(super) health: Health,
    /// A quarantine that is not in the journal: it counts all the same, and is tried again.
    unwritten: Option<Quarantine>,
    /// The launcher has not been told of this health: there was no room in the socket.
    untold: bool,
    /// To the launcher; none for a command on this host.
    socket: Option<OwnedFd>,
    own_exe: Option<(u64, u64)>,
    pub(super) suspects: Vec<Suspect>,
    /// Processes with an incident already, by number and start time, and whether they were proven to be ours: what does not
    /// die is reported once, and what was another's a second time if it becomes ours.
    pub(super) reported: HashMap<(i32, u64), bool>,
    /// The same for what is not a process.
    pub(super) reported_things: BTreeSet<(LeftoverKind, String)>,
    /// Dead processes that wait to be reaped, and since when.
    pub(super) zombies: HashMap<(i32, u64), Instant>,
    /// What is written down of findings that quarantine nobody, and which files are kept.
    pub(super) rations: Rations,
    pub(super) files: Files,
    pub(super) done: Scan,
    next_beat: Instant,
    /// Findings since somebody asked for an audit.
    pub(super) found: Vec<Summary>,
}

impl Auditor {
    /// Ready to look. With a socket, it tells what it does.
    pub fn open(setup: Setup, socket: Option<OwnedFd>) -> Result<Self, String> {
        let layout = layout_of(&setup).map_err(|error| error.to_string())?;
        let mut journal = Journal::new(&setup.state_dir);
        let health = journal.health().map_err(|error| error.to_string())?;
        let incidents = Incidents::new(&setup.state_dir);
        // What cannot be read is told again; whoever looks for escapes does not stop for it.
        let reported_things = told_since(&incidents, health.lifted_at).unwrap_or_else(|error| {
            log(&error.to_string());
            BTreeSet::new()
        });
        let own_exe = Facts::read(std::process::id() as i32).and_then(|facts| facts.exe);
        Ok(Self {
            incidents,
            reported_things,
            journal,
            health,
            unwritten: None,
            untold: false,
            layout,
            own_exe,
            socket,
            setup,
            tasks: Tasks::default(),
            suspects: Vec::new(),
            reported: HashMap::new(),
            zombies: HashMap::new(),
            rations: Rations::default(),
            files: Files::default(),
            done: Scan::default(),
            next_beat: Instant::now(),
            found: Vec::new(),
        })
    }

    /// Looks at one process, and once more a moment later if it is not as it must be.
    pub fn consider(&mut self, pid: i32, source: &Source) {
        // A number of a version 1 `tasks` file may be a thread's.
        let Some(((uids, depth), process)) = facts::glance(pid) else { return };
        if depth < 2 && !uids.iter().any(|uid| self.setup.uid_range.contains(*uid)) {
            return;
        }
        // By a descriptor: there may be no second look, and so everything must be of one process.
        if let Some(Process { facts, .. }) = Process::look(process) {
            self.learn(&facts);
            self.suspect(facts, source);
        }
    }

    /// Takes from a process in a group of ours what it shows of its task.
    pub(super) fn learn(&mut self, facts: &Facts) {
        let Some(name) = self.group_of(facts) else { return };
        self.tasks.learn(&self.layout, &name, self.setup.uid_range, facts);
        // The first process may not have done anything yet that would be heard of.
        if self.tasks.of_group(&name).is_some_and(|task| task.init.is_none()) {
            for member in self.members(&name).into_iter().filter_map(Facts::read) {
                self.tasks.learn(&self.layout, &name, self.setup.uid_range, &member);
            }
        }
    }

    /// The name of the group of ours that a process is in.
    pub(super) fn group_of(&self, facts: &Facts) -> Option<String> {
        judge::group_of(facts.v2_path(), &self.layout, &self.setup.instance)
    }

    pub(super) fn suspect(&mut self, facts: Facts, source: &Source) {
        self.done.looked_at += 1;
        match self.judge_now(&facts) {
            Verdict::NotOurs => {}
            Verdict::Fine => {
                if let Some(name) = self.group_of(&facts)
                    && let Some(task) = self.tasks.of_group_mut(&name)
                {
                    judge::note_confined(&facts, task);
                }
            }
            Verdict::Fault(fault) if self.is_reported(&facts, &fault) => {}
            Verdict::Fault(_) if facts.unborn && self.is_suspected(&facts) => {}
            Verdict::Fault(fault) => {
                let due = Instant::now() + RECHECK;
                let certain = *source != Source::Scan && self.is_outside_for_certain(&facts, &fault);
                self.suspects.push(Suspect { due, unborn: 0, facts, fault, source: source.clone(), certain });
            }
        }
    }

    /// The verdict, by what is known now: a task that has ended since the last scan has left its uid to others.
    fn judge_now(&mut self, facts: &Facts) -> Verdict {
        match self.judge(facts) {
            Verdict::Fault(Fault { group: Some(name), .. }) if !self.layout.base().dir.join(&name).exists() => {
                self.tasks.forget(&name);
                self.judge(facts)
            }
            verdict => verdict,
        }
    }

    /// The verdict over a process and each of its threads.
    fn judge(&self, facts: &Facts) -> Verdict {
        let world = World {
            layout: &self.layout,
            instance: &self.setup.instance,
            range: self.setup.uid_range,
            tasks: &self.tasks,
            launcher: self.setup.launcher,
            own_exe: self.own_exe,
            ticks: judge::ticks_now(),
            // What cannot be asked is taken to be somebody's.
            is_leased: &|uid| {
                !Leases::open(self.setup.uid_range).and_then(|leases| leases.is_nobodys(uid)).unwrap_or(false)
            },
            lives: &|task| task.init.as_ref().is_some_and(|(pid, start, _)| Facts::is_there(*pid, *start)),
            pid_namespace: &|pid| facts::namespace(&format!("/proc/{pid}/ns/pid")),
            parent: &facts::parent,
        };
        match judge::judge(facts, &world) {
            Verdict::Fine => {}
            verdict => return verdict,
        }
        let of_thread = |thread: Facts| match judge::judge(&thread, &world) {
            Verdict::Fault(mut fault) => {
                fault.faults.iter_mut().for_each(|text| text.insert_str(0, &format!("thread {}: ", thread.pid)));
                Some(Verdict::Fault(fault))
            }
            _ => None,
        };
        // A thread that has not run yet is where its process is, or will be seen when it has.
        facts.threads().into_iter().filter(|thread| !thread.unborn).find_map(of_thread).unwrap_or(Verdict::Fine)
    }

    /// Re-checks those whose moment has come.
    pub fn recheck(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.suspects).into_iter().partition(|suspect| suspect.due <= now);
        self.suspects = later;
        let due: Vec<Suspect> = due;
        for suspect in due {
            self.recheck_one(suspect);
            self.beat();
        }
    }

    fn recheck_one(&mut self, suspect: Suspect) {
        let name = suspect.name();
        if self.is_reported(&suspect.facts, &suspect.fault) {
            return;
        }
        let process = Process::look(name.0).filter(|process| process.facts.start_time == name.1);
        let is_unborn = process.as_ref().is_some_and(|process| process.facts.unborn);
        match process.as_ref().map(|process| self.judge_now(&process.facts)) {
            // It has done nothing and holds nothing; where it is, it will be seen to be when it runs.
            Some(Verdict::Fault(_)) if is_unborn => {
                let due = Instant::now() + RECHECK * 2u32.pow(suspect.unborn.min(DOUBLINGS));
                self.suspects.push(Suspect { due, unborn: suspect.unborn + 1, ..suspect });
            }
            Some(Verdict::Fault(fault)) => {
                if let Some(process) = process {
                    self.reported.insert(name, fault.proven);
                    self.act(process, fault, &suspect.source);
                }
            }
            // It was in another's group for certain only if it stood in that group's own list.
            seen if (seen.is_none() && suspect.certain) || was_listed_elsewhere(&suspect) => {
                self.reported.insert(name, suspect.fault.proven);
                let fault = Fault { kind: Kind::TransientEscape, ..suspect.fault };
                self.record_gone(suspect.facts, fault, &suspect.source);
            }
            _ => {}
        }
    }

    /// Forgets those that are gone, but for one that is still to be re-checked: that would report it anew.
    pub(super) fn forget_reported(&mut self) {
        let suspected: HashSet<(i32, u64)> = self.suspects.iter().map(Suspect::name).collect();
        for name in self.reported.keys().copied().collect::<Vec<_>>() {
            self.beat();
            if !Facts::is_there(name.0, name.1) && !suspected.contains(&name) {
                self.reported.remove(&name);
            }
        }
    }

    fn is_suspected(&self, facts: &Facts) -> bool {
        self.suspects.iter().any(|suspect| suspect.name() == (facts.pid, facts.start_time))
    }

    fn is_reported(&self, facts: &Facts, fault: &Fault) -> bool {
        self.reported.get(&(facts.pid, facts.start_time)).is_some_and(|proven| *proven || !fault.proven)
    }

    /// Whether one check is enough, should there be no second: who forks and exits all the time is never there for it. A child
    /// that the kernel has not placed yet has its namespaces, and is in no group of any hierarchy.
    fn is_outside_for_certain(&self, facts: &Facts, fault: &Fault) -> bool {
        let task = fault.group.as_ref().and_then(|name| self.tasks.of_group(name));
        let home = task.and_then(|task| task.init.as_ref()).and_then(|(_, _, namespaces)| namespaces.get("pid"));
        let elsewhere = home.is_some_and(|home| facts.namespaces.get("pid").is_some_and(|found| found != home));
        let placed = facts
            .cgroup
            .iter()
            .any(|line| line.rsplit_once('/').is_some_and(|(_, last)| Some(last) == fault.group.as_deref()));
        fault.kind == Kind::OrphanDetected && fault.proven && (elsewhere || placed)
    }

    /// When the next re-check is due.
    pub fn next_recheck(&self) -> Option<Instant> {
        self.suspects.iter().map(|suspect| suspect.due).min()
    }

    /// The same of those that were not re-checked yet: one that does not run may not for minutes.
    pub(super) fn next_first_recheck(&self) -> Option<Instant> {
        self.suspects.iter().filter(|suspect| suspect.unborn == 0).map(|suspect| suspect.due).min()
    }

    /// Says that it lives, if it is time; and takes note of what others have written to the journal.
    pub fn beat(&mut self) {
        if Instant::now() < self.next_beat {
            return;
        }
        self.next_beat = Instant::now() + BEAT;
        let unseen = self.reported_things.iter().filter(|(kind, _)| *kind == LeftoverKind::Unseen).count() as u64;
        let scan = Scan { unseen, ..std::mem::take(&mut self.done) };
        let _ = self.say(&FromAuditor::Beat { scan });
        self.write_quarantine();
        if self.journal.has_changed() {
            self.reread();
        } else if self.untold {
            self.tell_health(Vec::new());
        }
        self.tidy();
    }

    /// When the next beat is due.
    pub fn next_beat(&self) -> Instant {
        self.next_beat
    }

    /// Reads on in the journal and tells what is new in it.
    pub(super) fn reread(&mut self) {
        match self.journal.news() {
            Ok(new) => {
                let mut health = self.journal.sum().clone();
                if let Some(quarantine) = &self.unwritten {
                    health.quarantine.get_or_insert_with(|| quarantine.clone());
                }
                self.health = health;
                self.tell_health(new);
            }
            Err(error) => self.distrust(&error),
        }
    }

    /// The journal cannot be read or written: nobody can know that this worker is healthy.
    pub(super) fn distrust(&mut self, error: &SysError) {
        log(&format!("the containment journal: {error}"));
        self.quarantine(Reason::StateDamaged, error.to_string());
        self.tell_health(Vec::new());
    }

    /// Quarantines this worker, if it is not; whether or not that can be written down.
    pub(super) fn quarantine(&mut self, reason: Reason, detail: String) {
        if self.health.quarantine.is_none() {
            let quarantine = Quarantine { since: now(), reason, detail, by: "auditor".to_owned() };
            self.health.quarantine = Some(quarantine.clone());
            self.unwritten = Some(quarantine);
            self.write_quarantine();
        }
    }

    /// Writes what could not be written before; false if it still cannot be.
    pub(super) fn write_quarantine(&mut self) -> bool {
        let Some(Quarantine { reason, detail, by, .. }) = self.unwritten.clone() else { return true };
        match self.journal.append(Entry::Quarantined { reason, detail, by }) {
            Ok(_) => self.unwritten = None,
            Err(error) => log(&format!("the quarantine is not on disk, and holds all the same: {error}")),
        }
        self.unwritten.is_none()
    }

    fn tell_health(&mut self, lines: Vec<Line>) {
        self.untold = self.say(&FromAuditor::Health { lines, health: self.health.clone() }).is_err();
    }

    pub(super) fn say(&self, message: &FromAuditor) -> Result<(), wire::PacketError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let said = wire::send(socket.as_fd(), message, &[]);
        // A launcher that is gone is seen by the loop; one that does not read is stuck, and beats are not worth waiting for.
        if let Err(error) = &said
            && !matches!(error, wire::PacketError::Closed)
        {
            log(&format!("telling the launcher: {error}"));
        }
        said
    }

    /// Answers the launcher.
    pub(super) fn reply(&self, seq: u64, answer: Answer) {
        if let Err(wire::PacketError::TooLarge(_)) = self.say(&FromAuditor::Answer { seq, answer }) {
            let _ = self.say(&FromAuditor::Answer { seq, answer: Answer::Refused(TOO_LARGE.to_owned()) });
        }
    }

    pub(super) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }
}

/// Where the tasks' groups are. An operator's shell is in another group than the server, so there it is a task's own word.
fn layout_of(setup: &Setup) -> Result<Layout, LayoutError> {
    if setup.launcher.is_some() {
        return Layout::detect();
    }
    let read = |path: &str| std::fs::read_to_string(path).on("read", path);
    let groups = Census::take(&setup.instance)?.groups;
    let of_task = groups.iter().find_map(|(name, path)| {
        let members = std::fs::read_to_string(path.join("cgroup.procs")).ok()?;
        let text = read(&format!("/proc/{}/cgroup", members.lines().next()?)).ok()?;
        Some(text.replace(&format!("/{name}"), ""))
    });
    // The root of a hierarchy is written as a slash, not as nothing.
    let rooted = |text: String| {
        text.lines().map(|line| if line.ends_with(':') { format!("{line}/\n") } else { format!("{line}\n") }).collect()
    };
    let place: String = match of_task {
        Some(text) => rooted(text),
        None => read("/proc/self/cgroup")?,
    };
    Layout::parse(&read("/proc/self/mountinfo")?, &place)
}

/// What is not a process and was written down since the last lift: it is not written down again.
fn told_since(incidents: &Incidents, lifted_at: UnixMillis) -> Result<BTreeSet<(LeftoverKind, String)>, SysError> {
    let recent = incidents.newest(REMEMBERED)?.into_iter().filter(|incident| incident.detected_at > lifted_at);
    Ok(recent.filter_map(|incident| incident.thing).map(|thing| (thing.kind, thing.name)).collect())
}

fn was_listed_elsewhere(suspect: &Suspect) -> bool {
    match (&suspect.source, &suspect.fault.group) {
        (Source::Write { into, .. }, Some(own)) => into.split('/').all(|part| part != own),
        _ => false,
    }
}

/// One plain line on standard error, whatever is in the text.
pub(super) fn log(line: &str) {
    log::line(Level::Warning, "taskman-auditor", line);
}

#[cfg(test)]
#[path = "auditor_tests.rs"]
mod tests;
