//! The auditor killed and stopped: while nobody watches nothing starts, and one that keeps dying is a quarantine.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{health, serve};
use crate::ensure;
use crate::harness::{Arm, Bench, Case, Fail, broken, proc, sys};
use crate::support::{Process, Server, pace, wait_until};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "U03",
        tier: 1,
        what: "the auditor is stopped, and killed, again and again",
        // It is the absence of the auditor that is tested.
        defence: &[],
        control: |bench| stopped_is_silent(bench).into(),
        attack: nobody_watches_nothing_starts,
    }]
}

/// A process that is stopped says nothing, and is not dead either: only its silence can tell.
fn stopped_is_silent(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().sh("while :; do echo beat; sleep 0.01; done").spawn()?;
    run.wait_line("beat")?;
    run.signal(Signal::SIGSTOP)?;
    run.pump(Duration::from_millis(100), |_| false)?;
    let heard = run.out.total;
    run.pump(Duration::from_millis(300), |_| false)?;
    crate::require!(run.out.total == heard && run.ended.is_none(), "it goes on, or is dead");
    Ok(())
}

/// The server's auditor, by what it executes.
fn auditor(server: &Server) -> i32 {
    let is_auditor = |process: &Process| {
        let words = std::fs::read(process.path("cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"auditor")
    };
    wait_until("there is an auditor", || {
        Process::children_of(server.launcher().pid).into_iter().find(is_auditor).map(|process| process.pid)
    })
}

fn signal(pid: i32, signal: Signal) -> Result<(), Fail> {
    let fd = sys::pidfd_open(pid).map_err(|e| broken(format!("pidfd of {pid}: {e}")))?;
    sys::pidfd_kill(&fd, signal as i32).map_err(|e| broken(format!("{signal} to {pid}: {e}")))
}

/// Whether a start is refused because nobody watches; true starts give false.
fn is_refused(server: &Server) -> bool {
    server.taskman("client001", &["start", "--", "true"]).status.code() != Some(0)
}

fn nobody_watches_nothing_starts(bench: &Bench, _arm: Arm) -> Result<(), Fail> {
    let server = serve(bench, "events = true");
    let running = server.task(&["--", "sleep", "1000"]);
    bench.tried(1);
    bench.canary()?;
    let first = auditor(&server);
    signal(first, Signal::SIGSTOP)?;
    let stopped = Instant::now();
    let mut refused = None;
    while refused.is_none() && stopped.elapsed() < pace::time(Duration::from_secs(8)) && proc::stat_of(first).is_some()
    {
        refused = is_refused(&server).then(|| stopped.elapsed());
    }
    let replaced = wait_until("it is replaced", || Some(auditor(&server)).filter(|pid| *pid != first));
    let replaced_after = stopped.elapsed();
    // It is killed before the next one starts, and may still be on its way out of the kernel.
    wait_until("the one that said nothing is gone", || proc::stat_of(first).is_none().then_some(()));
    wait_until("tasks start again", || (!is_refused(&server)).then_some(()));
    let back_after = stopped.elapsed();
    // Heard within 1.5 s or replaced: until then a start may go through, and later it may not.
    ensure!(
        refused.unwrap_or(replaced_after) < pace::time(Duration::from_secs(8)),
        "starts go on for {replaced_after:?}"
    );
    signal(replaced, Signal::SIGKILL)?;
    let next = wait_until("it is replaced", || Some(auditor(&server)).filter(|pid| *pid != replaced));
    wait_until("tasks start again", || (!is_refused(&server)).then_some(()));
    ensure!(health(&server)["status"] == "healthy", "after two losses health says {}", health(&server));
    signal(next, Signal::SIGKILL)?;
    let seen = wait_until("the worker is quarantined", || {
        Some(health(&server)).filter(|seen| seen["status"] == "quarantined")
    });
    ensure!(seen["reason"] == "auditor_lost", "health says {seen}");
    let (code, why) = server.refused_start();
    ensure!(code == tonic::Code::FailedPrecondition && why.contains("runbooks/"), "a start gives {code:?}: {why}");
    let status = server.status(&running)["status"].clone();
    ensure!(status == "JOB_STATUS_STARTED", "a running task is {status}");
    bench.note(format!(
        "stopped: {}, replaced after {replaced_after:?}, starts again after {back_after:?}; three losses: quarantined",
        refused.map_or("no start fell into the gap".to_owned(), |after| format!("starts refused after {after:?}"))
    ));
    Ok(())
}
