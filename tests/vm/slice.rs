//! What `scripts/test` runs of all this: one machine with nothing but cgroup v2, and of each suite what asks the kernel's layout.

use libtest_mimic::Trial;

use crate::machine::Kernel;
use crate::{case, limits, on_one_machine, suites};

/// Of tests/e2e, beside those of the service: how tasks end, and by which limit.
const E2E: [&str; 3] = ["limits::memory", "limits::the_last_process", "outcomes::"];
/// Its grace is so long there that it takes as long as all others.
const SLOW: &str = " --skip stop::a_task_that_ignores_the_request";
/// Of the adversarial suite: groups that cannot be left, divided or outlived, bombs, and the deaths of those who watch.
const CASES: &str = "C01,C02,C05,C08,P01,P04,P13,R01,R03,S02,U03";

pub fn cases() -> Vec<Trial> {
    let machine = on_one_machine(
        "slice_of_the_suites_on_pure_v2",
        limits::boot,
        [
            ("slice_without_delegated_controllers", limits::undelegated),
            ("slice_e2e", |machine| {
                let tests = E2E.iter().chain(&suites::SERVICE).map(|name| format!(" {name}")).collect::<String>();
                suites::run("e2e", machine, Kernel::Cloud, &(suites::e2e() + SLOW + &tests));
            }),
            ("slice_adversarial", |machine| {
                suites::run("adversarial", machine, Kernel::Cloud, &suites::adversarial(CASES));
            }),
            ("slice_limits", |machine| limits::limits(machine, 50)),
            // Last: it leaves swap on.
            ("slice_swap", limits::swap),
        ],
    );
    vec![machine, case("slice_every_test_is_run_there_by_the_deep_run_or_named", suites::named)]
}
