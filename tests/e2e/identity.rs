//! A uid per task from a pool that is locked across processes, and never one that something still uses.

use std::process::{Child, Command, Stdio};

use crate::support::host::host_text;
use crate::support::{Process, Run, wait_until};

/// Ranges of these tests' own, outside the default pool, so that tests running beside them take nothing from it.
fn range(first: u32, count: u32) -> [String; 2] {
    ["--uid-range".to_owned(), format!("{first}:{count}")]
}

#[test]
fn two_tasks_at_once_have_different_uids() {
    let (mut one, mut two) = (Run::echo().start(), Run::echo().start());
    let (first, second) = (one.ready().uid(), two.ready().uid());
    assert_ne!(first, second);
    one.end().ok();
    two.end().ok();
}

#[test]
fn a_full_pool_refuses_and_an_ended_task_frees_its_uid() {
    let range = range(1_910_000_000, 1);
    let mut first = Run::echo().with(&range).start();
    assert_eq!(first.ready().uid(), 1_910_000_000);
    Run::command(&["echo", "ran"]).with(&range).end().assert_refused(125, &["taskman: error: ", "uid", "1910000000"]);
    first.end().ok();
    let mut again = Run::echo().with(&range).start();
    assert_eq!(again.ready().uid(), 1_910_000_000);
    again.end().ok();
}

#[test]
fn every_uid_of_a_range_is_used_before_it_is_full() {
    let range = range(1_910_000_100, 3);
    let mut tasks: Vec<_> = (0..3).map(|_| Run::echo().with(&range).start()).collect();
    let mut uids: Vec<_> = tasks.iter_mut().map(|task| task.ready().uid()).collect();
    uids.sort_unstable();
    assert_eq!(uids, [1_910_000_100, 1_910_000_101, 1_910_000_102]);
    Run::command(&["echo", "ran"]).with(&range).end().assert_refused(125, &["taskman: error: ", "uid"]);
    tasks.into_iter().for_each(|task| {
        task.end().ok();
    });
}

#[test]
fn the_range_can_come_from_the_environment() {
    let mut task = Run::echo().caller_env("TASKMAN_UID_RANGE", "1910000200:1").start();
    assert_eq!(task.ready().uid(), 1_910_000_200);
    task.end().ok();
}

#[test]
fn a_killed_launchers_uid_is_free_again() {
    let range = range(1_910_000_300, 1);
    let mut task = Run::echo().with(&range).start();
    task.ready();
    task.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(task.end().status.code(), None);
    wait_until("its processes are gone", || Process::of_uid(1_910_000_300).is_empty().then_some(()));
    Run::command(&["true"]).with(&range).end().ok();
}

/// A process of the host's that has a uid of the pool; killed when dropped.
struct Squatter(Child);

impl Squatter {
    fn new(uid: u32) -> Self {
        let child = Command::new("setpriv")
            .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "--", "sleep", "600"])
            .stdin(Stdio::null())
            .spawn()
            .expect("setpriv");
        wait_until("the squatter has its uid", || (!Process::of_uid(uid).is_empty()).then_some(()));
        Self(child)
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_uid_with_a_process_is_passed_over() {
    let uid = 1_910_000_400;
    let squatter = Squatter::new(uid);
    let mut task = Run::echo().with(&range(uid, 2)).start();
    assert_eq!(task.ready().uid(), uid + 1);
    task.end().ok();
    Run::command(&["echo", "ran"]).with(&range(uid, 1)).end().assert_refused(125, &["taskman: error: ", "uid"]);
    drop(squatter);
    Run::command(&["true"]).with(&range(uid, 1)).end().ok();
}

#[test]
fn a_uid_with_an_ipc_object_is_passed_over() {
    let uid = 1_910_000_500;
    let id = host_text(&[
        "setpriv",
        &format!("--reuid={uid}"),
        &format!("--regid={uid}"),
        "--clear-groups",
        "--",
        "perl",
        "-e",
        "print shmget(0, 4096, 0600)",
    ]);
    let refused = Run::command(&["echo", "ran"]).with(&range(uid, 1)).end();
    host_text(&["ipcrm", "-m", &id]);
    refused.assert_refused(125, &["taskman: error: ", "uid"]);
    Run::command(&["true"]).with(&range(uid, 1)).end().ok();
}

#[test]
fn ranges_that_hold_real_users_or_nobody_are_refused() {
    for bad in ["0:10", "1000:10", "65534:1", "x:1", "1900000000:0", "1900000000", "4294967290:10", "-1:5"] {
        Run::command(&["echo", "ran"]).with(&[format!("--uid-range={bad}")]).end().assert_refused(125, &["uid"]);
    }
}
