//! Stop: a payload that churns, or will not listen, is gone when the stop is over, all of it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Fail, Run, breach, broken, proc, sys};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "P03",
            tier: 1,
            what: "endless fork and exec churn while it is stopped",
            defence: &["kill"],
            control: |bench| churn_survives_its_main(bench).into(),
            attack: churn_is_stopped,
        },
        Case {
            id: "P11",
            tier: 2,
            what: "makes itself the reaper of its orphans, and is stopped",
            defence: &["kill"],
            control: |bench| orphans_come_home(bench).into(),
            attack: subreaper_changes_nothing,
        },
        Case {
            id: "P16",
            tier: 1,
            what: "fills the signal queue of its init, and is stopped",
            defence: &["kill"],
            control: |bench| queue_fills(bench).into(),
            attack: full_queue_is_stopped,
        },
        Case {
            id: "P18",
            tier: 1,
            what: "stopped at every moment of its life, also before its first instruction",
            defence: &["kill"],
            control: |bench| politeness_fails(bench).into(),
            attack: stopped_at_any_moment,
        },
        Case {
            id: "P04",
            tier: 1,
            what: "blocks TERM, INT, HUP and QUIT",
            defence: &["kill"],
            control: |bench| politeness_fails(bench).into(),
            attack: killed_at_grace,
        },
    ]
}

/// Without taskman: main is killed, the chains go on (and end by themselves after 5 s, or with the sweep).
fn churn_survives_its_main(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().probe("contain_exec_churn", &["4", "5000", "ignore"]).spawn()?;
    run.wait_line("ready")?;
    run.signal(Signal::SIGKILL)?;
    let nonce = run.nonce.clone();
    run.pump(pace::time(Duration::from_secs(2)), |run| run.ended.is_some())?;
    let main = run.pid;
    // A walk over /proc comes too late for most of them, as a killer's would; the group's own list is of one moment.
    let known = [std::process::id() as i32, main];
    let seen = run.wait_until(Duration::from_secs(1), || {
        bench.place.members().iter().any(|pid| !known.contains(pid))
            || proc::with_nonce(&nonce).iter().any(|pid| *pid != main)
    })?;
    require!(seen, "the churn did not outlive its main process");
    Ok(())
}

fn churn_is_stopped(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(1_000, 3);
    let (mut slowest, mut members) = (Duration::ZERO, 0);
    for trial in 0..trials {
        // Half of the trials end main by TERM at once, half ignore it until the grace is over; a fourth are told twice.
        let manner = if trial % 2 == 0 { "die" } else { "ignore" };
        let life = if arm == Arm::Contained { "20000" } else { "4000" };
        let task = bench.task(arm).opt("--grace", "10ms").opt("--timeout", "30s");
        let mut run = task.probe("contain_exec_churn", &["4", life, manner]).spawn()?;
        run.wait_line("ready")?;
        std::thread::sleep(Duration::from_micros((trial as u64 * 137) % 5_000));
        members += run.members().len();
        if arm == Arm::Contained && trial % 100 == 0 {
            bench.canary()?;
        }
        let asked = Instant::now();
        run.signal(Signal::SIGTERM)?;
        if trial % 4 == 3 {
            run.signal(Signal::SIGINT)?;
        }
        let limit = arm.limit(Duration::from_secs(10), Duration::from_secs(2));
        run.pump(pace::time(limit), |run| run.ended.is_some())?;
        let over = run.ended.is_some();
        ensure!(over, "trial {trial}: not over {limit:?} after the stop: {}", bench.survivors().join(", "));
        let done = run.finish()?;
        slowest = slowest.max(done.ended - asked);
        let left = bench.survivors();
        ensure!(left.is_empty(), "trial {trial}: survived the stop: {}", left.join(", "));
        ensure!(done.reason()? == "stopped", "trial {trial}: reason {}", done.reason()?);
        ensure!(done.verdict()? == "proven", "trial {trial}: verdict {}", done.verdict()?);
    }
    bench.note(format!(
        "{trials} trials, stop 0 to 5 ms after the first fork, {members} processes seen: 0 survivors, slowest stop {slowest:?}"
    ));
    Ok(())
}

/// Whether the host sees `signal` waiting for this process.
fn is_pending(pid: i32, signal: Signal) -> bool {
    let bit = 1u64 << (signal as i32 - 1);
    let pending = |field: &str| {
        let value = proc::status_of(pid).and_then(|s| s.get(field).cloned()).unwrap_or_default();
        u64::from_str_radix(&value, 16).unwrap_or(0) & bit != 0
    };
    pending("ShdPnd") || pending("SigPnd")
}

fn politeness_fails(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().probe("contain_sigterm_ignore", &["20"]).spawn()?;
    run.wait_line("ready")?;
    let asked = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    for signal in asked {
        run.signal(signal)?;
        require!(is_pending(run.pid, signal), "{signal} is not pending");
    }
    run.pump(Duration::from_millis(200), |run| run.ended.is_some())?;
    require!(run.ended.is_none(), "it ended after all");
    Ok(())
}

fn killed_at_grace(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let latest = 1_000 + pace::time(Duration::from_millis(200)).as_millis();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let what = format!("{signal}, with a grace of 1000 ms: killed");
        let millis = arm.in_time(&what, 800..=latest, || killed_after(bench, arm, signal))?;
        bench.note(format!("{signal}: TERM pending first, killed after {millis} ms with a grace of 1000"));
    }
    let (mut run, _) = start_deaf(bench, arm, "20s")?;
    run.signal(Signal::SIGINT)?;
    run.signal(Signal::SIGTERM)?;
    let over = run.pump(pace::time(Duration::from_secs(5)), |run| run.ended.is_some())?;
    ensure!(over, "told twice, it still runs 5 s later");
    Ok(())
}

/// A task that listens to nothing, and its payload.
fn start_deaf(bench: &Bench, arm: Arm, grace: &str) -> Result<(Run, i32), Fail> {
    let mut run = bench.task(arm).opt("--grace", grace).probe("contain_sigterm_ignore", &["30"]).spawn()?;
    run.wait_line("ready")?;
    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
    Ok((run, payload))
}

/// From a stop with a grace of a second to the payload's death, in milliseconds.
fn killed_after(bench: &Bench, arm: Arm, signal: Signal) -> Result<u128, Fail> {
    // That it is asked first is seen while nothing can end it.
    let (mut run, payload) = start_deaf(bench, arm, "10s")?;
    run.signal(signal)?;
    let came = run.wait_until(Duration::from_secs(5), || is_pending(payload, Signal::SIGTERM))?;
    ensure!(came, "5 s after {signal} the payload has no TERM pending");
    drop(run);
    let (run, payload) = start_deaf(bench, arm, "1s")?;
    let pidfd = sys::pidfd_open(payload).map_err(|e| broken(format!("pidfd: {e}")))?;
    let canary = bench.canary_beside(arm)?;
    let asked = Instant::now();
    run.signal(signal)?;
    let limit = arm.limit(Duration::from_secs(10), Duration::from_millis(1_500));
    let died = sys::wait_readable(&pidfd, pace::time(limit)).then(|| asked.elapsed());
    ensure!(died.is_some(), "{signal}: still alive {limit:?} after the stop, with a grace of 1 s");
    canary.ends_well()?;
    let done = run.finish()?;
    ensure!(done.reason()? == "stopped", "reason {}", done.reason()?);
    ensure!(done.field("/outcome/signal")? == "SIGKILL", "signal {}", done.field("/outcome/signal")?);
    ensure!(done.code() == 137, "exit {}", done.code());
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    Ok(died.unwrap_or_default().as_millis())
}

/// Directly, orphans of a subreaper stay its children, and outlive its death.
fn orphans_come_home(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().probe("contain_double_fork", &["reaper", "3", "5"]).spawn()?;
    run.wait_line("ready")?;
    let orphans = proc::children_of(run.pid).len();
    run.signal(Signal::SIGKILL)?;
    require!(run.pump(pace::time(Duration::from_secs(3)), |run| run.ended.is_some())?, "it did not die");
    let left = bench.ours().into_iter().filter(|pid| *pid != run.pid).count();
    require!(orphans == 3 && left == 3, "{orphans} orphans came home, {left} outlived it");
    Ok(())
}

fn subreaper_changes_nothing(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let task = bench.task(arm).opt("--grace", "100ms");
    let mut run = task.probe("contain_double_fork", &["reaper", "3", "20"]).spawn()?;
    run.wait_line("ready")?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    run.signal(Signal::SIGTERM)?;
    let done = run.final_within(arm.limit(Duration::from_secs(5), Duration::from_secs(1)))?;
    let left = bench.survivors();
    ensure!(left.is_empty(), "survived the stop: {}", left.join(", "));
    ensure!(done.reason()? == "stopped" && done.verdict()? == "proven", "{} {}", done.reason()?, done.verdict()?);
    Ok(())
}

/// Directly, as a uid of the suite's own, whose quota of queued signals nobody else uses.
fn queue_fills(bench: &Bench) -> Result<(), Fail> {
    let uid = bench.uid_range().start;
    bench.direct().with_uid(uid).probe("p_queue", &["1", "10", "victim"]).spawn()?.wait_line("full")
}

fn full_queue_is_stopped(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // Longer than it is watched, however slow this host is.
    let life = pace::time(Duration::from_secs(30)).as_secs().to_string();
    let mut run = bench.task(arm).opt("--grace", "500ms").probe("p_queue", &["16", &life, "init"]).spawn()?;
    // Init empties its queue as fast as it is filled, or nearly so: whether it ever fills is the scheduler's doing.
    let full = run.pump(pace::time(Duration::from_secs(3)), |run| run.out.text().contains("full"))?;
    ensure!(run.ended.is_none(), "a forged signal ended the task");
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let asked = Instant::now();
    run.signal(Signal::SIGTERM)?;
    let done = run.final_within(arm.limit(Duration::from_secs(5), Duration::from_secs(2)))?;
    let millis = (done.ended - asked).as_millis();
    bench.note(format!(
        "the queue {} full; over {millis} ms after the stop, grace 500",
        if full { "was" } else { "was never" }
    ));
    ensure!(done.report.is_some(), "no report: exit {}, {}", done.code(), done.err);
    // Taskman has its turn after all those who flood.
    let latest = 500 + pace::time(Duration::from_secs(3)).as_millis();
    ensure!((400..=latest).contains(&millis), "over after {millis} ms with a grace of 500");
    ensure!(done.reason()? == "stopped" && done.code() == 137, "{}, exit {}", done.reason()?, done.code());
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    Ok(())
}

fn stopped_at_any_moment(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(300, 60) as u32;
    let span = pace::time(Duration::from_millis(20));
    let (mut asked_first, mut killed, mut slowest) = (0, 0, Duration::ZERO);
    for trial in 0..trials {
        let run = bench.task(arm).opt("--grace", "5ms").probe("contain_sigterm_ignore", &["20"]).spawn()?;
        std::thread::sleep((span * trial / trials).saturating_sub(run.started.elapsed()));
        let asked = Instant::now();
        run.signal(Signal::SIGTERM)?;
        let done = run.final_within(arm.limit(Duration::from_secs(5), Duration::from_secs(1)))?;
        slowest = slowest.max(done.ended - asked);
        let left = bench.survivors();
        ensure!(left.is_empty(), "trial {trial}: survived the stop: {}", left.join(", "));
        // 143: it went before the payload could block the signal, or taskman before it could start one.
        match (done.code(), &done.report) {
            (143, None) => asked_first += 1,
            (143 | 137, Some(_)) => {
                ensure!(done.reason()? == "stopped", "trial {trial}: reason {}", done.reason()?);
                ensure!(done.verdict()? == "proven", "trial {trial}: verdict {}", done.verdict()?);
                killed += usize::from(done.code() == 137);
            }
            (code, _) => return Err(breach(format!("trial {trial}: exit {code}: {}", done.err))),
        }
        if arm == Arm::Contained && trial % 100 == (trials / 2).min(50) {
            bench.canary()?;
        }
    }
    bench.note(format!(
        "{trials} trials, stopped 0 to {span:?} after the start: {asked_first} before taskman listened, {killed} killed after the \
         grace, the rest ended by TERM; slowest {slowest:?}"
    ));
    let dirs = bench.place.task_dirs();
    ensure!(dirs.is_empty(), "{} directories left", dirs.len());
    Ok(())
}
