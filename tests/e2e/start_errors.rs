//! Taskman's own failures never look like the task's: 127 not found, 126 cannot be executed, 125 everything else, each
//! with the errno in words, no report and nothing run.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::run::TASKMAN;
use crate::support::server::TASKMAN_SERVER;
use crate::support::{GUARD, HostDir, Run, Started, mutation};

/// Shows a host directory at `/opt/x` and tries to execute `name` in it.
#[track_caller]
fn refused(dir: &HostDir, name: &str, code: i32, errno: &str) {
    let command = format!("/opt/x/{name}");
    let ended = Run::command(&[command.as_str()]).with(&["--bind-ro", &dir.bound_at("/opt/x")]).end();
    ended.assert_refused(code, &["taskman: error: ", &format!("cannot execute {command:?}"), errno]);
}

#[test]
fn a_command_that_is_nowhere_is_127() {
    for command in ["taskman-e2e-no-such-command", "/usr/bin/taskman-e2e-no-such-command", "/no/such/directory/x"] {
        let ended = Run::command(&[command]).end();
        ended.assert_refused(127, &["taskman: error: ", &format!("cannot execute {command:?}"), "ENOENT"]);
    }
}

#[test]
fn a_misunderstood_line_says_what_was_meant() {
    let lines: [(&[&str], &[&str]); 17] = [
        (&["run", "echo", "hi"], &["'echo'", "tip: ", "come after --, as in: -- echo …"]),
        (&["stop", "--user-id", "u", "a7da14c7", "b"], &["unexpected argument 'b' found\n\nUsage: "]), // no tip: no command is meant
        (&["echo", "hi"], &["'echo'", "tip: to run a program of that name: taskman run -- echo …"]),
        (&["run", "--mem", "64M", "--", "true"], &["'--mem'", "a similar argument exists: '--memory'"]),
        (&["strat"], &["'strat'", "'start'"]),
        (&["run", "--timeout", "-1s", "--", "true"], &["'-1s'", "'--timeout <TIME>'"]),
        (&["start", "--user-id", "u", "--memory", "-5M", "--", "true"], &["'-5M'", "'--memory <SIZE>'"]),
        (&["list", "--user-id", "u", "--limit", "-1"], &["'-1'", "'--limit <N>'"]),
        (&["stream", "--user-id", "u", "a7da14c7", "--offset", "-1"], &["'-1'", "'--offset <N>'"]),
        (&["wait", "--user-id", "u", "a7da14c7", "--timeout", "-1s"], &["'--timeout <TIME>'", "\"-1s\" is negative"]),
        (&["stop", "--user-id", "u", "a7da14c7", "--grace", "-1s"], &["'--grace <TIME>'", "\"-1s\" is negative"]),
        (&["run", "--grace", "-1s", "--", "true"], &["'--grace <TIME>'", "\"-1s\" is negative"]),
        (&["stream", "--user-id", "u", "a7da14c7", "--tail", "-1"], &["'--tail <SIZE>'", "\"-1\" is negative"]),
        (&["doctor", "--uid-range", "-1"], &["'--uid-range <FIRST:COUNT>'", "\"-1\" is not FIRST:COUNT"]),
        (&["audit", "findings", "--user-id", "u", "--limit", "-1"], &["'-1'", "'--limit <N>'", "1..=1000"]),
        (&["certs", "issue", "u", "--ttl", "-1d"], &["'-1d'", "'--ttl <TIME>'"]),
        (&["run"], &["<COMMAND>...", "Usage: taskman run [OPTIONS] -- <COMMAND> [ARGS]..."]),
    ];
    for (words, parts) in lines {
        let mut command = Command::new(TASKMAN);
        command.args(words).env("TASKMAN_UID_RANGE", "1900000000:1").stdin(Stdio::null());
        let ended = Started::spawn(command, HostDir::new(), GUARD).end();
        assert!(ended.stderr.starts_with("taskman: error: "), "{ended:?}");
        // The usage is the command's, and names no option that comes from the environment.
        assert!(words[0] == "doctor" || !ended.stderr.contains("--uid-range"), "{ended:?}");
        ended.assert_refused(125, parts);
        assert!(!ended.stderr.contains("as a value"), "an option that does not exist is no command: {ended:?}");
    }
}

#[test]
fn a_uid_range_that_is_none_is_named() {
    let ended = Run::command(&["true"]).with(&["--uid-range", "-1"]).end();
    ended.assert_refused(125, &["taskman: error: ", "'--uid-range <FIRST:COUNT>'", "\"-1\" is not FIRST:COUNT"]);
    assert!(!ended.stderr.contains("uid_range"), "{ended:?}");
}

#[test]
fn who_says_nothing_is_shown_the_help_which_is_no_error() {
    for words in [&[][..], &["audit"], &["certs"]] {
        let mut command = Command::new(TASKMAN);
        command.args(words).stdin(Stdio::null());
        let ended = Started::spawn(command, HostDir::new(), GUARD).end();
        ended.assert_refused(125, &["Usage: "]);
        assert!(!ended.stderr.contains("taskman: "), "{ended:?}");
    }
}

/// One form for every program: who says it, that it is an error, and what is wrong.
#[test]
fn the_servers_errors_begin_as_all_do() {
    let lines: [(&[&str], i32, &str); 4] = [
        (&["--nonsense"], 2, "taskman-server: error: unexpected argument '--nonsense'"),
        (&["--config", "/no/such/file"], 1, "taskman-server: error: "),
        (&["--state-dir", "/proc/1/x"], 1, "taskman-server: error: "),
        (&["auditor"], 1, "taskman-server: error: auditor is not a command"),
    ];
    for (words, code, begins) in lines {
        let mut command = Command::new(TASKMAN_SERVER);
        command.args(words).stdin(Stdio::null());
        let ended = Started::spawn(command, HostDir::new(), GUARD).end();
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.stderr.starts_with(begins), "{ended:?}");
    }
}

#[test]
fn a_configuration_that_does_not_fit_is_an_error_and_no_panic() {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{TASKMAN_SERVER} --print-config >/dev/full")]).stdin(Stdio::null());
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    ended.assert_refused(1, &["taskman-server: error: standard output: No space left on device"]);
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[test]
fn a_whole_line_as_one_word_is_told_that_it_is_one() {
    Run::command(&["ls -la"]).end().assert_refused(127, &["cannot execute \"ls -la\"", "one by one, or sh -c"]);
}

#[test]
fn a_path_through_a_file_is_127() {
    Run::command(&["/etc/passwd/x"]).end().assert_refused(127, &["taskman: error: ", "cannot execute"]);
}

#[test]
fn a_file_that_may_not_be_executed_is_126() {
    let dir = HostDir::new();
    dir.file("plain", "#!/bin/sh\nexit 0\n", 0o644);
    dir.file("mine", "#!/bin/sh\nexit 0\n", 0o700);
    refused(&dir, "plain", 126, "EACCES");
    refused(&dir, "mine", 126, "EACCES");
}

#[test]
fn a_command_in_the_path_that_may_not_be_executed_is_126() {
    let dir = HostDir::new();
    dir.file("e2e-plain", "x", 0o644);
    let ended = Run::command(&["e2e-plain"])
        .with(&["--env", "PATH=/opt/x:/usr/bin", "--bind-ro", &dir.bound_at("/opt/x")])
        .end();
    ended.assert_refused(126, &["taskman: error: ", "EACCES"]);
}

#[test]
fn a_directory_is_126() {
    Run::command(&["/usr"]).end().assert_refused(126, &["cannot execute \"/usr\"", "EACCES"]);
}

#[test]
fn a_file_of_no_known_format_is_126() {
    let dir = HostDir::new();
    dir.file("garbage", "just text\n", 0o755);
    refused(&dir, "garbage", 126, "ENOEXEC, exec format error (hint: neither a program of this machine nor a script");
}

#[test]
fn a_missing_interpreter_is_126_for_the_file_itself_exists() {
    let dir = HostDir::new();
    dir.file("script", "#!/no/such/interpreter\n", 0o755);
    refused(&dir, "script", 126, "ENOENT");
}

#[test]
fn a_circle_of_symlinks_is_126() {
    let dir = HostDir::new();
    symlink("b", dir.path("a")).unwrap();
    symlink("a", dir.path("b")).unwrap();
    refused(&dir, "a", 126, "ELOOP");
}

#[test]
fn a_program_being_written_is_126() {
    let dir = HostDir::new();
    let path = dir.copy(Path::new("/bin/true"), "busy", 0o755);
    let _writer = OpenOptions::new().append(true).open(&path).unwrap();
    refused(&dir, "busy", 126, "ETXTBSY");
}

#[test]
fn a_missing_command_is_125() {
    Run::command::<&str>(&[]).end().assert_refused(125, &["COMMAND", "Usage"]);
    Run::command(&[""]).end().assert_refused(125, &["taskman: error: ", "command"]);
}

#[test]
fn an_unknown_option_is_125() {
    Run::command(&["true"]).with(&["--no-such-option"]).end().assert_refused(125, &["--no-such-option"]);
    Run::command(&["true"]).with(&["--profile", "nosuch"]).end().assert_refused(125, &["profile", "nosuch"]);
}

#[test]
fn a_report_that_cannot_be_written_stops_the_task_before_it_runs() {
    let dir = HostDir::new();
    let mut command = Command::new(TASKMAN);
    command.args(["run", "--report", "/no/such/directory/report.json", "--", "echo", "ran"]);
    let ended = Started::spawn(command, dir, GUARD).end();
    ended.assert_refused(125, &["taskman: error: ", "/no/such/directory/report.json", "ENOENT"]);
}

#[test]
fn a_dash_is_no_report_file() {
    let dir = HostDir::new();
    let mut command = Command::new(TASKMAN);
    command.args(["run", "--report", "-", "--", "echo", "ran"]).current_dir(dir.root()).stdin(Stdio::null());
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    ended.assert_refused(125, &["taskman: error: --report: takes a file", "--output json"]);
    assert!(!dir.path("-").exists());
}

#[test]
fn a_start_error_leaves_no_report_file_and_spares_the_last_one() {
    let dir = HostDir::new();
    let fresh = dir.path("fresh.json");
    let old = dir.file("old.json", "an earlier report", 0o644);
    for report in [&fresh, &old] {
        let mut command = Command::new(TASKMAN);
        command.args(["run", "--report"]).arg(report).args(["--", "/no/such/command"]);
        Started::spawn(command, HostDir::new(), GUARD).end().assert_refused(127, &["taskman: error: "]);
    }
    assert!(!fresh.exists(), "a report of a task that never ran");
    assert_eq!(fs::read_to_string(old).unwrap(), "an earlier report");
}

#[test]
fn without_root_taskman_says_so() {
    let dir = HostDir::new();
    // The build directory may lie where nobody else can enter.
    let taskman = dir.copy(Path::new(TASKMAN), "taskman", 0o755);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(&taskman).args(["run", "--", "echo", "ran"]);
    let ended = Started::spawn(command, dir, GUARD).end();
    ended.assert_refused(125, &["taskman: error: ", "root"]);
}

#[test]
fn help_and_version_are_no_failures() {
    for arguments in [&["--help"][..], &["run", "--help"], &["doctor", "--help"], &["--version"]] {
        let mut command = Command::new(TASKMAN);
        command.args(arguments);
        let ended = Started::spawn(command, HostDir::new(), GUARD).end();
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {ended:?}");
        assert!(ended.text().contains("taskman"), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn sandbox_init_says_why_it_gives_up() {
    let mutant = mutation::build("taskman").unwrap();
    let ended =
        Command::new(mutant).env("TASKMAN_MUTATION", "init-filter").args(["run", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{said}");
    assert!(said.contains("seccomp sandbox-init's filter: EFAULT") && said.contains("bpf_jit_limit"), "{said}");
}
