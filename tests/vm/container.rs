//! Containers on a machine with nothing but cgroup v2: cases of `tests/container`, the same program, run there.

use std::time::Duration;

use libtest_mimic::Trial;

use crate::case;
use crate::machine::{Machine, Spec};
use crate::suites::{PACE, program};

/// Those that the layout of control groups could make a difference to, and those that show what is promised of every host.
const CASES: [&str; 11] = [
    "the_doctor_passes_with_the_shipped_options_and_says_what_a_container_takes",
    "a_task_is_proven_contained_and_its_groups_are_below_the_containers",
    "the_containers_memory_limit_holds_for_its_tasks_and_kills_them_first",
    "control_groups_that_cannot_be_written_are_named_and_refused",
    "a_group_with_other_processes_in_it_is_named_and_refused",
    "the_auditor_says_what_it_does_not_hear_scans_sooner_and_finds_an_escape",
    "the_task_inside_has_no_more_than_one_on_the_host",
    "each_limit_of_a_task_holds_inside",
    "the_server_starts_streams_and_stops_tasks",
    "a_task_is_in_its_group_before_its_first_instruction",
    "a_server_that_was_killed_with_its_container_leaves_nothing_and_starts_again",
];

pub fn cases() -> Vec<Trial> {
    vec![case("container_tasks_are_contained_below_the_containers_group_on_pure_v2", contained)]
}

fn contained() {
    let mut machine = Machine::boot(Spec::default());
    let script = format!("{PACE} {} --test-threads 1 {}", program("container").display(), CASES.join(" "));
    assert_eq!(machine.watch_within(&script, Duration::from_secs(900), |line| println!("    {line}")), 0);
    assert_eq!(machine.ok("ls -d /sys/fs/cgroup/taskman-* 2>/dev/null | wc -l"), "0\n", "nothing is left");
}
