//! The three hostile programs that the runbook names can be compiled and run by hand, as the comment at the top of each says.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::run::TASKMAN;
use crate::support::{Ended, GUARD, HostDir, Process, Started};

/// Runs the indented lines of a program's comment exactly as they are written; gives the end of the last.
#[track_caller]
fn by_hand(name: &str) -> Ended {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A root of the tree of its own, so that nothing is left in the true one.
    let tree = HostDir::new();
    fs::create_dir(tree.path("target")).unwrap();
    symlink(root.join("tests"), tree.path("tests")).unwrap();
    let text = fs::read_to_string(root.join(format!("tests/adversarial/{name}.c"))).unwrap();
    let comment = text.split("*/").next().unwrap();
    let lines: Vec<_> = comment.lines().filter_map(|line| line.strip_prefix(" *   ")).collect();
    assert_eq!(lines.len(), 2, "one compiles and one runs: {lines:?}");
    let path = format!("{}:{}", Path::new(TASKMAN).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let run = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(tree.root()).env("PATH", &path);
        Started::spawn(command, HostDir::new(), GUARD).end()
    };
    let compiled = run(lines[0]);
    assert_eq!(compiled.status.code(), Some(0), "{compiled:?}");
    let program = fs::metadata(tree.path("target").join(name)).expect("the compiled program");
    let ended = run(lines[1]);
    let is_it = |process: &Process| {
        let exe = fs::metadata(process.path("exe"));
        exe.is_ok_and(|exe| (exe.dev(), exe.ino()) == (program.dev(), program.ino()))
    };
    let left: Vec<_> = Process::all().into_iter().filter(is_it).map(|process| process.pid).collect();
    assert_eq!(left, [0; 0], "it lives on: {ended:?}");
    assert_eq!(ended.text(), "ready\n", "{ended:?}");
    ended
}

#[track_caller]
fn says(ended: &Ended, parts: &[&str]) {
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} is missing: {ended:?}");
    }
}

#[test]
fn contain_double_fork_runs_by_hand_and_its_daemons_end_with_it() {
    let ended = by_hand("contain_double_fork");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    says(&ended, &["left 3 processes", "\"proven\""]);
}

#[test]
fn contain_exec_churn_runs_by_hand_and_no_chain_outlives_its_timeout() {
    let ended = by_hand("contain_exec_churn");
    assert_eq!(ended.status.code(), Some(124), "{ended:?}");
    says(&ended, &["ran longer than its timeout", "containment proven"]);
}

#[test]
fn contain_sigterm_ignore_runs_by_hand_and_is_killed_after_its_grace() {
    let ended = by_hand("contain_sigterm_ignore");
    assert!((1..10).contains(&ended.elapsed.as_secs()), "{ended:?}");
    says(&ended, &["then SIGKILL to all", "containment proven"]);
}
