//! `taskman stop`: SIGTERM, grace, then a kill of everything; and no effect on what has ended.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::supervisor::{Stopped, send};
use crate::support::{Process, Server, pace, wait_until};

#[test]
fn stop_prints_the_source_designs_text_and_ends_the_task() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let wanted = format!("Task {task} stop request received.\n");
    assert_eq!(server.text("client001", &["stop", &task]), wanted);
    let outcome = server.ended(&task)["outcome"].clone();
    assert_eq!((&outcome["signal"], &outcome["reason"]), (&"SIGTERM".into(), &"stopped".into()));
    let again = server.text("client001", &["stop", &task]);
    assert_eq!(again, format!("Task {task} had ended: stopped: SIGTERM.\n"), "no effect, no error");
    assert_eq!(server.ended(&task)["outcome"], outcome);
}

#[test]
fn a_task_that_ignores_the_request_is_killed_when_the_grace_is_over() {
    let server = Server::start();
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    let grace = format!("{}ms", pace::time(Duration::from_secs(2)).as_millis());
    for (grace, asked) in [(grace.as_str(), "ready\nasked\n"), ("0", "ready\n")] {
        let task = server.task(&["--", "sh", "-c", script]);
        let mut output = server.begin("client001", &["stream", &task]);
        assert_eq!(output.line(), "ready");
        let begun = Instant::now();
        server.text("client001", &["stop", &task, "--grace", grace]);
        let ended = output.end();
        assert_eq!(ended.text(), asked, "grace {grace}");
        assert!(
            begun.elapsed() < pace::time(Duration::from_secs(8)),
            "{:?} is the server's own grace",
            begun.elapsed()
        );
        let status = server.ended(&task);
        assert_eq!(
            (&status["outcome"]["signal"], &status["outcome"]["reason"]),
            (&"SIGKILL".into(), &"stopped".into())
        );
    }
}

#[test]
fn a_task_that_has_ended_by_itself_was_not_stopped() {
    let server = Server::start();
    for grace in ["0s", "10s"] {
        let script = "trap 'exit 3' USR1; echo ready; while :; do sleep 0.05; done";
        let task = server.task(&["--", "sh", "-c", script]);
        assert_eq!(server.begin("client001", &["stream", &task]).line(), "ready");
        let process = Process { pid: server.status(&task)["process_id"].as_i64().unwrap() as i32 };
        let uid = process.uid();
        // The launcher finds both when it goes on, and the request first.
        let stopped = Stopped::new(server.launcher());
        server.text("client001", &["stop", &task, "--grace", grace]);
        send(process, Signal::SIGUSR1);
        // Its init too, which tells how it ended: before that, nobody could know.
        wait_until("it has ended", || Process::running_of_uid(uid).is_empty().then_some(()));
        drop(stopped);
        let outcome = server.ended(&task)["outcome"].clone();
        assert_eq!((&outcome["exit_code"], &outcome["reason"]), (&3.into(), &"exit".into()), "grace {grace}");
    }
}

#[test]
fn stop_kills_grandchildren_that_left_the_session() {
    let server = Server::start();
    let task = server.task(&[
        "--",
        "sh",
        "-c",
        "(setsid sh -c 'trap \"\" TERM HUP; echo ready; exec sleep 1000' &); sleep 1000",
    ]);
    let mut output = server.begin("client001", &["stream", &task]);
    assert_eq!(output.line(), "ready");
    let pid = server.status(&task)["process_id"].as_i64().unwrap() as i32;
    let uid = Process { pid }.uid();
    assert!(Process::running_of_uid(uid).len() >= 2);
    server.text("client001", &["stop", &task]);
    assert_eq!(server.ended(&task)["containment"]["verdict"], "proven");
    wait_until("nothing of the task runs", || Process::running_of_uid(uid).is_empty().then_some(()));
    assert_eq!(output.end().status.code(), Some(0));
}

#[test]
fn an_administrator_may_stop_the_task_of_another() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    server.text("admin", &["stop", &task]);
    assert_eq!(server.ended(&task)["outcome"]["reason"], "stopped");
}
