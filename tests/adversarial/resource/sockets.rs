//! Memory that the kernel holds for a task: socket buffers count as the task's, or a small limit means nothing.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::answers::watch;
use crate::harness::{Arm, Bench, Case, Control, Fail};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "R20",
            tier: 1,
            what: "keeps its memory in the receive queues of sockets",
            defence: &["memory,swap,socket-memory"],
            control: |bench| queues_hold_memory(bench).into(),
            attack: queues_are_bounded,
        },
        Case {
            id: "R27",
            tier: 1,
            what: "leaves connections, which are charged to nobody, in the queues of its listeners",
            defence: &["socket-memory"],
            control: |bench| match backlog(bench, None) {
                Ok(bytes) if bytes > 2 * QUEUED => Control::Works,
                Ok(bytes) => Control::Broken(format!("only {bytes} bytes in queues")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let bytes = backlog(bench, Some(arm))?;
                ensure!(bytes < QUEUED, "{bytes} bytes in the queues of {LISTENERS} listeners");
                if arm == Arm::Contained { all_that_may_listen(bench, arm) } else { Ok(()) }
            },
        },
    ]
}

const LISTENERS: u64 = 200;
/// Five connections wait at a listener, each with what fits into its first buffer. Twice that, because the counter is the host's.
const QUEUED: u64 = 2 * LISTENERS * 5 * 12_288;

/// By how much the host's TCP memory grows when as many connect as may.
fn backlog(bench: &Bench, arm: Option<Arm>) -> Result<u64, Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let (before, mut during) = (held("TCP:"), 0);
    let (answers, _) =
        watch(bench, arm, launch.probe("r_backlog", &[&LISTENERS.to_string(), "60", "4096", "1"]), |_| {
            during = held("TCP:");
            Ok(())
        })?;
    let bytes = during.saturating_sub(before);
    let queued = answers.get("main", "queued").and_then(|n| u64::from_str_radix(n, 16).ok()).unwrap_or(0);
    bench.note(format!("{queued} connections wait; the host's TCP memory grew by {} KiB", bytes >> 10));
    Ok(bytes)
}

/// As many listeners as descriptors and processes permit, each with as much as may wait at it. The charge of a listener is what ends it:
/// the kernel stops it by memory.
fn all_that_may_listen(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (before, mut most) = (held("TCP:"), 0);
    let task = bench.task(arm).opt("--memory", LIMIT.to_string()).opt("--timeout", "20s").opt("--grace", "1ms");
    let mut run = task.probe("r_backlog", &["1000", "60", "65536", "120"]).spawn()?;
    while run.ended.is_none() {
        run.pump(Duration::from_millis(5), |_| false)?;
        most = most.max(held("TCP:").saturating_sub(before));
    }
    let done = run.finish()?;
    bench.note(format!(
        "as many listeners as may be, at a limit of {} KiB: the host's TCP memory grew by {} KiB, and the task ended by {}",
        LIMIT >> 10,
        most >> 10,
        done.reason()?
    ));
    ensure!(most <= CEILING * LIMIT, "{most} bytes in queues with a memory limit of {LIMIT}");
    ensure!(done.verdict()? == "proven", "{}", done.verdict()?);
    Ok(())
}

/// SECURITY.md has it: in multiples of `--memory`.
const CEILING: u64 = 13;
const LIMIT: u64 = 48 << 20;

/// What all sockets of the host hold, in bytes; the counters know no namespaces.
fn held(protocol: &str) -> u64 {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(protocol)).unwrap_or("");
    let pages = line.split(' ').skip_while(|word| *word != "mem").nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// On the host's own loopback, and not much of it: enough to see the counters move.
fn queues_hold_memory(bench: &Bench) -> Result<(), Fail> {
    for (kind, protocol) in [("udp", "UDP:"), ("tcp", "TCP:")] {
        let before = held(protocol);
        let mut run = bench.direct().probe("r_sockets", &[kind, "60", "1"]).spawn()?;
        run.wait_line("holds ")?;
        let grown = held(protocol).saturating_sub(before);
        // Who sends before a slow machine has run the receiver finds a small window.
        let enough = if kind == "tcp" && pace::slow() > 1 { 512 << 10 } else { 8 << 20 };
        require!(grown > enough, "{kind}: only {grown} bytes in queues");
    }
    Ok(())
}

fn queues_are_bounded(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for (kind, protocol) in [("udp", "UDP:"), ("tcp", "TCP:")] {
        let before = held(protocol);
        let task = bench.task(arm).opt("--memory", LIMIT.to_string()).opt("--timeout", "20s").opt("--grace", "1ms");
        // Several times the limit, if nothing bounded it: 800 queues of 200 KiB (udp) to 2.5 MiB (tcp).
        let mut run = task.probe("r_sockets", &[kind, "200", "4"]).spawn()?;
        run.pump(pace::time(Duration::from_secs(15)), |run| run.out.text().contains("holds ") || run.ended.is_some())?;
        let grown = held(protocol).saturating_sub(before);
        if arm == Arm::Contained {
            bench.canary()?;
        }
        let ended = run.ended.is_some();
        if !ended {
            run.signal(Signal::SIGTERM)?;
        }
        let done = run.finish()?;
        bench.note(format!("{kind}: the host's sockets grew by {} KiB, limit {} KiB", grown >> 10, LIMIT >> 10));
        // Either the queues stay within the task's memory, or the task ran out of it. The kernel never refuses a TCP
        // connection its first buffers, so each of the 800 may stand 16 KiB above the limit.
        // The counters are the whole host's, and each processor holds some of them back: 2 MiB more or less prove nothing.
        let bound = LIMIT + if kind == "tcp" { 800 * 16_384 } else { 2 << 20 };
        ensure!(grown <= bound, "{kind}: {grown} bytes in queues with a memory limit of {LIMIT}");
        let expected = if ended { "oom" } else { "stopped" };
        ensure!(done.reason()? == expected && done.verdict()? == "proven", "{} {}", done.reason()?, done.verdict()?);
    }
    Ok(())
}
