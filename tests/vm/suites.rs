//! The test programs that `scripts/test` runs on this host, run again where there is nothing but cgroup v2.
//!
//! Emulation is slow, and slower with every processor that has to be kept in step with another: so two machines of one
//! processor each take one part of the work after the other.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::case;
use crate::machine::{Machine, Spec};

pub fn cases() -> Vec<Trial> {
    vec![case("suites_the_tests_of_this_host_pass_on_pure_v2", suites)]
}

/// The service there: started, streamed from, stopped, killed and watched; by what its tests begin with.
const SERVICE: [&str; 8] = [
    "auditor::a_tasks_group_names_its_server_and_its_owner",
    "auditor::u03_a_killed_launcher_takes_its_auditor_along",
    "health::quarantine_is_not_lifted_while_something_is_left",
    "start::following_streams_the_output",
    "start::limits_and_shape_reach_the_task",
    "stop::a_task_that_ignores_the_request",
    "stop::stop_kills_grandchildren",
    "stream::a_killed_writer_does_not_hold_the_stream_open",
];

/// Tests of tests/e2e that are not run there, by what they begin with, and why. All others are.
const NOT_HERE: [(&str, &str); 26] = [
    ("api::", BYTES),
    ("cancelled::", BYTES),
    ("certs::", BYTES),
    ("foreign::", BYTES),
    ("get_status::", BYTES),
    ("list::", BYTES),
    ("metrics::", BYTES),
    ("notify::", "tests/vm/unit.rs has a true service manager"),
    ("retention::", BYTES),
    ("shutdown::", "tests/vm/unit.rs stops the service, with tasks, under systemd"),
    ("signal::", BYTES),
    ("wait::", BYTES),
    ("audit::", TIME),
    ("deaths::", TIME),
    ("evasion::", "U01 of the adversarial suite plants the same, there"),
    ("exhaustion::", TIME),
    ("powerless::", TIME),
    ("restarts::", TIME),
    ("runbooks::", TIME),
    ("runtimes::", TIME),
    ("soak::", TIME),
    ("limits::too_many_files", "R08 of the adversarial suite fills the same places, there"),
    ("limits::values_that_cannot_be_meant", "it ends before anything is asked of the host"),
    ("outcomes::a_signal_of_its_own_doing", "P06 and P15 of the adversarial suite end by signals, there"),
    ("payloads::contain_sigterm_ignore", "the line in its source waits for a second, which is no time there"),
    ("stuck_output::", BYTES),
];
const BYTES: &str = "bytes between processes, or what a command prints; nothing of it is the host's layout";
const TIME: &str = "the same starts and ends as in those that are run, for minutes";

/// See tests/support/pace.rs: an emulated processor takes about twenty times as long.
const PACE: &str = "TASKMAN_TEST_SLOW=20 TASKMAN_TEST_FEWER=100";
/// A part, on a host that is busy with other things.
const ENDS_WITHIN: Duration = Duration::from_secs(45 * 60);

fn suites() {
    let parts = Mutex::new(parts());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut machine = Machine::boot(Spec { cpus: 1, ..Spec::default() });
                // Pairs of network devices; no modules lie under /usr, where tasks would see a mount of them.
                let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/target/vm/cloud");
                machine.ok(&format!("modprobe -d {kernel} veth"));
                // As kernels from 6.7 on have it: filters of a size that the suite attaches need it.
                machine.ok("sysctl -q -w net.core.optmem_max=131072");
                // The lock is held for as long as it takes to take one.
                let next = || parts.lock().unwrap().pop_front();
                while let Some((name, command)) = next() {
                    let code = run(&mut machine, name, &command);
                    if code != 0 {
                        failed.lock().unwrap().push(format!("{name} ended with {code}"));
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner().unwrap(), [""; 0]);
}

/// What is run: a name, and a command of the machine's shell.
fn parts() -> VecDeque<(&'static str, String)> {
    let (e2e, adversarial) = (program("e2e"), adversarial());
    let listed = Command::new(&e2e).arg("--list").output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    println!();
    for (name, why) in NOT_HERE {
        assert!(listed.lines().any(|test| test.starts_with(name)), "no test begins with {name}");
        println!("    NOT RUN THERE: {name}: {why}");
    }
    println!("    NOT RUN THERE: the rest of {}: {TIME}", modules().join(", "));
    println!(
        "    NOT RUN THERE: C06: its observer wants a processor of its own; tests/vm/limits.rs looks at 1,000 starts"
    );
    println!(
        "    NOT RUN THERE: R12: it measures shares within a second, by a clock that stands still there; tests/vm/limits.rs takes ten"
    );
    println!("    NOT RUN THERE: mutation arms: they show that the suite can fail, which is no matter of the host");
    let skip = |names: &mut dyn Iterator<Item = &'static str>| names.map(|name| format!(" --skip {name}")).collect();
    let not_here: String = skip(&mut NOT_HERE.iter().map(|(name, _)| *name));
    let service: String = skip(&mut modules().into_iter());
    // Two at a time, so that one that waits holds nothing up.
    let e2e = format!("{} --test-threads 2{not_here}", e2e.display());
    let adversarial = |letters: &str| format!("TASKMAN_ADV_CASES={letters} {adversarial}");
    VecDeque::from([
        ("adversarial 1", adversarial("P,S,C01,C02,C03,C04,C05,C07,C08")),
        ("e2e sandbox", format!("{e2e}{service}")),
        ("adversarial 2", adversarial("R0,R10,R11,R13,R14,R15,R16,R17,R18,R19,R2,X,O,U")),
        ("adversarial 3", adversarial("N,F,K0,K10,K11,K13,K20,W,L")),
        ("e2e service", format!("{e2e} {}", SERVICE.join(" "))),
    ])
}

/// The adversarial suite without its mutation arms. Its payloads are compiled here, where that is fast.
pub fn adversarial() -> String {
    let program = program("adversarial");
    let payloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm/payloads");
    std::fs::remove_dir_all(&payloads).ok();
    let compiled = Command::new(&program).env("TASKMAN_ADV_COMPILE", &payloads).status().unwrap();
    assert!(compiled.success(), "the payloads of the adversarial suite do not compile");
    format!("TASKMAN_ADV_ARMS=contained TASKMAN_ADV_PAYLOADS={} {}", payloads.display(), program.display())
}

/// Of the tests of the service.
fn modules() -> Vec<&'static str> {
    let mut names: Vec<_> = SERVICE.iter().filter_map(|name| name.split_inclusive("::").next()).collect();
    names.dedup();
    names
}

/// A command as `cargo test` would run it, at the pace of an emulated processor.
pub fn script(command: &str) -> String {
    // As many files as systemd gives a service; and one mount for all that is made, so that it can be linked.
    let (tree, scratch) = (env!("CARGO_MANIFEST_DIR"), env!("CARGO_TARGET_TMPDIR"));
    format!("ulimit -Hn 524288; export TMPDIR={scratch}; cd {tree} && {PACE} {command}")
}

fn run(machine: &mut Machine, name: &str, command: &str) -> i32 {
    let begun = Instant::now();
    let code = machine.watch_within(&script(command), ENDS_WITHIN, |line| {
        // What a case says on its way is in the table at the end too.
        if !line.is_empty() && (!line.starts_with("  ") || line.contains("FAILED")) {
            println!("    {name}: {line}");
        }
    });
    println!("    {name}: ended with {code} after {:.0} s", begun.elapsed().as_secs_f64());
    code
}

/// The program of this test that a build right now makes or has made: the one that `cargo test` would run.
pub fn program(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--quiet", "--no-run", "--message-format", "json", "--test", name]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{name} does not build: {}", String::from_utf8_lossy(&output.stderr));
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut ours = messages.filter(|message: &Value| message["target"]["name"] == name);
    ours.find_map(|message| message["executable"].as_str().map(PathBuf::from)).expect("cargo says what it built")
}
