//! The ways to end a server in order, one server per state directory, and what it reads anew while it runs.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::server::TASKMAN_SERVER;
use crate::support::supervisor::{Stopped, nonce, send};
use crate::support::{GUARD, HostDir, Server, Started, pace, wait_until};

/// A server whose tasks have two seconds to end.
fn quick() -> (Server, HostDir) {
    let dir = HostDir::new();
    let config = dir.file("config.toml", "[stop]\nshutdown = \"2s\"\n", 0o644);
    (Server::with(&["--config", config.to_str().unwrap()]), dir)
}

#[track_caller]
fn assert_shut_down(server: &Server, task: &str, signal: &str) -> Value {
    let ended = server.status(task);
    let outcome = &ended["outcome"];
    assert_eq!((&outcome["reason"], &outcome["signal"]), (&"server_shutdown".into(), &signal.into()), "{ended:#}");
    assert_eq!(ended["containment"]["verdict"], "proven", "{ended:#}");
    ended
}

#[test]
fn s14_sigterm_stops_every_task_records_it_and_ends_in_time() {
    let (mut server, _config) = quick();
    let nonce = nonce();
    let polite = server.marked(&nonce, &[], "trap 'seq 20000; echo bye; exit 9' TERM");
    let plain = server.marked(&nonce, &[], "true");
    let deaf = server.marked(&nonce, &[], "trap '' TERM HUP INT; setsid sleep 1000 &");
    let mut readers = [&polite, &plain, &deaf].map(|task| server.begin("client001", &["stream", task]));
    // They are there before the end.
    for reader in &mut readers {
        while reader.line() != "ready" {}
    }
    let traces = server.traces(&nonce);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    traces.assert_nothing_left();
    // Two seconds for the deaf one, and margin; its bound is fifteen more.
    server.restart();
    let by_itself = server.status(&polite);
    assert_eq!(by_itself["outcome"]["reason"], "server_shutdown", "{by_itself:#}");
    assert_eq!(
        (&by_itself["outcome"]["exit_code"], &by_itself["containment"]["verdict"]),
        (&9.into(), &"proven".into())
    );
    assert_shut_down(&server, &plain, "SIGTERM");
    let killed = assert_shut_down(&server, &deaf, "SIGKILL");
    assert!((2000..17_000).contains(&killed["usage"]["wall_ms"].as_u64().unwrap()), "{killed:#}");
    let last: String = (1..=20000).map(|n| format!("{n}\n")).chain(["bye\n".into()]).collect();
    assert!(server.output(&polite).ends_with(last.as_bytes()), "its last words were not stored");
    for (reader, task) in readers.into_iter().zip([&polite, &plain, &deaf]) {
        let ended = reader.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(ended.stdout == server.output(task), "a reader was not given all of it");
    }
}

#[test]
fn s14_while_it_drains_starts_are_unavailable_and_a_second_signal_kills_at_once() {
    let mut server = Server::start();
    let nonce = nonce();
    let deaf = server.marked(&nonce, &[], "trap '' TERM");
    let traces = server.traces(&nonce);
    send(server.launcher(), Signal::SIGTERM);
    while !server.log_line().contains("told to stop") {}
    let (code, text) = server.refused_start();
    assert_eq!(code, tonic::Code::Unavailable, "{text}");
    assert_eq!(server.status(&deaf)["ending"], false, "it was not asked by its owner");
    assert!(!server.ends_within(Duration::from_millis(500)), "its grace of ten seconds is not over");
    send(server.launcher(), Signal::SIGTERM);
    assert!(server.ends_within(pace::time(Duration::from_secs(5))), "the second signal was not heeded");
    assert_eq!(server.end().status.code(), Some(0));
    traces.assert_nothing_left();
    server.restart();
    assert_shut_down(&server, &deaf, "SIGKILL");
}

#[test]
fn s14_an_interrupt_to_the_whole_foreground_group_is_an_orderly_end() {
    let (mut server, _config) = quick();
    server.stop();
    let mut command = server.command_line();
    command.process_group(0);
    let mut process = Started::spawn(command, HostDir::new(), GUARD);
    while !process.error_line().contains("listening on") {}
    let task = server.task(&["--", "sleep", "1000"]);
    killpg(Pid::from_raw(process.pid()), Signal::SIGINT).unwrap();
    let ended = process.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    server.restart();
    assert_shut_down(&server, &task, "SIGTERM");
}

#[test]
fn a_second_server_on_the_same_state_is_refused_and_the_first_undisturbed() {
    let mut server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let second = |server: &Server| Started::spawn(server.command_line(), HostDir::new(), GUARD).end();
    second(&server).assert_refused(1, &["another taskman-server runs on this state directory", "--state-dir"]);
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
    // A path from here is taken, and it is said where it leads.
    let mut from_here = Command::new(TASKMAN_SERVER);
    from_here.args(["--dev", "--state-dir", "state"]).current_dir(server.state().parent().unwrap());
    let named = format!("the state directory is {}", server.state().display());
    Started::spawn(from_here, HostDir::new(), GUARD).end().assert_refused(1, &["another taskman-server", &named]);
    // The network-facing half of a killed pair goes with it, also one that stands still, and keeps neither port nor lock.
    let half = server.half();
    let stopped = Stopped::new(half);
    send(server.launcher(), Signal::SIGKILL);
    assert!(server.ends_within(GUARD));
    wait_until("the other half has ended", || (!half.path("status").exists()).then_some(()));
    drop(stopped);
    assert_ne!(server.end().status.code(), Some(0));
    server.restart();
    assert_eq!(server.status(&task)["outcome"]["reason"], "server_lost");
}

#[test]
fn s14_certificates_are_replaced_without_dropping_a_stream_and_bad_ones_are_not_taken() {
    let mut server = Server::start();
    let certs = server.certs();
    let certs_text = certs.to_str().unwrap().to_owned();
    let task = server.task(&["--", "sh", "-c", "echo first; trap 'echo second' USR1; while :; do sleep 0.05; done"]);
    server.text("admin", &["certs", "issue", "bob", "--certs", &certs_text]);
    let bobs = server.task_of("bob", &["--", "sh", "-c", "echo bob; exec sleep 1000"]);
    let mut reader = server.begin("client001", &["stream", &task]);
    let mut bobs_reader = server.begin("bob", &["stream", &bobs]);
    assert_eq!((reader.line().as_str(), bobs_reader.line().as_str()), ("first", "bob"));
    let old = fs::read(certs.join("server.crt")).unwrap();
    server.text("admin", &["certs", "renew", "--certs", &certs_text]);
    assert_ne!(fs::read(certs.join("server.crt")).unwrap(), old);
    while !server.log_line().contains("certificates were reloaded") {}
    // Garbage, and a key that others can read: the ones in use stay.
    let good = fs::read(certs.join("server.crt")).unwrap();
    fs::write(certs.join("server.crt"), "garbage").unwrap();
    while !server.log_line().contains("the old ones stay in force") {}
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED", "a new connection is served");
    fs::write(certs.join("server.crt"), good).unwrap();
    while !server.log_line().contains("certificates were reloaded") {}
    send(server.launcher(), Signal::SIGHUP);
    while !server.log_line().contains("certificates were reloaded") {}
    server.text("admin", &["certs", "revoke", "bob", "--certs", &certs_text]);
    while !server.log_line().contains("certificates were reloaded") {}
    server.taskman("bob", &["list"]).assert_refused(125, &["revoked"]);
    let ended = bobs_reader.end();
    assert_ne!(ended.status.code(), Some(0), "a revoked reader went on: {ended:?}");
    // The other stream has not noticed any of it.
    server.text("client001", &["signal", &task, "USR1"]);
    assert_eq!(reader.line(), "second");
    server.text("client001", &["stop", &task, "--grace", "0s"]);
    let ended = reader.end();
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
}
