//! Stop, when the task has used up every signal that its uid may have queued: asking it needs none of them.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::ensure;
use crate::harness::{Arm, Bench, Case, Fail};
use crate::support::pace;

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "P17",
        tier: 1,
        what: "uses up all signals that its uid may have queued, and is stopped",
        defence: &["plain-signals"],
        control: |bench| quota_is_used_up(bench).into(),
        attack: stop_needs_no_quota,
    }]
}

/// Directly, as a uid of the suite's own, whose quota of queued signals nobody else uses.
fn quota_is_used_up(bench: &Bench) -> Result<(), Fail> {
    let uid = bench.uid_range().start;
    bench.direct().with_uid(uid).probe("p_queue", &["1", "10", "victim"]).spawn()?.wait_line("full")
}

fn stop_needs_no_quota(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut run = bench.task(arm).opt("--grace", "500ms").probe("p_queue", &["1", "30", "victim"]).spawn()?;
    run.wait_line("full")?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let asked = Instant::now();
    run.signal(Signal::SIGTERM)?;
    let done = run.final_within(Duration::from_secs(5))?;
    let millis = (done.ended - asked).as_millis();
    bench.note(format!("over {millis} ms after the stop, grace 500"));
    ensure!(done.report.is_some(), "no report: exit {}, {}", done.code(), done.err);
    let latest = 500 + pace::time(Duration::from_secs(3)).as_millis();
    ensure!((400..=latest).contains(&millis), "over after {millis} ms with a grace of 500");
    ensure!(done.reason()? == "stopped" && done.code() == 137, "{}, exit {}", done.reason()?, done.code());
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    Ok(())
}
