//! A12 and A14: requests that are too much, and commands that the kernel will not execute.

use std::fs::OpenOptions;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use nix::sys::signal::Signal;
use taskman::proto::task_manager as pb;
use tonic::{Code, Status};

use super::Counters;
use crate::support::rpc::{Tasks, connect, ended, identity, on, secure, sh, start, tls};
use crate::support::{HostDir, Server};

async fn tasks_of(client: &mut Tasks) -> usize {
    client.list_tasks(pb::ListTasksRequest::default()).await.unwrap().into_inner().tasks.len()
}

#[test]
fn a12_what_is_too_much_is_refused_before_anything_is_started() {
    let server = Server::start();
    let many = |count: usize, text: &str| (0..count).map(|n| (format!("N{n}"), text.to_owned())).collect();
    let large = "x".repeat(2 << 20);
    let requests = [
        ("an argument of 2 MiB", "args", pb::StartTaskRequest { args: vec![large.clone()], ..sh("") }),
        ("a command of 2 MiB", "args", pb::StartTaskRequest { command: large.clone(), ..sh("") }),
        (
            "100k arguments, 2 MiB together",
            "args",
            pb::StartTaskRequest { args: vec!["y".repeat(20); 100_000], ..sh("") },
        ),
        (
            "a variable of 2 MiB",
            "env",
            pb::StartTaskRequest { env: [("A".to_owned(), large.clone())].into(), ..sh("") },
        ),
        ("100k variables", "env", pb::StartTaskRequest { env: many(100_000, "v"), ..sh("") }),
        ("100k labels", "labels", pb::StartTaskRequest { labels: many(100_000, "v"), ..sh("") }),
        (
            "a label of 2 MiB",
            "labels",
            pb::StartTaskRequest { labels: [("A".to_owned(), large.clone())].into(), ..sh("") },
        ),
        ("a token of 2 MiB", "client_token", pb::StartTaskRequest { client_token: large.clone(), ..sh("") }),
        ("a host name of 2 MiB", "hostname", pb::StartTaskRequest { hostname: large.clone(), ..sh("") }),
        ("100k binds", "bind_ro", pb::StartTaskRequest { bind_ro: vec!["/x".into(); 100_000], ..sh("") }),
    ];
    on(async {
        let mut client = connect(&server, "client001").await;
        tasks_of(&mut client).await;
        let base = Counters::of(&server);
        for (what, field, request) in &requests {
            let status = start(&mut client, request.clone()).await.expect_err(what);
            assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
            assert!(status.message().starts_with(&format!("{field}: ")), "{what}: {status}");
            assert!(status.message().len() < 1000, "{what}: the answer repeats the request");
        }
        let over = pb::StartTaskRequest { args: vec!["z".repeat(5 << 20)], ..sh("") };
        for _ in 0..10 {
            let status = start(&mut client, over.clone()).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "over the largest message: {status}");
        }
        assert_eq!(tasks_of(&mut client).await, 0);
        assert_eq!(std::fs::read_dir(server.state().join("server/output")).unwrap().count(), 0, "nothing was started");
        base.again(&server, 64 << 10);
        // What is many but not too much is delivered whole.
        let counts = pb::StartTaskRequest { args: vec!["1".into(); 100_000], ..sh("") };
        let counts = pb::StartTaskRequest { args: [sh("exit $(($# / 1000))").args, counts.args].concat(), ..counts };
        let id = start(&mut client, counts).await.unwrap();
        assert_eq!(ended(&mut client, &id).await.exit_code, Some(99), "100,000 arguments, one of them is $0");
    });
}

#[test]
fn a12_messages_that_never_end_do_not_fill_the_memory() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "admin").await;
        tasks_of(&mut client).await;
        let base = Counters::of(&server);
        let config = Arc::new(tls(&server, Some(identity(&server.certs(), "client001"))));
        // 512 MiB in all, if the server would take it: 128 messages of which the last byte is missing.
        let (mut open, mut refused) = (Vec::new(), 0);
        for _ in 0..2 {
            let stream = secure(server.port(), &config).await.unwrap();
            let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
            let connection = tokio::spawn(connection);
            for _ in 0..64 {
                let uri = "https://localhost/task_manager.TaskManager/StartTask";
                let head = http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
                sender = sender.ready().await.unwrap();
                let (answer, mut body) = sender.send_request(head.body(()).unwrap(), false).unwrap();
                let unfinished = [&[0, 0, 0x3f, 0xff, 0xff][..], &vec![0; 0x3f_fffe]].concat();
                match send(&mut body, unfinished.into()).await {
                    Ok(()) => open.push((body, None)),
                    Err(()) => {
                        let status = answer.await.unwrap().headers()["grpc-status"].to_str().unwrap().to_owned();
                        assert_eq!(status, "8", "RESOURCE_EXHAUSTED");
                        refused += 1;
                    }
                }
            }
            open.last_mut().unwrap().1 = Some(connection);
            tasks_of(&mut client).await;
            let grown = Counters::of(&server).rss.saturating_sub(base.rss);
            println!("{} messages under way, {refused} refused, {grown} KiB more", open.len());
            assert!(grown < 160 << 10, "{grown} KiB more memory for messages that never end");
        }
        assert_eq!((open.len(), refused), (16, 112), "one user's share is 16 of the largest messages");
        let status = start(&mut client, sh("true")).await;
        assert!(status.is_ok(), "another user is served: {status:?}");
        drop(open);
        base.again(&server, 96 << 10);
    });
}

/// Sends as the server's windows allow; an error is the end of the stream from the other side.
async fn send(body: &mut h2::SendStream<bytes::Bytes>, mut bytes: bytes::Bytes) -> Result<(), ()> {
    while !bytes.is_empty() {
        body.reserve_capacity(bytes.len());
        match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
            Some(Ok(capacity)) => {
                let part = bytes.split_to(capacity.min(bytes.len()));
                body.send_data(part, false).map_err(drop)?;
            }
            _ => return Err(()),
        }
    }
    Ok(())
}

#[test]
fn a12_a_page_of_tasks_is_bounded_in_bytes() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        let large = pb::StartTaskRequest { command: "true".into(), args: vec!["x".repeat(100 << 10); 9], ..sh("") };
        let mut started = Vec::new();
        for _ in 0..24 {
            started.push(start(&mut client, large.clone()).await.unwrap());
        }
        started.reverse();
        let (mut listed, mut pages, mut page_token) = (Vec::new(), 0, String::new());
        // What a generated client takes unless it is told otherwise.
        let mut small = client.clone().max_decoding_message_size(4 << 20);
        loop {
            let request = pb::ListTasksRequest { page_size: 1000, page_token, ..Default::default() };
            let page = small.list_tasks(request).await.expect("a page fits into a message").into_inner();
            listed.extend(page.tasks.into_iter().map(|task| task.task_id));
            (pages, page_token) = (pages + 1, page.next_page_token);
            if page_token.is_empty() {
                break;
            }
        }
        assert!(pages > 1);
        assert_eq!(listed, started, "every task once, newest first, on {pages} pages");
    });
}

fn exit_code(status: &Status) -> &str {
    status.metadata().get("taskman-exit-code").map_or("", |value| value.to_str().unwrap())
}

#[test]
fn a14_an_exec_error_is_the_answer_and_leaves_no_task() {
    let dir = HostDir::new();
    let server = Server::configured(&format!("[profiles.default]\nbind_ro = [{:?}]\n", dir.root()));
    dir.file("plain", "#!/bin/sh\nexit 0\n", 0o644);
    dir.file("mine", "#!/bin/sh\nexit 0\n", 0o700);
    dir.file("garbage", "just text\n", 0o755);
    dir.file("script", "#!/no/such/interpreter\n", 0o755);
    symlink("b", dir.path("a")).unwrap();
    symlink("a", dir.path("b")).unwrap();
    let busy = dir.copy(Path::new("/bin/true"), "busy", 0o755);
    dir.copy(Path::new("/bin/true"), "good", 0o755);
    let _writer = OpenOptions::new().append(true).open(busy).unwrap();
    on(async {
        let mut client = connect(&server, "client001").await;
        let run = |command: &str| pb::StartTaskRequest {
            command: command.into(),
            bind_ro: vec![dir.bound_at("/opt/x")],
            client_token: command.into(),
            ..Default::default()
        };
        for (command, code, errno, words) in [
            ("/opt/x/missing", "127", "ENOENT", "no such file or directory"),
            ("no-such-command-anywhere", "127", "ENOENT", "no such file or directory"),
            ("/opt/x/good/x", "127", "ENOTDIR", "not a directory"),
            ("/opt/x/plain", "126", "EACCES", "permission denied"),
            ("/opt/x/mine", "126", "EACCES", "permission denied"),
            ("/opt/x", "126", "EACCES", "permission denied"),
            ("/opt/x/garbage", "126", "ENOEXEC", "exec format error"),
            ("/opt/x/script", "126", "ENOENT", "no such file or directory"),
            ("/opt/x/a", "126", "ELOOP", "too many symbolic links"),
            ("/opt/x/busy", "126", "ETXTBSY", "text file busy"),
        ] {
            let status = start(&mut client, run(command)).await.expect_err(command);
            assert_eq!((status.code(), exit_code(&status)), (Code::InvalidArgument, code), "{command}: {status:?}");
            assert!(status.message().starts_with(&format!("cannot execute {command:?}: ")), "{status:?}");
            assert!(status.message().contains(errno) && status.message().contains(words), "{command}: {status:?}");
            assert_eq!(tasks_of(&mut client).await, 0, "{command} left a task");
        }
        assert_eq!(std::fs::read_dir(server.state().join("server/output")).unwrap().count(), 0, "or output");
        let id = start(&mut client, run("/opt/x/good")).await.expect("the control");
        assert_eq!(ended(&mut client, &id).await.exit_code, Some(0));
        // A command that was executed and says 126 or 127 itself is a task like any other.
        for code in [126, 127] {
            let id = start(&mut client, sh(&format!("exit {code}"))).await.unwrap();
            assert_eq!(ended(&mut client, &id).await.exit_code, Some(code));
        }
    });
}

/// Starts that have arrived and wait for something are in memory: here for one with the same token, which waits for a stopped launcher.
#[test]
fn a12_starts_that_wait_are_counted_by_size() {
    let mut server = Server::start();
    on(async {
        let client = connect(&server, "client001").await;
        server.signal(Signal::SIGSTOP);
        let mut starts = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let mut client = client.clone();
            let args = vec!["x".repeat(100 << 10); 9];
            let request = pb::StartTaskRequest { client_token: "one".into(), args, ..sh("true") };
            starts.spawn(async move { start(&mut client, request).await });
        }
        // As many as 64 MiB have room for wait; the rest is told so.
        for _ in 0..20 {
            let refused = starts.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        }
        server.signal(Signal::SIGCONT);
        let mut ids = std::collections::BTreeSet::new();
        while let Some(answer) = starts.join_next().await {
            ids.extend(answer.unwrap().ok());
        }
        assert_eq!(ids.len(), 1, "those that waited have one task");
    });
}
