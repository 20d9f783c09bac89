//! Who knows how the auditor looks: processes made so that it does not see them, harmless ones that look like such, and
//! others' that it must not touch.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use taskman::place::open_uid_locks;
use taskman::sys::bytelock;

use crate::support::incident::stray;
use crate::support::supervisor::send;
use crate::support::{HostDir, Process, Server, wait_until};

/// A program whose first thread ends, and whose second goes on.
const WITHOUT_LEADER: &str = "import ctypes, threading, time\n\
    threading.Thread(target=lambda: time.sleep(1000)).start()\n\
    ctypes.CDLL(None).syscall(60, 0)\n";
/// Takes on a uid, and from then on is a child of a child of a child, each of which lives for a moment.
const CHAIN: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    unsigned uid = strtoul(words[1], 0, 10);
    time_t until = time(0) + 60;
    signal(SIGCHLD, SIG_IGN);
    if (setgid(uid) || setuid(uid)) return 1;
    while (time(0) < until)
        if (fork() > 0) _exit(0);
}
"#;

fn server(first: u32, audit: &str) -> Server {
    Server::configured(&format!("uid_range = \"{first}:1000\"\n[audit]\n{audit}\n"))
}

fn process_of(server: &Server, task: &str) -> Process {
    Process { pid: server.status(task)["process_id"].as_i64().unwrap() as i32 }
}

fn findings(server: &Server) -> Vec<Value> {
    let seen = server.taskman("admin", &["audit", "findings", "--output", "json"]).json(0);
    seen["findings"].as_array().unwrap().clone()
}

fn found(server: &Server, kind: &str) -> Value {
    wait_until(kind, || findings(server).into_iter().find(|finding| finding["kind"] == kind))
}

#[test]
fn a_process_is_its_living_threads_whatever_became_of_the_first() {
    let server = server(1_915_200_000, "scan = \"1s\"\nzombie = \"1s\"");
    let task = server.task(&["--", "python3", "-c", WITHOUT_LEADER]);
    let process = process_of(&server, &task);
    wait_until("its first thread has ended", || process.status("State").starts_with('Z').then_some(()));
    // Longer than a dead process may wait.
    std::thread::sleep(Duration::from_secs(3));
    server.taskman("admin", &["health"]).said(0);
    assert_eq!(findings(&server), Vec::<Value>::new());

    let elsewhere = crate::audit::Elsewhere::beside(process);
    assert!(elsewhere.take(process.pid));
    assert_eq!(found(&server, "orphan_detected")["pid"], process.pid);
    assert_eq!(server.ended(&task)["outcome"]["reason"], "containment");
}

#[test]
fn who_forks_faster_than_anyone_can_list_is_found_and_ended() {
    let server = server(1_915_201_000, "scan = \"1s\"");
    let task = server.task(&["--", "sleep", "1000"]);
    let uid = process_of(&server, &task).uid();
    let dir = HostDir::new();
    let (source, program) = (dir.file("chain.c", CHAIN, 0o644), dir.path("chain"));
    assert!(Command::new("gcc").arg("-o").args([&program, &source]).status().unwrap().success());
    Command::new(program).arg(uid.to_string()).status().unwrap();
    assert_eq!(server.ended(&task)["outcome"]["reason"], "containment");
    wait_until("nothing of the uid is left", || Process::of_uid(uid).is_empty().then_some(()));
    assert!(!findings(&server).is_empty());
}

#[test]
fn what_was_another_launchers_is_ended_when_nobody_holds_it_any_more() {
    let uid = 1_915_202_007;
    let server = server(1_915_202_000, "scan = \"1s\"");
    let lease = open_uid_locks().unwrap();
    assert!(bytelock::take(&lease, uid).unwrap());
    let mut escapee: Child = stray(uid);
    let seen = found(&server, "orphan_detected");
    assert_eq!(seen["pid"], escapee.id());
    server.taskman("admin", &["health"]).said(0);
    assert_eq!(escapee.try_wait().unwrap(), None, "another launcher's is not ours to end");
    drop(lease);
    let ended = wait_until("it is ended", || escapee.try_wait().unwrap());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(Signal::SIGKILL as i32));
    found(&server, "post_cleanup_leak");
}

#[test]
fn what_an_operator_starts_in_a_sandbox_is_told_of_and_not_killed() {
    let server = server(1_915_203_000, "scan = \"1s\"");
    let task = server.task(&["--", "sleep", "1000"]);
    let target = process_of(&server, &task).pid.to_string();
    let shell = ["-t", &target, "-p", "-m", "sh", "-ec", "sleep 1; sh -c 'sleep 2; exit 0'; sleep 1"];
    let status = Command::new("nsenter").args(shell).status().unwrap();
    assert!(status.success(), "{status}");
    assert!(!findings(&server).is_empty());
    assert_eq!(server.status(&task)["outcome"], Value::Null, "nor is the task");
}

#[test]
fn a_finding_that_cannot_be_written_down_is_a_quarantine_all_the_same() {
    let mut server = server(1_915_204_000, "scan = \"1s\"");
    fs::write(server.state().join("incidents"), "in the way").unwrap();
    let mut escapee = stray(1_915_204_007);
    wait_until("it is ended", || escapee.try_wait().unwrap());
    let seen = wait_until("the quarantine", || {
        let seen: Value =
            serde_json::from_slice(&server.taskman("admin", &["health", "--output", "json"]).stdout).ok()?;
        (seen["status"] == "quarantined").then_some(seen)
    });
    assert_eq!((&seen["reason"], &seen["by"]), (&"leak".into(), &"auditor".into()), "{seen}");
    server.stop();
    server.restart();
    server.taskman("admin", &["health"]).said(1);
}

#[test]
fn a_payload_that_keeps_its_reaper_from_reaping_takes_no_worker_from_others() {
    let server = server(1_915_205_000, "scan = \"1s\"\nzombie = \"1s\"");
    let script = "sleep 6; for i in 1 2 3 4 5; do (sleep 0 &); done; sleep 1000";
    let task = server.task(&["--", "sh", "-c", script]);
    let init = Process { pid: process_of(&server, &task).status("PPid").parse().unwrap() };
    // As good as what a payload does with sched_setscheduler, and certain.
    send(init, Signal::SIGSTOP);
    let seen = found(&server, "zombie_detected");
    assert_eq!(seen["task"], Value::from(&*task));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(findings(&server).len(), 1, "told once");
    server.taskman("admin", &["health"]).said(0);
    send(init, Signal::SIGCONT);
}
