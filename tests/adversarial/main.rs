//! The adversarial suite: hostile payloads against the real taskman on the real kernel.
//!
//! Needs root. Cases run one at a time, because each compares the host before and after.
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

use harness::Bench;
use harness::ledger::Ledger;
use harness::report::Report;
use libtest_mimic::Arguments;

fn main() -> std::process::ExitCode {
    if let Some(dir) = std::env::var_os("TASKMAN_ADV_COMPILE") {
        return match harness::payload::compile_all(dir.as_ref()) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                std::process::ExitCode::FAILURE
            }
        };
    }
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
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
    let bench: &'static Bench = match Bench::open() {
        Ok(bench) => Box::leak(Box::new(bench)),
        Err(why) => {
            eprintln!("the adversarial suite needs root and its own control groups: {why}");
            return std::process::ExitCode::FAILURE;
        }
    };
    // The asynchronous runtime of the service's clients keeps two descriptors for as long as this process lives.
    support::rpc::on(async {});
    let before = Ledger::take(bench);
    // `TASKMAN_ADV_CASES=P01,C` picks by id, or what it begins with, where libtest's filter takes a single text.
    let picked = std::env::var("TASKMAN_ADV_CASES").ok();
    let is_picked = |id: &str| picked.as_ref().is_none_or(|ids| ids.split(',').any(|picked| id.starts_with(picked)));
    let all: Vec<_> = cases.into_iter().flatten().collect();
    let cases = all.len();
    let trials = all.into_iter().filter(|case| is_picked(case.id)).map(|case| case.trial(bench)).collect();
    let conclusion = libtest_mimic::run(&args, trials);
    if args.list {
        // Nothing was done that could have left something.
        bench.close();
        return conclusion.exit_code();
    }
    let mut left: Vec<String> = before.settle(bench).err().into_iter().collect();
    harness::mutant::sweep(bench);
    left.extend(bench.close());
    for line in &left {
        eprintln!("the whole run: {line}");
    }
    let records = bench.records();
    let report = Report { records: &records, cases, left: &left };
    println!("{}", report.table());
    match report.write() {
        Ok(path) => println!("the report: {}", path.display()),
        Err(why) => left.push(why),
    }
    if left.is_empty() { conclusion.exit_code() } else { std::process::ExitCode::FAILURE }
}
