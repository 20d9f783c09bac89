//! Children that outlive the main process: daemons, holders of its output, orphans by the thousand.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Control, Fail, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "P01",
            tier: 1,
            what: "double fork and setsid, then main exits 0",
            defence: &["kill,pid-namespace"],
            control: |bench| daemon_outlives(bench, "close").into(),
            attack: daemons_end_with_main,
        },
        Case {
            id: "P02",
            tier: 1,
            what: "a daemon keeps stdout and stderr open after main exits",
            defence: &["kill,pid-namespace"],
            control: |bench| daemon_outlives(bench, "keep").into(),
            attack: holder_delays_nothing,
        },
        Case {
            id: "P07",
            tier: 1,
            what: "ten thousand orphans that exit",
            defence: &["init-reap"],
            control: orphans_stay,
            attack: orphans_are_reaped,
        },
    ]
}

/// Without taskman the daemons live on after main, and a holder keeps the pipe open.
fn daemon_outlives(bench: &Bench, manner: &str) -> Result<(), Fail> {
    let mut run = bench.direct().probe("contain_double_fork", &[manner, "3", "5"]).spawn()?;
    run.wait_line("ready")?;
    let closes = manner == "close";
    run.pump(pace::time(Duration::from_secs(3)), |run| run.ended.is_some() && (run.out.eof.is_some() || !closes))?;
    require!(run.ended.is_some(), "main did not exit");
    require!((manner == "keep") == run.out.eof.is_none(), "whether the pipe is open is not as it should be");
    let left = bench.ours().into_iter().filter(|pid| *pid != run.pid).count();
    require!(left == 3, "{left} daemons in place of 3");
    Ok(())
}

fn daemons_end_with_main(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let run = bench.task(arm).probe("contain_double_fork", &["close", "3", "5"]).spawn()?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let done = run.final_within(Duration::from_secs(3))?;
    // Now: the moment at which taskman said "final" by exiting.
    let left = bench.survivors();
    ensure!(left.is_empty(), "final, but alive: {}", left.join(", "));
    let detail = done.field("/outcome/detail")?.as_str().unwrap_or("").to_owned();
    ensure!(detail.contains("left 3 processes"), "the detail does not say what was left: {detail:?}");
    ensure!(done.code() == 0 && done.reason()? == "exit", "exit {}, reason {}", done.code(), done.reason()?);
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    Ok(())
}

fn holder_delays_nothing(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut run = bench.task(arm).probe("contain_double_fork", &["keep", "3", "5"]).spawn()?;
    run.wait_line("ready")?;
    let exit = Instant::now();
    let limit = pace::time(arm.limit(Duration::from_secs(3), Duration::from_secs(1)));
    run.pump(limit, |run| run.ended.is_some() && run.out.eof.is_some())?;
    let (ended, eof) = (run.ended, run.out.eof);
    ensure!(ended.is_some(), "not final {limit:?} after main exited, because a daemon holds the output");
    ensure!(eof.is_some(), "no end of file {limit:?} after main exited");
    let left = bench.survivors();
    // taskman itself has ended, and is not reaped yet.
    let itself = format!("pid {} ", run.pid);
    ensure!(left.iter().all(|line| line.starts_with(&itself)), "final, but alive: {}", left.join(", "));
    let done = run.finish()?;
    bench.note(format!("final {:?} after main exited", done.ended.saturating_duration_since(exit)));
    ensure!(done.out == "ready\n", "the output is not what was written: {:?}", done.out);
    ensure!(done.code() == 0 && done.reason()? == "exit", "exit {}, reason {}", done.code(), done.reason()?);
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    if arm == Arm::Contained { bench.canary() } else { Ok(()) }
}

/// Zombies among the processes that the suite started.
fn zombies(bench: &Bench) -> usize {
    let all = proc::of_uid_range(&bench.uid_range()).into_iter().filter_map(proc::stat_of);
    all.filter(|s| s.state == 'Z').count()
}

/// Without an init that reaps, the dead stay: here the suite adopts them, and looks before it reaps.
fn orphans_stay(bench: &Bench) -> Control {
    let look = || -> Result<usize, Fail> {
        let mut run = bench.direct().with_uid(bench.uid_range().start).probe("p_orphans", &["200"]).spawn()?;
        run.wait_line("all 200")?;
        run.wait_until(Duration::from_secs(10), || zombies(bench) >= 200)?;
        let seen = zombies(bench);
        run.signal(Signal::SIGKILL)?;
        run.finish()?;
        Ok(seen)
    };
    match look() {
        Ok(200..) => Control::Works,
        Ok(seen) => Control::Broken(format!("{seen} zombies in place of 200")),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

/// So many dead may wait for init while the task runs.
const MOST: usize = 10;

fn orphans_are_reaped(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // The probe says so after each 500.
    let count = arm.trials(10_000, 1_000).max(500);
    let mut run = bench.task(arm).opt("--grace", "1ms").probe("p_orphans", &[&count.to_string()]).spawn()?;
    if arm == Arm::Contained {
        run.wait_line("made 500")?;
        bench.canary()?;
    }
    let (mut worst, mut samples, mut longest) = (0, 0, Duration::ZERO);
    let finished = |run: &crate::harness::Run| run.out.text().contains("all ");
    // An init that is off its processor for a moment finds dozens when it is back. It is not behind for long.
    let behind = pace::time(arm.limit(Duration::from_secs(3), Duration::from_millis(500)));
    while !run.pump(Duration::from_millis(20), finished)? && run.ended.is_none() {
        let (since, mut most) = (Instant::now(), 0);
        let fell = run.wait_until(behind, || {
            let seen = zombies(bench);
            most = most.max(seen);
            seen <= MOST
        })?;
        ensure!(fell, "more than {MOST} zombies for {behind:?} while it ran, {most} at most");
        (worst, samples) = (worst.max(most), samples + 1);
        longest = longest.max(if most > MOST { since.elapsed() } else { Duration::ZERO });
    }
    run.wait_line("all ")?;
    let pids = run.group_of("pids").map(|dir| dir.join("pids.current"));
    let current = || pids.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
    run.wait_until(arm.limit(Duration::from_secs(10), Duration::from_secs(1)), || current().trim() == "2")?;
    let (after, current) = (zombies(bench), current());
    let made = run.out.text().lines().rfind(|l| l.starts_with("all ")).unwrap_or("").to_owned();
    run.signal(Signal::SIGTERM)?;
    run.finish()?;
    bench.note(format!(
        "{made} orphans of {count}, {samples} samples: at most {worst} zombies, more than {MOST} for at most {longest:?}, {after} \
         at rest"
    ));
    ensure!(after == 0, "{after} zombies at rest, {worst} while it ran");
    ensure!(current.trim() == "2", "pids.current is {:?} with only init and main left", current.trim());
    ensure!(made == format!("all {count}"), "only {made:?}");
    Ok(())
}
