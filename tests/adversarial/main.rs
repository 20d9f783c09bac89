//! The adversarial suite: hostile payloads against the real taskman on the real kernel.
//!
//! Needs root. Cases run side by side, each in a process of its own that compares the host before and after.
//!
//! The control arm of a case runs without a sandbox, as root, on this host: a payload removes what it has made itself, by its name, and
//! never what it finds.
#![allow(clippy::disallowed_methods)] // the suite is not the launcher: it starts processes and waits as it likes
#![allow(clippy::unwrap_used, missing_docs)]

mod harness;
mod ids;

mod auditor;
mod cgroup;
mod filesystem;
mod kernel;
mod leak;
mod namespace;
mod network;
mod process;
mod residue;
mod resource;
mod stream;
#[allow(dead_code, unused_imports)] // the end-to-end tests use all of it
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use harness::case::Case;
use harness::own_process::{self, Suite};
use harness::report::Report;
use libtest_mimic::Arguments;

fn cases() -> Vec<Case> {
    let cases = [
        process::cases(),
        cgroup::cases(),
        resource::cases(),
        stream::cases(),
        namespace::cases(),
        filesystem::cases(),
        kernel::cases(),
        network::cases(),
        leak::cases(),
        residue::cases(),
        auditor::cases(),
    ];
    cases.into_iter().flatten().collect()
}

fn main() -> ExitCode {
    let ended = match (own_process::asked_for(), std::env::var_os("TASKMAN_ADV_COMPILE")) {
        (Some(id), _) => {
            let case = cases().into_iter().find(|case| case.id == id);
            case.ok_or_else(|| format!("no case {id}")).and_then(|case| own_process::run(&case))
        }
        (None, Some(dir)) => harness::payload::compile_all(dir.as_ref()).map(|()| ExitCode::SUCCESS),
        (None, None) => suite(),
    };
    ended.unwrap_or_else(|why| {
        eprintln!("the adversarial suite needs root, gcc and its own control groups: {why}");
        ExitCode::FAILURE
    })
}

fn suite() -> Result<ExitCode, String> {
    let mut args = Arguments::from_args();
    // Where the suite has no group of its own, cases would see each other's.
    let lanes = if harness::place::is_pure_v2() { 1 } else { own_process::LANES };
    args.test_threads.get_or_insert(lanes);
    // `TASKMAN_ADV_CASES=P01,C` picks by id, or what it begins with, where libtest's filter takes a single text.
    let picked = std::env::var("TASKMAN_ADV_CASES").ok();
    let is_picked = |id: &str| picked.as_ref().is_none_or(|ids| ids.split(',').any(|picked| id.starts_with(picked)));
    let (picked, others): (Vec<_>, Vec<_>) = cases().into_iter().partition(|case| is_picked(case.id));
    let all = picked.len() + others.len();
    let arms = std::env::var("TASKMAN_ADV_ARMS").unwrap_or_default();
    let suite: &'static Suite = Box::leak(Box::new(Suite::new(arms.is_empty())));
    let trials = picked.into_iter().map(|case| suite.trial(case)).collect();
    let conclusion = libtest_mimic::run(&args, trials);
    let records = suite.close();
    if args.list {
        return Ok(conclusion.exit_code());
    }
    let report = Report { records: &records, cases: all };
    println!("{}", report.table());
    println!("the report: {}", report.write()?.display());
    Ok(conclusion.exit_code())
}
