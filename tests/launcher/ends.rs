//! How the service itself ends: in order, at once, or because its server is gone. No task outlives it.

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::getppid;
use taskman::sys::clone::{Side, split};
use taskman::task::outcome::Reason;
use taskman::wire::{Event, Request};

use crate::stage::{Case, LOG, lives, play, play_with};

pub fn cases() -> Vec<Case> {
    vec![
        ("sigterm_stops_every_task_and_ends_in_order", sigterm_stops_every_task_and_ends_in_order),
        ("a_second_sigterm_kills", a_second_sigterm_kills),
        ("a_closed_socket_ends_every_task", a_closed_socket_ends_every_task),
        ("a_launcher_that_stood_still_says_nothing_untrue", a_launcher_that_stood_still_says_nothing_untrue),
        ("a_dead_server_ends_every_task", a_dead_server_ends_every_task),
        ("a_killed_launcher_takes_every_task_along", a_killed_launcher_takes_every_task_along),
        ("an_early_goodbye_ends_every_task", an_early_goodbye_ends_every_task),
        ("a_task_that_is_being_started_does_not_outlive_the_server", a_starting_task_does_not_outlive_the_server),
    ]
}

fn sigterm_stops_every_task_and_ends_in_order() {
    let played = play(|client| {
        let (plain, _) = client.start_sleeper("true");
        let (deaf, _) = client.start_sleeper("trap '' TERM");
        // A task that its owner gave an hour has as long as the others now.
        client.send(&Request::Stop { task: deaf, grace_ms: 3_600_000 });
        let began = Instant::now();
        client.tell_launcher(Signal::SIGTERM);
        client.wait_for(|event| (*event == Event::Drain).then_some(()));
        let late = client.start(&["true"], |_| {});
        assert!(client.refusal(late).to_string().contains("stopping"));
        let outcome = client.ended(plain).outcome;
        assert_eq!((outcome.reason, outcome.status.signal().as_deref()), (Reason::ServerShutdown, Some("SIGTERM")));
        let outcome = client.ended(deaf).outcome;
        assert_eq!((outcome.reason, outcome.status.signal().as_deref()), (Reason::Stopped, Some("SIGKILL")));
        assert!((2..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        client.send(&Request::Goodbye);
    });
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}

fn a_second_sigterm_kills() {
    let sooner = || {
        let began = Instant::now();
        let played = play(|client| {
            let (deaf, _) = client.start_sleeper("trap '' TERM");
            client.tell_launcher(Signal::SIGTERM);
            client.wait_for(|event| (*event == Event::Drain).then_some(()));
            client.tell_launcher(Signal::SIGINT);
            assert_eq!(client.ended(deaf).outcome.reason, Reason::ServerShutdown);
            client.send(&Request::Goodbye);
        });
        assert_eq!(played.code, 0);
        assert!(played.log.contains("told to stop at once; 1 tasks are killed"), "{}", played.log);
        played.assert_all_dead();
        began.elapsed() < Duration::from_secs(3)
    };
    // A machine that stalls is late once, and a fault is late every time.
    assert!((0..3).any(|_| sooner()), "its grace of three seconds was waited out");
}

fn a_closed_socket_ends_every_task() {
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        client.start_sleeper("setsid sleep 600 & true");
        client.socket = None;
        nix::unistd::pause();
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
}

fn a_launcher_that_stood_still_says_nothing_untrue() {
    let played = play_with(
        |_| {},
        |client| {
            client.health(|health| health.can_accept);
            client.start_sleeper("true");
            let (launcher, log) = (getppid(), client.directory.join(LOG));
            if let Side::Child(_) = split().unwrap() {
                client.socket = None;
                // First the server closes its socket, for which it is given a second.
                while !std::fs::read_to_string(&log).unwrap().contains("has closed its socket") {
                    poll(&mut [], 1u8).unwrap();
                }
                kill(launcher, Signal::SIGSTOP).unwrap();
                // The server ends and its second is over: the launcher learns of both in one turn.
                poll(&mut [], 1500u16).unwrap();
                kill(launcher, Signal::SIGCONT).unwrap();
                std::process::exit(0);
            }
            client.socket = None;
            while !std::fs::read_to_string(format!("/proc/{launcher}/status")).unwrap().contains("T (stopped)") {
                poll(&mut [], 1u8).unwrap();
            }
        },
    );
    assert_eq!(played.code, 1);
    played.assert_all_dead();
    for part in ["has closed its socket; ending 1 tasks", "the server has ended"] {
        assert!(played.log.contains(part), "{part:?} is not in {}", played.log);
    }
    assert!(!played.log.contains("not end"), "{}", played.log);
}

fn a_dead_server_ends_every_task() {
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        client.start_sleeper("true");
        nix::sys::signal::raise(Signal::SIGKILL).unwrap();
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
}

fn a_killed_launcher_takes_every_task_along() {
    let played = play(|client| {
        client.start_sleeper("trap '' TERM");
        client.start_sleeper("setsid sleep 600 & true");
        client.tell_launcher(Signal::SIGKILL);
        // That is how the server learns of it.
        let closed = PollFd::new(client.fd(), PollFlags::POLLHUP);
        assert_eq!(poll(&mut [closed], 5000u16), Ok(1));
    });
    assert_eq!(played.code, 128 + libc::SIGKILL);
    let deadline = Instant::now() + Duration::from_secs(5);
    while played.noted.iter().any(|pid| lives(*pid)) && Instant::now() < deadline {
        poll(&mut [], 10u8).unwrap();
    }
    played.assert_all_dead();
}

fn an_early_goodbye_ends_every_task() {
    let played = play(|client| {
        client.start_sleeper("true");
        // And leaves as if all were well.
        client.send(&Request::Goodbye);
    });
    assert_eq!(played.code, 1);
    played.assert_all_dead();
}

fn a_starting_task_does_not_outlive_the_server() {
    let played = play(|client| {
        let marker = format!("{}", 31_000 + std::process::id() % 1000);
        client.start(&["sleep", &marker], |_| {});
    });
    assert_eq!(played.code, 1);
    let left =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    assert_eq!(left.filter(|line| line.starts_with(b"sleep\x0031")).count(), 0);
}
