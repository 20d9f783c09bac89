//! Containers on a machine with nothing but cgroup v2: cases of `tests/container`, the same program, run there.

use std::time::Duration;

use libtest_mimic::Trial;

use crate::case;
use crate::machine::{Machine, Spec};
use crate::suites;

/// Those that the layout of control groups could make a difference to.
const CASES: [&str; 6] = [
    "the_doctor_passes_with_the_shipped_options_and_says_what_a_container_takes",
    "a_task_is_proven_contained_and_its_groups_are_below_the_containers",
    "the_containers_memory_limit_holds_for_its_tasks_and_kills_them_first",
    "control_groups_that_cannot_be_written_are_named_and_refused",
    "a_group_with_other_processes_in_it_is_named_and_refused",
    "the_auditor_says_what_it_does_not_hear_scans_sooner_and_finds_an_escape",
];

pub fn cases() -> Vec<Trial> {
    vec![case("container_tasks_are_contained_below_the_containers_group_on_pure_v2", contained)]
}

fn contained() {
    let mut machine = Machine::boot(Spec::default());
    let script = format!("{} --test-threads 1 {}", suites::program("container").display(), CASES.join(" "));
    assert_eq!(machine.watch_within(&script, Duration::from_secs(540), |line| println!("    {line}")), 0);
    assert_eq!(machine.ok("ls -d /sys/fs/cgroup/taskman-* 2>/dev/null | wc -l"), "0\n", "nothing is left");
}
