//! `taskman stream`: every byte once and in order, from any place, live, afterwards, and over broken connections.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::supervisor::send;
use crate::support::{GUARD, HostDir, Server, Started};

#[test]
fn output_is_byte_exact_for_many_readers_live_and_afterwards() {
    let server = Server::start();
    let script = "import os,sys\nfor i in range(64): os.write(1, bytes((i * 7 + j) % 256 for j in range(16384)))";
    let wanted: Vec<u8> = (0..64u32).flat_map(|i| (0..16384u32).map(move |j| ((i * 7 + j) % 256) as u8)).collect();
    let task = server.task(&["--", "/usr/bin/python3", "-c", script]);
    let readers: Vec<Started> = (0..4).map(|_| server.begin("client001", &["stream", &task])).collect();
    for reader in readers {
        let ended = reader.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stdout == wanted, "a live reader got {} bytes, or others", ended.stdout.len());
    }
    let ended = server.taskman("client001", &["stream", &task]);
    assert!(ended.stdout == wanted, "a late reader got {} bytes, or others", ended.stdout.len());
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_reader_may_begin_anywhere_and_need_not_follow() {
    let server = Server::start();
    let task = server.task(&["--", "sh", "-c", "printf 0123456789; exec sleep 1000"]);
    let live = server.begin("client001", &["stream", &task, "--offset", "8"]);
    let read = |words: &[&str]| {
        let words: Vec<_> = ["stream", &task].iter().chain(words).copied().collect();
        server.text("client001", &words)
    };
    crate::support::wait_until("the output is stored", || (read(&["--no-follow"]) == "0123456789").then_some(()));
    assert_eq!(read(&["--no-follow", "--offset", "4"]), "456789");
    assert_eq!(read(&["--no-follow", "--tail", "3"]), "789");
    assert_eq!(read(&["--no-follow", "--tail", "0"]), "");
    assert_eq!(read(&["--no-follow", "--tail", "99"]), "0123456789");
    assert!(!live.ends_within(Duration::from_millis(100)), "a follower goes on");
    server.text("client001", &["stop", &task]);
    assert_eq!(live.end().text(), "89");
}

#[test]
fn split_output_is_read_together_or_apart() {
    let server = Server::start();
    let task = server.task(&["--split-output", "--", "sh", "-c", "echo out; echo err >&2"]);
    let ended = server.taskman("client001", &["stream", &task]);
    assert_eq!((ended.text().as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(server.text("client001", &["stream", &task, "--stdout"]), "out\n");
    assert_eq!(server.text("client001", &["stream", &task, "--stderr"]), "err\n", "alone, it can be piped");
    assert_eq!(server.text("client001", &["stream", &task, "--stderr", "--offset", "2"]), "r\n");
    let joined = server.task(&["--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!(server.text("client001", &["stream", &joined]), "out\nerr\n");
    server.taskman("client001", &["stream", &joined, "--stderr"]).assert_refused(125, &["split"]);
}

#[test]
fn control_c_leaves_the_task_running_and_says_how_to_go_on() {
    let server = Server::start();
    let task = server.task(&["--", "sh", "-c", "echo 12345; exec sleep 1000"]);
    let mut reader = server.begin("client001", &["stream", &task]);
    assert_eq!(reader.line(), "12345");
    reader.signal(Signal::SIGINT);
    let ended = reader.end();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let wanted = format!(
        "taskman: interrupted; this does not stop task {task}\n\
         taskman: to go on with its output: taskman stream {task} --offset 6\n"
    );
    assert_eq!(ended.stderr, wanted);
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
}

#[test]
fn a_reader_that_went_away_ends_the_stream_quietly() {
    let server = Server::start();
    let task = server.task(&["--", "sh", "-c", "yes | head -c 8000000; while :; do echo y; sleep 0.1; done"]);
    let mut reader = server.begin("client001", &["stream", &task]);
    assert_eq!(reader.line(), "y");
    reader.close_stdout();
    let ended = reader.end();
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
}

#[test]
fn output_survives_an_orderly_restart() {
    let mut server = Server::start();
    let ended = server.task(&["--", "echo", "kept"]);
    server.ended(&ended);
    let running = server.task(&["--", "sh", "-c", "echo so far; exec sleep 1000"]);
    let mut reader = server.begin("client001", &["stream", &running]);
    assert_eq!(reader.line(), "so far");
    assert_eq!(server.stop().status.code(), Some(0));
    server.restart();
    assert_eq!(reader.end().text(), "so far\n", "the reader went on at the restarted server");
    assert_eq!(server.text("client001", &["stream", &ended]), "kept\n");
    assert_eq!(server.ended(&running)["outcome"]["reason"], "server_shutdown");
}

#[test]
fn a_stream_goes_on_where_it_stopped_when_the_server_was_killed_and_restarted() {
    let mut server = Server::start();
    let task = server.task(&["--", "sh", "-c", "seq 20000; exec sleep 1000"]);
    let mut reader = server.begin("client001", &["stream", &task]);
    while reader.line() != "20000" {}
    // The process that has the connection: without its launcher alone it could still tell the end of the output.
    send(server.half(), Signal::SIGKILL);
    while !reader.error_line().contains("trying again") {}
    server.end();
    server.restart();
    let ended = reader.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let wanted: String = (1..=20000).map(|n| format!("{n}\n")).collect();
    assert!(ended.text() == wanted, "bytes were lost or repeated: {} of {}", ended.stdout.len(), wanted.len());
    assert_eq!(server.ended(&task)["outcome"]["reason"], "server_lost");
}

#[test]
fn what_was_too_much_to_store_is_told_and_head_and_tail_are_there() {
    let dir = HostDir::new();
    let config = dir.file("config.toml", "[output]\nstored_per_task = \"1M\"\n", 0o644);
    let server = Server::with(&["--config", config.to_str().unwrap()]);
    let task = server.task(&["--", "sh", "-c", "echo head; yes | head -c 8000000; echo tail"]);
    let status = server.ended(&task);
    let omitted = status["output"]["omitted_bytes"].as_u64().unwrap();
    assert!(omitted > 6_000_000, "{status:#}");
    assert_eq!(
        (&status["output"]["bytes"], &status["output"]["truncation"]),
        (&8_000_010.into(), &"output_cap".into())
    );
    let ended = server.taskman("client001", &["stream", &task]);
    assert_eq!(ended.stderr, format!("taskman: {omitted} bytes omitted\n"));
    assert!(ended.text().starts_with("head\ny\n") && ended.text().ends_with("y\ntail\n"));
    assert_eq!(ended.stdout.len() as u64 + omitted, 8_000_010);
}

#[test]
fn a_killed_writer_does_not_hold_the_stream_open() {
    let server = Server::start();
    let task = server.task(&["--", "sh", "-c", "setsid sleep 1000 & echo done"]);
    let ended = Started::spawn(server.command("client001", &["stream", &task]), HostDir::new(), GUARD).end();
    assert_eq!((ended.status.code(), ended.text().as_str()), (Some(0), "done\n"), "{ended:?}");
}

#[test]
fn a_task_that_writes_too_much_at_once_is_ended_every_time() {
    let server = Server::start();
    // The limit is passed before the server has written down that the task runs.
    for round in 0..12 {
        let task = server.task(&["--output-limit", "1K", "--timeout", "30s", "--", "yes"]);
        assert_eq!(server.ended(&task)["outcome"]["reason"], "output_limit", "round {round}");
    }
}
