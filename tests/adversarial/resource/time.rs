//! Time and reasons: processor share, processor time, wall time; and six ends that are never mistaken for one another.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Fail, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "R04",
            tier: 1,
            what: "self-SIGKILL, out of memory, timeout, stop, output and processor limit",
            defence: &["memory,swap", "wall-time", "output-limit", "cpu-time"],
            control: |bench| all_look_alike(bench).into(),
            attack: six_reasons,
        },
        Case {
            id: "R12",
            tier: 1,
            what: "spins on many threads; many short children; catches SIGXCPU",
            defence: &["cpu", "cpu-time"],
            control: |bench| spins_freely(bench).into(),
            attack: share_and_sum,
        },
        Case {
            id: "R13",
            tier: 1,
            what: "sleeps, stops itself, or blocks for ever",
            defence: &["wall-time"],
            control: |bench| blocks_on(bench).into(),
            attack: killed_in_time,
        },
    ]
}

/// Directly, an exit status of 137 says nothing about why.
fn all_look_alike(bench: &Bench) -> Result<(), Fail> {
    let by_itself = bench.direct().probe("p_end", &["signal", "9"]).finish()?;
    let mut run = bench.direct().probe("r_block", &["sleep", "20"]).spawn()?;
    run.wait_line("ready")?;
    run.signal(Signal::SIGKILL)?;
    let by_another = run.finish()?;
    require!(by_itself.code() == 137 && by_another.code() == 137, "{} {}", by_itself.code(), by_another.code());
    Ok(())
}

fn six_reasons(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let task = || bench.task(arm).opt("--timeout", "20s").opt("--grace", "100ms");
    let life = |mutant| arm.limit(Duration::from_secs(20), Duration::from_secs(mutant)).as_secs().to_string();
    let mut seen = Vec::new();
    let done = task().probe("p_end", &["signal", "9"]).finish()?;
    seen.push(("self-SIGKILL", "signal", 137, done));
    let done = task().opt("--memory", "32M").probe("r_memory", &["self", "128"]).finish()?;
    seen.push(("memory", "oom", 137, done));
    let done = bench.task(arm).opt("--timeout", "300ms").probe("r_block", &["sleep", &life(2)]).finish()?;
    seen.push(("timeout", "wall_time", 124, done));
    let done = task().opt("--output-limit", "64K").probe("r_flood", &["lines", "8"]).finish()?;
    seen.push(("output", "output_limit", 137, done));
    let done = task().opt("--cpu-time", "200ms").probe("r_cpu", &["threads", "2", "3000"]).finish()?;
    seen.push(("processor", "cpu_time", 124, done));
    let mut run = task().probe("contain_sigterm_ignore", &[&life(5)]).spawn()?;
    run.wait_line("ready")?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    run.signal(Signal::SIGTERM)?;
    seen.push(("stop", "stopped", 137, run.finish()?));
    for (what, reason, code, done) in &seen {
        let (told, exit) = (done.reason()?, done.code());
        ensure!(told == *reason && exit == *code, "{what}: reason {told}, exit {exit}; expected {reason}, {code}");
        ensure!(done.verdict()? == "proven", "{what}: verdict {}", done.verdict()?);
    }
    bench.note(
        seen.iter().map(|(what, reason, code, _)| format!("{what} -> {reason} {code}")).collect::<Vec<_>>().join(", "),
    );
    Ok(())
}

fn spins_freely(bench: &Bench) -> Result<(), Fail> {
    let done = bench.direct().probe("r_cpu", &["threads", "4", "500"]).finish()?;
    require!(done.code() == 0, "exit {}", done.code());
    let done = bench.direct().probe("r_cpu", &["children", "2", "500"]).finish()?;
    require!(done.code() == 0, "exit {}", done.code());
    Ok(())
}

/// Processor time of the task so far, from the kernel's counter for its group.
fn used(run: &crate::harness::Run) -> Option<Duration> {
    let text = fs::read_to_string(run.group()?.join("cpu.stat")).ok()?;
    text.lines().find_map(|l| l.strip_prefix("usage_usec "))?.parse().ok().map(Duration::from_micros)
}

fn share_and_sum(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // A fifth of one processor for four threads that want all of them.
    let life = pace::time(Duration::from_secs(20)).as_millis().to_string();
    let mut run = bench.task(arm).opt("--cpus", "0.2").probe("r_cpu", &["threads", "4", &life]).spawn()?;
    run.wait_line("ready")?;
    // The clock's readings lie around the counter's, so that a stall between them makes the share smaller.
    let (began, from) = (Instant::now(), used(&run).ok_or_else(|| broken("no counter"))?);
    if arm == Arm::Contained {
        bench.canary()?;
    }
    run.pump(Duration::from_millis(1_500), |_| false)?;
    let (to, took) = (used(&run).ok_or_else(|| broken("no counter"))?, began.elapsed());
    run.signal(Signal::SIGTERM)?;
    run.finish()?;
    let share = (to - from).as_millis() * 1_000 / took.as_millis();
    bench.note(format!("4 spinning threads with --cpus 0.2 used {share} thousandths of a processor over {took:.2?}"));
    // The kernel hands out whole periods of 100 ms, so a window may hold one more or less.
    ensure!(share <= 200 + 50, "{share} thousandths of a processor with --cpus 0.2");

    let life = arm.limit(Duration::from_secs(10), Duration::from_secs(4)).as_millis().to_string();
    for (manner, count) in [("threads", "2"), ("children", "2")] {
        let task = bench.task(arm).opt("--cpu-time", "500ms").opt("--timeout", "20s");
        let done = task.probe("r_cpu", &[manner, count, &life]).finish()?;
        let number = |pointer| done.field(pointer).map(|v| v.as_u64().unwrap_or(0));
        let total = number("/usage/cpu_user_ms")? + number("/usage/cpu_system_ms")?;
        bench.note(format!("{manner}: ended with {} after {total} ms of processor time, limit 500", done.reason()?));
        ensure!(
            done.reason()? == "cpu_time" && done.code() == 124,
            "{manner}: {}, exit {}",
            done.reason()?,
            done.code()
        );
        // While taskman stands still the task goes on; without a limit it would use several times as much.
        ensure!((450..=2_000).contains(&total), "{manner}: {total} ms of processor time with a limit of 500");
    }
    Ok(())
}

/// No end that time brings is later.
const LATE: Duration = Duration::from_millis(100);
const WAYS: [&str; 4] = ["sleep", "stop", "read", "vfork"];

fn blocks_on(bench: &Bench) -> Result<(), Fail> {
    for way in WAYS {
        let mut run = bench.direct().probe("r_block", &[way, "20"]).spawn()?;
        run.wait_line("ready")?;
        run.pump(Duration::from_millis(200), |run| run.ended.is_some())?;
        require!(run.ended.is_none(), "{way} did not block");
    }
    Ok(())
}

fn killed_in_time(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let promised = 900..=1_000 + pace::time(LATE).as_millis();
    for way in WAYS {
        let what = format!("{way}, with a timeout of 1000 ms: over");
        let millis = arm.in_time(&what, promised.clone(), || killed_after(bench, arm, way))?;
        bench.note(format!("{way}: over {millis} ms after its first line, timeout 1000"));
    }
    let what = "output that nobody reads, with a timeout of 1000 ms: gone";
    let millis = arm.in_time(what, promised, || unread_output_delays_no_limit(bench, arm))?;
    bench.note(format!("output that nobody reads: gone after {millis} ms, timeout 1000"));
    Ok(())
}

/// From the first line of one that blocks to its end, in milliseconds.
fn killed_after(bench: &Bench, arm: Arm, way: &str) -> Result<u128, Fail> {
    let mut run = bench.task(arm).opt("--timeout", "1s").probe("r_block", &[way, "30"]).spawn()?;
    run.wait_line("ready")?;
    let began = Instant::now();
    let canary = bench.canary_beside(arm)?;
    let limit = arm.limit(Duration::from_secs(10), Duration::from_secs(2));
    run.pump(pace::time(limit), |run| run.ended.is_some())?;
    ensure!(run.ended.is_some(), "{way}: still there {limit:?} after its start, with a timeout of 1 s");
    canary.ends_well()?;
    let done = run.finish()?;
    ensure!(done.reason()? == "wall_time" && done.code() == 124, "{way}: {}, exit {}", done.reason()?, done.code());
    ensure!(done.verdict()? == "proven", "{way}: verdict {}", done.verdict()?);
    ensure!(bench.survivors().is_empty(), "{way}: alive: {}", bench.survivors().join(", "));
    Ok((done.ended - began).as_millis())
}

/// A reader that does not read makes taskman wait with the output, never with the limit.
fn unread_output_delays_no_limit(bench: &Bench, arm: Arm) -> Result<u128, Fail> {
    let mut run = bench.task(arm).opt("--timeout", "1s").probe("r_flood", &["lines", "64"]).spawn()?;
    let seen = Instant::now();
    let uids = bench.uid_range();
    let gone = || proc::of_uid_range(&uids).is_empty();
    while gone() && seen.elapsed() < pace::time(Duration::from_secs(10)) {
        nix::poll::poll(&mut [], 1u8).ok();
    }
    let began = Instant::now();
    while !gone() && began.elapsed() < pace::time(Duration::from_secs(10)) {
        nix::poll::poll(&mut [], 5u8).ok();
    }
    let millis = began.elapsed().as_millis();
    run.pump(pace::time(Duration::from_secs(2)), |run| run.ended.is_some())?;
    let done = run.finish()?;
    ensure!(done.reason()? == "wall_time" && done.code() == 124, "{}, exit {}", done.reason()?, done.code());
    Ok(millis)
}
