//! taskman on hosts that this one is not, each a virtual machine with a kernel of Debian's: `scripts/vm-test`.
//!
//! Needs root, qemu and the images that the script makes.
#![allow(clippy::disallowed_methods)] // starts processes and waits as it likes
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/cargo.rs"]
mod cargo;
mod container;
mod guest;
mod limits;
mod machine;
mod package;
#[path = "../support/placement.rs"]
mod placement;
mod plain;
mod preempt;
#[path = "../support/probes.rs"]
mod probes;
mod service;
mod slice;
mod small;
mod suites;
mod unit;

use std::time::Instant;

use libtest_mimic::{Arguments, Trial};

/// The program under test; a machine with this host's programs has it at the same place.
const TASKMAN: &str = env!("CARGO_BIN_EXE_taskman");

/// What the names of long cases begin with, the longest first.
const LONG: [&str; 10] = [
    "suites_every_test",
    "unit_",
    "limits_",
    "suites_resources",
    "package_",
    "suites_credentials",
    "container_",
    "suites_the_sandbox",
    "suites_processes",
    "preempt_",
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
        preempt::cases(),
        slice::cases(),
    ];
    let mut trials: Vec<Trial> = cases.into_iter().flatten().collect();
    // The longest first, so that in the end no machine is waited for alone; a case that is not listed is a short one.
    trials.sort_by_key(|trial| LONG.iter().position(|part| trial.name().starts_with(part)).unwrap_or(LONG.len()));
    libtest_mimic::run(&args, trials).exit_code()
}

/// A test of this name, which says how long it took.
fn case(name: &'static str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        timed(name, test);
        Ok(())
    })
}

/// Tests of these names on one machine, in this order: to boot takes longer than most of them.
fn on_one_machine<M: 'static, const N: usize>(
    name: &'static str,
    boot: fn() -> M,
    tests: [(&'static str, fn(&mut M)); N],
) -> Trial {
    case(name, move || {
        let mut machine = boot();
        for (name, test) in tests {
            timed(name, || test(&mut machine));
        }
    })
}

fn timed(name: &str, test: impl FnOnce()) {
    let begun = Instant::now();
    test();
    println!("    {name}: {:.0} s", begun.elapsed().as_secs_f64());
}
