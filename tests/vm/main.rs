//! taskman on hosts that this one is not, each a virtual machine with a kernel of Debian's: `scripts/vm-test`.
//!
//! Needs root, qemu and the images that the script makes.
#![allow(clippy::disallowed_methods)] // starts processes and waits as it likes
#![allow(clippy::unwrap_used, missing_docs)]

mod container;
mod guest;
mod limits;
mod machine;
mod package;
#[path = "../support/placement.rs"]
mod placement;
mod plain;
#[path = "../support/probes.rs"]
mod probes;
mod small;
mod suites;
mod unit;
mod x32;

use std::time::Instant;

use libtest_mimic::{Arguments, Trial};

/// The program under test; a machine with this host's programs has it at the same place.
const TASKMAN: &str = env!("CARGO_BIN_EXE_taskman");

/// What the names of long cases have in them, the longest first.
const LONG: [&str; 13] = [
    "every_test_is_run_there_or_named",
    "limits_memory_cpu_io",
    "suites_resources",
    "package_installs",
    "suites_credentials",
    "unit_serves",
    "unit_keeps_records",
    "container_",
    "suites_the_sandbox",
    "unit_that_dies",
    "suites_output",
    "suites_processes",
    "suites_the_service",
];

fn main() -> std::process::ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("guest") {
        return guest::main(words);
    }
    let mut args = Arguments::from_args();
    // A machine has one processor, because emulated ones that are kept in step are slow; so two take a small host, and a third what
    // they leave while they wait.
    args.test_threads.get_or_insert(3);
    let cases = [
        suites::cases(),
        limits::cases(),
        package::cases(),
        unit::cases(),
        container::cases(),
        small::cases(),
        x32::cases(),
        plain::cases(),
    ];
    let mut trials: Vec<Trial> = cases.into_iter().flatten().collect();
    // The longest first, so that in the end no machine is waited for alone; a case that is not listed is a short one.
    trials.sort_by_key(|trial| LONG.iter().position(|part| trial.name().contains(part)).unwrap_or(LONG.len()));
    libtest_mimic::run(&args, trials).exit_code()
}

/// A test of this name, which says how long it took.
fn case(name: &'static str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let begun = Instant::now();
        test();
        println!("    {name}: {:.0} s", begun.elapsed().as_secs_f64());
        Ok(())
    })
}
