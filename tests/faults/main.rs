//! Fault injection: every process of taskman is killed, or stands still, at every point of a task's life.
//!
//! The points are those of `src/fault.rs` and of the sandbox's list of steps; the processes note which they pass, so a new one
//! is tried without a word here. After each fault: nothing of the task lives on, nothing ever ran half-confined, what is left
//! is gone after the next start, which works, and what is told is what happened.
//!
//! Needs root. One case at a time: the suite looks at all that it has started.
#![allow(clippy::unwrap_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // the suite is not the launcher: it starts processes and waits as it likes

mod hook;
mod host;
mod page;
mod points;
mod run;
mod service;
#[allow(dead_code, unused_imports)] // the end-to-end tests use the rest
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use host::Host;
use libtest_mimic::{Arguments, Trial};
use page::Page;
use points::Traces;

/// What every case works with.
pub struct Suite {
    host: Host,
    page: Page,
    /// `taskman` with points.
    program: PathBuf,
    traces: Traces,
}

impl Suite {
    fn open() -> Result<Self, String> {
        let (host, page) = (Host::enter()?, Page::new());
        let program = support::mutation::build("taskman")?;
        let mut suite = Self { host, page, program, traces: Traces::default() };
        let (run, failed_run, parked_run) = (suite.trace_run(), suite.trace_failed_run(), suite.trace_parked_run());
        let [begun, service, failed_service] = suite.trace_service();
        let sweeping_run = suite.trace_sweeping_run();
        suite.traces = Traces { run, failed_run, parked_run, sweeping_run, service, failed_service, begun };
        Ok(suite)
    }
}

type Case = fn(&Suite);

/// Their names are those of the functions.
macro_rules! cases {
    ($($module:ident::$case:ident),* $(,)?) => { [$((stringify!($case), $module::$case as Case)),*] };
}

const CASES: [(&str, Case); 17] = cases![
    hook::the_shipped_programs_hold_no_trace_of_hook_and_switches,
    hook::every_point_of_the_sources_is_passed,
    run::a_killed_launcher_leaves_nothing_that_lives,
    run::a_killed_init_is_told_and_leaves_nothing,
    run::a_killed_payload_is_told_and_leaves_nothing,
    run::a_process_that_stands_still_is_waited_for,
    run::a_launcher_killed_while_it_gives_up_leaves_nothing_that_lives,
    run::a_death_while_a_sandbox_waits_leaves_nothing,
    run::a_launcher_killed_while_it_sweeps_is_swept_too,
    service::a_killed_launcher_of_the_service_is_told_and_leaves_nothing,
    service::a_killed_server_is_told_and_leaves_nothing,
    service::a_killed_init_of_a_starting_task_is_told_to_the_client,
    service::a_killed_payload_of_a_starting_task_is_told_to_the_client,
    service::a_process_of_the_service_that_stands_still_is_waited_for,
    service::a_death_while_a_failed_start_is_taken_back_leaves_nothing,
    service::a_death_while_the_service_starts_loses_nothing,
    service::a_lost_auditor_is_replaced,
];

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
    let suite: &'static Suite = match Suite::open() {
        Ok(suite) => Box::leak(Box::new(suite)),
        Err(why) => {
            eprintln!("the fault suite needs root and its own control groups: {why}");
            return ExitCode::FAILURE;
        }
    };
    let trials = CASES.into_iter().map(|(name, case)| {
        Trial::test(name, move || {
            case(suite);
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&args, trials.collect());
    table::print();
    let left = suite.host.leave();
    left.iter().for_each(|line| eprintln!("left: {line}"));
    if left.is_empty() { conclusion.exit_code() } else { ExitCode::FAILURE }
}
