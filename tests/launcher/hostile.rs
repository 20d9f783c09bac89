//! A server that was taken over: everything it can say about tasks that are not there, floods, descriptors where none belong,
//! and silence. The launcher serves what is right, ends what is wrong, and its tasks' limits hold all the while.

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, Shutdown, sendmsg, shutdown};
use taskman::task::id::TaskId;
use taskman::task::outcome::Reason;
use taskman::wire::{self, PacketError, Request};

use crate::requests::fatal;
use crate::stage::{Case, Client, lives, play};
use crate::throttled::Throttled;

pub fn cases() -> Vec<Case> {
    vec![
        ("requests_about_other_tasks_change_nothing", requests_about_other_tasks_change_nothing),
        ("a_flood_of_requests_delays_no_limit", a_flood_of_requests_delays_no_limit),
        ("a_flood_of_starts_is_held_to_the_quota", a_flood_of_starts_is_held_to_the_quota),
        ("a_start_that_hangs_takes_its_owners_share_and_a_stop_ends_it", a_start_that_hangs_is_its_owners_alone),
        ("descriptors_with_any_request_are_the_end_of_the_server", descriptors_with_any_request_are_fatal),
        ("a_message_of_another_version_or_kind_is_the_end_of_the_server", another_version_is_fatal),
        ("a_message_beyond_the_largest_is_the_end_of_the_server", a_huge_message_is_fatal),
        ("a_socket_that_is_half_closed_ends_every_task", a_half_closed_socket_ends_every_task),
        ("a_server_that_never_reads_is_ended_with_its_tasks_in_time", a_server_that_never_reads_ends_in_time),
        ("a_server_without_descriptors_is_told_and_lives", a_server_without_descriptors_is_told_and_lives),
    ]
}

/// Every request there is, about this task. A signal of 0 would tell whether a process is there.
fn about(task: TaskId) -> [Request; 5] {
    [
        Request::Stop { task, grace_ms: 0 },
        Request::Stop { task, grace_ms: u64::MAX },
        Request::OutputLimit { task },
        Request::Signal { seq: 1, task, number: libc::SIGKILL },
        Request::Signal { seq: 2, task, number: 0 },
    ]
}

fn requests_about_other_tasks_change_nothing() {
    // A task of another launcher: its id is known, and its uid and group exist.
    let other = std::process::Command::new(env!("CARGO_BIN_EXE_taskman"))
        .args(["run", "--", "sleep", "30"])
        .stdout(std::process::Stdio::null())
        .spawn();
    let mut other = other.unwrap();
    let foreign = foreign_task(other.id());
    let played = play(|client| {
        let (kept, pid) = client.start_sleeper("true");
        let ended = client.start(&["true"], |_| {});
        client.ended(ended);
        let failed = client.start(&["no-such-command"], |_| {});
        client.refusal(failed);
        for other in [TaskId::random(), ended, failed, foreign] {
            for request in about(other) {
                client.send(&request);
                if let Request::Signal { seq, .. } = request {
                    let error = client.signalled(seq);
                    assert_eq!(error.map(|error| error.errno()), Some(Errno::ESRCH), "{request:?}");
                }
            }
        }
        assert!(lives(pid), "a request about another task reached this one");
        // Its id again, and those of the dead: the first is taken, the others are free.
        client.start(&["true"], |request| request.task = kept);
        assert!(client.refusal(kept).to_string().contains("runs"));
        client.start(&["true"], |request| request.task = ended);
        assert_eq!(client.ended(ended).outcome.status.code(), Some(0));
        client.send(&Request::Stop { task: kept, grace_ms: 0 });
        client.ended(kept);
        client.leave();
    });
    assert_eq!(played.code, 0);
    assert!(lives(other.id() as i32) && other.try_wait().unwrap().is_none(), "another launcher's task was reached");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(other.id() as i32), Signal::SIGTERM).unwrap();
    other.wait().unwrap();
}

/// The id of the other launcher's task, from the name of its group.
fn foreign_task(launcher: u32) -> TaskId {
    let name = format!("taskman-run-{launcher}.*");
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        // A group of another test may go while find looks at it.
        let groups = std::process::Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
        let groups = String::from_utf8(groups.stdout).unwrap();
        if let Some(id) = groups.lines().find_map(|line| line.rsplit_once('.')?.1.parse().ok()) {
            return id;
        }
        assert!(Instant::now() < deadline, "taskman run has no group");
    }
}

fn a_flood_of_requests_delays_no_limit() {
    let played = play(|client| {
        let task = client.start(&["sleep", "600"], |request| request.limits.timeout = Duration::from_millis(700));
        client.started(task);
        let until = Instant::now() + Duration::from_secs(4);
        let (mut sent, mut answered) = (0u64, 0u64);
        while Instant::now() < until {
            let foreign = TaskId::random();
            for request in about(foreign) {
                match wire::send(client.fd(), &request, &[]) {
                    Ok(()) => sent += u64::from(matches!(request, Request::Signal { .. })),
                    Err(PacketError::WouldBlock) => answered += client.drain_answers(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        while answered < sent {
            answered += client.drain_answers();
        }
        let ended = client.ended(task);
        assert_eq!(ended.outcome.reason, Reason::WallTime);
        assert!(ended.usage.wall_ms < 3000, "its end was seen to after {} ms of a flood", ended.usage.wall_ms);
        assert!(sent > 1000, "that was no flood: {sent}");
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn a_flood_of_starts_is_held_to_the_quota() {
    let played = play(|client| {
        let tasks: Vec<TaskId> = (0..200).map(|_| client.start(&["sleep", "600"], |_| {})).collect();
        let mut started = Vec::new();
        for task in tasks {
            match client.start_result(task) {
                Ok(()) => started.push(task),
                Err(error) => assert!(error.to_string().contains("quota.running"), "{error}"),
            }
        }
        assert_eq!(started.len(), 4);
        for task in started {
            client.send(&Request::Stop { task, grace_ms: 0 });
            client.ended(task);
        }
        client.leave();
    });
    assert_eq!(played.code, 0);
}

/// Whether this process stands in read(2) of one byte, uninterruptibly: so the page is locked. It stands there for other things before,
/// such as the directory or pages of its own.
fn waits_for_its_byte(pid: u32) -> bool {
    let of = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let call = of("syscall");
    let words: Vec<&str> = call.split(' ').collect();
    of("stat").contains("(head) D ") && words.first() == Some(&"0") && words.get(3) == Some(&"0x1")
}

/// A program whose first page is locked is not executed. No task's io limit is so low that it could lock it for long, so root reads it
/// here, for half a minute. Two are started at once here, one of each owner; see the stage.
fn a_start_that_hangs_is_its_owners_alone() {
    let program = "/usr/bin/infocmp";
    let file = std::fs::File::open(program).unwrap();
    nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
    let slow = Throttled::make(Path::new(program), 512).expect("a cgroup that limits what is read");
    let [shell, words @ ..] = slow.wrap();
    let mut reader =
        Command::new(shell).args(words).args(["head", "-c1", program]).stdout(Stdio::null()).spawn().unwrap();
    while !waits_for_its_byte(reader.id()) {
        assert!(reader.try_wait().unwrap().is_none(), "the program was read");
        nix::poll::poll(&mut [], 1u8).unwrap();
    }
    let played = play(|client| {
        let [hung, waits] = [(); 2].map(|()| client.start(&[program], |_| {}));
        let others = client.start(&["true"], |request| request.owner = "bob".into());
        client.started(others);
        assert_eq!(client.ended(others).outcome.status.code(), Some(0));
        let begun = Instant::now();
        client.send(&Request::Stop { task: waits, grace_ms: 0 });
        let why = client.refusal(waits).to_string();
        assert!(why.contains("before it was started"), "{why}");
        client.send(&Request::Stop { task: hung, grace_ms: 0 });
        let why = client.refusal(hung).to_string();
        assert!(why.contains("ETIMEDOUT") && begun.elapsed() < Duration::from_secs(10), "{why}: {:?}", begun.elapsed());
        client.leave();
    });
    slow.lift();
    assert!(reader.wait().unwrap().success());
    assert_eq!(played.code, 0);
}

fn descriptors_with_any_request_are_fatal() {
    for which in 0..about(TaskId::random()).len() + 1 {
        fatal(move |client| {
            let mut requests = about(TaskId::random()).to_vec();
            requests.push(Request::Goodbye);
            let memory = std::fs::File::open("/etc/shadow").unwrap();
            let fds = [client.fd(), std::os::fd::AsFd::as_fd(&memory)];
            wire::send(client.fd(), &requests[which], &fds).unwrap();
        });
    }
}

fn raw(client: &Client, bytes: &[u8]) {
    sendmsg::<()>(client.fd().as_raw_fd(), &[IoSlice::new(bytes)], &[], MsgFlags::empty(), None).unwrap();
}

fn another_version_is_fatal() {
    fatal(|client| {
        raw(client, &[wire::VERSION + 1, 0, 9, 0, 0, 0, b'"', b'G', b'o', b'o', b'd', b'b', b'y', b'e', b'"'])
    });
    fatal(|client| raw(client, &[wire::VERSION, 7, 0, 0, 0, 0]));
    // A memfd is announced, and none comes.
    fatal(|client| raw(client, &[wire::VERSION, 1, 9, 0, 0, 0]));
    fatal(|client| raw(client, &[]));
}

fn a_huge_message_is_fatal() {
    fatal(|client| {
        let mut bytes = vec![wire::VERSION, 0, 0, 0, 0, 1];
        bytes.resize(200 << 10, b' ');
        raw(client, &bytes);
    });
}

fn a_half_closed_socket_ends_every_task() {
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        shutdown(client.fd().as_raw_fd(), Shutdown::Write).unwrap();
        nix::unistd::pause();
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        // It hears nothing any more, and an answer is due.
        shutdown(client.fd().as_raw_fd(), Shutdown::Read).unwrap();
        client.send(&Request::Signal { seq: 1, task: TaskId::random(), number: 1 });
        nix::unistd::pause();
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
}

fn a_server_that_never_reads_ends_in_time() {
    let began = Instant::now();
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        let request = Request::Signal { seq: 1, task: TaskId::random(), number: 1 };
        while wire::send(client.fd(), &request, &[]).is_ok() {}
        // Told to stop, the launcher waits for a goodbye that does not come: three seconds of grace, fifteen to record.
        client.tell_launcher(Signal::SIGTERM);
        nix::unistd::pause();
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
    assert!((15..40).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

fn a_server_without_descriptors_is_told_and_lives() {
    let played = play(|client| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let task = client.start(&["sleep", "600"], |request| request.split_output = true);
        // Numbers below the limit are all taken, so that nothing can be received.
        let mut filler = Vec::new();
        setrlimit(Resource::RLIMIT_NOFILE, 128, hard).unwrap();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            filler.push(file);
        }
        let outputs = client.started(task).1;
        assert_eq!(outputs.len(), 0, "something was received all the same");
        drop(filler);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        client.send(&Request::Stop { task, grace_ms: 0 });
        client.ended(task);
        let next = client.start(&["true"], |_| {});
        assert_eq!(client.started(next).1.len(), 1);
        client.ended(next);
        client.leave();
    });
    assert_eq!(played.code, 0);
}
