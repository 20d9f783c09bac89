//! Death of the supervisor: when taskman itself is killed, nothing of the task lives on, and the next run cleans up.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Fail, breach, broken, proc, sys};
use crate::support::pace;
use crate::{ensure, require};

/// How long anything may live after its supervisor was killed. One trial of thousands meets a machine that stalls.
fn deadline(arm: Arm) -> Duration {
    arm.limit(Duration::from_secs(5), Duration::from_secs(1))
}

/// From the kill to when nothing is alive, over all trials. A machine that stalls makes one of many late; a fault is late again
/// and again.
#[derive(Default)]
struct Deaths {
    trials: usize,
    late: usize,
    slowest: Duration,
}

impl Deaths {
    /// What is promised.
    const PROMISED: Duration = Duration::from_secs(1);

    fn add(&mut self, took: Duration) {
        self.trials += 1;
        self.late += usize::from(took > pace::time(Self::PROMISED));
        self.slowest = self.slowest.max(took);
    }

    /// All but one of a hundred are in time.
    fn in_time(&self) -> Result<(), Fail> {
        let Self { trials, late, slowest } = self;
        ensure!(*late <= trials.div_ceil(100), "{late} of {trials} trials took more than 1 s, the slowest {slowest:?}");
        Ok(())
    }
}

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "P08",
            tier: 1,
            what: "clears its death signal, then taskman is killed or the wall limit fires",
            defence: &["death-signal", "sweep"],
            control: |bench| cleared_signal_saves(bench).into(),
            attack: supervisor_is_killed,
        },
        Case {
            id: "P09",
            tier: 1,
            what: "taskman is killed at each step between making its child and the payload's first instruction",
            defence: &["death-signal"],
            control: |bench| cleared_signal_saves(bench).into(),
            attack: killed_while_it_starts,
        },
        Case {
            id: "P10",
            tier: 2,
            what: "the thread that starts a task ends",
            defence: &["single-thread"],
            control: |bench| thread_death_kills(bench).into(),
            attack: one_thread_starts_all,
        },
        Case {
            id: "S02",
            tier: 1,
            what: "SIGKILL of taskman at every moment of its life",
            defence: &["death-signal", "sweep"],
            control: |bench| cleared_signal_saves(bench).into(),
            attack: killed_at_any_moment,
        },
        Case {
            id: "S03",
            tier: 1,
            what: "the task's init is killed from outside",
            defence: &["kill,pid-namespace"],
            control: |bench| cleared_signal_saves(bench).into(),
            attack: init_is_killed,
        },
        Case {
            id: "S07",
            tier: 1,
            what: "leftovers of a killed instance beside a living one",
            defence: &["sweep"],
            control: |bench| cleared_signal_saves(bench).into(),
            attack: only_the_dead_are_swept,
        },
    ]
}

/// Without taskman: a supervisor armed the death signal, its child cleared it, the supervisor is killed, the child lives.
fn cleared_signal_saves(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().probe("p_pdeath", &["parent"]).spawn()?;
    run.wait_line("ready")?;
    run.signal(Signal::SIGKILL)?;
    run.pump(pace::time(Duration::from_secs(10)), |run| run.ended.is_some())?;
    let left = bench.ours().into_iter().filter(|pid| *pid != run.pid).count();
    require!(run.ended.is_some() && left == 2, "{left} in place of 2 outlived the supervisor");
    Ok(())
}

fn supervisor_is_killed(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(1_000, 3);
    let mut deaths = Deaths::default();
    for trial in 0..trials {
        let mut run = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        run.wait_line("ready")?;
        if arm == Arm::Contained && trial % 100 == 0 {
            bench.canary()?;
        }
        run.signal(Signal::SIGKILL)?;
        let killed = Instant::now();
        drop(run);
        bench.nothing_within(deadline(arm)).map_err(|e| breach(format!("trial {trial}, taskman killed: {e}")))?;
        deaths.add(killed.elapsed());
        if trial % 100 == 99 || arm != Arm::Contained {
            swept_by_the_next_run(bench, arm)?;
        }
    }
    let slowest = deaths.slowest;
    bench
        .note(format!("{trials} trials: nothing alive after at most {slowest:?}; every directory swept by a next run"));
    deaths.in_time()?;

    let done = bench.task(arm).opt("--timeout", "300ms").probe("p_pdeath", &[]).finish()?;
    bench.nothing_within(Duration::ZERO)?;
    ensure!(done.reason()? == "wall_time" && done.code() == 124, "reason {}, exit {}", done.reason()?, done.code());
    Ok(())
}

/// The kernel counts the forking thread as the parent: its end is the death of a child that armed the signal.
fn thread_death_kills(bench: &Bench) -> Result<(), Fail> {
    let done = bench.direct().probe("p_thread", &[]).finish()?;
    require!(done.code() == 0, "the child outlived the thread: exit {}", done.code());
    Ok(())
}

/// taskman has one thread for as long as a task runs, so no thread of it can end under a task. That a process with more
/// threads cannot start one at all is the library's own test; here every task must end by itself.
fn one_thread_starts_all(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let tasks = arm.trials(300, 3);
    for task in 0..tasks {
        let mut run = bench.task(arm).sh("echo ready; read go; exit 7").with_stdin().spawn()?;
        let patience = pace::time(Duration::from_secs(60));
        let ready = run.pump(patience, |run| run.out.text().contains("ready") || run.ended.is_some())?;
        require!(ready, "task {task} did not start");
        let threads = proc::status_of(run.pid).and_then(|s| s.get("Threads").cloned()).unwrap_or_default();
        if arm == Arm::Contained && task % 100 == 0 {
            bench.canary()?;
        }
        drop(run.stdin());
        let done = run.finish()?;
        let (code, reason) = (done.code(), done.reason()?);
        ensure!(code == 7 && reason == "exit", "task {task} did not end by itself: exit {code}, reason {reason}");
        ensure!(threads == "1", "taskman has {threads} threads");
    }
    bench.note(format!("{tasks} tasks, each started and watched by one thread: no unexplained SIGKILL"));
    Ok(())
}

/// The directories of dead instances are gone after one more run of the same binary.
fn swept_by_the_next_run(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let done = bench.task(arm).sh("exit 0").finish()?;
    require!(done.code() == 0, "the sweeping run ended with {}: {}", done.code(), done.err);
    let dirs = bench.place.task_dirs();
    ensure!(dirs.is_empty(), "{} directories of dead instances left, such as {}", dirs.len(), dirs[0].display());
    Ok(())
}

/// The child arms the death signal, changes its credentials, which clears it, arms it again, and asks whether its parent
/// still lives: a parent that dies in any of the gaps leaves nothing.
fn killed_while_it_starts(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (mut made, mut ready) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let mut run = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        let pid = run.pid;
        while proc::children_of(pid).is_empty() && run.started.elapsed() < deadline(arm) {}
        made.push(run.started.elapsed());
        run.wait_line("ready")?;
        ready.push(run.started.elapsed());
        drop(run);
        bench.nothing_within(deadline(arm))?;
    }
    made.sort();
    ready.sort();
    let (from, to) = (made[0] * 3 / 4, ready[2].max(made[0]));
    let trials = arm.trials(1_000, 100) as u32;
    let (mut orphaned, mut spoke, mut deaths) = (0, 0, Deaths::default());
    for trial in 0..trials {
        let mut run = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        let (delay, started) = (from + (to - from) * trial / trials, run.started);
        // A sleep would come back tens of microseconds late.
        while started.elapsed() < delay {
            std::hint::spin_loop();
        }
        run.signal(Signal::SIGKILL)?;
        let killed = Instant::now();
        orphaned += usize::from(!proc::of_uid_range(&bench.uid_range()).is_empty());
        run.pump(pace::time(deadline(arm)), |run| run.ended.is_some())?;
        spoke += usize::from(run.out.text().contains("ready"));
        drop(run);
        bench.nothing_within(deadline(arm)).map_err(|e| breach(format!("killed {delay:?} after its start: {e}")))?;
        deaths.add(killed.elapsed());
        if arm == Arm::Contained && trial % 250 == (trials / 2).min(100) {
            bench.canary()?;
        }
    }
    let (step, slowest) = ((to - from) / trials, deaths.slowest);
    bench.note(format!(
        "{trials} trials, killed {from:?} to {to:?} after the start, {step:?} apart; {orphaned} times with a child alive, {spoke} \
         after it spoke: nothing alive after at most {slowest:?}"
    ));
    deaths.in_time()?;
    swept_by_the_next_run(bench, arm)
}

fn killed_at_any_moment(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut lifetimes = Vec::new();
    for _ in 0..5 {
        let mut run = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        run.wait_line("ready")?;
        lifetimes.push(run.started.elapsed());
        drop(run);
        bench.nothing_within(deadline(arm))?;
    }
    // From before its first instruction until well after the payload runs.
    lifetimes.sort();
    let span = lifetimes[2] * 3 / 2;
    let trials = arm.trials(300, 60) as u32;
    let (mut before, mut deaths) = (0, Deaths::default());
    for trial in 0..trials {
        let mut run = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        let delay = span * trial / trials;
        std::thread::sleep(delay.saturating_sub(run.started.elapsed()));
        run.signal(Signal::SIGKILL)?;
        let killed = Instant::now();
        run.pump(pace::time(deadline(arm)), |run| run.ended.is_some())?;
        before += usize::from(!run.out.text().contains("ready"));
        drop(run);
        bench.nothing_within(deadline(arm)).map_err(|e| breach(format!("killed {delay:?} after its start: {e}")))?;
        deaths.add(killed.elapsed());
        if arm == Arm::Contained && trial % 100 == (trials / 2).min(50) {
            bench.canary()?;
        }
    }
    let slowest = deaths.slowest;
    bench.note(format!(
        "{trials} trials, killed 0 to {span:?} after the start, {before} of them before the payload spoke: nothing alive \
         after at most {slowest:?}"
    ));
    deaths.in_time()?;
    swept_by_the_next_run(bench, arm)
}

fn init_is_killed(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for trial in 0..arm.trials(20, 1) {
        let mut run = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        run.wait_line("ready")?;
        let init = run.init().ok_or_else(|| broken("no init"))?;
        if arm == Arm::Contained && trial == 0 {
            bench.canary()?;
        }
        let pidfd = sys::pidfd_open(init).map_err(|e| broken(format!("pidfd: {e}")))?;
        sys::pidfd_kill(&pidfd, libc::SIGKILL).map_err(|e| broken(format!("kill: {e}")))?;
        let done = run.final_within(arm.limit(Duration::from_secs(5), Duration::from_secs(2)))?;
        let left = bench.survivors();
        ensure!(left.is_empty(), "trial {trial}: alive without init: {}", left.join(", "));
        let (code, reason) = (done.code(), done.reason()?);
        ensure!(code == 125 && reason == "containment", "trial {trial}: exit {code}, reason {reason}");
        let detail = done.field("/outcome/detail")?.as_str().unwrap_or("");
        ensure!(detail.contains("init was killed"), "trial {trial}: the detail is {detail:?}");
        ensure!(done.verdict()? == "proven", "trial {trial}: verdict {}", done.verdict()?);
    }
    Ok(())
}

fn only_the_dead_are_swept(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut living = bench.task(arm).with_stdin().sh("echo ready; read go; exit 5").spawn()?;
    living.wait_line("ready")?;
    let own = bench.place.task_dirs();
    require!(!own.is_empty(), "the living task has no directories");
    for trial in 0..arm.trials(20, 1) {
        let mut dead = bench.task(arm).probe("p_pdeath", &[]).spawn()?;
        dead.wait_line("ready")?;
        let nonce = dead.nonce.clone();
        dead.signal(Signal::SIGKILL)?;
        drop(dead);
        let limit = deadline(arm);
        let gone = living.wait_until(limit, || proc::with_nonce(&nonce).is_empty())?;
        ensure!(gone, "trial {trial}: alive {limit:?} after taskman was killed");
        let done = bench.task(arm).sh("exit 0").finish()?;
        require!(done.code() == 0, "the sweeping run ended with {}: {}", done.code(), done.err);
        let dirs = bench.place.task_dirs();
        ensure!(dirs == own, "trial {trial}: {} directories in place of the living task's {}", dirs.len(), own.len());
    }
    if arm == Arm::Contained {
        bench.canary()?;
    }
    drop(living.stdin());
    let done = living.finish()?;
    ensure!(
        done.code() == 5 && done.verdict()? == "proven",
        "the living task: exit {}, {}",
        done.code(),
        done.verdict()?
    );
    Ok(())
}
