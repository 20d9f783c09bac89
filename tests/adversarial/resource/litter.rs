//! A thousand tasks in a row, each of which leaves what it can: afterwards the host is as it was.

use std::time::Duration;

use crate::harness::ledger::Ledger;
use crate::harness::{Arm, Bench, Case, Fail, breach};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "X01",
        tier: 1,
        what: "1,000 runs in a row leave no process, group, mount, namespace, file, IPC object, key or descriptor",
        defence: &["kill,pid-namespace", "ipc-namespace"],
        control: |bench| litter_stays(bench).into(),
        attack: nothing_stays,
    }]
}

/// Directly the litter stays, and the ledger sees it.
fn litter_stays(bench: &Bench) -> Result<(), Fail> {
    let before = Ledger::take(bench);
    let uid = bench.uid_range().start;
    let mut run = bench.direct().with_uid(uid).probe("x_litter", &[]).spawn()?;
    run.pump(pace::time(Duration::from_secs(2)), |run| run.ended.is_some())?;
    drop(run);
    let found = before.difference(&Ledger::take(bench));
    for kind in ["process", "sysv ipc", "file", "message queue", "key"] {
        let seen = found.iter().any(|line| line.starts_with(&format!("+ {kind}:")));
        require!(seen, "the ledger does not see a leaked {kind}: {found:?}");
    }
    Ok(())
}

fn nothing_stays(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let before = Ledger::take(bench);
    let runs = arm.trials(1_000, 2);
    for run in 0..runs {
        let done = bench.task(arm).probe("x_litter", &[]).spawn()?.final_within(Duration::from_secs(3))?;
        // The report of a mutant may say itself what is left; the ledger has to find it without being told.
        let verdict = done.verdict()?;
        if arm == Arm::Contained {
            ensure!(done.code() == 0 && verdict == "proven", "run {run}: exit {}, verdict {verdict}", done.code());
            if run % 250 == 0 {
                bench.canary()?;
            }
        }
    }
    before.settle(bench).map_err(|e| breach(format!("after {runs} runs {e}")))?;
    bench.note(format!("{runs} runs: the ledger is equal"));
    Ok(())
}
