//! A long containment journal: what it adds up to is kept, and nobody reads all of it for each start, stop and finding.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;
use taskman::containment::{Entry, IncidentId, Kind, Line};

use crate::support::Server;

const QUARANTINE: [&str; 4] = ["health", "--quarantine", "--reason", "a drill"];
const LIFT: [&str; 4] = ["health", "--unquarantine", "--reason", "drill over"];

/// A server with its journal, before it is started: so many findings.
fn with_findings(range: u32, count: u64) -> (Server, PathBuf) {
    let mut server = Server::of_uids(range);
    assert_eq!(server.stop().status.code(), Some(0));
    let entry = Entry::Finding { id: IncidentId::new(1), kind: Kind::ZombieDetected, task: None, owner: None };
    let line = |seq| serde_json::to_string(&Line { seq, at: 1, entry: entry.clone() }).unwrap() + "\n";
    let path = server.state().join("containment.jsonl");
    fs::write(&path, (1..=count).map(line).collect::<String>()).unwrap();
    server.restart();
    (server, path)
}

#[track_caller]
fn health(server: &Server, code: i32) -> Value {
    server.taskman("admin", &["health", "--output", "json"]).json(code)
}

#[track_caller]
fn takes_tasks(server: &Server) {
    let task = server.task(&["--", "sleep", "600"]);
    server.text("client001", &["stop", &task, "--grace", "0s"]);
    assert_eq!(server.ended(&task)["outcome"]["reason"], "stopped");
}

#[test]
fn a_journal_of_a_hundred_thousand_lines_is_shortened_and_every_command_goes_on() {
    let (mut server, path) = with_findings(1_961_000_000, 100_000);
    // With the start of the server, and once.
    assert!(fs::metadata(&path).unwrap().len() < 2 << 20, "{:?}", fs::metadata(&path));
    let old = fs::read_to_string(path.with_extension("jsonl.1")).unwrap();
    assert_eq!(old.lines().count(), 100_000);
    takes_tasks(&server);
    for restarted in [false, true] {
        let seen = health(&server, 0);
        assert_eq!((&seen["findings_total"], &seen["can_accept"]), (&100_000.into(), &true.into()), "{seen}");
        server.here(&QUARANTINE).said(0);
        server.refused_start();
        let seen = health(&server, 1);
        assert_eq!((&seen["reason"], &seen["detail"]), (&"manual".into(), &"a drill".into()), "{seen}");
        server.taskman("admin", &LIFT).said(0);
        server.taskman("admin", &["audit", "run"]).said(0);
        server.here(&["audit", "findings"]).said(0);
        server.here(&["health", "--recover"]).said(0);
        takes_tasks(&server);
        if !restarted {
            assert_eq!(server.stop().status.code(), Some(0));
            server.restart();
        }
    }
}

#[test]
fn what_was_read_of_the_journal_is_not_read_again_while_the_server_runs() {
    let (mut server, path) = with_findings(1_961_001_000, 1000);
    assert_eq!(health(&server, 0)["findings_total"], 1000);
    // Whoever reads this finds the damage.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&b"?".repeat(10_000), 0).unwrap();
    takes_tasks(&server);
    server.taskman("admin", &QUARANTINE).said(0);
    let seen = health(&server, 1);
    assert_eq!((&seen["reason"], &seen["findings_total"]), (&"manual".into(), &1000.into()), "{seen}");
    server.refused_start();
    server.taskman("admin", &LIFT).said(0);
    takes_tasks(&server);
    assert_eq!(server.stop().status.code(), Some(0));
    // The next one reads all of it, and an administrator has the last word.
    server.restart();
    assert_eq!(health(&server, 1)["reason"], "state_damaged");
    server.taskman("admin", &LIFT).said(0);
    takes_tasks(&server);
}
