//! A07: a start that is repeated with its token is one task, whatever was lost in between.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use taskman::proto::task_manager as pb;
use tonic::Code;

use crate::support::http2::{Raw, request};
use crate::support::rpc::{Tasks, connect, identity, on, read, spoken, start, tls, whole};
use crate::support::{Process, Server, wait_until};

/// A task that can be counted from outside, by its name among the arguments, and by what it wrote.
fn counted(nonce: &str, token: &str) -> pb::StartTaskRequest {
    let words = ["-c", "echo ran; while :; do sleep 1; done", nonce];
    pb::StartTaskRequest {
        command: "sh".into(),
        args: words.map(str::to_owned).into(),
        client_token: token.into(),
        ..Default::default()
    }
}

/// How many tasks run whose `sh` carries the nonce: by uid, for a shell that forks is two for a moment.
fn running(nonce: &str) -> usize {
    let carries = |process: &Process| {
        let words = std::fs::read(process.path("cmdline")).unwrap_or_default();
        words.starts_with(b"sh\0") && words.split(|byte| *byte == 0).any(|word| word == nonce.as_bytes())
    };
    let owner = |process: Process| Some(std::fs::metadata(process.path("")).ok()?.uid());
    Process::all().into_iter().filter(carries).filter_map(owner).collect::<BTreeSet<_>>().len()
}

/// So many run: an answer comes while the shell is being executed, and it may be a moment before its words are there.
fn wait_running(nonce: &str, wanted: usize) {
    wait_until("each task runs", || (running(nonce) == wanted).then_some(()));
}

/// The run counter that no answer can embellish: one directory of output per task that was ever started.
fn outputs(state: &Path) -> usize {
    std::fs::read_dir(state.join("server/output")).unwrap().count()
}

async fn output(tasks: &mut Tasks, id: &str) -> String {
    let request = pb::StreamTaskOutputRequest { follow: Some(false), ..whole(id) };
    String::from_utf8(read(tasks, request).await.unwrap().0).unwrap()
}

#[test]
fn a07_a_token_is_one_task_retried_in_parallel_and_by_each_owner() {
    let server = Server::start();
    let nonce = format!("a07-{}", server.port());
    on(async {
        let mut client = connect(&server, "client001").await;
        let first = start(&mut client, counted(&nonce, "once")).await.unwrap();
        assert_eq!(start(&mut client, counted(&nonce, "once")).await.unwrap(), first, "retried");
        let parallel: Vec<_> = (0..20)
            .map(|_| {
                let (mut client, request) = (client.clone(), counted(&nonce, "many"));
                tokio::spawn(async move { start(&mut client, request).await.unwrap() })
            })
            .collect();
        let mut ids = Vec::new();
        for answer in parallel {
            ids.push(answer.await.unwrap());
        }
        assert!(ids.iter().all(|id| *id == ids[0]) && ids[0] != first, "{ids:?}");
        wait_running(&nonce, 2);
        assert_eq!(outputs(&server.state()), 2, "one task for each token");

        let mut changed: Vec<pb::StartTaskRequest> = vec![counted(&nonce, "once"); 4];
        changed[0].args.push("more".into());
        changed[1].env.insert("A".into(), "1".into());
        changed[2].split_output = true;
        changed[3].limits = Some(pb::Limits { pids: 5, ..Default::default() });
        for request in changed {
            let status = start(&mut client, request).await.unwrap_err();
            assert_eq!(status.code(), Code::AlreadyExists, "{status}");
            assert!(status.message().contains("client_token"), "{status}");
        }
        let mut other = connect(&server, "admin").await;
        let theirs = start(&mut other, counted(&nonce, "once")).await.unwrap();
        assert_ne!(theirs, first, "tokens of two owners have nothing to do with each other");
        wait_running(&nonce, 3);
        assert_eq!(outputs(&server.state()), 3);
        spoken(&mut client, &first).await;
        assert_eq!(output(&mut client, &first).await, "ran\n");
    });
}

#[test]
fn a07_a_token_whose_start_failed_is_free_again() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        let missing = pb::StartTaskRequest { command: "/no/such".into(), ..counted("x", "free") };
        for _ in 0..2 {
            assert_eq!(start(&mut client, missing.clone()).await.unwrap_err().code(), Code::InvalidArgument);
        }
        start(&mut client, counted("x", "free")).await.expect("there was no task with it");
    });
}

#[test]
fn a07_a_token_is_one_task_when_the_answer_was_lost() {
    let server = Server::start();
    let nonce = format!("a07l-{}", server.port());
    on(async {
        let config = Arc::new(tls(&server, Some(identity(&server.certs(), "client001"))));
        let mut client = connect(&server, "client001").await;
        let mut known = 0;
        for trial in 0..30u64 {
            let wanted = counted(&nonce, &format!("lost {trial}"));
            let mut raw = Raw::open(server.port(), &config).await.unwrap();
            raw.send(&request(1, "StartTask", &wanted)).await.unwrap();
            // From before the request is read until after it is answered.
            tokio::time::sleep(Duration::from_micros(trial * trial * 20)).await;
            drop(raw);
            let id =
                start(&mut client, wanted.clone()).await.unwrap_or_else(|status| panic!("trial {trial}: {status}"));
            assert_eq!(start(&mut client, wanted).await.unwrap(), id);
            client.get_task_status(pb::TaskStatusRequest { task_id: id.clone() }).await.expect("it is a task");
            known += 1;
            wait_running(&nonce, 1);
            assert_eq!(outputs(&server.state()), known, "trial {trial}");
            client
                .stop_task(pb::StopTaskRequest { task_id: id.clone(), grace: Some(Default::default()) })
                .await
                .unwrap();
            crate::support::rpc::ended(&mut client, &id).await;
        }
    });
    let starts = server.audit().iter().filter(|line| line.contains("\"verb\":\"start\"")).count();
    assert!(starts >= 60, "an answer that nobody waited for stands in the audit log too: {starts} lines");
}

#[test]
fn a07_a_token_is_one_task_over_a_restart_and_a_kill() {
    let mut server = Server::start();
    let nonce = format!("a07r-{}", server.port());
    let repeat = |server: &Server, token: &str| {
        on(async { start(&mut connect(server, "client001").await, counted(&nonce, token)).await })
    };
    let orderly = repeat(&server, "orderly").unwrap();
    assert_eq!(server.stop().status.code(), Some(0));
    server.restart();
    assert_eq!(repeat(&server, "orderly").unwrap(), orderly);
    let killed = repeat(&server, "killed").unwrap();
    // A start is answered when the command was executed, which may be before it has written anything.
    let written = || server.text("client001", &["stream", "--no-follow", &killed]);
    wait_until("the task has written", || (written() == "ran\n").then_some(()));
    server.kill();
    server.restart();
    assert_eq!(repeat(&server, "killed").unwrap(), killed);
    assert_eq!(repeat(&server, "orderly").unwrap(), orderly);
    let mut other = counted(&nonce, "killed");
    other.args.push("more".into());
    let refused = on(async { start(&mut connect(&server, "client001").await, other).await.unwrap_err() });
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!((running(&nonce), outputs(&server.state())), (0, 2), "nothing was run again");
    assert_eq!(server.ended(&killed)["outcome"]["reason"], "server_lost");
    assert_eq!(server.ended(&orderly)["outcome"]["reason"], "server_shutdown");
    assert_eq!(server.text("client001", &["stream", &killed]), "ran\n", "its output is that of the one run");
}
