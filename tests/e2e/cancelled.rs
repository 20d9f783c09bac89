//! Requests whose client does not wait for the answer: what they have done stands in the audit log all the same.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use taskman::client::{Client, Credentials, StartTaskRequest};

use crate::support::server::unwatched;
use crate::support::{Server, wait_until};

/// The verb, task and outcome of each record of `verb`.
fn records(server: &Server, verb: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(server.certs().with_file_name("server").join("audit.log")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let of_verb = lines.filter(|line| line["verb"] == verb);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of_verb.map(|line| (text(&line["task"]), text(&line["outcome"]))).collect()
}

#[test]
fn a_start_that_nobody_waits_for_is_recorded_with_its_task() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let credentials = Credentials::from_dir(&server.certs(), "client001").unwrap();
        let client = Client::connect(&server.address, &credentials).await.unwrap();
        for millis in 0..30 {
            let request = StartTaskRequest { command: "true".into(), ..Default::default() };
            // Dropped on the way there, at work, or on the way back: one of these is each.
            let _ = tokio::time::timeout(Duration::from_millis(millis / 2), client.start(request)).await;
        }
        // A server that was slow has seen none of them; these it has.
        for _ in 0..4 {
            let request = StartTaskRequest { command: "true".into(), ..Default::default() };
            while let Err(error) = client.start(request.clone()).await {
                assert!(unwatched(&error.to_string()), "{error}");
            }
        }
    });
    wait_until("every task has its record, and every record its task", || {
        let listed: Value = serde_json::from_str(&server.text("client001", &["list", "--output", "json"])).unwrap();
        let listed = listed["tasks"].as_array().unwrap().iter();
        let mut tasks: Vec<_> = listed.map(|task| task["task_id"].as_str().unwrap().to_owned()).collect();
        let mut recorded: Vec<_> = records(&server, "start").into_iter().map(|(task, _)| task).collect();
        tasks.sort();
        recorded.sort();
        // Starts that are under way come to both, one after the other.
        (tasks.len() > 3 && recorded == tasks).then_some(())
    });
}

#[test]
fn a_wait_that_is_given_up_is_recorded() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "600"]);
    let mut waiting = server.begin("client001", &["wait", &task]);
    assert!(!waiting.ends_within(Duration::from_secs(3)));
    waiting.signal(Signal::SIGKILL);
    wait_until("it is recorded", || {
        (records(&server, "wait") == [(task.clone(), "Cancelled".to_owned())]).then_some(())
    });
    server.text("client001", &["stop", &task, "--grace", "0s"]);
}
