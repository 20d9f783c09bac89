//! `taskman list`: one's own tasks, newest first; everyone's for an administrator.

use serde_json::Value;

use crate::support::Server;

#[track_caller]
fn ids(server: &Server, user: &str, options: &[&str]) -> Vec<String> {
    let words: Vec<_> = ["list", "--output", "json"].iter().chain(options).copied().collect();
    let listed: Value = serde_json::from_str(&server.text(user, &words)).unwrap();
    listed["tasks"].as_array().unwrap().iter().map(|task| task["task_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn owners_see_their_own_newest_first_and_administrators_everyones() {
    let server = Server::start();
    let first = server.task(&["--label", "build=1", "--", "true"]);
    let second = server.task(&["--label", "build=2", "--label", "kind=test", "--", "sleep", "1000"]);
    let other = server.task_of("admin", &["--", "true"]);
    server.ended(&first);
    server.ended(&other);
    let client = |options: &[&str]| ids(&server, "client001", options);
    let admin = |options: &[&str]| ids(&server, "admin", options);
    assert_eq!(client(&[]), [&*second, &*first]);
    assert_eq!(client(&["--limit", "1"]), [&*second]);
    assert_eq!(client(&["--state", "running"]), [&*second]);
    assert_eq!(client(&["--state", "exited", "--state", "failed"]), [&*first]);
    // As it was written before.
    assert_eq!(client(&["--state", "started"]), [&*second]);
    assert_eq!(client(&["--state", "exited-ok", "--state", "exited-error"]), [&*first]);
    assert_eq!(client(&["--label", "build=2", "--label", "kind=test"]), [&*second]);
    assert_eq!(client(&["--label", "build=1", "--label", "kind=test"]), [""; 0]);
    let table = server.text("client001", &["list"]);
    assert!(table.contains("  running  -          -       sleep 1000\n"), "{table}");
    assert!(table.contains("  exited   0          exit    true\n"), "{table}");
    assert_eq!(admin(&[]), [&*other]);
    assert_eq!(admin(&["--all"]), [&*other, &*second, &*first]);
    assert_eq!(admin(&["--owner", "client001"]), [&*second, &*first]);
    for widened in [&["list", "--all"][..], &["list", "--owner", "admin"]] {
        server.taskman("client001", widened).assert_refused(125, &["taskman: error: "]);
    }
}

/// What a signal ended, and what nobody saw end.
#[test]
fn a_filter_knows_every_state() {
    let mut server = Server::start();
    let ended = server.task(&["--", "true"]);
    server.ended(&ended);
    let killed = server.task(&["--", "sleep", "1000"]);
    server.text("client001", &["signal", &killed, "KILL"]);
    server.ended(&killed);
    let lost = server.task(&["--", "sleep", "1000"]);
    server.kill();
    server.restart();
    let client = |options: &[&str]| ids(&server, "client001", options);
    assert_eq!(client(&["--state", "signaled"]), [&*killed]);
    assert_eq!(client(&["--state", "unknown"]), [&*lost]);
    assert_eq!(client(&["--state", "unknown", "--state", "signaled"]), [&*lost, &*killed]);
}

#[test]
fn the_table_has_a_line_per_task_over_many_pages() {
    let server = Server::start();
    let tasks: Vec<_> = (0..12).map(|n| server.task(&["--", "echo", &n.to_string()])).collect();
    let text = server.text("client001", &["list", "--limit", "11"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2 + 11, "{text}");
    assert!(lines[0].starts_with("TASK ID") && lines[0].ends_with("COMMAND"), "{text}");
    assert!(lines[2].starts_with(&tasks[11]) && lines[2].ends_with("echo 11"), "{text}");
}

#[test]
fn a_question_of_too_many_pieces_is_refused() {
    let server = Server::start();
    let labels: Vec<String> = (0..65).map(|number| format!("--label=k{number}=v")).collect();
    let words: Vec<&str> = ["list"].into_iter().chain(labels.iter().map(String::as_str)).collect();
    server.taskman("client001", &words).assert_refused(125, &["--label: at most 64 "]);
    server.text("client001", &words[..65]);
}
