//! The hook itself: it is in no shipped program, and no point of the sources is forgotten.

use std::collections::BTreeSet;

use crate::support::run::TASKMAN;
use crate::support::server::TASKMAN_SERVER;
use crate::{Suite, points};

/// The switch of `src/fault.rs` and that of `src/mutation.rs`.
const SWITCHES: [&str; 2] = ["TASKMAN_FAULT", "TASKMAN_MUTATION"];

fn switches_in(program: &std::path::Path) -> Vec<&'static str> {
    let bytes = std::fs::read(program).expect("the program");
    let has = |name: &&str| bytes.windows(name.len()).any(|window| window == name.as_bytes());
    SWITCHES.into_iter().filter(has).collect()
}

pub fn the_shipped_programs_hold_no_trace_of_hook_and_switches(suite: &Suite) {
    assert_eq!(switches_in(&suite.program), SWITCHES, "the search finds nothing where there is something");
    for program in [TASKMAN, TASKMAN_SERVER] {
        assert_eq!(switches_in(program.as_ref()), Vec::<&str>::new(), "{program}");
    }
}

pub fn every_point_of_the_sources_is_passed(suite: &Suite) {
    let traces = suite.traces.all();
    traces.iter().for_each(|trace| points::assert_unique(trace));
    let passed: BTreeSet<String> = traces
        .into_iter()
        .flatten()
        .filter_map(|point| point.split_once('.'))
        .map(|(_, name)| name.to_owned())
        .collect();
    let sources = points::in_sources();
    assert!(sources.len() > 40, "the search finds only {sources:?}");
    let forgotten: Vec<&String> = sources.difference(&passed).collect();
    assert!(forgotten.is_empty(), "points that no case of this suite comes to: {forgotten:?}");
}
