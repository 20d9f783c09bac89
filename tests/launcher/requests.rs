//! What a server may do to its tasks, and what it may not do at all.

use std::io::{IoSlice, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use taskman::sys::clone::{Side, split};
use taskman::task::id::TaskId;
use taskman::task::outcome::Reason;
use taskman::wire::{self, Request};

use crate::stage::{Case, Client, play};

pub fn cases() -> Vec<Case> {
    vec![
        ("a_stop_asks_and_then_kills", a_stop_asks_and_then_kills),
        ("a_stop_with_a_long_grace_does_not_outlive_the_timeout", a_long_grace_does_not_outlive_the_timeout),
        ("a_stop_while_it_starts_is_not_lost", a_stop_while_it_starts_is_not_lost),
        ("a_stop_while_it_waits_for_its_turn_takes_it_back", a_stop_while_it_waits_takes_it_back),
        ("signals_reach_the_main_process_and_nothing_else", signals_reach_the_main_process_and_nothing_else),
        ("garbage_is_the_end_of_the_server", garbage_is_the_end_of_the_server),
        ("a_truncated_message_is_the_end_of_the_server", a_truncated_message_is_the_end_of_the_server),
        ("descriptors_with_a_request_are_the_end_of_the_server", descriptors_are_the_end_of_the_server),
        ("descriptors_that_linger_hold_up_nobody", descriptors_that_linger_hold_up_nobody),
        ("another_process_on_the_socket_is_the_end_of_the_server", another_process_is_the_end_of_the_server),
        ("a_server_that_does_not_read_holds_up_nobody", a_server_that_does_not_read_holds_up_nobody),
    ]
}

fn a_stop_asks_and_then_kills() {
    let played = play(|client| {
        // A task that is not there has ended.
        client.send(&Request::Stop { task: TaskId::random(), grace_ms: 0 });
        client.send(&Request::OutputLimit { task: TaskId::random() });
        let (polite, _) = client.start_sleeper("trap 'exit 7' TERM");
        let (deaf, _) = client.start_sleeper("trap '' TERM");
        client.send(&Request::Stop { task: deaf, grace_ms: 300 });
        let (plain, _) = client.start_sleeper("true");
        client.send(&Request::Stop { task: plain, grace_ms: 60_000 });
        let outcome = client.ended(plain).outcome;
        assert_eq!((outcome.status.signal().as_deref(), outcome.reason), (Some("SIGTERM"), Reason::Stopped));
        let outcome = client.ended(deaf).outcome;
        assert_eq!((outcome.status.signal().as_deref(), outcome.reason), (Some("SIGKILL"), Reason::Stopped));
        assert!(outcome.detail.contains("then SIGKILL to all"), "{}", outcome.detail);
        // Its shell runs the trap when its child is gone: a shorter grace is heeded, a longer one is not.
        client.send(&Request::Stop { task: polite, grace_ms: 60_000 });
        client.send(&Request::Stop { task: polite, grace_ms: 100 });
        client.send(&Request::Stop { task: polite, grace_ms: 60_000 });
        assert_eq!(client.ended(polite).outcome.reason, Reason::Stopped);
        client.leave();
    });
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}

fn a_long_grace_does_not_outlive_the_timeout() {
    let played = play(|client| {
        let script = "trap '' TERM; while :; do sleep 600; done";
        let task = client.start(&["sh", "-c", script], |r| r.limits.timeout = Duration::from_millis(800));
        client.started(task);
        let began = Instant::now();
        client.send(&Request::Stop { task, grace_ms: u64::MAX });
        client.ended(task);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn a_stop_while_it_starts_is_not_lost() {
    let played = play(|client| {
        let task = client.start(&["sleep", "600"], |_| {});
        client.send(&Request::Stop { task, grace_ms: 1000 });
        client.started(task);
        assert_eq!(client.ended(task).outcome.reason, Reason::Stopped);
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn a_stop_while_it_waits_takes_it_back() {
    let played = play(|client| {
        let (mut begun, mut waits) = (Vec::new(), TaskId::random());
        client.while_it_stands(|client| {
            begun.extend([(); 2].map(|()| client.start(&["sleep", "600"], |_| {})));
            waits = client.start(&["sleep", "600"], |_| {});
            client.send(&Request::Signal { seq: 1, task: waits, number: 15 });
            client.send(&Request::Stop { task: waits, grace_ms: 1000 });
        });
        assert_eq!(client.signalled(1).unwrap().errno(), Errno::EALREADY, "it has not ended");
        let why = client.refusal(waits).to_string();
        assert!(why.contains("stopped before it was started"), "{why}");
        for task in begun {
            client.started(task);
            client.send(&Request::Stop { task, grace_ms: 1000 });
            assert_eq!(client.ended(task).outcome.reason, Reason::Stopped);
        }
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn signals_reach_the_main_process_and_nothing_else() {
    let played = play(|client| {
        let (task, _) = client.start_sleeper("true");
        for wrong in [0, -1, 65, 1000, i32::MIN] {
            assert_eq!(client.signal(1, task, wrong).unwrap().errno(), Errno::EINVAL, "{wrong}");
        }
        assert_eq!(client.signal(2, TaskId::random(), 15).unwrap().errno(), Errno::ESRCH);
        assert_eq!(client.signal(3, task, libc::SIGUSR1), None);
        let outcome = client.ended(task).outcome;
        assert_eq!((outcome.status.signal().as_deref(), outcome.reason), (Some("SIGUSR1"), Reason::Signal));
        assert_eq!(client.signal(4, task, 15).unwrap().errno(), Errno::ESRCH);
        client.leave();
    });
    assert_eq!(played.code, 0);
}

/// A server with a task does `wrong`, and everything ends.
pub fn fatal(wrong: impl FnOnce(&mut Client)) {
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        wrong(client);
        // The launcher kills this process.
        client.wait_for(|_| None::<()>);
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
}

fn raw(client: &Client, bytes: &[u8]) {
    let nothing = MsgFlags::empty();
    sendmsg::<()>(client.fd().as_raw_fd(), &[IoSlice::new(bytes)], &[], nothing, None).unwrap();
}

fn garbage_is_the_end_of_the_server() {
    fatal(|client| raw(client, b"\xff\x00garbage"));
}

fn a_truncated_message_is_the_end_of_the_server() {
    fatal(|client| {
        let json = br#"{"Stop":{"task":"#;
        let mut bytes = vec![wire::VERSION, 0];
        bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(json);
        raw(client, &bytes);
    });
}

fn descriptors_are_the_end_of_the_server() {
    fatal(|client| {
        wire::send(client.fd(), &Request::Stop { task: TaskId::random(), grace_ms: 0 }, &[client.fd()]).unwrap()
    });
}

/// The last copy of a socket that lingers, full of bytes that nobody takes: its close waits for an hour.
fn lingering() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65536]).is_ok() {}
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    setsockopt(&socket, sockopt::Linger, &linger).unwrap();
    (socket, peer)
}

fn descriptors_that_linger_hold_up_nobody() {
    let began = Instant::now();
    let played = play(|client| {
        client.start_sleeper("true");
        let (socket, _peer) = lingering();
        let rights = [ControlMessage::ScmRights(&[socket.as_raw_fd()])];
        let garbage = [IoSlice::new(b"\xff")];
        sendmsg::<()>(client.fd().as_raw_fd(), &garbage, &rights, MsgFlags::empty(), None).unwrap();
        // Not the last copy while the packet is under way, so this does not wait.
        drop(socket);
        nix::poll::poll(&mut [], 60_000u16).unwrap();
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

fn another_process_is_the_end_of_the_server() {
    fatal(|client| {
        if let Side::Child(_) = split().unwrap() {
            client.send(&Request::Stop { task: TaskId::random(), grace_ms: 0 });
            std::process::exit(0);
        }
    });
}

fn a_server_that_does_not_read_holds_up_nobody() {
    let played = play(|client| {
        // The answers fill the socket; the requests behind them wait, and the task's timeout does not.
        let task = client.start(&["sleep", "600"], |request| request.limits.timeout = Duration::from_millis(600));
        client.started(task);
        let mut sent = 0;
        while wire::send(client.fd(), &Request::Signal { seq: sent, task: TaskId::random(), number: 15 }, &[]).is_ok() {
            sent += 1;
        }
        nix::poll::poll(&mut [], 4000u16).unwrap();
        for seq in 0..sent {
            client.wait_for(|event| match event {
                taskman::wire::Event::Signalled { seq: of, .. } => (*of == seq).then_some(()),
                _ => None,
            });
        }
        let ended = client.ended(task);
        assert_eq!(ended.outcome.reason, Reason::WallTime);
        assert!(ended.usage.wall_ms < 3000, "its end was seen to after {} ms", ended.usage.wall_ms);
        client.leave();
    });
    assert_eq!(played.code, 0);
}
