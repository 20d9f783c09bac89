//! The disk is full, or no descriptor is left: what is asked for next is refused or cut short and says so; what runs goes on.

use std::fs;

use tonic::Code;

use crate::support::host::host_text;
use crate::support::supervisor::{SERVER_UID, Tmpfs, nonce};
use crate::support::{HostDir, Process, Server, wait_until};

#[test]
fn s10_a_full_disk_cuts_output_short_and_nothing_else() {
    let dir = HostDir::new();
    let text = "[output]\nreserve = \"1M\"\nstored_per_task = \"16M\"\n";
    let config = dir.file("config.toml", text, 0o644);
    let mut server = Server::with(&["--config", config.to_str().unwrap()]);
    server.stop();
    // Output alone on a disk of its own, of which a task can use up all but the reserve and one segment.
    let output = server.state().join("server/output");
    let disk = Tmpfs::mount(&output, &format!("size=12M,mode=0700,uid={SERVER_UID},gid={SERVER_UID}"));
    server.restart();
    let flood = "yes 0123456789abcde | head -c 20000000; sleep 0.2; echo end; exit 3";
    let flooding = server.task(&["--", "sh", "-c", flood]);
    let ended = server.ended(&flooding);
    assert_eq!((&ended["outcome"]["reason"], &ended["outcome"]["exit_code"]), (&"exit".into(), &3.into()), "{ended:#}");
    assert_eq!((&ended["output"]["truncation"], &ended["output"]["bytes"]), (&"disk_full".into(), &20_000_004.into()));
    let omitted = ended["output"]["omitted_bytes"].as_u64().unwrap();
    let stored = server.output(&flooding);
    assert_eq!(stored.len() as u64 + omitted, 20_000_004);
    assert!(stored.len() > 4 << 20 && stored.chunks(16).all(|line| line == b"0123456789abcde\n"), "{}", stored.len());
    // To the last block: a task's life and its status do not depend on it.
    let filler = disk.fill(16);
    let runs = server.task(&["--", "sh", "-c", "echo lost; exit 4"]);
    let ended = server.ended(&runs);
    assert_eq!((&ended["outcome"]["exit_code"], &ended["output"]["truncation"]), (&4.into(), &"disk_full".into()));
    assert_eq!((&ended["output"]["bytes"], &ended["containment"]["verdict"]), (&5.into(), &"proven".into()));
    assert_eq!(server.list().len(), 2, "the API answers");
    fs::remove_file(filler).unwrap();
    fs::remove_dir_all(output.join(&flooding)).unwrap();
    let fine = server.task(&["--", "sh", "-c", "seq 50000"]);
    assert_eq!(server.ended(&fine)["output"]["truncation"], serde_json::Value::Null);
    let wanted: String = (1..=50000).map(|n| format!("{n}\n")).collect();
    assert!(server.output(&fine) == wanted.as_bytes(), "there is room again");
    let log = server.stop().stderr;
    assert!(log.contains("a task's output is truncated"), "{log}");
}

/// Starts until one is refused; gives the ones that were not.
#[track_caller]
fn start_until_refused(server: &Server, words: &[&str]) -> Vec<String> {
    let mut tasks = Vec::new();
    loop {
        let start: Vec<_> = ["start", "--output", "json", "--nofile", "64"].iter().chain(words).copied().collect();
        let ended = server.taskman("client001", &start);
        if ended.status.code() != Some(0) {
            ended.assert_refused(125, &["which is its limit"]);
            assert_eq!(server.refused_start().0, Code::ResourceExhausted);
            return tasks;
        }
        let started: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        tasks.push(started["task_id"].as_str().unwrap().to_owned());
        assert!(tasks.len() < 100, "never refused");
    }
}

#[test]
fn s11_with_few_descriptors_starts_are_refused_and_streams_go_on() {
    let mut server = Server::prepare(&[]);
    server.under = vec!["prlimit".into(), "--nofile=256:256".into()];
    server.launch();
    let nonce = nonce();
    let env = format!("NONCE={nonce}");
    let count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; [ $((i % 1000)) != 0 ] || sleep 0.05; done; exec sleep 1000";
    let counting = server.task(&["--nofile", "64", "--env", &env, "--", "sh", "-c", count]);
    let mut reader = server.begin("client001", &["stream", &counting]);
    assert_eq!(reader.line(), "1");
    // Connections that only stand there take descriptors too.
    let port = server.address.rsplit_once(':').unwrap().1.parse().unwrap();
    let idle: Vec<_> = (0..200).filter_map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).ok()).collect();
    drop(idle);
    let is_reached = || server.taskman("client001", &["list"]).status.success().then_some(());
    wait_until("those that stood there have made room", is_reached);
    let tasks = start_until_refused(&server, &["--split-output", "--env", &env, "--", "sleep", "1000"]);
    assert!(tasks.len() >= 3, "{tasks:?}");
    for process in [server.launcher(), server.half()] {
        assert!(process.list("fd").len() < 240, "{}", process.list("fd").len());
    }
    server.text("client001", &["stop", &tasks[0]]);
    server.ended(&tasks[0]);
    let again = start_until_refused(&server, &["--split-output", "--env", &env, "--", "sleep", "1000"]);
    assert_eq!(again.len(), 1, "there is room for the one that ended");
    while reader.line() != "100000" {}
    server.text("client001", &["stop", &counting]);
    let ended = reader.end();
    let wanted: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert!(ended.text() == wanted, "the stream has a gap: {} of {} bytes", ended.stdout.len(), wanted.len());
    let traces = server.traces(&nonce);
    let stopped = server.stop();
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    assert!(stopped.stderr.contains("256 open files have room for"), "{}", stopped.stderr);
    traces.assert_nothing_left();
}

/// Sets the soft limit of a process's open files, and gives what it was.
fn limit_files(process: Process, soft: u64) -> u64 {
    let before = process.limit("Max open files").0.parse().unwrap();
    let (pid, limit) = (format!("--pid={}", process.pid), format!("--nofile={soft}:"));
    host_text(&["prlimit", &pid, &limit]);
    before
}

#[test]
fn s11_a_launcher_that_can_open_nothing_more_refuses_starts_and_watches_on() {
    let server = Server::start();
    let nonce = nonce();
    let running = server.marked(&nonce, &[], "trap 'echo still here' USR1");
    let timed = server.task(&["--timeout", "2s", "--", "sleep", "1000"]);
    let mut reader = server.begin("client001", &["stream", &running]);
    assert_eq!(reader.line(), "ready");
    let launcher = server.launcher();
    // Three numbers are left where it opens most: enough to begin a start, and not to finish it.
    let taken: Vec<u64> = launcher.list("fd").iter().map(|fd| fd.parse().unwrap()).collect();
    let fourth = (64..).filter(|number| !taken.contains(number)).nth(3).unwrap();
    let before = limit_files(launcher, fourth);
    for _ in 0..5 {
        let (code, text) = server.refused_start();
        assert_eq!(code, Code::ResourceExhausted, "{text}");
        assert!(text.contains("EMFILE"), "{text}");
    }
    assert_eq!(server.ended(&timed)["outcome"]["reason"], "wall_time");
    assert_eq!(server.ended(&timed)["containment"]["verdict"], "proven");
    limit_files(launcher, before);
    let next = server.task(&["--", "true"]);
    assert_eq!(server.ended(&next)["outcome"]["reason"], "exit");
    server.text("client001", &["stop", &running, "--grace", "0s"]);
    assert_eq!(server.ended(&running)["containment"]["verdict"], "proven");
    assert_eq!(reader.end().text(), "ready\n");
    server.traces(&nonce).assert_nothing_left();
}
