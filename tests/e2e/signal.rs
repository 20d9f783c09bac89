//! `taskman signal`: delivered to the task's main process, by its owner, while it runs.

use crate::support::Server;

#[test]
fn a_signal_reaches_the_main_process_by_name_and_number() {
    let server = Server::start();
    let script = "trap 'echo one' USR1; trap 'echo two; exit 4' USR2; echo ready; while :; do sleep 0.02; done";
    let task = server.task(&["--", "sh", "-c", script]);
    let mut output = server.begin("client001", &["stream", &task]);
    assert_eq!(output.line(), "ready");
    assert_eq!(server.text("client001", &["signal", &task, "SIGUSR1"]), format!("Task {task} was sent SIGUSR1.\n"));
    assert_eq!(output.line(), "one");
    server.text("client001", &["signal", &task, "USR1"]);
    assert_eq!(output.line(), "one");
    // As kill(1) has it.
    server.text("client001", &["signal", &task, "-10"]);
    assert_eq!(output.line(), "one");
    server.text("client001", &["signal", "--user-id", "client001", &task[..8], "12"]);
    assert_eq!(output.end().text(), "ready\none\none\none\ntwo\n");
    let outcome = server.ended(&task)["outcome"].clone();
    assert_eq!((&outcome["exit_code"], &outcome["reason"]), (&4.into(), &"exit".into()));
}

#[test]
fn a_signal_that_ends_it_is_the_clients() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    server.text("client001", &["signal", &task, "SIGKILL"]);
    let ended = server.ended(&task);
    assert_eq!((&ended["outcome"]["signal"], &ended["outcome"]["reason"]), (&"SIGKILL".into(), &"signal".into()));
    assert_eq!(ended["outcome"]["detail"], "killed by SIGKILL that a client sent");
    assert_eq!(ended["termination_source"], "user");
    // Another than it was sent is its own.
    let task = server.task(&["--", "sh", "-c", "trap 'kill -SEGV $$' USR1; echo ready; while :; do sleep 0.02; done"]);
    assert_eq!(server.begin("client001", &["stream", &task]).line(), "ready");
    server.text("client001", &["signal", &task, "USR1"]);
    let ended = server.ended(&task);
    assert_eq!(ended["outcome"]["detail"], "killed by SIGSEGV of its own doing");
    assert_eq!(ended["termination_source"], "task");
}

#[test]
fn no_signal_is_no_signal_and_an_ended_task_gets_none() {
    let server = Server::start();
    let task = server.task(&["--", "true"]);
    server.ended(&task);
    server.taskman("client001", &["signal", &task, "SIGUSR1"]).assert_refused(125, &["taskman: error: "]);
    let task = server.task(&["--", "sleep", "1000"]);
    for bad in ["SIGNOPE", "0", "65", ""] {
        server.taskman("client001", &["signal", &task, bad]).assert_refused(125, &["signal"]);
    }
    let unknown = "00000000-0000-4000-8000-000000000000";
    server.taskman("client001", &["signal", unknown, "TERM"]).assert_refused(125, &["taskman: error: "]);
    let other = server.task_of("admin", &["--", "sleep", "1000"]);
    server.taskman("client001", &["signal", &other, "KILL"]).assert_refused(125, &["taskman: error: "]);
    assert_eq!(server.status(&other)["status"], "JOB_STATUS_STARTED");
}
