//! Every way a task can end, told apart: exit code, signal and reason are separate, and 137 is never a guess.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Process, Run, pace, wait_until};

#[test]
fn exit_zero_is_ok_and_taskman_says_nothing() {
    let ended = Run::command(&["true"]).end();
    ended.assert_outcome(0, "exited_ok", 0, "exit");
    assert_eq!((ended.text().as_str(), ended.stderr.as_str()), ("", ""));
}

#[test]
fn an_exit_code_is_handed_on() {
    let ended = Run::sh("exit 3").end();
    ended.assert_outcome(3, "exited_error", 3, "exit");
    assert_eq!(ended.stderr, "");
    Run::sh("exit 255").end().assert_outcome(255, "exited_error", 255, "exit");
}

#[test]
fn exit_codes_that_look_like_taskmans_own_stay_the_tasks() {
    for code in [124, 125, 126, 127, 137, 143] {
        Run::sh(&format!("exit {code}")).end().assert_outcome(code, "exited_error", code, "exit");
    }
}

#[test]
fn a_signal_of_its_own_doing_is_named() {
    for (number, name) in [
        (1, "SIGHUP"),
        (6, "SIGABRT"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
        (31, "SIGSYS"),
        (37, "SIGRTMIN+3"),
    ] {
        let ended = Run::command(&["perl", "-e", &format!("kill {number}, $$; sleep 60")]).end();
        ended.assert_outcome(128 + number, "signaled", name, "signal");
    }
}

#[test]
fn a_stop_is_a_term_and_named_as_stopped() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut task = Run::echo().start();
        task.ready();
        task.signal(signal);
        task.end().assert_outcome(143, "signaled", "SIGTERM", "stopped");
    }
}

#[test]
fn a_task_that_handles_the_stop_keeps_its_exit_code() {
    // perl handles a signal between two operations: one that comes after the print is handled when a sleep ends.
    let script = "$| = 1; $SIG{TERM} = sub { exit 7 }; print qq(ready\n); sleep 1 while 1";
    let mut task = Run::command(&["perl", "-e", script]).start();
    assert_eq!(task.line(), "ready");
    task.signal(Signal::SIGTERM);
    task.end().assert_outcome(7, "exited_error", 7, "stopped");
}

#[test]
fn a_task_that_ignores_the_stop_is_killed_when_its_grace_ends() {
    let mut task =
        Run::sh("trap '' TERM INT HUP; echo ready; while :; do sleep 60; done").with(&["--grace", "400ms"]).start();
    assert_eq!(task.line(), "ready");
    let asked = Instant::now();
    task.signal(Signal::SIGTERM);
    let ended = task.end();
    let took = asked.elapsed();
    ended.assert_outcome(137, "signaled", "SIGKILL", "stopped");
    assert!(took >= Duration::from_millis(400), "killed after {took:?}, before its grace ended");
    assert!(took < pace::time(Duration::from_millis(6400)), "took {took:?}");
}

#[test]
fn without_grace_a_stop_kills_at_once() {
    let mut task = Run::sh("trap '' TERM; echo ready; while :; do sleep 60; done").with(&["--grace", "0"]).start();
    assert_eq!(task.line(), "ready");
    let asked = Instant::now();
    task.signal(Signal::SIGTERM);
    let ended = task.end();
    assert!(asked.elapsed() < pace::time(Duration::from_secs(6)), "took {:?}", asked.elapsed());
    ended.assert_outcome(137, "signaled", "SIGKILL", "stopped");
    // Not asked before: on a slow host it would have the time to answer.
    assert_eq!(ended.report()["outcome"]["detail"], "stopped: SIGKILL to all");
}

#[test]
fn a_second_signal_kills_at_once() {
    let mut task =
        Run::sh("trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done").with(&["--grace", "50s"]).start();
    assert_eq!(task.line(), "ready");
    task.signal(Signal::SIGINT);
    assert_eq!(task.line(), "asked");
    let again = Instant::now();
    task.signal(Signal::SIGINT);
    let ended = task.end();
    assert!(again.elapsed() < pace::time(Duration::from_secs(5)), "took {:?}", again.elapsed());
    ended.assert_outcome(137, "signaled", "SIGKILL", "stopped");
}

#[test]
fn out_of_memory_is_told_from_the_groups_own_counters() {
    let ended = Run::command(&["perl", "-e", "my $x = 'a' x (200 << 20); sleep 60"]).with(&["--memory", "32M"]).end();
    ended.assert_outcome(137, "signaled", "SIGKILL", "oom");
    // Nothing of a group above it: that one had enough.
    assert!(ended.stderr.starts_with("taskman: ran out of memory; its limit is 32M ·"), "{}", ended.stderr);
}

#[test]
fn a_child_out_of_memory_takes_the_whole_task_down() {
    // The parent may run on for the moment between the kernel's event and the kill, not for seconds.
    let script = "perl -e 'my $x = \"a\" x (200 << 20); sleep 60'; sleep 5; echo survived; sleep 60";
    let ended = Run::sh(script).with(&["--memory", "32M"]).end();
    assert_eq!(ended.report()["outcome"]["reason"], "oom", "{ended:?}");
    assert_eq!(ended.status.code(), Some(137));
    assert_eq!(ended.text(), "", "the parent went on");
    ended.assert_proven();
}

#[test]
fn killing_itself_within_its_memory_is_no_oom() {
    let ended = Run::sh("kill -KILL $$").with(&["--memory", "32M"]).end();
    ended.assert_outcome(137, "signaled", "SIGKILL", "signal");
}

#[test]
fn the_wall_clock_ends_a_sleeper() {
    let ended = Run::command(&["sleep", "60"]).with(&["--timeout", "500ms"]).end();
    ended.assert_outcome(124, "signaled", "SIGKILL", "wall_time");
    let wall = ended.number("/usage/wall_ms");
    assert!((500..5000).contains(&wall), "ended after {wall} ms");
}

#[test]
fn processor_time_ends_a_spinner() {
    let ended = Run::sh("while :; do :; done").with(&["--cpu-time", "500ms"]).end();
    ended.assert_outcome(124, "signaled", "SIGKILL", "cpu_time");
    let used = ended.cpu_ms();
    let latest = 500 + pace::time(Duration::from_secs(5)).as_millis() as u64;
    assert!((500..latest).contains(&used), "used {used} ms");
}

#[test]
fn too_much_output_ends_the_task_and_the_rest_is_exact() {
    let ended = Run::command(&["yes"]).with(&["--output-limit", "100K"]).end();
    ended.assert_outcome(137, "signaled", "SIGKILL", "output_limit");
    assert_eq!(ended.stdout.len(), 100 << 10);
    assert!(ended.stdout.chunks(2).all(|line| line == b"y\n"));
    assert_eq!(ended.number("/usage/output_bytes"), 100 << 10);
}

#[test]
fn the_output_limit_counts_both_streams_together() {
    let script = "head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; sleep 60";
    let ended = Run::sh(script).with(&["--output-limit", "100000", "--quiet"]).end();
    assert_eq!(ended.report()["outcome"]["reason"], "output_limit", "{ended:?}");
    assert_eq!(ended.status.code(), Some(137));
    assert_eq!(ended.stdout.len() + ended.stderr.len(), 100_000);
    assert_eq!(ended.number("/usage/output_bytes"), 100_000);
}

#[test]
fn output_up_to_the_limit_is_no_offence() {
    let ended = Run::command(&["head", "-c", "100000", "/dev/zero"]).with(&["--output-limit", "100000"]).end();
    ended.assert_outcome(0, "exited_ok", 0, "exit");
    assert_eq!(ended.stdout, vec![0; 100_000]);
}

#[test]
fn processes_left_behind_are_counted_and_killed() {
    let mut task = Run::sh("sleep 1000 & sleep 1000 & echo ready; read go; exit 5").open_stdin().start();
    assert_eq!(task.line(), "ready");
    let uid = task.payload().uid();
    wait_until("both children run", || (Process::of_uid(uid).len() == 4).then_some(()));
    task.send(b"go\n");
    let ended = task.end();
    ended.assert_outcome(5, "exited_error", 5, "exit");
    let detail = ended.report()["outcome"]["detail"].as_str().unwrap();
    assert!(detail.contains("left 2 processes"), "{detail}");
    assert_eq!(Process::of_uid(uid), [], "still there after taskman said proven");
}

#[test]
fn a_daemon_that_holds_the_output_open_delays_nothing() {
    let ended = Run::sh("setsid sleep 1000 & exit 0").end();
    ended.assert_outcome(0, "exited_ok", 0, "exit");
    assert!(ended.elapsed < pace::time(Duration::from_secs(10)), "took {:?}", ended.elapsed);
}

#[test]
fn init_killed_from_outside_is_never_a_success() {
    let mut task = Run::echo().start();
    task.ready();
    let init = task.init();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(init.pid), Signal::SIGKILL).unwrap();
    let ended = task.end();
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert_eq!(ended.report()["outcome"]["reason"], "containment", "{}", ended.report());
}
