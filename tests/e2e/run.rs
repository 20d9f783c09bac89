//! `taskman run` as a command among commands: Ctrl-C, its reports, and the shape of the task.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::host::host_text;
use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Process, Run, Started, pace, wait_until};

#[test]
fn control_c_stops_and_twice_kills() {
    let mut task = Run::echo().start();
    task.ready();
    task.signal(Signal::SIGINT);
    let ended = task.end();
    ended.assert_outcome(143, "signaled", "SIGTERM", "stopped");
    assert!(ended.stderr.lines().last().unwrap().starts_with("taskman: "), "{}", ended.stderr);

    let mut task =
        Run::sh("trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done").with(&["--grace", "50s"]).start();
    assert_eq!(task.line(), "ready");
    task.signal(Signal::SIGINT);
    assert_eq!(task.line(), "asked");
    task.signal(Signal::SIGINT);
    task.end().assert_outcome(137, "signaled", "SIGKILL", "stopped");
}

#[test]
fn the_report_has_every_documented_field() {
    let ended = Run::command(&["sh", "-c", "exit 4", "x y"]).end();
    let report = ended.report();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    // serde_json sorts the keys of what it parsed.
    assert_eq!(keys(report), "args command containment ended_at limits outcome reduced started_at task_id usage");
    assert_eq!(keys(&report["outcome"]), "detail exit_code reason signal status");
    assert_eq!(keys(&report["usage"]), "cpu_system_ms cpu_user_ms memory_peak_bytes output_bytes pids_peak wall_ms");
    assert_eq!(keys(&report["containment"]), "checks verdict");
    assert_eq!(report["command"], "sh");
    assert_eq!(report["args"], serde_json::json!(["-c", "exit 4", "x y"]));
    assert!(uuid::Uuid::parse_str(report["task_id"].as_str().unwrap()).is_ok_and(|id| id.get_version_num() == 4));
    let time = |field: &str| humantime::parse_rfc3339(report[field].as_str().unwrap()).unwrap();
    let took = time("ended_at").duration_since(time("started_at")).expect("it ended after it started");
    assert!(took < GUARD);
    assert!(ended.number("/usage/memory_peak_bytes") > 0);
    assert_eq!(ended.number("/usage/pids_peak"), 1, "init is taskman's and not counted");
}

#[test]
fn a_report_replaces_the_last_one_and_is_whole() {
    let dir = HostDir::new();
    let report = dir.file("report.json", "x".repeat(1 << 20), 0o644);
    let mut command = Command::new(TASKMAN);
    command.args(["run", "--report"]).arg(&report).args(["--", "true"]);
    Started::spawn(command, dir, GUARD).end().ok();
}

#[test]
fn output_json_is_the_report_as_one_line_on_standard_error() {
    let ended = Run::sh("echo out; echo err >&2").with(&["--output", "json"]).end();
    assert_eq!(ended.ok(), "out\n");
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "err"), "{}", ended.stderr);
    assert_eq!(&serde_json::from_str::<Value>(lines[1]).unwrap(), ended.report());
}

#[test]
fn the_summary_stands_last_when_the_end_was_abnormal_and_quiet_silences_it() {
    let timeout = format!("{}ms", pace::term(Duration::from_secs(2)).as_millis());
    let sleeper = || Run::sh("echo err >&2; exec sleep 60").with(&["--timeout", &timeout]);
    let ended = sleeper().end();
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "err"), "{}", ended.stderr);
    assert!(lines[1].starts_with("taskman: "), "{}", lines[1]);
    let ended = sleeper().with(&["--quiet"]).end();
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(124), "err\n"));
}

#[test]
fn on_a_terminal_the_summary_always_stands() {
    let on_terminal = |options: &str| {
        let line = format!("{TASKMAN} run {options} -- echo out");
        host_text(&["script", "-qec", &line, "/dev/null"]).replace('\r', "")
    };
    let text = on_terminal("");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "out"), "{text}");
    assert!(lines[1].starts_with("taskman: "), "{text}");
    assert_eq!(on_terminal("--quiet"), "out\n");
}

#[test]
fn variables_are_added_and_defaults_replaced() {
    let ended = Run::sh("echo \"$A|$B|$LANG|$HOME\"")
        .with(&["--env", "A=1=2", "--env", "B=", "--env", "LANG=de_DE.UTF-8"])
        .end();
    assert_eq!(ended.ok(), "1=2||de_DE.UTF-8|/task\n");
    for bad in ["A", "=x", "TASKMAN_TASK_ID=x"] {
        Run::command(&["echo", "ran"]).with(&["--env", bad]).end().assert_refused(125, &["env"]);
    }
}

#[test]
fn the_work_directory_can_be_chosen() {
    assert_eq!(Run::command(&["pwd"]).with(&["--workdir", "/tmp"]).end().ok(), "/tmp\n");
    Run::command(&["pwd"]).with(&["--workdir", "/no/such"]).end().assert_refused(125, &["/no/such", "ENOENT"]);
    for bad in ["relative", "/task/../etc", "/proc/self/cwd"] {
        Run::command(&["pwd"]).with(&["--workdir", bad]).end().assert_refused(125, &["workdir"]);
    }
}

#[test]
fn the_host_name_can_be_chosen() {
    assert_eq!(
        Run::sh("uname -n; cat /etc/hostname").with(&["--hostname", "my-host"]).end().ok(),
        "my-host\nmy-host\n"
    );
    Run::command(&["hostname"]).with(&["--hostname", "two words"]).end().assert_refused(125, &["hostname"]);
}

#[test]
fn there_is_no_network_but_loopback() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let program = format!(
        "import socket\n\
         def to(where):\n    s = socket.socket(); s.settimeout(5); return s.connect_ex(where)\n\
         own = socket.create_server(('127.0.0.1', 0))\n\
         print(to(own.getsockname()), to(('127.0.0.1', {port})), to(('192.0.2.1', 80)))\n\
         u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         try: u.sendto(b'x', ('192.0.2.1', 53))\n\
         except OSError as e: print(e.errno)\n"
    );
    let ended = Run::command(&["/usr/bin/python3", "-c", &program]).end();
    let (refused, unreachable) = (nix::libc::ECONNREFUSED, nix::libc::ENETUNREACH);
    assert_eq!(ended.ok(), format!("0 {refused} {unreachable}\n{unreachable}\n"));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the host's listener was reached");
}

#[test]
fn a_killed_launcher_leaves_nothing_running() {
    let killed = || {
        let mut task = Run::sh("trap '' TERM INT HUP; setsid sleep 1000 & echo ready; sleep 1000").start();
        assert_eq!(task.line(), "ready");
        let uid = task.payload().uid();
        task.signal(Signal::SIGKILL);
        let asked = std::time::Instant::now();
        wait_until("nothing of the task runs", || Process::running_of_uid(uid).is_empty().then_some(()));
        let took = asked.elapsed();
        assert_eq!(task.end().status.code(), None);
        took < pace::time(Duration::from_secs(1))
    };
    // A machine that stalls is late once, and a fault is late every time.
    assert!((0..3).any(|_| killed()), "a second was not enough");
}
