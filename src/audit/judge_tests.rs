//! Every way in which a process can be wrong, one at a time, and what is right beside it.

use std::collections::BTreeMap;

use super::*;

const UID: u32 = 1_913_000_007;
const NAME: &str = "taskman-srv-1.00000000-0000-4000-8000-000000000001";
const OTHER: &str = "taskman-srv-2.00000000-0000-4000-8000-000000000002";
const LAUNCHER: i32 = 50;
const INIT: i32 = 100;
/// An operator's shell in the sandbox's namespace, child of one outside.
const ENTERED: i32 = 150;
const HOST_PIDNS: u64 = 1;
const PIDNS: u64 = 7;
const MOUNTS: &str = "29 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
    30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

fn layout() -> Layout {
    Layout::parse(MOUNTS, "9:memory:/\n0::/\n").unwrap()
}

fn namespaces(pid: u64) -> BTreeMap<&'static str, u64> {
    SHARED.into_iter().zip([pid, 8, 9, 10, 11, 2]).collect()
}

fn in_group(name: &str) -> Vec<String> {
    vec![format!("9:memory:/{name}"), format!("0::/{name}")]
}

/// A payload's process, as it must be.
fn confined(pid: i32, inner: i32) -> Facts {
    Facts {
        pid,
        ppid: if inner == 1 { LAUNCHER } else { INIT },
        nspid: vec![pid, inner],
        start_time: 1,
        state: 'S',
        thread_count: 1,
        comm: "sh".into(),
        uid: [UID; 4],
        gid: [UID; 4],
        caps: [0; 5],
        no_new_privs: true,
        seccomp: 2,
        cgroup: in_group(NAME),
        namespaces: namespaces(PIDNS),
        exe: Some((1, 1)),
        unborn: false,
        killed: false,
        exiting: false,
    }
}

/// The first process of a sandbox, before it has given anything up.
fn starting(inner: i32) -> Facts {
    let (uid, gid, caps) = ([0; 4], [0; 4], [0, !0, !0, !0, 0]);
    Facts { uid, gid, caps, no_new_privs: false, seccomp: 0, exe: Some((9, 9)), ..confined(INIT + inner - 1, inner) }
}

fn known() -> Tasks {
    let mut tasks = Tasks::default();
    tasks.plant(NAME);
    let range = range();
    tasks.learn(&layout(), NAME, range, &confined(INIT, 1));
    tasks
}

fn range() -> UidRange {
    UidRange { first: 1_913_000_000, count: 100 }
}

fn verdict_of(facts: &Facts, tasks: &Tasks, leased: bool, ticks: u64) -> Verdict {
    let layout = layout();
    let world = World {
        layout: &layout,
        instance: "srv-1",
        range: range(),
        tasks,
        launcher: Some(LAUNCHER),
        own_exe: Some((9, 9)),
        ticks,
        is_leased: &|_| leased,
        lives: &|_| true,
        pid_namespace: &|pid| match pid {
            INIT..200 => Some(PIDNS),
            _ => Some(HOST_PIDNS),
        },
        parent: &|pid| match pid {
            INIT => Some(LAUNCHER),
            ENTERED => Some(1),
            _ => Some(INIT),
        },
    };
    judge(facts, &world)
}

fn verdict(facts: &Facts) -> Verdict {
    verdict_of(facts, &known(), true, 1_000_000)
}

fn fault(facts: &Facts) -> Fault {
    match verdict(facts) {
        Verdict::Fault(fault) => fault,
        other => panic!("{other:?} for {facts:?}"),
    }
}

#[test]
fn what_is_as_it_must_be_is_fine_and_what_carries_nothing_of_a_task_is_not_ours() {
    assert_eq!(verdict(&confined(INIT, 1)), Verdict::Fine);
    assert_eq!(verdict(&confined(101, 2)), Verdict::Fine);
    assert_eq!(verdict(&confined(102, 77)), Verdict::Fine);
    let host = Facts {
        uid: [0; 4],
        nspid: vec![300],
        cgroup: in_group("init.scope"),
        namespaces: namespaces(HOST_PIDNS),
        ..starting(1)
    };
    assert_eq!(verdict(&host), Verdict::NotOurs);
    let container = Facts { namespaces: namespaces(99), nspid: vec![300, 1], ..host };
    assert_eq!(verdict(&container), Verdict::NotOurs);
}

#[test]
fn each_part_of_the_confinement_that_is_missing_is_found_and_named() {
    let sound = || confined(102, 3);
    let cases: [(&str, Facts); 12] = [
        ("uid", Facts { uid: [0, UID, UID, UID], ..sound() }),
        ("uid", Facts { gid: [0; 4], ..sound() }),
        ("inheritable", Facts { caps: [1, 0, 0, 0, 0], ..sound() }),
        ("permitted", Facts { caps: [0, 1, 0, 0, 0], ..sound() }),
        ("effective", Facts { caps: [0, 0, 1, 0, 0], ..sound() }),
        ("bounding", Facts { caps: [0, 0, 0, 1, 0], ..sound() }),
        ("ambient", Facts { caps: [0, 0, 0, 0, 1], ..sound() }),
        ("no_new_privs", Facts { no_new_privs: false, ..sound() }),
        ("seccomp", Facts { seccomp: 0, ..sound() }),
        ("mnt namespace", Facts { namespaces: namespaces(PIDNS).into_iter().chain([("mnt", 5)]).collect(), ..sound() }),
        ("pid namespace", Facts { namespaces: namespaces(HOST_PIDNS), ..sound() }),
        ("parent", Facts { ppid: 1, ..sound() }),
    ];
    for (name, facts) in cases {
        let fault = fault(&facts);
        assert_eq!((fault.kind, fault.proven), (Kind::ConfinementLost, true), "{name}");
        assert!(fault.faults.len() == 1 || name == "pid namespace", "{name}: {:?}", fault.faults);
        assert!(fault.faults.iter().any(|text| text.contains(name)), "{name}: {:?}", fault.faults);
        assert_eq!(fault.task, GroupName::parse(NAME).map(|name| name.task));
    }
    assert_eq!(fault(&Facts { ppid: 1, ..sound() }).cause, Cause::DoubleFork);
    assert_eq!(fault(&Facts { namespaces: namespaces(HOST_PIDNS), ..sound() }).cause, Cause::NamespaceEscape);
}

#[test]
fn a_second_process_that_is_seen_before_the_first_is_still_confining_itself() {
    let mut tasks = Tasks::default();
    tasks.plant(NAME);
    // Its uid is taken on, its filter not loaded yet, and nobody has looked at the first process so far.
    let second = Facts { seccomp: 0, exe: Some((9, 9)), ..confined(INIT + 1, 2) };
    tasks.learn(&layout(), NAME, range(), &second);
    assert_eq!(verdict_of(&second, &tasks, true, 1_000), Verdict::Fine);
    let another = Facts { exe: Some((1, 1)), ..second };
    assert!(matches!(verdict_of(&another, &tasks, true, 1_000), Verdict::Fault(_)), "another program is not confining");
}

#[test]
fn a_process_outside_its_group_in_any_hierarchy_is_an_orphan() {
    for (cgroup, cause) in [
        (vec![format!("9:memory:/{NAME}"), "0::/".to_owned()], Cause::MigrationFailure),
        (vec!["9:memory:/".to_owned(), "0::/system.slice".to_owned()], Cause::SpawnRace),
        (in_group(OTHER), Cause::SpawnRace),
    ] {
        let found = fault(&Facts { cgroup, ..confined(102, 3) });
        assert_eq!((found.kind, found.proven, found.cause), (Kind::OrphanDetected, true, cause), "{:?}", found.faults);
    }
    let halves = vec!["9:memory:/elsewhere".to_owned(), format!("0::/{NAME}")];
    let found = fault(&Facts { cgroup: halves, ..confined(102, 3) });
    assert!(found.kind == Kind::OrphanDetected && found.faults[0].contains("memory"), "{:?}", found.faults);
}

#[test]
fn a_uid_without_a_task_is_a_leak_and_one_that_another_launcher_holds_is_not_ours_to_kill() {
    let stray =
        Facts { uid: [UID + 1; 4], cgroup: in_group("x"), namespaces: namespaces(HOST_PIDNS), ..confined(300, 300) };
    let Verdict::Fault(leak) = verdict_of(&stray, &known(), false, 9) else { panic!() };
    assert_eq!((leak.kind, leak.proven), (Kind::PostCleanupLeak, true));
    let Verdict::Fault(foreign) = verdict_of(&stray, &known(), true, 9) else { panic!() };
    assert!(!foreign.proven && foreign.group.is_none());
    // In another instance's group it is that one's process, whatever it is.
    let theirs = Facts { cgroup: in_group(OTHER), ..stray };
    assert_eq!(verdict_of(&theirs, &known(), false, 9), Verdict::NotOurs);
}

#[test]
fn whoever_only_stands_in_a_group_of_ours_is_reported_and_not_killed() {
    let operator = Facts {
        uid: [0; 4],
        gid: [0; 4],
        ppid: 1,
        nspid: vec![300],
        namespaces: namespaces(HOST_PIDNS),
        ..confined(300, 300)
    };
    let found = fault(&operator);
    assert_eq!((found.kind, found.proven), (Kind::ConfinementLost, false));
    // And one who came into the namespace from outside.
    let entered = Facts { nspid: vec![300, 9], namespaces: namespaces(PIDNS), cgroup: in_group("x"), ..operator };
    assert!(!fault(&entered).proven);
    // And what that one starts, in the group or not, and leaves to the sandbox's first process.
    for (ppid, group) in [(ENTERED, "x"), (ENTERED, NAME), (INIT, "x")] {
        let started = Facts { ppid, cgroup: in_group(group), ..entered.clone() };
        assert!(!fault(&started).proven, "{ppid} {group}");
    }
    // A payload that has become root is in both by birth.
    for ppid in [INIT, 120] {
        let risen = Facts { ppid, cgroup: in_group(NAME), ..entered.clone() };
        assert!(fault(&risen).proven);
    }
}

#[test]
fn a_sandbox_may_lack_its_confinement_until_it_had_it_and_not_for_long() {
    let mut tasks = Tasks::default();
    tasks.plant(NAME);
    tasks.learn(&layout(), NAME, range(), &starting(1));
    let young = 100;
    for inner in [1, 2] {
        assert_eq!(verdict_of(&starting(inner), &tasks, true, young), Verdict::Fine, "{inner}");
        let old = verdict_of(&starting(inner), &tasks, true, 1_000_000_000);
        assert!(matches!(old, Verdict::Fault(_)), "{inner}: {old:?}");
    }
    // Also when its first process was not seen yet.
    let mut unknown = Tasks::default();
    unknown.plant(NAME);
    assert_eq!(verdict_of(&starting(2), &unknown, true, young), Verdict::Fine);
    // What has executed a program, or was seen confined, or was made later, has no such time.
    let executed = Facts { exe: Some((1, 1)), ..starting(2) };
    assert!(matches!(verdict_of(&executed, &tasks, true, young), Verdict::Fault(_)));
    assert!(matches!(verdict_of(&starting(3), &tasks, true, young), Verdict::Fault(_)));
    tasks.learn(&layout(), NAME, range(), &confined(INIT, 1));
    note_confined(&confined(INIT, 1), tasks.of_group_mut(NAME).unwrap());
    assert!(matches!(verdict_of(&starting(1), &tasks, true, young), Verdict::Fault(_)));
    // Wherever it is in its start, it is in its group.
    let outside = Facts { cgroup: in_group("x"), ..starting(1) };
    assert!(matches!(verdict_of(&outside, &tasks, true, young), Verdict::Fault(_)));
}

#[test]
fn what_cannot_be_read_is_no_fault() {
    // Without CAP_SYS_PTRACE: readable until it takes its uid on, and not from then on.
    let mut tasks = Tasks::default();
    tasks.plant(NAME);
    tasks.learn(&layout(), NAME, range(), &starting(1));
    let unreadable = |facts: Facts| Facts { namespaces: BTreeMap::new(), exe: None, ..facts };
    for inner in [1, 2] {
        let dropped = unreadable(Facts { seccomp: 0, no_new_privs: false, ..confined(INIT + inner - 1, inner) });
        assert_eq!(verdict_of(&dropped, &tasks, true, 100), Verdict::Fine, "{inner} while it confines itself");
        let old = verdict_of(&dropped, &tasks, true, 1_000_000_000);
        assert!(matches!(old, Verdict::Fault(_)), "{inner} has no more time than others: {old:?}");
        assert_eq!(verdict(&unreadable(confined(INIT + inner - 1, inner))), Verdict::Fine, "{inner}");
    }
    assert_eq!(verdict(&unreadable(confined(102, 77))), Verdict::Fine);
    // What can be read still counts, and nothing is said of what cannot.
    let lost = fault(&unreadable(Facts { seccomp: 0, ..confined(102, 3) }));
    assert_eq!((lost.kind, lost.cause, lost.proven), (Kind::ConfinementLost, Cause::Unknown, true));
    assert_eq!(lost.faults, ["seccomp: expected 2, found 0"]);
    let outside = fault(&unreadable(Facts { cgroup: in_group("x"), ..confined(102, 3) }));
    assert_eq!((outside.kind, outside.cause), (Kind::OrphanDetected, Cause::SpawnRace));
}

#[test]
fn an_exiting_process_is_left_alone() {
    assert_eq!(verdict(&Facts { exiting: true, cgroup: in_group("x"), ..confined(102, 3) }), Verdict::NotOurs);
}

#[test]
fn a_namespace_number_that_another_sandbox_got_after_the_tasks_init_died_tells_nothing() {
    let (layout, tasks) = (layout(), known());
    let of_another = |pid, inner| Facts {
        uid: [1_950_000_000; 4],
        gid: [1_950_000_000; 4],
        ppid: if inner == 1 { 299 } else { 300 },
        start_time: 2,
        cgroup: in_group(OTHER),
        ..confined(pid, inner)
    };
    let world = World {
        layout: &layout,
        instance: "srv-1",
        range: range(),
        tasks: &tasks,
        launcher: Some(LAUNCHER),
        own_exe: Some((9, 9)),
        ticks: 1_000_000,
        is_leased: &|_| true,
        lives: &|_| false,
        pid_namespace: &|_| Some(PIDNS),
        parent: &|_| Some(LAUNCHER),
    };
    assert_eq!(judge(&of_another(300, 1), &world), Verdict::NotOurs);
    assert_eq!(judge(&of_another(301, 2), &world), Verdict::NotOurs);
    // As long as it lives, whoever is in its namespace is the task's.
    let Verdict::Fault(fault) = verdict(&of_another(301, 2)) else { panic!("not found") };
    assert!(fault.task.is_some(), "{fault:?}");
}

#[test]
fn a_group_of_our_name_elsewhere_is_not_ours() {
    // As an account makes it in a group that was delegated to it, for a process of its own with a PID namespace.
    let squatter = Facts {
        uid: [1000; 4],
        gid: [1000; 4],
        cgroup: vec!["9:memory:/".into(), format!("0::/user.slice/user-1000.slice/user@1000.service/{NAME}")],
        namespaces: namespaces(77),
        ..confined(300, 1)
    };
    assert_eq!(verdict(&squatter), Verdict::NotOurs);
    // A task's own process there is outside.
    let moved = Facts { cgroup: squatter.cgroup.clone(), ..confined(301, 3) };
    assert_eq!(fault(&moved).kind, Kind::OrphanDetected);
    let half = Facts { cgroup: vec![format!("9:memory:/user/{NAME}"), format!("0::/{NAME}")], ..confined(302, 3) };
    assert_eq!(fault(&half).kind, Kind::OrphanDetected);
}
