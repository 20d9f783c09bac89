//! A08: what strangers and users can send without end costs the server nothing that lasts, and others next to nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use taskman::proto::task_manager as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Counters;
use crate::support::Server;
use crate::support::http2::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, SETTINGS, call, field, frame,
};
use crate::support::rpc::{Tasks, connect, identity, on, tls};

/// The HTTP/2 error code of a server that has had enough.
const ENHANCE_YOUR_CALM: u32 = 11;

/// A good client's call while others misbehave, and how long it took.
async fn canary(client: &mut Tasks) -> Duration {
    let begun = Instant::now();
    client.list_tasks(pb::ListTasksRequest::default()).await.expect("the good client is served");
    begun.elapsed()
}

fn user(server: &Server) -> Arc<ClientConfig> {
    Arc::new(tls(server, Some(identity(&server.certs(), "client001"))))
}

/// What a client sends first.
fn hello(server: &Server) -> Vec<u8> {
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(tls(server, None)), name).unwrap();
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a08_five_thousand_half_handshakes_keep_nobody_out() {
    let server = Server::configured("[tls]\nhandshake_timeout = \"2s\"\n[connections]\nhandshakes = 390\n");
    let hello = hello(&server);
    on(async {
        let mut client = connect(&server, "admin").await;
        canary(&mut client).await;
        let base = Counters::of(&server);
        let (mut slowest, mut most, mut last) = (Duration::ZERO, base, Vec::new());
        for wave in 0..20 {
            let mut halves = Vec::new();
            for number in 0..250 {
                let mut socket = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
                let said = [0, 20, hello.len()][number % 3];
                // It may have given way to another already.
                let _ = socket.write_all(&hello[..said]).await;
                halves.push(socket);
            }
            slowest = slowest.max(canary(&mut client).await);
            if wave % 5 == 0 {
                // A new connection too: it is the newest, so the others give way.
                canary(&mut connect(&server, "admin").await).await;
            }
            let now = Counters::of(&server);
            most = Counters {
                fds: most.fds.max(now.fds),
                threads: most.threads.max(now.threads),
                rss: most.rss.max(now.rss),
            };
            last = halves;
        }
        println!("5,000 half handshakes: base {base:?}, most {most:?}, slowest good call {slowest:?}");
        assert!(most.fds <= base.fds + 400 && most.rss <= base.rss + (64 << 10), "{base:?} {most:?}");
        assert!(slowest < Duration::from_secs(10), "{slowest:?}");
        // The last ones hold on: the server lets go of them.
        for mut half in last {
            let closed = tokio::time::timeout(Duration::from_secs(30), half.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok(), "a half handshake outlived its time");
        }
        base.again(&server, 32 << 10);
    });
}

/// A connection from an address of its own: all of 127.0.0.0/8 is this host.
async fn from(address: [u8; 4], server: &Server) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((address, 0).into())?;
    socket.connect(([127, 0, 0, 1], server.port()).into()).await
}

/// M1 of the review: as many idle connections as there are places, from four addresses, kept up for as long as others try.
#[test]
fn a08_strangers_of_few_addresses_keep_nobody_out() {
    let server = Server::configured("[connections]\ntotal = 256\nper_address = 64\nhandshakes = 64\n");
    let flooding = tokio::sync::Semaphore::new(0);
    on(async {
        let flood = async {
            let mut idle = std::collections::VecDeque::new();
            loop {
                for address in 1..=4 {
                    // Refused for a moment where so many of its ports are closing.
                    idle.extend(from([127, 0, 1, address], &server).await.ok());
                    flooding.add_permits(1);
                }
                // The oldest gives way to the next on this side too.
                while idle.len() > 256 {
                    idle.pop_front();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let clients = async {
            let _full = flooding.acquire_many(512).await.unwrap();
            let mut slowest = Duration::ZERO;
            for _ in 0..20 {
                let begun = Instant::now();
                let mut client = connect(&server, "client001").await;
                let id = client.list_tasks(pb::ListTasksRequest::default()).await;
                id.expect("whoever has a certificate is served");
                slowest = slowest.max(begun.elapsed());
            }
            println!("20 clients beside {} strangers, slowest {slowest:?}", flooding.available_permits() + 512);
        };
        tokio::select! {
            () = clients => {}
            () = flood => {}
        }
    });
}

#[test]
fn a08_connections_that_say_nothing_more_are_closed() {
    let server = Server::configured("[connections]\nkeepalive = \"1s\"\nkeepalive_timeout = \"1s\"\n");
    on(async {
        let mut client = connect(&server, "admin").await;
        canary(&mut client).await;
        let base = Counters::of(&server);
        let config = user(&server);
        let mut idle = Vec::new();
        for _ in 0..50 {
            idle.push(Raw::open(server.port(), &config).await.unwrap());
        }
        for raw in &mut idle {
            tokio::time::timeout(Duration::from_secs(30), raw.goaway()).await.expect("an idle connection is closed");
        }
        canary(&mut client).await;
        base.again(&server, 32 << 10);
    });
}

/// Sends `bytes` again and again, and never reads; how often until the server refused or did not read on.
async fn flood(raw: &mut Raw, bytes: &[u8], most: usize) -> usize {
    for sent in 0..most {
        match tokio::time::timeout(Duration::from_secs(3), raw.send(bytes)).await {
            Ok(Ok(())) => {}
            _ => return sent,
        }
    }
    most
}

/// Floods one connection with each of the given pieces while a good client calls; returns how often each was taken.
fn floods(pieces: &[(&str, Vec<u8>, usize)]) -> Vec<usize> {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "admin").await;
        canary(&mut client).await;
        let base = Counters::of(&server);
        let mut taken = Vec::new();
        for (what, piece, most) in pieces {
            let mut raw = Raw::open(server.port(), &user(&server)).await.unwrap();
            let flooding = flood(&mut raw, piece, *most);
            tokio::pin!(flooding);
            let (mut slowest, mut peak) = (Duration::ZERO, 0);
            let sent = loop {
                tokio::select! {
                    sent = &mut flooding => break sent,
                    () = tokio::time::sleep(Duration::from_millis(50)) => {
                        slowest = slowest.max(canary(&mut client).await);
                        peak = peak.max(Counters::of(&server).rss);
                    }
                }
            };
            slowest = slowest.max(canary(&mut client).await);
            let grown = peak.max(Counters::of(&server).rss).saturating_sub(base.rss);
            println!(
                "{what}: {sent} times {} bytes taken, {grown} KiB more, slowest good call {slowest:?}",
                piece.len()
            );
            assert!(grown < 64 << 10, "{what}: {grown} KiB more memory");
            assert!(slowest < Duration::from_secs(10), "{what}: the good client waited {slowest:?}");
            taken.push(sent);
        }
        base.again(&server, 32 << 10);
        taken
    })
}

#[test]
fn a08_pings_and_settings_without_end_are_not_stored() {
    let many = |bytes: Vec<u8>| bytes.repeat(1000);
    floods(&[
        ("PING", many(frame(PING, 0, 0, &[7; 8])), 300),
        ("SETTINGS", many(frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])), 300),
        ("SETTINGS with nothing in it", many(frame(SETTINGS, 0, 0, &[])), 300),
        ("an unknown kind of frame", many(frame(0xfa, 0, 0, &[0; 64])), 300),
        ("RST_STREAM of nothing", many(frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])), 10),
    ]);
}

/// Begins with `first`, goes on with `more` until the server ends it; its error code, and how much it took.
fn until_goaway(what: &str, first: Vec<u8>, more: impl Fn(u32) -> Vec<u8>, most: u32) {
    let server = Server::start();
    on(async {
        let mut client = connect(&server, "admin").await;
        canary(&mut client).await;
        let base = Counters::of(&server);
        let mut raw = Raw::open(server.port(), &user(&server)).await.unwrap();
        raw.send(&first).await.unwrap();
        let mut sent = 0;
        while sent < most && raw.send(&more(sent)).await.is_ok() {
            sent += 1;
        }
        let grown = Counters::of(&server).rss.saturating_sub(base.rss);
        let code = tokio::time::timeout(Duration::from_secs(20), raw.goaway()).await.expect("the server ends it");
        println!("{what}: ended after {sent} pieces with {code:?}, {grown} KiB more");
        // A client that goes on writing can lose the server's word to the reset that follows it, never the end.
        assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{what}: {code:?}");
        assert!(sent < most || code.is_some(), "{what}: {sent} pieces were taken");
        assert!(grown < 32 << 10, "{what}: {grown} KiB");
        canary(&mut client).await;
        drop(raw);
        base.again(&server, 32 << 10);
    });
}

#[test]
fn a08_headers_that_never_end_end_the_connection() {
    let first = frame(HEADERS, 0, 1, &call("ListTasks"));
    let filler: Vec<u8> = (0..100).flat_map(|n| field(&format!("x-{n}"), &"v".repeat(120))).collect();
    until_goaway("CONTINUATION", first.clone(), |_| frame(CONTINUATION, 0, 1, &filler), 5000);
    until_goaway("empty CONTINUATION", first, |_| frame(CONTINUATION, 0, 1, &[]).repeat(100), 5000);
}

#[test]
fn a08_streams_that_are_reset_as_soon_as_they_are_opened_end_the_connection() {
    let pair = |n: u32| {
        let stream = 2 * n + 1;
        let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, stream, &call("ListTasks"));
        bytes.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        bytes
    };
    let first = pair(0);
    until_goaway("rapid reset", first, |n| (1..=100).flat_map(|i| pair(n * 100 + i)).collect(), 1000);
}
