//! After the end, and after a death of taskman, nothing of a task's network is left on the host.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Fail, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "W09",
        tier: 1,
        what: "leaves a network namespace behind, at its end and when taskman is killed",
        defence: &["kill,pid-namespace", "death-signal"],
        control: |bench| a_namespace_lives_with_its_process(bench).into(),
        attack: no_namespace_stays,
    }]
}

/// Interfaces, addresses, routes and named namespaces of the host, and its filter rules where it can be asked for them.
fn host() -> BTreeSet<String> {
    let asked: [&[&str]; 5] = [
        &["ip", "-o", "link"],
        &["ip", "-o", "route", "show", "table", "all"],
        &["ip", "netns", "list"],
        &["nft", "list", "ruleset"],
        &["sh", "-c", "ls /run/netns 2>/dev/null"],
    ];
    let mut lines = BTreeSet::new();
    for words in asked {
        let Ok(output) = Command::new(words[0]).args(&words[1..]).output() else { continue };
        lines.extend(String::from_utf8_lossy(&output.stdout).lines().map(|line| format!("{}: {line}", words[0])));
    }
    lines
}

/// Processes and mounts by which a network namespace is held.
fn holders(inode: u64) -> Vec<String> {
    let processes = proc::pids().into_iter().filter(|pid| proc::ns_of(*pid, "net") == Some(inode));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let name = format!("net:[{inode}]");
    let mounts = mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned);
    processes.map(proc::describe).chain(mounts).collect()
}

fn held_until(inode: u64, limit: Duration) -> Vec<String> {
    let deadline = Instant::now() + limit;
    loop {
        // Read before the look: what has gone while the suite itself stood still was not late.
        let late = Instant::now() > deadline;
        let left = holders(inode);
        if left.is_empty() || late {
            return left;
        }
        nix::poll::poll(&mut [], 1u8).ok();
    }
}

/// Network namespaces that the kernel has memory for, by its own count: those that nobody can name, too.
fn counted() -> Option<u64> {
    let slabs = fs::read_to_string("/proc/slabinfo").ok()?;
    slabs.lines().find_map(|line| line.strip_prefix("net_namespace "))?.split_whitespace().next()?.parse().ok()
}

fn a_namespace_lives_with_its_process(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().wrapped(&["unshare", "-n"]).probe("p_pdeath", &[]).spawn()?;
    run.wait_line("ready")?;
    let inode = proc::ns_of(run.pid, "net").ok_or_else(|| broken("no namespace"))?;
    run.signal(Signal::SIGKILL)?;
    run.pump(pace::time(Duration::from_secs(10)), |run| run.ended.is_some())?;
    require!(!holders(inode).is_empty(), "the child that outlived its parent has no network namespace");
    Ok(())
}

fn no_namespace_stays(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (before, counted_before) = (host(), counted());
    let trials = arm.trials(50, 2);
    let mut inodes = BTreeSet::new();
    for trial in 0..2 * trials {
        let killed = trial % 2 == 1;
        let mut run = bench.task(arm).opt("--grace", "1ms").probe("p_pdeath", &[]).spawn()?;
        run.wait_line("ready")?;
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        let inode = proc::ns_of(payload, "net").ok_or_else(|| broken("no namespace"))?;
        require!(Some(inode) != proc::ns_of(std::process::id() as i32, "net"), "the payload is in the host's");
        inodes.insert(inode);
        if arm == Arm::Contained && trial % 25 == 0 {
            bench.canary()?;
        }
        run.signal(if killed { Signal::SIGKILL } else { Signal::SIGTERM })?;
        run.pump(pace::time(arm.limit(Duration::from_secs(10), Duration::from_secs(2))), |run| run.ended.is_some())?;
        // The report is the end: nothing may go on after it. After a kill the kernel has seconds.
        let after = arm.limit(Duration::from_secs(5), Duration::from_secs(1));
        let left = held_until(inode, if killed { after } else { Duration::ZERO });
        ensure!(left.is_empty(), "trial {trial}, killed {killed}: the namespace is held by {}", left.join(", "));
    }
    let after = host();
    let more: Vec<_> = after.symmetric_difference(&before).collect();
    ensure!(more.is_empty(), "the host's network differs: {more:?}");
    let counts = (counted_before, counted());
    bench.note(format!(
        "{trials} ends and {trials} deaths of taskman, {} namespaces seen: 0 held, host equal; the kernel counts {counts:?}",
        inodes.len()
    ));
    // The kernel frees them in the background, and others on this host make some too.
    if let (Some(before), Some(after)) = counts {
        ensure!(after <= before + trials as u64, "the kernel counts {after} namespaces, {before} before");
    }
    if arm == Arm::Contained { bench.canary() } else { Ok(()) }
}
