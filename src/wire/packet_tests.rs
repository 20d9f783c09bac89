//! Every message survives the way; everything else is refused with a typed error, without a panic and without blocking.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::time::Duration;

use nix::unistd::pipe;
use proptest::prelude::*;

use std::os::unix::fs::FileExt;

use super::*;
use crate::error::StartError;
use crate::task::id::TaskId;
use crate::task::limits::Limits;
use crate::task::outcome::{ExitStatus, Outcome, Reason};
use crate::task::report::{Check, Containment, Usage};
use crate::task::request::TaskRequest;
use crate::task::spec::SpecError;
use crate::wire::{Ended, Event, Parked, Request, Shape, Started};

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T, passed: usize) {
    let (here, there) = pair().unwrap();
    let (end, _other) = pipe().unwrap();
    send(here.as_fd(), message, &vec![end.as_fd(); passed]).unwrap();
    let packet = receive::<T>(there.as_fd()).unwrap().unwrap();
    assert_eq!(&packet.message, message);
    assert_eq!(packet.fds.len(), passed);
    assert_eq!(packet.sender.pid, std::process::id() as i32);
    assert_eq!(packet.sender.uid, nix::unistd::geteuid().as_raw());
    for fd in &packet.fds {
        let flags = fcntl(fd, FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "a received descriptor would pass execve");
    }
}

fn start(args: Vec<String>) -> Request {
    Request::Start(Box::new(TaskRequest {
        task: TaskId::random(),
        owner: "alice".into(),
        command: "sh".into(),
        args,
        env: BTreeMap::from([("A".into(), "ü\n".into())]),
        working_dir: Some("/task".into()),
        hostname: None,
        profile: "default".into(),
        limits: Limits { timeout: Duration::from_millis(1500), ..Limits::default() },
        bind_ro: vec!["/opt:/opt".into()],
        split_output: true,
    }))
}

#[test]
fn every_message_arrives_as_it_was_sent() {
    let task = TaskId::random();
    for request in [
        start(vec!["-c".into(), "true".into()]),
        // Larger than a packet: it goes by memfd.
        start(vec!["x".repeat(1 << 20)]),
        Request::Stop { task, grace_ms: u64::MAX },
        Request::Signal { seq: 7, task, number: 15 },
        Request::OutputLimit { task },
        Request::Goodbye,
    ] {
        round_trip(&request, 0);
        round_trip(&request, MAX_FDS);
    }
    let error = StartError::step("clone")(SysError::new("clone3", "sandbox-init", Errno::EAGAIN).hint("wait"));
    let outcome = Outcome {
        status: ExitStatus::Signaled(9),
        reason: Reason::Oom,
        detail: "ran out of memory".into(),
        by_client: false,
    };
    let check = Check { name: "cgroup_empty".into(), value: "populated 0".into(), ok: Some(true) };
    let containment = Containment::from_checks(vec![check]);
    // A share that has no short decimal form: one that came back another would fit no request.
    let limits = Limits { cpus: 1.0 / 3.0, ..Limits::default() };
    let shape = Shape { profile: "default".into(), limits, hostname: Some("x".into()), split_output: true };
    for event in [
        Event::Started(Started {
            task,
            process_id: 42,
            started_at: 1,
            reduced: vec!["no io limit".into()],
            warm: true,
        }),
        Event::StartFailed { task, error },
        Event::StartFailed { task, error: StartError::Host(vec!["x".into()]) },
        Event::StartFailed { task, error: StartError::Refused("quarantined".into()) },
        Event::StartFailed { task, error: SpecError::new("env", "is wrong").into() },
        Event::Signalled { seq: 7, error: Some(SysError::new("pidfd_send_signal", "x", Errno::ESRCH)) },
        Event::Ended(Box::new(Ended {
            task,
            outcome,
            ended_at: 2,
            usage: Usage::default(),
            containment,
            cleanup_micros: 3,
        })),
        Event::Parked(Box::new(Parked { slot: task, shape, built_micros: 4 })),
        Event::Unparked { slot: task },
        Event::TlsFiles,
        Event::Drain,
    ] {
        round_trip(&event, 2);
    }
}

#[test]
fn the_sender_keeps_to_the_bounds_it_is_held_to() {
    let (here, _there) = pair().unwrap();
    let (end, _other) = pipe().unwrap();
    let large = start(vec!["x".repeat(MAX_MESSAGE)]);
    assert!(matches!(send(here.as_fd(), &large, &[]), Err(PacketError::TooLarge(_))));
    let many = vec![end.as_fd(); MAX_FDS + 1];
    assert!(matches!(send(here.as_fd(), &Request::Goodbye, &many), Err(PacketError::TooManyDescriptors(9))));
}

#[test]
fn a_full_socket_an_empty_one_and_a_closed_one_are_told_apart() {
    let (here, there) = pair().unwrap();
    assert!(matches!(receive::<Request>(there.as_fd()), Err(PacketError::WouldBlock)));
    let message = start(vec!["x".repeat(30_000)]);
    let sent = (0..10_000).take_while(|_| send(here.as_fd(), &message, &[]).is_ok()).count();
    assert!((1..10_000).contains(&sent), "{sent}");
    assert!(matches!(send(here.as_fd(), &message, &[]), Err(PacketError::WouldBlock)));
    for _ in 0..sent {
        assert_eq!(receive::<Request>(there.as_fd()).unwrap().unwrap().message, message);
    }
    drop(here);
    fd::wait_hung_up(&there);
    assert!(receive::<Request>(there.as_fd()).unwrap().is_none());
    assert!(matches!(send(there.as_fd(), &message, &[]), Err(PacketError::Closed)));
}

/// As a server does that ends while the launcher tells it something: its goodbye must not be taken for its death.
#[test]
fn last_words_are_heard_from_one_that_did_not_read_everything() {
    let (here, there) = pair().unwrap();
    send(there.as_fd(), &Request::Goodbye, &[]).unwrap();
    send(here.as_fd(), &Request::Goodbye, &[]).unwrap();
    drop(there);
    fd::wait_hung_up(&here);
    assert_eq!(receive::<Request>(here.as_fd()).unwrap().unwrap().message, Request::Goodbye);
    assert!(receive::<Request>(here.as_fd()).unwrap().is_none());
}

/// Sends raw bytes with descriptors, and returns what the receiver makes of them. What it refuses is closed: the process goes on,
/// and a host may let it open no more than a thousand.
fn judge(bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<Packet<Request>>, PacketError> {
    let (here, there) = pair().unwrap();
    let raw: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &rights[..0] } else { &rights[..] };
    sendmsg::<()>(here.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_DONTWAIT, None).unwrap();
    receive_or_refuse(there.as_fd(), &mut Vec::new())
}

fn header(kind: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![VERSION, kind];
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes
}

fn memory(bytes: &[u8], add: SealFlag) -> OwnedFd {
    let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(add)).unwrap();
    file.into()
}

#[test]
fn only_a_sealed_memfd_of_the_stated_length_is_read() {
    let json = serde_json::to_vec(&Request::Goodbye).unwrap();
    let by = |fd: &OwnedFd, length| judge(&header(MEMFD, length), &[fd.as_fd()]);
    assert_eq!(by(&memory(&json, seals()), json.len()).unwrap().unwrap().message, Request::Goodbye);
    let malformed = |result| matches!(result, Err(PacketError::Malformed(_)));
    for missing in [SealFlag::F_SEAL_WRITE, SealFlag::F_SEAL_SHRINK, SealFlag::F_SEAL_GROW] {
        assert!(malformed(by(&memory(&json, seals() - missing), json.len())), "{missing:?}");
    }
    let future_writes = (seals() - SealFlag::F_SEAL_WRITE) | SealFlag::F_SEAL_FUTURE_WRITE;
    assert!(malformed(by(&memory(&json, future_writes), json.len())));
    assert!(malformed(by(&memory(&json, seals()), json.len() - 1)));
    assert!(malformed(by(&memory(&json, seals()), json.len() + 1)));
    assert!(malformed(judge(&header(MEMFD, json.len()), &[])));
    let large = memory(&vec![b' '; MAX_MESSAGE + 1], seals());
    assert!(matches!(by(&large, MAX_MESSAGE + 1), Err(PacketError::TooLarge(_))));
    // An empty pipe would block whoever reads it, a file could change under the reader.
    let (pipe, _other) = pipe().unwrap();
    assert!(malformed(by(&pipe, 5)));
    let file = tempfile::tempfile().unwrap();
    file.set_len(5).unwrap();
    assert!(malformed(by(&file.into(), 5)));
}

#[test]
fn another_version_too_many_descriptors_and_an_empty_packet_are_refused() {
    let (pipe, _other) = pipe().unwrap();
    assert!(matches!(judge(&[VERSION + 1, 0, 0, 0, 0, 0], &[]), Err(PacketError::Version(_))));
    assert!(matches!(judge(&[], &[]), Err(PacketError::Malformed(_))));
    let json = serde_json::to_vec(&Request::Goodbye).unwrap();
    let bytes = [header(INLINE, json.len()), json].concat();
    assert!(judge(&bytes, &[pipe.as_fd(); MAX_FDS]).is_ok());
    for many in [MAX_FDS + 1, 253] {
        assert!(matches!(judge(&bytes, &vec![pipe.as_fd(); many]), Err(PacketError::TooManyDescriptors(_))));
    }
    let long = [header(INLINE, MAX_INLINE + 1), vec![b' '; MAX_INLINE + 1]].concat();
    assert!(matches!(judge(&long, &[]), Err(PacketError::Malformed(_))));
}

#[test]
fn unknown_fields_and_variants_are_refused() {
    let task = TaskId::random();
    for json in [
        format!(r#"{{"Stop":{{"task":"{task}","grace_ms":1,"force":true}}}}"#),
        format!(r#"{{"Kill":{{"task":"{task}"}}}}"#),
        r#"{"Stop":{"task":"../../etc","grace_ms":1}}"#.to_owned(),
        r#"{"Stop":{"task":"x","grace_ms":-1}}"#.to_owned(),
        "[".repeat(10_000),
    ] {
        let bytes = [header(INLINE, json.len()), json.clone().into_bytes()].concat();
        assert!(matches!(judge(&bytes, &[]), Err(PacketError::Malformed(_))), "{json}");
    }
}

proptest! {
    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), fds in 0usize..12) {
        let (pipe, _other) = pipe().unwrap();
        prop_assert!(judge(&bytes, &vec![pipe.as_fd(); fds]).is_err());
    }

    #[test]
    fn garbage_behind_a_true_header_is_refused(
        body in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..3,
        lie in prop::option::of(any::<u32>()),
        fds in 0usize..3,
    ) {
        let (pipe, _other) = pipe().unwrap();
        let stated = lie.map_or(body.len(), |lie| lie as usize);
        let bytes = [header(kind, stated), body].concat();
        prop_assert!(judge(&bytes, &vec![pipe.as_fd(); fds]).is_err());
    }

    #[test]
    fn a_message_cut_anywhere_is_refused(cut in 0usize..100) {
        let json = serde_json::to_vec(&start(vec!["a".into()])).unwrap();
        let cut = cut * json.len() / 100;
        let bytes = [header(INLINE, cut), json[..cut].to_vec()].concat();
        prop_assert!(matches!(judge(&bytes, &[]), Err(PacketError::Malformed(_))));
        let aside = memory(&json[..cut], seals());
        prop_assert!(matches!(judge(&header(MEMFD, cut), &[aside.as_fd()]), Err(PacketError::Malformed(_))));
    }

    #[test]
    fn a_message_with_a_byte_changed_does_no_harm(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut json = serde_json::to_vec(&start(vec!["a".into()])).unwrap();
        let at = at.index(json.len());
        json[at] = byte;
        let bytes = [header(INLINE, json.len()), json].concat();
        let _ = judge(&bytes, &[]);
    }
}
