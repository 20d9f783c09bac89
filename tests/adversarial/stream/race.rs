//! Between the launcher's poll and its next call the task changes its end of a pipe: the launcher goes on all the same.

use std::time::Duration;

use crate::harness::{Arm, Bench, Case, Fail};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "O01",
            tier: 1,
            what: "shrinks the pipe of its standard input between the launcher's poll and write",
            defence: &["non-blocking-pipes"],
            control: |bench| believer_blocks(bench, "r_resize").into(),
            attack: |bench, arm| launcher_goes_on(bench, arm, "r_resize"),
        },
        Case {
            id: "O02",
            tier: 1,
            what: "empties the pipe of its own standard output between the launcher's poll and read",
            defence: &["non-blocking-pipes"],
            control: |bench| believer_blocks(bench, "r_steal").into(),
            attack: |bench, arm| launcher_goes_on(bench, arm, "r_steal"),
        },
    ]
}

/// Of the tasks.
fn timeout(arm: Arm) -> Duration {
    pace::term(arm.limit(Duration::from_secs(3), Duration::from_millis(1_500)))
}

/// Without taskman: a pump that believes poll is blocked on this kernel, and stays so.
fn believer_blocks(bench: &Bench, probe: &str) -> Result<(), Fail> {
    let mut run = bench.direct().probe(probe, &["control"]).spawn()?;
    let stuck = run.pump(pace::time(Duration::from_secs(8)), |run| run.out.text().contains("stuck\n"))?;
    require!(stuck, "the race was never won: {:?}", run.out.text());
    Ok(())
}

fn launcher_goes_on(bench: &Bench, arm: Arm, probe: &str) -> Result<(), Fail> {
    let trials = arm.trials(2, 20);
    let (timeout, late) = (timeout(arm), arm.limit(Duration::from_secs(3), Duration::from_secs(1)));
    let mut tries = 0;
    for trial in 0..trials {
        let task = bench.task(arm).wrapped(&["sh", "-c", r#"exec "$@" < /dev/zero"#, "sh"]);
        let task = task.opt("--timeout", format!("{}ms", timeout.as_millis()));
        let run = task.probe(probe, &["attack"]).spawn()?;
        if arm == Arm::Contained {
            bench.canary()?;
        }
        let done = run.final_within(timeout + late)?;
        let (reason, verdict) = (done.reason()?, done.verdict()?);
        let seen = format!("trial {trial}: {reason}, exit {}, {verdict}, after {:?}", done.code(), done.took);
        ensure!(reason == "wall_time" && done.code() == 124 && verdict == "proven", "{seen}");
        // One byte for each try; a probe that could not try proves nothing.
        let won = done.out.chars().chain(done.err.chars()).filter(|c| *c == 'y').count();
        require!(won > 20, "{seen}: only {won} tries");
        tries += won;
    }
    bench.note(format!("{trials} trials with {tries} tries: over {late:?} after the timeout at the latest"));
    Ok(())
}
