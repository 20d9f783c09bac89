//! What is forgotten of ended tasks, and what never is.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{Server, wait_until};

/// Tasks of which something is stored.
fn stored(server: &Server) -> BTreeSet<String> {
    let entries = std::fs::read_dir(server.state().join("server/output")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn listed(server: &Server) -> BTreeSet<String> {
    server.list().iter().map(|task| task["task_id"].as_str().unwrap().to_owned()).collect()
}

/// Runs tasks under `bounds`, one by one, until just `kept` of them are known; a running one is known all the time.
#[track_caller]
fn forgets(bounds: &str, commands: &[&str], kept: &[usize]) {
    let server = Server::with(&["--retain", bounds]);
    let running = server.task(&["--", "sh", "-c", "seq 1000; exec sleep 1000"]);
    let run = |command: &&str| {
        let task = server.task(&["--", "sh", "-c", command]);
        server.ended(&task);
        task
    };
    let tasks: Vec<String> = commands.iter().map(run).collect();
    let wanted: BTreeSet<_> = kept.iter().map(|at| tasks[*at].clone()).chain([running.clone()]).collect();
    wait_until("the rest is forgotten", || (listed(&server) == wanted && stored(&server) == wanted).then_some(()));
    assert_eq!(server.status(&running)["status"], "JOB_STATUS_STARTED");
    for (_, task) in tasks.iter().enumerate().filter(|(at, _)| !kept.contains(at)) {
        server.taskman("client001", &["get-status", task]).assert_refused(125, &["not found"]);
        server.taskman("client001", &["stream", task]).assert_refused(125, &["not found"]);
    }
}

#[test]
fn more_ended_tasks_than_count_are_forgotten_oldest_first() {
    forgets("count=2", &["echo 1", "echo 2", "echo 3", "echo 4"], &[2, 3]);
}

#[test]
fn more_stored_bytes_than_allowed_are_forgotten_oldest_first() {
    forgets("bytes=100K", &["head -c 40000 /dev/zero", "head -c 40000 /dev/zero", "head -c 40000 /dev/zero"], &[1, 2]);
}

#[test]
fn what_is_older_than_age_is_forgotten_also_after_a_restart() {
    let mut server = Server::with(&["--retain", "age=1h"]);
    let old = server.task(&["--", "echo", "old"]);
    server.ended(&old);
    assert_eq!(stored(&server).len(), 1);
    server.stop();
    std::thread::sleep(Duration::from_millis(1100));
    server.options = vec!["--retain".into(), "age=1s".into()];
    server.restart();
    wait_until("it is forgotten", || (listed(&server).is_empty() && stored(&server).is_empty()).then_some(()));
    let running = server.task(&["--", "sleep", "1000"]);
    let short = server.task(&["--", "sleep", "1.5"]);
    server.ended(&short);
    assert!(listed(&server).contains(&running), "a running task is older than that, and never forgotten");
}

/// M3 of the review: one user's tasks erased another's results.
#[test]
fn one_users_tasks_do_not_erase_anothers() {
    let server = Server::with(&["--retain", "count=6"]);
    let run = |user: &str, text: &str| {
        let said = server.text(user, &["start", "--follow", "--", "echo", text]);
        assert_eq!(said, format!("{text}\n"));
    };
    for number in 0..3 {
        run("client001", &format!("precious {number}"));
    }
    for _ in 0..9 {
        run("admin", "flood");
    }
    let held = |user: &str| {
        let listed = server.text(user, &["list", "--output", "json"]);
        listed.matches("\"task_id\"").count()
    };
    wait_until("the flood is forgotten", || (held("admin") == 3).then_some(()));
    assert_eq!(held("client001"), 3, "half of what is retained is theirs");
}
