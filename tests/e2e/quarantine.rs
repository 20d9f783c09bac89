//! When `taskman health --quarantine` has said yes, no start that is asked for from then on is taken: whoever asked for the
//! quarantine, how many clients are starting, and whatever does not answer. One that was asked for before may go on.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::signal::Signal;
use tonic::Code;

use crate::support::rpc::{Tasks, connect, on, sh};
use crate::support::server::unwatched;
use crate::support::supervisor::{Stopped, send};
use crate::support::{Ended, Server, pace, wait_until};

const QUARANTINE: [&str; 4] = ["health", "--quarantine", "--reason", "a drill"];
const LIFT: [&str; 4] = ["health", "--unquarantine", "--reason", "drill over"];
const CLIENTS: usize = 4;
/// Starts that each client still asks for when the command has answered.
const MORE: usize = 10;

#[track_caller]
fn assert_refused(server: &Server) {
    let (code, why) = server.refused_start();
    assert_eq!(code, Code::FailedPrecondition, "{why}");
    assert!(why.contains("quarantined (manual): a drill"), "{why}");
}

/// Starts tasks one after another until `over`, and a few more. Counts those that were taken, and gives those that were asked for
/// too late.
async fn keep_starting(mut tasks: Tasks, over: Arc<AtomicBool>, taken: Arc<AtomicUsize>) -> Vec<String> {
    let (mut more, mut late) = (0, Vec::new());
    while more < MORE {
        let is_late = over.load(Ordering::SeqCst);
        more += usize::from(is_late);
        match tasks.start_task(sh("true")).await {
            Ok(task) if is_late => late.push(task.into_inner().task_id),
            Ok(_) => _ = taken.fetch_add(1, Ordering::SeqCst),
            Err(status) if is_late && !unwatched(status.message()) => {
                assert!(status.message().contains("a drill"), "{status:?}");
            }
            Err(_) => {} // too many at once, perhaps
        }
    }
    late
}

/// Quarantines a worker on which several clients start tasks, again and again.
#[track_caller]
fn in_a_crowd(server: Server, quarantine: fn(&Server) -> Ended) {
    for round in 0..pace::race(10, 2) {
        let (over, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let late = on(async {
            let mut clients = Vec::new();
            for _ in 0..CLIENTS {
                let tasks = connect(&server, "client001").await;
                clients.push(tokio::spawn(keep_starting(tasks, over.clone(), taken.clone())));
            }
            // The clients go on meanwhile, in threads of their own.
            wait_until("tasks start", || (taken.load(Ordering::SeqCst) > CLIENTS).then_some(()));
            quarantine(&server).said(0);
            over.store(true, Ordering::SeqCst);
            let mut late = Vec::new();
            for client in clients {
                late.extend(client.await.unwrap());
            }
            late
        });
        assert_eq!(late, Vec::<String>::new(), "round {round}: taken after the answer");
        wait_until("the last has ended", || server.here(&LIFT).status.success().then_some(()));
        wait_until("the server takes tasks again", || {
            server.taskman("admin", &["health"]).status.success().then_some(())
        });
    }
}

#[test]
fn of_several_clients_none_starts_a_task_after_root_has_quarantined_on_the_host() {
    in_a_crowd(Server::of_uids(1_910_110_000), |server| server.here(&QUARANTINE));
}

#[test]
fn of_several_clients_none_starts_a_task_after_an_administrator_has_quarantined() {
    in_a_crowd(Server::of_uids(1_910_111_000), |server| server.taskman("admin", &QUARANTINE));
}

#[test]
fn a_sandbox_that_stands_ready_is_not_used_after_the_answer_either() {
    in_a_crowd(Server::configured("uid_range = \"1910112000:1000\"\n[warm]\nslots = 4\n"), |server| {
        server.here(&QUARANTINE)
    });
}

#[test]
fn the_answer_holds_while_the_auditor_stands_still_and_when_it_is_dead() {
    let server = Server::of_uids(1_910_113_000);
    let auditor = server.auditor();
    let stopped = Stopped::new(auditor);
    server.here(&QUARANTINE).said(0);
    assert_refused(&server);
    drop(stopped);
    server.here(&LIFT).said(0);
    wait_until("the server takes tasks again", || server.try_start().ok());
    send(server.auditor(), Signal::SIGKILL);
    server.here(&QUARANTINE).said(0);
    assert_refused(&server);
}

#[test]
fn a_launcher_that_stands_still_takes_no_start_when_it_goes_on() {
    let server = Server::of_uids(1_910_114_000);
    let stopped = Stopped::new(server.launcher());
    server.here(&QUARANTINE).said(0);
    let waiting = server.begin("client001", &["start", "--", "true"]);
    drop(stopped);
    waiting.end().assert_refused(125, &["a drill", "runbooks/worker-quarantine.md"]);
}

#[test]
fn a_quarantine_that_cannot_be_written_is_no_success() {
    let server = Server::of_uids(1_910_115_000);
    let journal = server.state().join("containment.jsonl");
    let held = OpenOptions::new().append(true).create(true).open(&journal).unwrap();
    held.lock().unwrap();
    let failed = server.here(&QUARANTINE);
    failed.assert_refused(125, &["may still take tasks", "stop taskman-server", "containment.jsonl", "its lock"]);
    drop(held);
    assert_eq!(server.try_start(), Ok(()), "nothing of it was written");
}
