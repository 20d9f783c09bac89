//! `taskman wait`: answers when the task is final, and exits as it did.

use std::time::Duration;

use crate::support::Server;

#[test]
fn wait_exits_as_the_task_and_prints_its_status() {
    let server = Server::start();
    for (script, code) in [("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", 143)] {
        let task = server.task(&["--", "sh", "-c", script]);
        let ended = server.taskman("client001", &["wait", &task]);
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.text().starts_with("TASK ID") && ended.text().contains(&task), "{ended:?}");
        assert!(ended.stderr.contains("memory · containment proven by "), "{ended:?}");
    }
    let task = server.task(&["--timeout", "200ms", "--", "sleep", "1000"]);
    assert_eq!(server.taskman("client001", &["wait", &task]).status.code(), Some(124));
}

#[test]
fn a_waiter_is_woken_by_the_end_and_not_before() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let waiter = server.begin("client001", &["wait", &task]);
    assert!(!waiter.ends_within(Duration::from_millis(300)));
    server.text("client001", &["stop", &task]);
    assert_eq!(waiter.end().status.code(), Some(143));
}

#[test]
fn a_wait_that_took_too_long_says_that_the_task_still_runs() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let ended = server.taskman("client001", &["wait", &task, "--timeout", "200ms"]);
    assert_eq!(ended.status.code(), Some(124), "{ended:?}");
    assert_eq!(ended.stderr, format!("taskman: task {task} still runs after 200ms\n"));
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
}

#[test]
fn a_waiter_outlives_a_restart_of_the_server() {
    let mut server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let waiter = server.begin("client001", &["wait", &task, "--output", "json"]);
    // Connected by then: what is asked of it is to come back, not to get there.
    assert!(!waiter.ends_within(Duration::from_secs(3)));
    server.kill();
    server.restart();
    let ended = waiter.end();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.text().contains("\"reason\":\"server_lost\""), "{ended:?}");
}
