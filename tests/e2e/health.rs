//! `taskman health`: quarantine is in force at once and over restarts, is lifted by an administrator with a reason when nothing
//! is left, and everything about it is in the audit log once; over the network, and on the host without a server.

use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use taskman::proto::task_manager as pb;
use taskman::proto::task_manager::containment_client::ContainmentClient;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::rpc::{channel, connect, identity, on, sh, start};
use crate::support::{Ended, GUARD, HostDir, Server, Started, wait_until};

const RUNBOOK: &str = "runbooks/worker-quarantine.md";

#[track_caller]
fn health(server: &Server, code: i32) -> Value {
    server.taskman("admin", &["health", "--output", "json"]).json(code)
}

/// What gRPC health says of each service.
async fn serving(server: &Server) -> Vec<ServingStatus> {
    let channel = channel(server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap();
    let mut health = HealthClient::new(channel);
    let mut seen = Vec::new();
    for service in ["", "task_manager.TaskManager", "task_manager.Containment"] {
        seen.push(health.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner().status());
    }
    seen
}

#[test]
fn a_quarantine_refuses_starts_lasts_over_a_restart_and_ends_with_a_reason() {
    let mut server = Server::of_uids(1_910_100_000);
    let well = health(&server, 0);
    assert_eq!((&well["status"], &well["can_accept"]), (&"healthy".into(), &true.into()));
    assert!(well["auditor"].as_str().unwrap().starts_with("watching"), "{well}");
    assert!(well["heartbeat_age_ms"].as_u64().is_some_and(|age| age < 5000), "{well}");
    assert_eq!(on(serving(&server)), [ServingStatus::Serving; 3]);
    let running = server.task(&["--", "sh", "-c", "trap 'echo heard' USR1; echo up; while :; do sleep 0.05; done"]);
    let retried = pb::StartTaskRequest { client_token: "t".into(), ..sh("true") };
    let first = on(async { start(&mut connect(&server, "client001").await, retried.clone()).await.unwrap() });

    let quarantined = server.taskman("admin", &["health", "--quarantine", "--reason", "a drill", "--output", "json"]);
    let seen = quarantined.json(0);
    assert_eq!(
        (&seen["status"], &seen["reason"], &seen["by"]),
        (&"quarantined".into(), &"manual".into(), &"admin".into())
    );
    for restarted in [false, true] {
        if restarted {
            assert_eq!(server.stop().status.code(), Some(0));
            server.restart();
        }
        let seen = health(&server, 1);
        assert_eq!((&seen["can_accept"], &seen["detail"]), (&false.into(), &"a drill".into()), "{restarted}");
        let (code, message) = server.refused_start();
        assert_eq!(code, Code::FailedPrecondition, "{message}");
        assert!(message.contains("a drill") && message.contains(RUNBOOK), "{message}");
        assert_eq!(on(serving(&server)), [ServingStatus::NotServing; 3], "{restarted}");
        let again = on(async { start(&mut connect(&server, "client001").await, retried.clone()).await });
        assert_eq!(again.unwrap(), first, "what was started before the quarantine is found by its token");
        if !restarted {
            assert_eq!(server.status(&running)["status"], "JOB_STATUS_STARTED");
            let mut output = server.begin("client001", &["stream", &running]);
            assert_eq!(output.line(), "up");
            server.text("client001", &["signal", &running, "USR1"]);
            assert_eq!(output.line(), "heard");
            server.text("client001", &["stop", &running, "--grace", "0s"]);
            assert_eq!(server.ended(&running)["outcome"]["reason"], "stopped");
        }
    }

    server.taskman("admin", &["health", "--unquarantine"]).assert_refused(125, &["--reason"]);
    assert_eq!(health(&server, 1)["status"], "quarantined");
    let lifted = server.taskman("admin", &["health", "--unquarantine", "--reason", "drill over", "--output", "json"]);
    assert_eq!(lifted.json(0)["status"], "healthy");
    wait_until("gRPC health says so too", || (on(serving(&server)) == [ServingStatus::Serving; 3]).then_some(()));
    assert_eq!(server.ended(&server.task(&["--", "true"]))["outcome"]["exit_code"], 0);

    let wanted = [
        json!([1, "quarantine", "admin", "manual", "a drill"]),
        json!([2, "unquarantine", "admin", "ok", "drill over"]),
    ];
    wait_until("the journal is in the audit log", || (server.journalled().len() >= 2).then_some(()));
    server.stop();
    server.restart();
    server.kill();
    server.restart();
    health(&server, 0);
    assert_eq!(server.stop().status.code(), Some(0));
    assert_eq!(server.journalled(), wanted, "once, over an orderly and a disorderly restart");
}

#[test]
fn the_worker_is_for_administrators_alone_and_reasons_are_required() {
    let server = Server::of_uids(1_910_101_000);
    for words in [
        &["health"][..],
        &["health", "--quarantine", "--reason", "mine"],
        &["health", "--unquarantine", "--reason", "mine"],
        &["health", "--recover"],
        &["health", "--verify-clean"],
        &["audit", "run"],
        &["audit", "findings"],
        &["audit", "show", "20260102-030405678-00000000"],
    ] {
        server.taskman("client001", words).assert_refused(125, &["is for administrators"]);
    }
    on(async {
        let client = |user: &'static str| {
            let server = &server;
            async move { ContainmentClient::new(channel(server, identity(&server.certs(), user), 1 << 20).await.unwrap()) }
        };
        let (mut user, mut admin) = (client("client001").await, client("admin").await);
        let denied = user.get_health(pb::GetHealthRequest {}).await.unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied);
        for reason in ["", "  ", "two\nlines"] {
            let request = pb::QuarantineRequest { reason: reason.into() };
            assert_eq!(admin.quarantine(request).await.unwrap_err().code(), Code::InvalidArgument, "{reason:?}");
            let request = pb::LiftQuarantineRequest { reason: reason.into(), ..Default::default() };
            assert_eq!(admin.lift_quarantine(request).await.unwrap_err().code(), Code::InvalidArgument, "{reason:?}");
        }
    });
    assert_eq!(health(&server, 0)["status"], "healthy");
    let denials = server.audit().iter().filter(|line| line.contains("PermissionDenied")).count();
    assert_eq!(denials, 9, "each refusal is on record");
    assert_eq!(server.journalled(), Vec::<Value>::new());
}

/// A file of a uid that no task has; gone with the test.
struct Left(PathBuf);

impl Left {
    fn plant(uid: u32) -> Self {
        let path = PathBuf::from(format!("/dev/shm/taskman-left-{uid}"));
        std::fs::write(&path, "left").unwrap();
        chown(&path, Some(uid), Some(uid)).unwrap();
        Self(path)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Quarantined, with something left: refused, recovered, verified, lifted; by whoever `ask` is.
#[track_caller]
fn lifecycle(uid: u32, ask: impl Fn(&[&str]) -> Ended) {
    assert_eq!(ask(&["health", "--verify-clean", "--output", "json"]).json(0), json!({"clean": true, "leftovers": []}));
    ask(&["health", "--quarantine", "--reason", "a leak", "--output", "json"]).json(0);
    let left = Left::plant(uid);
    let name = left.0.to_str().unwrap();
    let seen = ask(&["health", "--verify-clean", "--output", "json"]).json(1);
    assert!(seen["clean"] == false && seen["leftovers"].to_string().contains(name), "{seen}");
    let refused = ask(&["health", "--unquarantine", "--reason", "too early"]);
    assert!(refused.said(1).contains(name) && refused.stderr.contains("taskman: error: "), "{refused:?}");
    assert_eq!(ask(&["health", "--output", "json"]).json(1)["status"], "quarantined", "it was not lifted");
    let swept = ask(&["health", "--recover", "--output", "json"]).json(0);
    let file = swept["swept"].as_array().unwrap().iter().find(|one| one["leftover"]["name"] == name);
    assert_eq!(file.unwrap_or_else(|| panic!("{swept}"))["error"], Value::Null);
    assert!(!left.0.exists());
    assert_eq!(ask(&["health", "--verify-clean"]).said(0), "clean: nothing is left\n");
    assert_eq!(ask(&["health", "--recover"]).said(0), "nothing was left to sweep\n");
    let lifted = ask(&["health", "--unquarantine", "--reason", "swept", "--output", "json"]);
    assert_eq!(lifted.json(0)["status"], "healthy");
}

#[test]
fn quarantine_is_not_lifted_while_something_is_left() {
    let server = Server::of_uids(1_910_102_000);
    lifecycle(1_910_102_005, |words| server.taskman("admin", words));
    let task = server.task(&["--", "true"]);
    assert_eq!(server.ended(&task)["outcome"]["exit_code"], 0);
}

#[test]
fn without_a_server_root_has_the_same_on_the_host_and_the_server_hears_of_it() {
    let mut server = Server::of_uids(1_910_103_000);
    let seen = server.here(&["health", "--output", "json"]).json(0);
    assert!(seen["auditor"].as_str().unwrap().starts_with("watching"), "{seen}");
    server.stop();
    let seen = server.here(&["health", "--output", "json"]).json(0);
    assert_eq!((&seen["auditor"], &seen["can_accept"]), (&"not running".into(), &true.into()));
    lifecycle(1_910_103_005, |words| server.here(words));
    server.here(&["health", "--quarantine", "--reason", "disk swap"]).said(0);
    server.restart();
    let seen = health(&server, 1);
    assert_eq!((&seen["by"], &seen["detail"]), (&"root".into(), &"disk swap".into()));
    assert_eq!(server.refused_start().0, Code::FailedPrecondition);
    // While it runs, a lift that root writes is in force a moment later, and is said to be.
    let lifted = server.here(&["health", "--unquarantine", "--reason", "disk swapped"]);
    assert!(lifted.said(0).contains("healthy") && lifted.stderr.contains("within a second"), "{lifted:?}");
    wait_until("the server takes tasks again", || {
        (server.taskman("admin", &["health"]).status.code() == Some(0)).then_some(())
    });
    assert_eq!(server.ended(&server.task(&["--", "true"]))["outcome"]["exit_code"], 0);
    server.stop();
    let lines = server.journalled();
    let numbers: Vec<_> = lines.iter().map(|line| line[0].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "each line once");
    assert_eq!(lines[lines.len() - 2], json!([numbers.len() - 1, "quarantine", "root", "manual", "disk swap"]));
    assert_eq!(lines[lines.len() - 1], json!([numbers.len(), "unquarantine", "root", "ok", "disk swapped"]));
}

#[test]
fn who_cannot_be_asked_is_said_with_what_to_give() {
    let server = Server::prepare(&[]);
    let mut command = Command::new(crate::support::run::TASKMAN);
    command.arg("health").env_remove("TASKMAN_USER_ID");
    let alone = Started::spawn(command, HostDir::new(), GUARD).end();
    alone.assert_refused(125, &["--user-id", "--state-dir"]);
    let nowhere = server.taskman("admin", &["health", "--state-dir", server.state().to_str().unwrap()]);
    nowhere.assert_refused(125, &["no taskman-server has used it"]);
    let mut powerless = Command::new("setpriv");
    powerless.args(["--reuid", "65534", "--clear-groups", crate::support::run::TASKMAN, "health", "--state-dir", "/"]);
    Started::spawn(powerless, HostDir::new(), GUARD).end().assert_refused(125, &["is for root", "--user-id"]);
}
