//! A09, A10 and A11: every byte once for every reader, wherever it begins, and no reader at another's expense.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use taskman::proto::task_manager as pb;
use taskman::proto::task_manager::stream_task_output_request::Begin;
use tokio::net::TcpStream;

use super::Counters;
use crate::support::http2::{HEADERS, Raw, SETTINGS, WINDOW_UPDATE, frame, request};
use crate::support::rpc::{Tasks, connect, ended, identity, on, read, sh, spoken, start, tls, whole};
use crate::support::{Server, wait_until};

/// A script that writes `count` numbered lines of 16 bytes, and the bytes it writes.
fn numbered(count: u32) -> (String, Vec<u8>) {
    let wanted = (0..count).flat_map(|n| format!("{n:015}\n").into_bytes()).collect();
    (format!("seq -f '%015.0f' 0 {}", count - 1), wanted)
}

fn sha(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

fn from(id: &str, begin: Begin) -> pb::StreamTaskOutputRequest {
    pb::StreamTaskOutputRequest { begin: Some(begin), ..whole(id) }
}

#[test]
fn a09_a_reader_that_never_reads_stops_nobody() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        let (script, wanted) = numbered(1 << 20);
        // It begins when the readers are there, so that they are live ones.
        let script = format!("trap go=1 USR1; echo ready; while [ -z $go ]; do sleep 0.02; done; {script}");
        let wanted = [b"ready\n".to_vec(), wanted].concat();
        let id = start(&mut client, sh(&script)).await.unwrap();
        spoken(&mut client, &id).await;
        let base = Counters::of(&server);
        let config = Arc::new(tls(&server, Some(identity(&server.certs(), "client001"))));
        let mut silent = Vec::new();
        for _ in 0..10 {
            let mut raw = Raw::open(server.port(), &config).await.unwrap();
            // The largest windows there are: nothing but the socket holds the server back.
            let most = 0x7fff_ffff_u32;
            let setting = [&4u16.to_be_bytes()[..], &most.to_be_bytes()].concat();
            raw.send(&frame(SETTINGS, 0, 0, &setting)).await.unwrap();
            raw.send(&frame(WINDOW_UPDATE, 0, 0, &(most - 65535).to_be_bytes())).await.unwrap();
            for stream in (1..20).step_by(2) {
                raw.send(&request(stream, "StreamTaskOutput", &whole(&id))).await.unwrap();
            }
            silent.push(raw);
        }
        wait_until("their streams are open", || (streams(&server) == 1 + 100).then_some(()));
        let mut good = connect(&server, "client001").await;
        let reading = async {
            let begun = Instant::now();
            let (bytes, end) = read(&mut good, whole(&id)).await.unwrap();
            (sha(&bytes) == sha(&wanted), bytes.len(), end, begun.elapsed())
        };
        let signal = pb::SignalTaskRequest { task_id: id.clone(), signal: "USR1".into() };
        client.signal_task(signal).await.unwrap();
        let (same, length, end, live) = reading.await;
        assert!(same && end == pb::StreamEnd::Eof, "{length} bytes of {}, {end:?}", wanted.len());
        assert_eq!(ended(&mut client, &id).await.exit_code, Some(0), "the task was not blocked");
        let held = Counters::of(&server);
        let grown = held.rss.saturating_sub(base.rss);
        println!("100 silent readers of 16 MiB: {grown} KiB more, the good reader took {live:?}");
        assert!(grown < 160 << 10, "{grown} KiB for 100 readers that do not read");
        let begun = Instant::now();
        read(&mut good, whole(&id)).await.unwrap();
        println!("a second reader of stored output beside them: {:?}", begun.elapsed());
        drop(silent);
        base.again(&server, 128 << 10);
    });
}

/// How many streams the audit log says were opened.
fn streams(server: &Server) -> usize {
    recorded(server, "stream")
}

fn recorded(server: &Server, verb: &str) -> usize {
    server.audit().iter().filter(|line| line.contains(&format!("\"verb\":\"{verb}\""))).count()
}

#[test]
fn answers_that_nobody_reads_are_counted_and_then_refused() {
    let server = Server::configured("[quota]\nstreams_per_user = 1\n");
    on(async {
        let mut client = connect(&server, "client001").await;
        let id = start(&mut client, sh(&format!("true {}", "x".repeat(100 << 10)))).await.unwrap();
        ended(&mut client, &id).await;
        let list = pb::ListTasksRequest::default();
        for _ in 0..4 {
            client.list_tasks(list.clone()).await.expect("one that is read counts no more");
        }
        let config = Arc::new(tls(&server, Some(identity(&server.certs(), "client001"))));
        let mut silent = Raw::open(server.port(), &config).await.unwrap();
        // Without a window all that is answered stays with the server.
        let window = [&4u16.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
        silent.send(&frame(SETTINGS, 0, 0, &window)).await.unwrap();
        for stream in [1, 3] {
            silent.send(&request(stream, "ListTasks", &list)).await.unwrap();
        }
        wait_until("they are answered", || (recorded(&server, "list") == 6).then_some(()));
        let refused = client.list_tasks(list.clone()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.message().contains("not read"), "{refused:?}");
        start(&mut client, sh("true")).await.expect("what it does is done, and told");
        drop(silent);
        while client.list_tasks(list.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a10_a_thousand_readers_of_one_task_each_get_every_byte() {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "client001").await;
        let (script, wanted) = numbered(4096);
        let script =
            format!("trap go=1 USR1; echo ready; while [ -z $go ]; do sleep 0.02; done; {script}; echo end >&2");
        let wanted = sha(&[b"ready\n".to_vec(), wanted, b"end\n".to_vec()].concat());
        let id = start(&mut client, sh(&script)).await.unwrap();
        spoken(&mut client, &id).await;
        let base = Counters::of(&server);
        let mut readers = Vec::new();
        for _ in 0..20 {
            let connection = connect(&server, "client001").await;
            for _ in 0..50 {
                let (mut connection, id) = (connection.clone(), id.clone());
                readers.push(tokio::spawn(async move { read(&mut connection, whole(&id)).await.unwrap() }));
            }
        }
        wait_until("all are there", || (streams(&server) == 1 + 1000).then_some(()));
        let there = Counters::of(&server);
        let signal = pb::SignalTaskRequest { task_id: id.clone(), signal: "USR1".into() };
        client.signal_task(signal).await.unwrap();
        let mut times = Vec::new();
        let begun = Instant::now();
        for reader in readers {
            let (bytes, end) = reader.await.unwrap();
            assert!(sha(&bytes) == wanted && end == pb::StreamEnd::Eof, "{} bytes, {end:?}", bytes.len());
            times.push(begun.elapsed());
        }
        println!("1000 readers: {there:?} from {base:?}; all served in {:?}", times.last());
        base.again(&server, 128 << 10);
    });
}

#[test]
fn a10_a_thousand_readers_that_break_off_leave_nothing() {
    // Fewer places than readers in all: those that are not given back would be missed.
    let server = Server::configured("[quota]\nstreams_per_user = 600\n");
    on(async {
        let mut client = connect(&server, "client001").await;
        let id = start(&mut client, sh("while :; do echo x; sleep 0.1; done")).await.unwrap();
        let base = Counters::of(&server);
        // 500 take one message and reset their stream.
        for _ in 0..10 {
            let mut open = Vec::new();
            for _ in 0..50 {
                open.push(client.stream_task_output(whole(&id)).await.unwrap().into_inner());
            }
            for stream in &mut open {
                stream.message().await.unwrap().unwrap();
            }
        }
        // 500 go with their connection, which is reset and not closed.
        let config = Arc::new(tls(&server, Some(identity(&server.certs(), "client001"))));
        for _ in 0..50 {
            let mut raw = Raw::open(server.port(), &config).await.unwrap();
            for stream in (1..20).step_by(2) {
                raw.send(&request(stream, "StreamTaskOutput", &whole(&id))).await.unwrap();
            }
            let mut answered = 0;
            while answered < 10 {
                answered += usize::from(raw.frame().await.unwrap().0 == HEADERS);
            }
            reset(raw.stream.get_ref().0);
        }
        wait_until("all were opened", || (streams(&server) == 1000).then_some(()));
        base.again(&server, 64 << 10);
        client.stop_task(pb::StopTaskRequest { task_id: id.clone(), grace: None }).await.unwrap();
        assert_eq!(ended(&mut client, &id).await.reason, "stopped");
        let streams = server.audit().into_iter().filter(|line| line.contains("\"verb\":\"stream\""));
        assert!(!streams.into_iter().any(|line| line.contains("ResourceExhausted")), "a place was not given back");
    });
}

/// Makes the socket's end a reset: the peer is told that nothing more is read here.
fn reset(socket: &TcpStream) {
    socket.set_zero_linger().unwrap();
}

#[test]
fn a10_two_hundred_tasks_at_once_and_not_one_more() {
    let server = Server::start();
    on(async {
        let client = connect(&server, "client001").await;
        let base = Counters::of(&server);
        let starts: Vec<_> = (0..200)
            .map(|n| {
                let mut client = client.clone();
                tokio::spawn(
                    async move { start(&mut client, sh(&format!("echo {n}; exec sleep 1000"))).await.unwrap() },
                )
            })
            .collect();
        let mut ids = Vec::new();
        for started in starts {
            ids.push(started.await.unwrap());
        }
        let mut client = client;
        let refused = start(&mut client, sh("true")).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        let request = pb::ListTasksRequest { page_size: 1000, status: vec![1], ..Default::default() };
        assert_eq!(client.list_tasks(request).await.unwrap().into_inner().tasks.len(), 200);
        let ends: Vec<_> = ids
            .into_iter()
            .map(|id| {
                let mut client: Tasks = client.clone();
                tokio::spawn(async move {
                    let grace = Some(Default::default());
                    spoken(&mut client, &id).await;
                    client.stop_task(pb::StopTaskRequest { task_id: id.clone(), grace }).await.unwrap();
                    let end = ended(&mut client, &id).await;
                    let output = read(&mut client, whole(&id)).await.unwrap().0;
                    (end.reason, end.containment.unwrap().verdict, output.ends_with(b"\n"))
                })
            })
            .collect();
        for end in ends {
            assert_eq!(end.await.unwrap(), ("stopped".into(), "proven".into(), true));
        }
        base.again(&server, 64 << 10);
    });
}

#[test]
fn a11_wherever_a_reader_begins_it_gets_exactly_the_rest() {
    let mut server = Server::start();
    let (script, wanted) = numbered(20_000);
    let script = format!("{script}; sleep 1; {script}; exit 5");
    let wanted = wanted.repeat(2);
    let half = wanted.len() as u64 / 2;
    let id = on(async {
        let mut client = connect(&server, "client001").await;
        let id = start(&mut client, sh(&script)).await.unwrap();
        let early = tokio::spawn({
            let (mut client, id) = (client.clone(), id.clone());
            async move { read(&mut client, whole(&id)).await.unwrap() }
        });
        wait_until("half of it is there", || (stored(&server, &id) >= half).then_some(()));
        let late = tokio::spawn({
            let (mut client, id) = (client.clone(), id.clone());
            async move { read(&mut client, whole(&id)).await.unwrap() }
        });
        let ahead = read(&mut client, from(&id, Begin::Offset(half + 7))).await.unwrap();
        assert!(sha(&ahead.0) == sha(&wanted[half as usize + 7..]), "begun before the byte was written");
        for (bytes, end) in [early.await.unwrap(), late.await.unwrap()] {
            assert!(sha(&bytes) == sha(&wanted) && end == pb::StreamEnd::Eof, "{} bytes", bytes.len());
        }
        everywhere(&mut client, &id, &wanted).await;
        id
    });
    assert_eq!(server.stop().status.code(), Some(0));
    server.restart();
    on(async { everywhere(&mut connect(&server, "client001").await, &id, &wanted).await });
    server.kill();
    server.restart();
    on(async { everywhere(&mut connect(&server, "client001").await, &id, &wanted).await });
}

fn stored(server: &Server, id: &str) -> u64 {
    server.status(id)["output"]["bytes"].as_u64().unwrap_or(0)
}

/// From many places of an ended task: exactly the rest, then the end, and the status.
async fn everywhere(client: &mut Tasks, id: &str, wanted: &[u8]) {
    let length = wanted.len() as u64;
    for n in [0, 1, 15, 65535, 65536, 131072, 131073, length - 1, length] {
        for (begin, rest) in [(Begin::Offset(n), n), (Begin::Tail(n), length - n)] {
            let (bytes, end) = read(client, from(id, begin)).await.unwrap();
            assert!(sha(&bytes) == sha(&wanted[rest as usize..]), "{begin:?}: {} bytes", bytes.len());
            assert_eq!(end, pb::StreamEnd::Eof, "{begin:?}");
        }
    }
    // Over many connections, broken off at any byte and gone on with from there.
    let mut pieced = Vec::new();
    while pieced.len() < wanted.len() {
        let mut stream =
            client.stream_task_output(from(id, Begin::Offset(pieced.len() as u64))).await.unwrap().into_inner();
        let message = stream.message().await.unwrap().unwrap();
        let taken = message.output.len().min(100_001);
        pieced.extend_from_slice(&message.output[..taken]);
    }
    assert!(sha(&pieced) == sha(wanted), "pieced together");
    let beyond = tokio::time::timeout(Duration::from_secs(10), read(client, from(id, Begin::Offset(length + 9)))).await;
    assert!(beyond.expect("there is an end").unwrap().0.is_empty());
    let status = ended(client, id).await;
    assert_eq!((status.exit_code, status.output_bytes, status.output_omitted_bytes), (Some(5), length, 0));
}
