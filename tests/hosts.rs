//! The matrix of hosts says only what a test shows; and what people are given to start containers with agrees with itself.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use taskman::doctor::{AUDITOR_CAPABILITY, CAPABILITIES};
use taskman::sandbox::seccomp::{Rule, table};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file of Rust below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// `path::name` of a test function or a case, or the id of an adversarial case.
fn exists(test: &str) -> bool {
    if let Some((file, name)) = test.split_once("::") {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        return text.contains(&format!("fn {name}(")) || text.contains(&format!("\"{name}\""));
    }
    let id = format!("id: \"{test}\",");
    rust_files(&root().join("tests/adversarial")).iter().any(|file| fs::read_to_string(file).unwrap().contains(&id))
}

/// The rows of a table, without its head: cells in order.
fn rows(section: &str) -> Vec<Vec<String>> {
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let from = page.find(&format!("## {title}\n")).unwrap_or_else(|| panic!("no section {title}"));
    let rest = &page[from + 3..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// A cell's word and the marks of its tests.
fn cell(text: &str) -> Option<(&str, Vec<&str>)> {
    let (word, marks) = text.split_once(' ')?;
    let marks: Vec<&str> = marks.split(' ').collect();
    let known = ["enforced", "reduced", "refused"].contains(&word);
    (known && marks.iter().all(|mark| !mark.is_empty())).then_some((word, marks))
}

#[test]
fn every_cell_names_tests_that_exist() {
    let page = read("docs/hosts.md");
    let mut tests = BTreeMap::new();
    for row in rows(section(&page, "The tests")) {
        let named: Vec<String> = row[1].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(!named.is_empty(), "{} names no test", row[0]);
        for test in &named {
            assert!(exists(test), "{}: {test} does not exist", row[0]);
        }
        assert!(tests.insert(row[0].clone(), named).is_none(), "{} stands twice", row[0]);
    }
    let mut used = BTreeSet::new();
    let mut cells = 0;
    let tables = ["Features", "Hosts that lack something, or have more"];
    for row in tables.iter().flat_map(|title| rows(section(&page, title))) {
        // The second table ends with a word on what is seen.
        for text in row[1..].iter().filter(|text| !text.starts_with('*')) {
            let (_, marks) = cell(text).unwrap_or_else(|| panic!("{}: {text:?} is no cell", row[0]));
            cells += 1;
            for mark in marks {
                assert!(tests.contains_key(mark), "{}: {mark} is no test of the list", row[0]);
                used.insert(mark.to_owned());
            }
        }
    }
    assert!(cells >= 60, "only {cells} cells were found");
    let unused: Vec<_> = tests.keys().filter(|mark| !used.contains(*mark)).collect();
    assert!(unused.is_empty(), "listed and shown by no cell: {unused:?}");
}

#[test]
fn a_cell_without_a_test_is_no_cell() {
    assert_eq!(cell("enforced a b"), Some(("enforced", vec!["a", "b"])));
    for wrong in ["enforced", "surely a", "", "enforced ", "not tested"] {
        assert_eq!(cell(wrong), None, "{wrong:?}");
    }
    assert!(exists("R01") && exists("tests/hosts.rs::a_cell_without_a_test_is_no_cell"));
    assert!(!exists("R99") && !exists(&["tests/hosts.rs::no", "such", "test"].join("_")));
}

/// What the doctor asks for is what each way of starting a container gives, and nothing more.
#[test]
fn containers_are_given_the_capabilities_that_the_doctor_asks_for() {
    let wanted: BTreeSet<&str> = CAPABILITIES.iter().map(|(name, ..)| *name).chain([AUDITOR_CAPABILITY.0]).collect();
    let short: BTreeSet<&str> = wanted.iter().map(|name| name.trim_start_matches("CAP_")).collect();

    let config: serde_json::Value = serde_json::from_str(&read("deploy/containers/config.json")).unwrap();
    for set in ["bounding", "effective", "permitted"] {
        let given = config["process"]["capabilities"][set].as_array().unwrap();
        let given: BTreeSet<&str> = given.iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(given, wanted, "{set} of config.json");
    }
    let run = read("deploy/containers/run");
    let given: BTreeSet<&str> = run.split_whitespace().filter_map(|word| word.strip_prefix("--cap-add=")).collect();
    assert_eq!(given, short, "deploy/containers/run");
    let pod = read("deploy/containers/pod.yaml");
    let list = pod.split("add: [").nth(1).unwrap().split(']').next().unwrap();
    assert_eq!(list.split(", ").collect::<BTreeSet<_>>(), short, "deploy/containers/pod.yaml");
    let page = read("docs/containers.md");
    let stated: BTreeSet<String> = rows(section(&page, "What is needed, and what fails without it"))
        .iter()
        .flat_map(|row| row[0].split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(stated.iter().map(String::as_str).collect::<BTreeSet<_>>(), short, "docs/containers.md");
}

/// A task in a container has the calls of a task on a host, because it keeps the container's filter below its own; and whoever
/// starts it has those that a start and the auditor take.
#[test]
fn the_containers_filter_lets_through_what_tasks_have_and_a_start_takes_and_no_more() {
    let profile: serde_json::Value = serde_json::from_str(&read("deploy/containers/seccomp.json")).unwrap();
    let rows = profile["syscalls"].as_array().unwrap().iter();
    let given: BTreeSet<&str> =
        rows.flat_map(|row| row["names"].as_array().unwrap()).filter_map(|n| n.as_str()).collect();
    let of_tasks = table::rows().filter(|row| !matches!(row.rule, Rule::Refuse | Rule::NoSys)).map(|row| row.name);
    let of_a_start = [
        "clone3",
        "keyctl",
        "mount",
        "mount_setattr",
        "move_mount",
        "open_tree",
        "openat2",
        "pivot_root",
        "setdomainname",
        "sethostname",
        "umount2",
        "unshare",
    ];
    let of_the_auditor = ["fanotify_init", "fanotify_mark"];
    let wanted: BTreeSet<&str> = of_tasks.chain(of_a_start).chain(of_the_auditor).collect();
    assert_eq!(given.difference(&wanted).collect::<Vec<_>>(), [&""; 0], "nobody needs these");
    assert_eq!(wanted.difference(&given).collect::<Vec<_>>(), [&""; 0], "these are missing");
}

/// With these capabilities the kernel would let them through: only the filter stands before them.
#[test]
fn the_containers_filter_refuses_what_its_capabilities_would_open_beside_a_start() {
    let profile: serde_json::Value = serde_json::from_str(&read("deploy/containers/seccomp.json")).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let rows = profile["syscalls"].as_array().unwrap();
    let allowed: Vec<&str> =
        rows.iter().flat_map(|row| row["names"].as_array().unwrap()).map(|name| name.as_str().unwrap()).collect();
    let kept = [
        "clock_settime",
        "settimeofday",
        "adjtimex",
        "clock_adjtime",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "bpf",
        "perf_event_open",
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "kexec_file_load",
        "open_by_handle_at",
        "syslog",
        "quotactl",
        "swapon",
        "reboot",
        "setns",
        "io_uring_setup",
        "userfaultfd",
        "add_key",
        "request_key",
    ];
    for name in kept {
        assert!(!allowed.contains(&name), "{name}");
    }
    let keyctl = rows.iter().find(|row| row["names"] == serde_json::json!(["keyctl"])).unwrap();
    assert_eq!(keyctl["args"][0]["value"], 1, "a session keyring of one's own, and no other operation");
}
