//! Bytes in, bytes out: standard input is pumped through a pipe, both outputs are separate and exact.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::host::host_text;
use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Process, Run, Started, pace};

/// Every byte value in an order that repeats late.
fn binary(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as u8
    };
    (0..length).map(|_| step(&mut state)).collect()
}

#[test]
fn ten_mebibytes_of_binary_pass_through_unchanged() {
    let bytes = binary(10 << 20);
    let ended = Run::command(&["cat"]).stdin(bytes.clone()).end();
    ended.assert_outcome(0, "exited_ok", 0, "exit");
    assert!(ended.stdout == bytes, "{} bytes came back, or other ones", ended.stdout.len());
    assert_eq!(ended.number("/usage/output_bytes"), 10 << 20);
    let dir = HostDir::new();
    let file = dir.file("bytes", &bytes, 0o644);
    let wanted = host_text(&["sha256sum", file.to_str().unwrap()]);
    let inside = Run::command(&["sha256sum"]).stdin(bytes).end().ok();
    assert_eq!(inside.split(' ').next(), wanted.split(' ').next());
}

#[test]
fn a_closed_standard_input_is_an_empty_one() {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" <&-", "sh", TASKMAN, "run", "--", "wc", "-c"]);
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert_eq!((ended.status.code(), ended.text().as_str(), ended.stderr.as_str()), (Some(0), "0\n", ""));
}

#[test]
fn closed_outputs_do_not_end_up_as_something_else() {
    // Descriptors 1 and 2 are free when taskman starts; what it opens first must not become the task's output.
    let dir = HostDir::new();
    let script = "\"$@\" >&- 2>&-; echo code $?";
    let mut command = Command::new("sh");
    let report = dir.path("report.json");
    command.args(["-c", script, "sh", TASKMAN, "run", "--report", report.to_str().unwrap(), "--", "echo", "lost"]);
    let ended = Started::spawn(command, dir, GUARD).end();
    assert_eq!(ended.report()["outcome"]["reason"], "exit", "{ended:?}");
    assert!(!ended.report().to_string().contains("lost\\n"));
}

#[test]
fn input_nobody_reads_harms_nobody() {
    Run::command(&["true"]).stdin(binary(1 << 20)).end().assert_outcome(0, "exited_ok", 0, "exit");
}

#[test]
fn an_open_silent_input_does_not_delay_the_end() {
    // `ended` keeps the pipe open until taskman is gone: it must not wait for the end of its input.
    let mut command = Command::new(TASKMAN);
    command.args(["run", "--", "true"]).stdin(Stdio::piped());
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.elapsed < pace::time(Duration::from_secs(10)), "took {:?}", ended.elapsed);
}

#[test]
fn both_outputs_are_separate_and_byte_exact() {
    let program = "binmode STDOUT; binmode STDERR; print STDOUT ((map chr, 0..255) x 100); print STDERR ((map chr, reverse 0..127) x 100);";
    let ended = Run::command(&["perl", "-e", program]).end();
    ended.assert_outcome(0, "exited_ok", 0, "exit");
    assert_eq!(ended.stdout, (0..=255).collect::<Vec<u8>>().repeat(100));
    assert_eq!(ended.stderr.as_bytes(), (0..=127).rev().collect::<Vec<u8>>().repeat(100));
    assert_eq!(ended.number("/usage/output_bytes"), 100 * (256 + 128));
}

#[test]
fn output_arrives_while_the_task_runs() {
    let mut task = Run::echo().start();
    task.ready();
    task.send(b"again\n");
    assert_eq!(task.line(), "again");
    task.end().ok();
}

#[test]
fn a_reader_that_leaves_ends_the_task() {
    // It begins when it is told to: no more than its limit of output has passed when its reader leaves.
    let mut task = Run::sh("echo ready; read go; exec yes").open_stdin().start();
    assert_eq!(task.line(), "ready");
    let uid = task.payload().uid();
    task.send(b"\n");
    assert_eq!(task.line(), "y");
    task.close_stdout();
    let ended = task.end();
    assert!(ended.elapsed < pace::time(Duration::from_secs(20)), "took {:?}", ended.elapsed);
    // As in a pipeline without taskman.
    ended.assert_outcome(141, "signaled", "SIGPIPE", "signal");
    assert_eq!(Process::of_uid(uid), []);
}

#[test]
fn whatever_the_caller_has_open_neither_disturbs_the_start_nor_reaches_the_task() {
    let dir = HostDir::new();
    let secret = dir.file("secret", "of the caller", 0o600);
    for count in 0..24 {
        // Each count moves the numbers that taskman's own descriptors get.
        let script = "for ((i = 3; i < 3 + $1; i++)); do eval \"exec $i<$2\"; done; exec \"${@:3}\"";
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash", &count.to_string(), secret.to_str().unwrap()]);
        command.args([TASKMAN, "run", "--", "ls", "/proc/self/fd"]);
        let ended = Started::spawn(command, HostDir::new(), GUARD).end();
        // 3 is the directory that ls reads.
        assert_eq!((ended.status.code(), ended.text().as_str()), (Some(0), "0\n1\n2\n3\n"), "{count} open: {ended:?}");
    }
}
