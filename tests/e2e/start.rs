//! `taskman start`: what it prints, what reaches the task, and how `--follow` exits.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Server, Started};

#[test]
fn start_prints_the_source_designs_table_with_its_flags() {
    let server = Server::start();
    let mut command = Command::new(TASKMAN);
    command.env_clear().args(["start", "--user-id", "client001", "--server-address", &server.address, "--certs"]);
    command.arg(server.certs()).args(["--", "/bin/ls", "/"]);
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let text = ended.text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[1]), (3, "TASK ID", "-------"), "{text}");
    assert!(uuid::Uuid::parse_str(lines[2]).is_ok_and(|id| id.get_version_num() == 4), "{text}");
    assert_eq!(server.ended(lines[2])["outcome"]["exit_code"], 0);
}

#[test]
fn quiet_prints_the_id_alone() {
    let server = Server::start();
    let id = server.text("client001", &["start", "-q", "--", "true"]);
    assert_eq!(server.ended(id.trim_end())["outcome"]["exit_code"], 0);
}

#[test]
fn following_streams_the_output_and_exits_as_the_task() {
    let server = Server::start();
    let follow = |words: &[&str]| {
        let words: Vec<_> = ["start", "--follow"].iter().chain(words).copied().collect();
        server.taskman("client001", &words)
    };
    let ended = follow(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((ended.status.code(), ended.text().as_str()), (Some(7), "out\nerr\n"), "{ended:?}");
    assert!(ended.stderr.starts_with("taskman: task "), "{ended:?}");
    let ended = follow(&["--split-output", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((ended.status.code(), ended.text().as_str()), (Some(0), "out\n"), "{ended:?}");
    assert!(ended.stderr.contains("err\n"), "{ended:?}");
    for (options, script, code) in [
        (&["--timeout", "300ms"][..], "sleep 60", 124),
        (&["--memory", "32M"], "exec perl -e '$x = \"x\" x (1 << 30)'", 137),
        (&["--output-limit", "1K"], "yes", 137),
        (&[], "kill -SEGV $$", 139),
    ] {
        let words: Vec<_> = options.iter().chain(&["--", "sh", "-c", script]).copied().collect();
        let ended = follow(&words);
        assert_eq!(ended.status.code(), Some(code), "{script}: {ended:?}");
    }
}

#[test]
fn input_is_refused_and_not_lost() {
    let server = Server::start();
    let start = |options: &[&str], input: Stdio| {
        let words: Vec<_> = ["start", "--follow"].iter().chain(options).chain(&["--", "cat"]).copied().collect();
        let mut command = server.command("client001", &words);
        command.stdin(input);
        Started::spawn(command, HostDir::new(), GUARD).end()
    };
    let pipe = |bytes: &[u8]| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(bytes).unwrap();
        reader
    };
    let dir = HostDir::new();
    let file = dir.path("input");
    std::fs::write(&file, "x\n").unwrap();
    for input in [Stdio::from(pipe(b"x\n")), Stdio::from(File::open(&file).unwrap())] {
        start(&[], input).assert_refused(125, &["standard input", "--no-stdin"]);
    }
    let (open, _writer) = std::io::pipe().unwrap();
    for (options, input) in [
        (&["--no-stdin"][..], Stdio::from(pipe(b"x\n"))),
        (&[], Stdio::from(pipe(b""))),
        // Nobody writes, but somebody could.
        (&[], Stdio::from(open)),
    ] {
        let ended = start(options, input);
        assert_eq!((ended.status.code(), ended.text().as_str()), (Some(0), ""), "{ended:?}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_leaves_no_task_and_its_own_exit_code() {
    let server = Server::start();
    for (command, code, follow) in
        [("no-such-command", 127, false), ("/etc/passwd", 126, false), ("/no/such", 127, true)]
    {
        let words = if follow { vec!["start", "--follow", "--", command] } else { vec!["start", "--", command] };
        let ended = server.taskman("client001", &words);
        ended.assert_refused(code, &["taskman: error: ", command]);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    assert_eq!(server.text("client001", &["list", "--output", "json"]), "{\"tasks\":[]}\n");
}

#[test]
fn limits_and_shape_reach_the_task() {
    let server = Server::start();
    let task = server.task(&[
        "--memory",
        "64M",
        "--cpus",
        "0.5",
        "--timeout",
        "50s",
        "--cpu-time",
        "40s",
        "--pids",
        "20",
        "--nofile",
        "100",
        "--env",
        "A=1=2",
        "--workdir",
        "/tmp",
        "--hostname",
        "my-host",
        "--label",
        "build=42",
        "--",
        "sh",
        "-c",
        "echo \"$A $(pwd) $(uname -n) $(ulimit -n)\"",
    ]);
    let status = server.ended(&task);
    assert_eq!(server.text("client001", &["stream", &task]), "1=2 /tmp my-host 100\n");
    assert_eq!(status["labels"], json!({"build": "42"}));
    let limits = &status["limits"];
    assert_eq!(
        (&limits["memory_bytes"], &limits["cpus"], &limits["pids"]),
        (&json!(64 << 20), &json!(0.5), &json!(20))
    );
    assert_eq!((&limits["timeout_ms"], &limits["cpu_time_ms"]), (&json!(50_000), &json!(40_000)));
    assert_eq!(limits["fsize_bytes"], 256 << 20, "the profile's, where nothing was asked for");
}

#[test]
fn nothing_can_be_raised_above_the_profile() {
    let server = Server::start();
    let ended = server.taskman("client001", &["start", "--memory", "4G", "--", "true"]);
    ended.assert_refused(125, &["memory"]);
    let ended = server.taskman("client001", &["start", "--bind-ro", "/root", "--", "true"]);
    ended.assert_refused(125, &["bind_ro"]);
}

#[test]
fn control_c_stops_following_and_prints_the_commands_to_go_on_and_to_stop() {
    let server = Server::start();
    let mut followed =
        server.begin("client001", &["start", "--follow", "--", "sh", "-c", "echo 12345; exec sleep 1000"]);
    assert_eq!(followed.line(), "12345");
    followed.signal(Signal::SIGINT);
    let ended = followed.end();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let command = |start: &str| {
        let found = ended.stderr.lines().find_map(|line| line.split_once(start));
        found.unwrap_or_else(|| panic!("{start:?} is missing: {ended:?}")).1.to_owned()
    };
    let resume = command("to go on with its output: taskman ");
    assert!(resume.ends_with("--offset 6"), "{resume}");
    let stop = command("to stop it: taskman ");
    let task = stop.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED", "it goes on");
    let words: Vec<_> = stop.split(' ').collect();
    server.text("client001", &words);
    assert_eq!(server.ended(&task)["outcome"]["reason"], "stopped");
    let words: Vec<_> = resume.split(' ').collect();
    assert_eq!(server.text("client001", &words), "", "nothing was written after the place to go on at");
}

#[test]
fn a_server_that_is_not_there_is_one_line_and_125() {
    let mut server = Server::start();
    server.stop();
    for words in [&["start", "--", "true"][..], &["start", "--follow", "--", "true"], &["list"]] {
        let ended = server.taskman("client001", words);
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(125), 0), "{ended:?}");
        let wanted = format!(
            "taskman: error: cannot reach the server at {}: connection refused; is taskman-server running there?\n",
            server.address
        );
        assert_eq!(ended.stderr, wanted);
    }
}
