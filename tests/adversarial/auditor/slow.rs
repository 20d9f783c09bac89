//! Tasks that die slowly, with as much to give back as their limits allow: each is ending until it has ended, and nobody's fault.

use std::time::{Duration, Instant};

use super::{findings, health, serve_as};
use crate::harness::{Arm, Bench, Case, Fail};
use crate::support::{Server, pace};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "U22",
        tier: 1,
        what: "dies slowly, with everything at its limit that the kernel takes long to give back",
        defence: &["socket-options,slow-death"],
        control: |bench| takes_its_time(bench).into(),
        attack: nobody_is_quarantined,
    }]
}

const KINDS: [&str; 8] = ["memberships", "descriptors", "pipes", "mappings", "tables", "sparse", "threads", "files"];
/// What takes longer to die than is waited for a killed task, where the seccomp filter lets it be made: the kernel goes through a list of
/// 72,000 groups for each that is left, and lets one process of the host do so at a time. A slow machine makes fewer.
fn slowest() -> String {
    format!("memberships {}", 60 / pace::slow().isqrt())
}
/// Tasks of a kind at once.
const AT_ONCE: usize = 3;
/// The scan that finds what is not gone when its task has ended, and the documented way to have no quarantine by such ends.
const NEVER: &str = "scan = \"1s\"\ncleanup_failures = 0";

/// Without taskman, in a network of its own: a process with much to give back is not gone at once.
fn takes_its_time(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().wrapped(&["unshare", "--net"]).probe("u_slow", &["memberships", "20"]).spawn()?;
    run.wait_line("ready")?;
    let killed = Instant::now();
    for pid in bench.ours() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    drop(run);
    bench.nothing_within(Duration::from_secs(60))?;
    require!(killed.elapsed() > Duration::from_millis(100), "it was gone after {:?}", killed.elapsed());
    Ok(())
}

/// Stops so many tasks of a kind at once; how long the last took to end, and what each was reported as.
fn ends(server: &Server, probes: &str, kind: &str) -> Result<(Duration, Vec<String>), Fail> {
    let bind = format!("{probes}:/probe");
    let mut words = vec!["--bind-ro", &bind, "--", "/probe/u_slow"];
    words.extend(kind.split(' '));
    let start = || server.task(&words);
    let tasks: Vec<String> = (0..AT_ONCE).map(|_| start()).collect();
    for task in &tasks {
        let line = server.begin("client001", &["stream", task]).line();
        require!(line.starts_with("ready"), "{kind}: {line}");
    }
    let begun = Instant::now();
    for task in &tasks {
        server.text("client001", &["stop", task, "--grace", "0s"]);
    }
    let verdicts = tasks.iter().map(|task| server.ended(task)["containment"]["verdict"].to_string()).collect();
    Ok((begun.elapsed(), verdicts))
}

fn nobody_is_quarantined(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    bench.payload("u_slow");
    let probes = bench.probe_dir().to_str().unwrap().to_owned();
    if let Arm::Mutant(without) = arm {
        return dies_slowly(bench, without, &probes).map(drop);
    }
    let server = serve_as(bench, arm, &audit_of("scan = \"1s\"\ncleanup_failures = 3", &probes));
    let mut took = Vec::new();
    for kind in KINDS {
        let last = are_nobodys_fault(bench, &server, &probes, kind)?;
        bench.tried(AT_ONCE);
        took.push(format!("{kind} {} ms", last.as_millis()));
    }
    bench.canary()?;
    ensure!(findings(&server).is_empty(), "found: {:?}", findings(&server));
    let slow = dies_slowly(bench, "socket-options", &probes)?;
    require!(slow > Duration::from_secs(5), "the slow death took {slow:?}");
    took.push(format!("{}, which the seccomp filter refuses otherwise, {} ms", slowest(), slow.as_millis()));
    bench.note(format!("{AT_ONCE} tasks at once, from the stop to the proof of the last: {}", took.join(", ")));
    Ok(())
}

/// The slow death itself, of a launcher without these defences; how long it took.
fn dies_slowly(bench: &Bench, without: &'static str, probes: &str) -> Result<Duration, Fail> {
    let server = serve_as(bench, Arm::Mutant(without), &audit_of(NEVER, probes));
    let took = are_nobodys_fault(bench, &server, probes, &slowest());
    // What is reported is still dying where nobody waits for it: it must be gone before the server is.
    are_gone(bench)?;
    took
}

/// The payloads' processes; the server stays.
fn are_gone(bench: &Bench) -> Result<(), Fail> {
    let is_payload =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "u_slow\n");
    let latest = Instant::now() + pace::time(Duration::from_secs(60));
    while bench.ours().iter().any(is_payload) {
        require!(Instant::now() < latest, "payloads do not die at all");
        nix::poll::poll(&mut [], 10u8).ok();
    }
    Ok(())
}

fn audit_of(audit: &str, probes: &str) -> String {
    format!("{audit}\n[profiles.default]\nbind_ro = [\"{probes}\"]")
}

/// Tasks of this kind are stopped, every end is proven, and the worker stays healthy.
fn are_nobodys_fault(bench: &Bench, server: &Server, probes: &str, kind: &str) -> Result<Duration, Fail> {
    let (last, verdicts) = ends(server, probes, kind)?;
    are_gone(bench)?;
    let health = health(server);
    ensure!(
        health["status"] == "healthy" && health["can_accept"] == true,
        "{kind}: {verdicts:?} after {last:?}; health says {health}"
    );
    ensure!(verdicts.iter().all(|verdict| verdict == "\"proven\""), "{kind}: {verdicts:?} after {last:?}");
    Ok(last)
}
