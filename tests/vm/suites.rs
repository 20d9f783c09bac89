//! The test programs that `scripts/test` runs on this host, run again where there is nothing but cgroup v2.
//!
//! Emulation is slow, and slower with every processor that it has to keep in step: so each suite has a machine of one
//! processor to itself, both at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::case;
use crate::machine::{Machine, Spec};

pub fn cases() -> Vec<Trial> {
    vec![case("suites_the_tests_of_this_host_pass_on_pure_v2", suites)]
}

/// What is not run there, by the names with which tests begin, and why. All other tests are.
const NOT_HERE: [(&str, &str); 0] = [];

/// See tests/support/pace.rs: an emulated processor takes about twenty times as long.
const PACE: &str = "TASKMAN_TEST_SLOW=20 TASKMAN_TEST_FEWER=100";
/// A machine that is busy with other things may take this long.
const ENDS_WITHIN: Duration = Duration::from_secs(45 * 60);

fn suites() {
    let (e2e, adversarial) = (program("e2e"), adversarial(""));
    let mut skips = String::new();
    for (name, why) in NOT_HERE {
        println!("    e2e: NOT RUN HERE: {name}: {why}");
        skips += &format!(" --skip {name}");
    }
    println!(
        "    adversarial: NOT RUN HERE: the mutation arms, which show that the suite can fail: that is no matter of the host"
    );
    // Two at a time, so that one that waits holds nothing up.
    let e2e = in_place(&format!("{} --test-threads 2{skips}", e2e.display()));
    let codes = std::thread::scope(|scope| {
        let runs = [("e2e", e2e), ("adversarial", adversarial)].map(|(name, command)| {
            scope.spawn(move || {
                let mut machine = Machine::boot(Spec { cpus: 1, ..Spec::default() });
                // What a case says on its way is in the table at the end too.
                let shown = |line: &str| !line.is_empty() && !line.starts_with("  ");
                machine.watch_within(&command, ENDS_WITHIN, |line| {
                    if shown(line) {
                        println!("    {name}: {line}");
                    }
                })
            })
        });
        runs.map(|run| run.join())
    });
    assert!(codes.iter().all(|code| matches!(code, Ok(0))), "e2e and adversarial ended with {codes:?}");
}

/// Runs a program as `cargo test` would, at the pace of an emulated processor.
fn in_place(command: &str) -> String {
    format!("cd {} && {PACE} {command}", env!("CARGO_MANIFEST_DIR"))
}

/// The script that runs these cases of the adversarial suite, or all; its payloads are compiled here, where that is fast.
pub fn adversarial(cases: &str) -> String {
    let program = program("adversarial");
    let payloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm/payloads");
    std::fs::remove_dir_all(&payloads).ok();
    let compiled = Command::new(&program).env("TASKMAN_ADV_COMPILE", &payloads).status().unwrap();
    assert!(compiled.success(), "the payloads of the adversarial suite do not compile");
    let picked = if cases.is_empty() { String::new() } else { format!("TASKMAN_ADV_CASES={cases} ") };
    let environment = format!("{picked}TASKMAN_ADV_ARMS=contained TASKMAN_ADV_PAYLOADS={}", payloads.display());
    in_place(&format!("env {environment} {}", program.display()))
}

/// The program of this test that a build right now makes or has made: the one that `cargo test` would run.
fn program(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--quiet", "--no-run", "--message-format", "json", "--test", name]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{name} does not build: {}", String::from_utf8_lossy(&output.stderr));
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut ours = messages.filter(|message: &Value| message["target"]["name"] == name);
    ours.find_map(|message| message["executable"].as_str().map(PathBuf::from)).expect("cargo says what it built")
}
