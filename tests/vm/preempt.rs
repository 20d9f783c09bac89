//! Where the kernel preempts itself, a parent may lose the CPU inside fork, with its child visible and not yet in its cgroup.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::machine::{Machine, Spec};
use crate::{case, service};

pub fn cases() -> Vec<Trial> {
    vec![case("preempt_a_parent_that_is_starved_inside_fork_is_no_escape", starved)]
}

/// Parents that run when nobody else wants to, beside those that always want to, all of one task.
const STARVED: &str = "for i in $(seq 24); do chrt -i 0 sh -c \"while :; do (exit); done\" & done; \
    for i in $(seq 6); do sh -c \"while :; do :; done\" & done; sleep 90; kill 0";

fn starved() {
    let mut machine = Machine::boot(Spec { append: "preempt=full", ..Spec::default() });
    let model = machine.ok("mount -t debugfs none /sys/kernel/debug && cat /sys/kernel/debug/sched/preempt");
    assert!(model.contains("(full)"), "{model}");
    service::start(&mut machine, "max");
    let task = service::client(&format!("start --follow --timeout 170s -- sh -c '{STARVED}'"));
    let (_, said) = machine.run_within(&task, Duration::from_secs(400));
    let health = machine.run(&service::client("health --user-id admin --output json")).1;
    let health: Value = serde_json::from_str(&health).unwrap_or_else(|error| panic!("{error}: {health}"));
    let log = machine.ok("cat /var/tmp/log");
    assert_eq!(health["status"], "healthy", "{health}\n{said}\n{log}");
    assert!(!log.contains("incident"), "{log}");
}
