//! The test programs that `scripts/test` runs on this host, run again where there is nothing but cgroup v2.
//!
//! In parts, each a case with a machine of its own, so that the cases of `tests/vm` keep as many processors busy as there are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::machine::{Kernel, Machine, Spec};
use crate::{cargo, case};

/// A part of the adversarial suite: what it is called on the way, its name, its kernel, and what the ids of its cases begin with.
const ADVERSARIAL: [(&str, &str, Kernel, &[&str]); 3] = [
    ("resources", "suites_resources_are_bounded_and_the_auditor_hears_on_pure_v2", Kernel::Cloud, &["R", "U"]),
    (
        "processes",
        "suites_processes_their_groups_and_output_are_contained_on_pure_v2",
        Kernel::Cloud,
        &["P", "S", "C", "O", "X"],
    ),
    (
        "files",
        "suites_credentials_files_calls_and_the_network_are_contained_on_pure_v2",
        Kernel::Stock,
        &["N", "F", "K", "W", "L"],
    ),
];

pub fn cases() -> Vec<Trial> {
    let adversarial = |(label, name, kernel, begins): (&'static str, _, _, _)| {
        case(name, move || part(label, kernel, || self::adversarial(&picked(begins))))
    };
    let mut cases =
        vec![case("suites_the_sandbox_and_its_limits_hold_on_pure_v2", || part("sandbox", Kernel::Cloud, sandbox))];
    cases.extend(ADVERSARIAL.map(adversarial));
    cases.push(case("suites_the_service_starts_streams_and_stops_on_pure_v2", || {
        part("service", Kernel::Cloud, service)
    }));
    cases.push(case("suites_every_test_is_run_there_or_named_with_its_reason", named));
    cases
}

/// The service there: started, streamed from, stopped, killed and watched; by what its tests begin with.
pub const SERVICE: [&str; 8] = [
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
const NOT_HERE: [(&str, &str); 31] = [
    ("api::", BYTES),
    ("cancelled::", BYTES),
    ("certs::", BYTES),
    ("first_hour::", BYTES),
    ("foreign::", BYTES),
    ("get_status::", BYTES),
    (
        "journal::",
        "a file of 100,000 lines, which no auditor lets grow, is read there for longer than an auditor may say nothing",
    ),
    ("list::", BYTES),
    ("metrics::", BYTES),
    ("not_inside::", BYTES),
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
    ("quarantine::", TIME),
    ("restarts::", TIME),
    ("runbooks::", TIME),
    ("runtimes::", TIME),
    ("soak::", TIME),
    ("limits::too_many_files", "R08 of the adversarial suite fills the same places, there"),
    ("limits::values_that_cannot_be_meant", "it ends before anything is asked of the host"),
    ("outcomes::a_signal_of_its_own_doing", "P06 and P15 of the adversarial suite end by signals, there"),
    ("payloads::contain_sigterm_ignore", "the line in its source waits for seconds, which are no time there"),
    ("start_errors::sandbox_init_says_why", "its program is built with a defence off, by a compiler that is not there"),
    ("stuck_output::", BYTES),
];
const BYTES: &str = "bytes between processes, or what a command prints; nothing of it is the host's layout";
const TIME: &str = "the same starts and ends as in those that are run, for minutes";

/// Cases of the adversarial suite that are not run there, and why.
const CASES_NOT_HERE: [(&str, &str); 10] = [
    ("C06", "its observer wants a processor of its own; tests/vm/limits.rs looks at 1,000 starts"),
    ("O01", PIPES),
    ("O02", PIPES),
    ("O06", PIPES),
    ("O07", PIPES),
    ("O09", PIPES),
    ("R12", "it measures shares within a second, by a clock that stands still there; tests/vm/limits.rs takes ten"),
    ("R30", "a million objects of 84 kinds, for minutes there; R20 to R28 measure what the mends are for"),
    ("X02", "a thousand pairs of tasks look for what one left on this host; nothing of it is a matter of the layout"),
    (
        "U22",
        "its tasks fill their limits and give all back, for ten minutes there, by the cgroup.kill that this host has too",
    ),
];

const PIPES: &str = "a race for bytes of a pipe, for as long as there is time; nothing of it is a matter of the layout";

/// What that kernel cannot show; each says why, and where it is shown.
const SKIPPED: [&str; 2] = ["C07", "R15"];

/// See tests/support/pace.rs: an emulated processor takes about twenty times as long.
pub const PACE: &str = "TASKMAN_TEST_SLOW=20 TASKMAN_TEST_FEWER=100";
/// A part, on a host that is busy with other things.
const ENDS_WITHIN: Duration = Duration::from_secs(45 * 60);

/// Names what is left out, and fails when a list has something in it that is not there, or leaves something out in silence.
pub fn named() {
    let tests = listed("e2e");
    println!();
    for (name, why) in NOT_HERE {
        assert!(tests.iter().any(|test| test.starts_with(name)), "no test begins with {name}");
        println!("    NOT RUN THERE: {name}: {why}");
    }
    println!("    NOT RUN THERE: the rest of {}: {TIME}", modules().join(", "));
    for name in SERVICE {
        assert!(tests.iter().any(|test| test.starts_with(name)), "no test begins with {name}");
    }
    let cases = listed("adversarial");
    for (id, why) in CASES_NOT_HERE {
        assert!(cases.iter().any(|case| case == id), "no case is {id}");
        println!("    NOT RUN THERE: {id}: {why}");
    }
    println!("    NOT RUN THERE: mutation arms: they show that the suite can fail, which is no matter of the host");
    for case in cases.iter().filter(|case| CASES_NOT_HERE.iter().all(|(id, _)| case != id)) {
        let parts = ADVERSARIAL.iter().filter(|(_, _, _, begins)| begins.iter().any(|begins| case.starts_with(begins)));
        assert_eq!(parts.count(), 1, "{case} is in one part");
    }
}

/// The names of the tests of this program, and the ids of the cases of the adversarial one.
fn listed(name: &str) -> Vec<String> {
    let listed = Command::new(program(name)).arg("--list").output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let lines = String::from_utf8(listed.stdout).unwrap();
    let tests = lines.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.map(|test| test.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// The cases that begin so, without those that are not run there, as the suite takes them.
fn picked(begins: &[&str]) -> String {
    let mut cases = listed("adversarial");
    cases.retain(|case| begins.iter().any(|begins| case.starts_with(begins)));
    cases.retain(|case| CASES_NOT_HERE.iter().all(|(id, _)| case != id));
    cases.join(",")
}

fn skipping(names: impl Iterator<Item = &'static str>) -> String {
    names.map(|name| format!(" --skip {name}")).collect()
}

/// Two at a time, so that one that waits holds nothing up.
pub fn e2e() -> String {
    format!("{} --test-threads 2{}", program("e2e").display(), skipping(NOT_HERE.iter().map(|(name, _)| *name)))
}

fn sandbox() -> String {
    e2e() + &skipping(modules().into_iter())
}

fn service() -> String {
    format!("{} {}", e2e(), SERVICE.join(" "))
}

/// A machine, and a command that must end well in it.
fn part(label: &str, kernel: Kernel, command: impl Fn() -> String) {
    let command = command();
    // The usual kernel takes calls by their x32 numbers when it is told to.
    let append = if kernel == Kernel::Stock { "syscall.x32=y" } else { "" };
    run(label, &mut Machine::boot(Spec { kernel, append, ..Spec::default() }), kernel, &command);
}

/// A command of the suites that must end well in this machine.
pub fn run(label: &str, machine: &mut Machine, kernel: Kernel, command: &str) {
    let begun = Instant::now();
    // Pairs of network devices; no modules lie under /usr, where tasks would see a mount of them.
    machine.ok(&format!("modprobe -d {} veth", kernel.directory().display()));
    // As kernels from 6.7 on have it: filters of a size that the suite attaches need it.
    machine.ok("sysctl -q -w net.core.optmem_max=131072");
    let mut skipped = Vec::new();
    let code = machine.watch_within(&script(command), ENDS_WITHIN, |line| {
        if line.contains(" SKIPPED ") {
            skipped.extend(line.split(' ').next().map(str::to_owned));
        }
        // What a case says on its way is in the table at the end too, and so is how it ended.
        let on_its_way = line.starts_with("  ") || line.ends_with(" ... ") || line == "ok";
        if !line.is_empty() && (!on_its_way || line.contains("FAILED")) {
            println!("    {label}, {:.0} s: {line}", begun.elapsed().as_secs_f64());
        }
    });
    assert_eq!(code, 0, "{label}: {command}");
    assert!(skipped.iter().all(|id| SKIPPED.contains(&id.as_str())), "{label}: skipped {skipped:?}");
}

/// These cases of the adversarial suite, without their mutation arms. Its payloads are compiled here, where that is fast.
pub fn adversarial(cases: &str) -> String {
    static PAYLOADS: LazyLock<PathBuf> = LazyLock::new(|| {
        let payloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm/payloads");
        std::fs::remove_dir_all(&payloads).ok();
        let compiled = Command::new(program("adversarial")).env("TASKMAN_ADV_COMPILE", &payloads).status().unwrap();
        assert!(compiled.success(), "the payloads of the adversarial suite do not compile");
        payloads
    });
    let (payloads, program) = (PAYLOADS.display(), program("adversarial"));
    format!(
        "TASKMAN_ADV_CASES={cases} TASKMAN_ADV_ARMS=contained TASKMAN_ADV_PAYLOADS={payloads} {} --test-threads 1",
        program.display()
    )
}

/// Of the tests of the service.
fn modules() -> Vec<&'static str> {
    let mut names: Vec<_> = SERVICE.iter().filter_map(|name| name.split_inclusive("::").next()).collect();
    names.dedup();
    names
}

/// A command as `cargo test` would run it, at the pace of an emulated processor.
fn script(command: &str) -> String {
    // As many files as systemd gives a service; and one mount for all that is made, so that it can be linked.
    let (tree, scratch) = (env!("CARGO_MANIFEST_DIR"), env!("CARGO_TARGET_TMPDIR"));
    format!("ulimit -Hn 524288; export TMPDIR={scratch}; cd {tree} && {PACE} {command}")
}

/// The program of this test that a build right now makes or has made: the one that `cargo test` would run.
pub fn program(name: &str) -> PathBuf {
    static BUILT: LazyLock<Vec<(String, PathBuf)>> = LazyLock::new(|| {
        // A test of the library runs its example.
        cargo::programs(&["build", "--example", "library"]).unwrap();
        cargo::programs(&["test", "--no-run", "--test", "e2e", "--test", "adversarial", "--test", "container"]).unwrap()
    });
    BUILT.iter().find(|(target, _)| target == name).map(|(_, path)| path.clone()).expect("cargo says what it built")
}
