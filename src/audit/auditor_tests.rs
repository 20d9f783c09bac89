//! What the auditor makes of processes of the real kernel. Needs root.

// Tests start plain processes to have something to look at.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::audit::desk::Pending;
use crate::containment::Query;
use crate::place::{GroupName, UidRange};
use crate::task::id::TaskId;

/// Uids that no other test of these has, in this process or in one that tests beside it: an auditor kills what has one of them.
fn setup(state: &std::path::Path) -> Setup {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = 1_917_000_000 + std::process::id() % 10_000 * 200 + NEXT.fetch_add(10, Ordering::Relaxed);
    Setup {
        state_dir: state.to_owned(),
        instance: format!("desk-{:08x}", TaskId::random().entropy() as u32),
        uid_range: UidRange { first, count: 10 },
        launcher: None,
        events: false,
        scan_ms: 0,
        zombie_ms: 0,
    }
}

#[test]
fn a_lift_that_a_finding_has_overtaken_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let mut auditor = Auditor::open(setup(state.path()), None).unwrap();
    auditor.quarantine(Reason::Leak, "a leak".to_owned());
    let (by, reason) = ("admin".to_owned(), "looked".to_owned());
    let pending = || Pending::Lift { by: by.clone(), reason: reason.clone(), accept: Vec::new(), findings: 0 };
    let (id, kind) = (crate::containment::IncidentId::new(1), Kind::OrphanDetected);
    auditor.journal.append(Entry::Finding { id, kind, task: None, owner: None }).unwrap();
    auditor.reread();
    let answer = auditor.finish(pending(), Answer::Left(Vec::new()));
    assert!(matches!(&answer, Answer::Refused(why) if why.contains("meanwhile")), "{answer:?}");
    let pending = Pending::Lift { by, reason, accept: Vec::new(), findings: 1 };
    let answer = auditor.finish(pending, Answer::Left(Vec::new()));
    assert!(matches!(&answer, Answer::Health(health) if health.quarantine.is_none()), "{answer:?}");
}

#[test]
fn while_it_waits_for_a_process_to_die_it_says_that_it_lives() {
    let state = tempfile::tempdir().unwrap();
    let (here, there) = wire::pair().unwrap();
    let mut auditor = Auditor::open(setup(state.path()), Some(here)).unwrap();
    // One that nobody has killed does not die.
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let process = Process::look(child.id() as i32).unwrap();
    let begun = Instant::now();
    let died = auditor.see_dead(&process, Duration::from_secs(2));
    let took = begun.elapsed();
    let mut beats = 0;
    while let Ok(Some(packet)) = wire::receive::<FromAuditor>(there.as_fd()) {
        beats += u32::from(matches!(packet.message, FromAuditor::Beat { .. }));
    }
    child.kill().unwrap();
    assert!(!died && auditor.see_dead(&process, Duration::from_secs(60)));
    child.wait().unwrap();
    // Each is at most half as late again.
    let least = 1 + took.as_millis() as u32 / (BEAT * 3 / 2).as_millis() as u32;
    assert!(beats >= least, "{beats} beats in {took:?}");
}

#[test]
fn a_place_that_was_not_seen_is_no_finding_and_a_lift_names_it() {
    let state = tempfile::tempdir().unwrap();
    let mut auditor = Auditor::open(setup(state.path()), None).unwrap();
    let place = |name: &str| {
        let (kind, name, detail) = (LeftoverKind::Unseen, name.to_owned(), "not looked into: EIO".to_owned());
        crate::containment::Leftover { kind, name, detail }
    };
    let left = vec![place("/dev/shm/a"), place("/tmp/b")];
    auditor.finish(Pending::Things(crate::audit::clean::Extent::Things), Answer::Left(left.clone()));
    assert_eq!((auditor.health.quarantine.clone(), auditor.health.findings), (None, 0));
    auditor.quarantine(Reason::Manual, "a drill".to_owned());
    let lift = |accept: &[&str]| Pending::Lift {
        by: "admin".to_owned(),
        reason: "looked".to_owned(),
        accept: accept.iter().map(ToString::to_string).collect(),
        findings: 0,
    };
    for accept in [&[][..], &["/tmp/b"]] {
        assert_eq!(auditor.finish(lift(accept), Answer::Left(left.clone())), Answer::Left(left.clone()));
    }
    let answer = auditor.finish(lift(&["/tmp/b", "/dev/shm/a"]), Answer::Left(left));
    assert!(matches!(&answer, Answer::Health(health) if health.quarantine.is_none()), "{answer:?}");
    let lifted = auditor.journal.read().unwrap().pop().unwrap().entry;
    assert!(matches!(&lifted, Entry::Lifted { reason, .. } if reason.ends_with("/dev/shm/a, /tmp/b")), "{lifted:?}");
}

#[test]
fn who_asks_has_a_name_that_a_certificate_could_have() {
    let state = tempfile::tempdir().unwrap();
    let mut auditor = Auditor::open(setup(state.path()), None).unwrap();
    for by in [String::new(), "x".repeat(1 << 20), "\u{1b}[2J".to_owned(), "a\nb".to_owned()] {
        let answer = auditor.answer(Query::Quarantine { by, reason: "a drill".to_owned() });
        assert!(matches!(&answer, Answer::Refused(why) if why.len() < 200), "{answer:?}");
    }
    assert_eq!(auditor.journal.read().unwrap(), Vec::new(), "nothing of it is kept");
}

#[test]
fn a_quarantine_that_cannot_be_written_holds_and_is_written_when_it_can() {
    let state = tempfile::tempdir().unwrap();
    let journal = state.path().join("containment.jsonl");
    let mut auditor = Auditor::open(setup(state.path()), None).unwrap();
    fs::create_dir(&journal).unwrap();
    auditor.quarantine(Reason::Leak, "a leak".to_owned());
    assert!(!auditor.write_quarantine());
    auditor.reread();
    assert_eq!(auditor.health.quarantine.as_ref().map(|it| it.reason), Some(Reason::Leak));
    fs::remove_dir(&journal).unwrap();
    auditor.reread();
    assert!(auditor.health.quarantine.is_some(), "an empty journal does not lift it");
    assert!(auditor.write_quarantine());
    assert_eq!(Journal::new(state.path()).health().unwrap().quarantine.map(|it| it.reason), Some(Reason::Leak));
}

#[test]
fn a_task_that_is_first_seen_by_its_second_process_is_known_by_its_first() {
    let state = tempfile::tempdir().unwrap();
    let task = TaskId::random();
    let setup = Setup {
        state_dir: state.path().to_owned(),
        instance: format!("learn-{:08x}", task.entropy() as u32),
        uid_range: UidRange::default(),
        launcher: None,
        events: false,
        scan_ms: 0,
        zombie_ms: 0,
    };
    let name = GroupName { instance: setup.instance.clone(), task }.to_string();
    let mut auditor = Auditor::open(setup, None).unwrap();
    let group = auditor.layout.base().dir.join(&name);
    fs::create_dir(&group).unwrap();
    // Any launcher of this host sweeps what nobody holds.
    let held = fs::File::open(&group).unwrap();
    held.lock().unwrap();
    let script = "echo $$ > \"$0/cgroup.procs\"; exec unshare --pid --fork sh -c 'sleep 60; :'";
    let mut child = Command::new("sh").args(["-c", script]).arg(&group).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let second = loop {
        let mut members = auditor.members(&name).into_iter().filter_map(Facts::read);
        match members.find(|facts| facts.nspid.len() == 2 && facts.inner() == 2) {
            Some(second) => break Some(second),
            None if Instant::now() > deadline => break None,
            None => std::thread::yield_now(),
        }
    };
    if let Some(second) = &second {
        auditor.learn(second);
    }
    let first = auditor.tasks.of_group(&name).and_then(|task| task.init.as_ref().map(|init| init.0));
    crate::cgroup::kill(&auditor.layout, &name).unwrap();
    child.wait().unwrap();
    while fs::remove_dir(&group).is_err() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(!group.exists());
    assert_eq!(first, second.map(|second| second.ppid));
    assert!(first.is_some());
}

/// One event after another makes it look: a uid, a program, a group.
#[test]
fn a_process_that_is_gone_is_told_of_once_however_often_it_was_suspected() {
    let state = tempfile::tempdir().unwrap();
    let mut auditor = Auditor::open(setup(state.path()), None).unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let facts = Facts::read(child.id() as i32).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let fault = Fault {
        kind: Kind::OrphanDetected,
        task: None,
        owner: None,
        group: None,
        uid: None,
        faults: vec!["a drill".to_owned()],
        cause: crate::containment::Cause::Unknown,
        why: String::new(),
        proven: true,
        grave: true,
    };
    let suspected = |auditor: &mut Auditor, source: Source| {
        let (due, facts, fault) = (Instant::now(), facts.clone(), fault.clone());
        auditor.suspects.push(Suspect { due, unborn: 0, facts, fault, source, certain: true });
    };
    suspected(&mut auditor, Source::Uid);
    auditor.recheck();
    suspected(&mut auditor, Source::Exec);
    // A scan in between, as a flood of events brings one.
    auditor.scan();
    auditor.recheck();
    let kinds: Vec<Kind> = auditor.found.iter().map(|summary| summary.kind).collect();
    assert_eq!(kinds, [Kind::TransientEscape]);
    auditor.scan();
    assert!(auditor.reported.is_empty(), "what nobody waits for is forgotten");
}

/// A real-time process that spins: ended with the test, however that ends.
struct Spinner(Child);

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process with a task's uid that nobody holds, so a stray, and its child, which it keeps from the only CPU that it may have.
fn starved_child(uid: &str) -> (Spinner, i32) {
    let script = "chrt -f 1 taskset -c 0 setpriv --reuid $0 --regid $0 --clear-groups sh -c 'sleep 60 & echo $!; while :; do :; done'";
    let mut parent = Command::new("sh");
    let parent = parent.args(["-c", &format!("exec {script}"), uid]).stdout(std::process::Stdio::piped());
    let mut parent = Spinner(parent.spawn().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.0.stdout.take().unwrap()), &mut line).unwrap();
    (parent, line.trim().parse().unwrap())
}

#[test]
fn a_child_that_has_not_run_yet_is_judged_when_it_has() {
    let state = tempfile::tempdir().unwrap();
    let setup = setup(state.path());
    let uid = setup.uid_range.first.to_string();
    // The kernel takes a CPU from real-time processes for 50 ms of each second, and the child may run then: another one is made.
    let starved = || {
        let mut auditor = Auditor::open(setup.clone(), None).unwrap();
        let (parent, child) = starved_child(&uid);
        let unborn = Facts::read(child).unwrap();
        auditor.suspect(unborn.clone(), &Source::Fork);
        // As if it had been for an hour, and found by scans meanwhile.
        auditor.suspects.iter_mut().for_each(|suspect| (suspect.due, suspect.unborn) = (Instant::now(), 10_000));
        auditor.recheck();
        auditor.suspect(unborn.clone(), &Source::Scan);
        auditor.settle();
        let seen = (auditor.suspects.len(), auditor.reported.len());
        let is_unborn = Facts::read(child).is_some_and(|facts| facts.unborn);
        is_unborn.then_some((auditor, parent, unborn, seen))
    };
    let (mut auditor, parent, child, (waits, told)) =
        (0..100).find_map(|_| starved()).expect("a child that does not run");
    assert_eq!((waits, told), (1, 0), "judged before it had run");
    drop(parent);
    let due = auditor.next_recheck().unwrap().saturating_duration_since(Instant::now());
    assert!(due <= RECHECK * 2u32.pow(DOUBLINGS), "{due:?}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while !auditor.suspects.is_empty() && Instant::now() < deadline {
        std::thread::sleep(RECHECK);
        auditor.recheck();
    }
    let ended = Facts::read(child.pid).is_none_or(|facts| facts.exiting);
    assert!(auditor.reported.contains_key(&(child.pid, child.start_time)) && ended);
}
