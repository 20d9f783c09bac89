//! `taskman doctor` and `taskman run` judge the host alike: what one names as missing, the other refuses in the same words.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::run::TASKMAN;
use crate::support::{Ended, GUARD, HostDir, Process, Run, Started};

#[track_caller]
fn run(words: &[&str]) -> Ended {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    Started::spawn(command, HostDir::new(), GUARD).end()
}

/// The finding of that name.
#[track_caller]
fn finding(examination: &Ended, name: &str) -> Value {
    let parsed: Value = serde_json::from_slice(&examination.stdout).unwrap_or_else(|e| panic!("{e}: {examination:?}"));
    let findings = parsed["findings"].as_array().expect("findings");
    let found = findings.iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("no finding {name}: {parsed:#}")).clone()
}

/// Doctor's finding blocks, and the refusal of `taskman run` holds what was seen, why, and the cure, word for word.
#[track_caller]
fn assert_same_words(finding: &Value, refused: &Ended) {
    assert_eq!((&finding["status"], &finding["blocks"]), (&"missing".into(), &true.into()), "{finding:#}");
    for part in ["name", "seen", "why", "fix"] {
        let words = finding[part].as_str().unwrap();
        assert!(!words.is_empty() && refused.stderr.contains(words), "{part} {words:?} is not in: {}", refused.stderr);
    }
    refused.assert_refused(125, &["taskman: error: ", "strict mode"]);
}

#[test]
fn on_this_host_doctor_says_yes_and_a_task_starts() {
    let table = run(&[TASKMAN, "doctor"]);
    assert_eq!(table.status.code(), Some(0), "{table:?}");
    assert!(table.text().ends_with("strict mode would start a task: yes\n"), "{table:?}");
    let json = run(&[TASKMAN, "doctor", "--output", "json"]);
    assert_eq!(json.status.code(), Some(0));
    assert_eq!(serde_json::from_slice::<Value>(&json.stdout).unwrap()["strict_would_start"], true);
    for name in [
        "kernel",
        "cgroups",
        "seccomp",
        "namespace pid",
        "namespace mnt",
        "namespace ipc",
        "namespace uts",
        "namespace net",
        "namespace cgroup",
        "limit memory",
        "limit swap",
        "limit cpu",
        "limit pids",
        "limit io",
        "limit nofile",
        "root",
        "capabilities",
        "uid range",
    ] {
        assert_eq!(finding(&json, name)["status"], "ok", "{name}");
    }
    for name in ["fs.protected_symlinks", "user.max_user_namespaces", "kernel.core_pattern", "container"] {
        assert_eq!(finding(&json, name)["blocks"], false, "{name}");
    }
    Run::command(&["true"]).end().ok();
}

#[test]
fn without_root_both_refuse_in_the_same_words() {
    let dir = HostDir::new();
    // The build directory may lie where nobody else can enter.
    let taskman = dir.copy(Path::new(TASKMAN), "taskman", 0o755);
    let nobody = |arguments: &[&str]| {
        let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", taskman.to_str().unwrap()];
        run(&[&words, arguments].concat())
    };
    let examination = nobody(&["doctor", "--output", "json"]);
    assert_eq!(examination.status.code(), Some(1));
    assert_same_words(&finding(&examination, "root"), &nobody(&["run", "--", "echo", "ran"]));
}

#[test]
fn a_missing_controller_is_named_refused_and_only_by_choice_reduced() {
    // In a mount namespace of its own, a host without the hierarchy that holds the pids controller.
    let (hierarchy, check) = pids_hierarchy();
    let without = |arguments: &str| {
        let script = format!("umount {} && exec {TASKMAN} {arguments}", hierarchy.display());
        run(&["unshare", "--mount", "sh", "-c", &script])
    };
    let examination = without("doctor --output json");
    assert_eq!(examination.status.code(), Some(1), "{examination:?}");
    let finding = finding(&examination, check);
    assert_same_words(&finding, &without("run -- echo ran"));
    if check == "limit pids" {
        let reduced = without("run --no-strict --output json -- echo ran");
        assert_eq!((reduced.status.code(), reduced.text().as_str()), (Some(0), "ran\n"), "{reduced:?}");
        let report: Value = serde_json::from_str(&reduced.stderr).unwrap();
        let told = report["reduced"].as_array().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].as_str().unwrap().contains(finding["seen"].as_str().unwrap()), "{told:?}");
    }
}

/// Where the pids controller is mounted, and the check that misses it: on a version 2 host, the whole of cgroups.
fn pids_hierarchy() -> (PathBuf, &'static str) {
    let mounts = Process::own().mounts();
    let of = |kind: &str, option: Option<&str>| {
        let fits = |o: &str| option.is_none_or(|wanted| wanted == o);
        mounts.iter().find(|mount| mount.kind == kind && mount.super_options.iter().any(|o| fits(o)))
    };
    match of("cgroup", Some("pids")) {
        Some(mount) => (PathBuf::from(&mount.point), "limit pids"),
        None => (PathBuf::from(&of("cgroup2", None).expect("a cgroup2 mount").point), "cgroups"),
    }
}

#[test]
fn a_host_without_version_2_is_refused_even_when_reductions_are_accepted() {
    let mounts = Process::own().mounts();
    let unified = &mounts.iter().find(|mount| mount.kind == "cgroup2").expect("a cgroup2 mount").point;
    let script = format!("umount {unified} && exec {TASKMAN} run --no-strict -- echo ran");
    let refused = run(&["unshare", "--mount", "sh", "-c", &script]);
    refused.assert_refused(125, &["taskman: error: ", "cgroups: no cgroup2 file system is mounted"]);
}

#[test]
fn a_limit_above_what_this_host_allows_is_refused() {
    let hard = Process::own().limit("Max open files").1;
    let beyond = (hard.parse::<u64>().unwrap() + 1).to_string();
    let refused = Run::command(&["echo", "ran"]).with(&["--nofile", &beyond]).end();
    refused.assert_refused(125, &["taskman: error: ", "limit nofile", &beyond, &hard]);
}
