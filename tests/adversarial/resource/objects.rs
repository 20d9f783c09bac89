//! Every kind of kernel object that a task can make: what the host loses by it, against what the task is charged for it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::answers::{Answers, ended_well};
use crate::harness::{Arm, Bench, Case, Fail, broken};
use crate::support::pace;
use crate::{ensure, require};

use super::meminfo;

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "R30",
        tier: 1,
        what: "makes objects of every kind that the kernel has, and is charged for too few of them",
        defence: &["seccomp", "socket-memory"],
        control: |bench| seen_outside(bench).into(),
        attack: |bench, arm| match arm {
            Arm::Contained => every_kind_is_charged(bench, arm),
            Arm::Mutant(names) => none_of(bench, arm, names),
        },
    }]
}

/// Up to here nothing is proven: others use the kernel's memory too.
const NOISE: u64 = 8 << 20;

/// Kinds that hold more than is charged, and how many bytes more each object of them may hold: SECURITY.md has them, with what bounds
/// their number.
const KNOWN: [(&str, u64); 10] = [
    ("epoll", 320),
    ("eventfd", 320),
    ("flock", 256),
    ("host-directory", 32_768),
    ("open-file-lock", 256),
    ("polling-thread", 81_920),
    ("posix-lock", 256),
    ("tcp-waiting", 61_440),
    ("timerfd", 320),
    ("udp-reuse-port", 2_560),
];

/// Which kinds a mutant must be seen to hold.
const HELD_BY_MUTANTS: [(&str, &[&str]); 2] =
    [("seccomp", &["udp-unfinished", "access-list"]), ("socket-memory", &["tcp-time-wait"])];

/// Which are held on the host itself: these need no place of their own, and are gone with their process.
const HELD_OUTSIDE: [&str; 2] = ["packet-options", "udp-unfinished"];

/// What the objects of one kind cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    made: u64,
    /// Of the kernel's own memory, which is neither a process's nor a file's.
    host: u64,
    /// Of what the task is charged, the same.
    charged: u64,
}

impl Cost {
    fn is_within(&self, kind: &str) -> bool {
        let known = KNOWN.iter().find(|(known, _)| *known == kind);
        let more = known.map_or(self.charged / 2, |(_, bytes)| bytes * self.made);
        self.host <= NOISE || self.host <= self.charged + more
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { made, host, charged } = self;
        write!(f, "{made} objects hold {} KiB, {} KiB are charged", host >> 10, charged >> 10)
    }
}

fn every_kind_is_charged(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let kinds = bench.task(arm).probe("r_objects", &["kinds"]).finish()?.out;
    let (mut over, mut none) = (Vec::new(), Vec::new());
    for kind in kinds.lines() {
        let cost = measured(bench, arm, kind)?;
        println!("      {kind}: {cost}");
        if cost.made == 0 {
            none.push(kind);
        }
        if !cost.is_within(kind) {
            over.push(format!("{kind}: {cost}"));
        }
    }
    bench.canary()?;
    bench.note(format!("{} kinds measured; refused or not of this kernel: {}", kinds.lines().count(), none.join(", ")));
    require!(none.len() < 10, "too many kinds could not be made: {none:?}");
    ensure!(over.is_empty(), "{}", over.join("; "));
    Ok(())
}

/// Green, which is wrong, unless each of these kinds is over its bound.
fn none_of(bench: &Bench, arm: Arm, names: &str) -> Result<(), Fail> {
    let held = HELD_BY_MUTANTS.iter().find(|(defence, _)| *defence == names);
    let mut over = Vec::new();
    for kind in held.ok_or_else(|| broken("no kinds for this defence"))?.1 {
        let cost = measured(bench, arm, kind)?;
        if cost.is_within(kind) {
            bench.note(format!("{kind}: {cost}"));
            return Ok(());
        }
        over.push(format!("{kind}: {cost}"));
    }
    ensure!(over.is_empty(), "{}", over.join("; "));
    Ok(())
}

/// Without a task they are held, and the counters show it.
fn seen_outside(bench: &Bench) -> Result<(), Fail> {
    for kind in HELD_OUTSIDE {
        let cost = once(bench, None, kind)?;
        require!(cost.host > 3 * NOISE, "{kind}: {cost}");
    }
    Ok(())
}

/// What is over its bound is measured again: the host's counters are everyone's, and what others did is not seen three times.
fn measured(bench: &Bench, arm: Arm, kind: &str) -> Result<Cost, Fail> {
    let mut least = once(bench, Some(arm), kind)?;
    for _ in 0..2 {
        if least.is_within(kind) {
            break;
        }
        let again = once(bench, Some(arm), kind)?;
        if again.host < least.host {
            least = again;
        }
    }
    Ok(least)
}

fn once(bench: &Bench, arm: Option<Arm>, kind: &str) -> Result<Cost, Fail> {
    let launch = match arm {
        Some(arm) => bench.task(arm).opt("--memory", "64M"),
        None => bench.direct(),
    };
    let mut run = launch.probe("r_objects", &[kind]).with_stdin().spawn()?;
    run.wait_line("state ready")?;
    let group = if arm.is_some() { run.group_of("memory") } else { None };
    let charge = || group.as_deref().map_or(0, charge);
    let (before, charged_before) = (kernel_memory(), charge());
    let mut stdin = run.stdin().ok_or_else(|| broken("no standard input"))?;
    stdin.write_all(b"g").map_err(|e| broken(format!("{kind}: write: {e}")))?;
    run.wait_line("state made").map_err(|e| broken(format!("{kind}: {e}")))?;
    let (during, charged_during) = (kernel_memory(), charge());
    drop(stdin);
    let done = run.finish()?;
    if arm == Some(Arm::Contained) {
        ended_well(&done)?;
    }
    let made = Answers::parse(&done.out).get("main", "made").and_then(|n| u64::from_str_radix(n, 16).ok());
    let after = released(before, during);
    // Half of each, as in `charged.rs`: what others take or give back meanwhile is in one half only.
    let host = (during.saturating_sub(before) + during.saturating_sub(after)) / 2;
    let charged = charged_during.saturating_sub(charged_before);
    Ok(Cost { made: made.ok_or_else(|| broken(format!("{kind}: it never said how many")))?, host, charged })
}

/// What the kernel itself holds once most of the objects are gone, which it sees to a moment after their processes' end. The next kind
/// is measured then.
fn released(before: u64, during: u64) -> u64 {
    let held = during.saturating_sub(before);
    let end = Instant::now() + pace::time(Duration::from_millis(1500));
    let mut least = kernel_memory();
    while held > NOISE / 8 && least > before + held / 4 && Instant::now() < end {
        sleep(Duration::from_millis(10));
        least = least.min(kernel_memory());
    }
    least
}

/// What the kernel itself uses: all memory but what is free, what processes have, and what files hold. The least of three, because the kernel
/// takes free memory aside for a moment, to hand it to a hypervisor for one.
fn kernel_memory() -> u64 {
    let now = || {
        // Has each CPU add its counters to the host's.
        let _ = fs::read("/proc/sys/vm/stat_refresh");
        let others = ["MemFree", "Buffers", "Cached", "SwapCached", "AnonPages"].map(meminfo).iter().sum::<u64>();
        meminfo("MemTotal").saturating_sub(others + in_lists())
    };
    [now(), now(), now()].into_iter().min().unwrap_or(0)
}

/// Free memory that the CPUs keep in lists of their own, which `MemFree` does not count.
fn in_lists() -> u64 {
    let text = fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    let pages = text.lines().filter_map(|line| line.trim().strip_prefix("count:")?.trim().parse::<u64>().ok());
    pages.sum::<u64>() * 4096
}

/// What a group is charged beside the memory of processes and files. With version 1 sockets' buffers are charged apart.
fn charge(group: &Path) -> u64 {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok().and_then(|n| n.trim().parse::<u64>().ok());
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    let all = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let buffers = number("memory.kmem.tcp.usage_in_bytes").unwrap_or(0);
    (all + buffers).saturating_sub(of("anon") + of("rss") + of("file") + of("cache"))
}
