//! Whom init obeys, and that nobody inside can keep it from its work.

use std::io::Write;
use std::process::{ChildStdin, Command};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::answers::{Answers, ended_well};
use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, proc};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "N11",
        tier: 1,
        what: "sends its init signals as if from outside, and puts it last in every queue of the scheduler",
        defence: &["seccomp", "init-senders"],
        control: |bench| control(bench).unwrap_or_else(|fail| Control::Broken(fail.to_string())),
        attack,
    }]
}

/// What each call gives; those that are allowed have no effect on init.
const CALLS: [(&str, &str); 29] = [
    ("queue", "EPERM"),
    ("queue-high", "EPERM"),
    ("queue-thread", "EPERM"),
    ("queue-usual", "EPERM"),
    ("pidfd", "EINVAL"),
    ("pidfd-proc", "EINVAL"),
    ("owner", "ok"),
    ("async", "ok"),
    ("nice", "EPERM"),
    ("nice-group", "EPERM"),
    ("nice-user", "EPERM"),
    ("nice-user-0", "EPERM"),
    ("affinity", "EPERM"),
    ("affinity-0", "EPERM"),
    ("param", "EPERM"),
    ("attr", "EPERM"),
    ("scheduler", "EPERM"),
    ("io", "EPERM"),
    ("io-group", "EPERM"),
    ("io-user", "EPERM"),
    ("full", "yes"),
    ("lost-thread", "EPERM"),
    ("lost-tid", "EPERM"),
    ("lost-queue", "EPERM"),
    ("lost-pidfd", "EINVAL"),
    ("kill", "ok"),
    ("own-nice", "ok"),
    ("own-group", "ok"),
    ("own-scheduler", "ok"),
];

/// What the probe has filled its queue with.
const OWN: [u32; 1] = [60];

/// What the host says of a process's turn: nice value, class, processors, io class.
fn standing(pid: i32) -> Result<[String; 4], Fail> {
    let gone = || broken(format!("process {pid} is gone"));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| gone())?;
    let field = |at: usize| stat.rsplit_once(") ").and_then(|(_, rest)| Some(rest.split(' ').nth(at - 3)?.to_owned()));
    let processors = proc::status_of(pid).and_then(|mut status| status.remove("Cpus_allowed")).ok_or_else(gone)?;
    let io = Command::new("ionice").args(["-p", &pid.to_string()]).output().map_err(|e| broken(e.to_string()))?;
    let io = String::from_utf8_lossy(&io.stdout).trim().to_owned();
    Ok([field(19).ok_or_else(gone)?, field(41).ok_or_else(gone)?, processors, io])
}

/// Signals that wait for a process as a whole.
fn pending(pid: i32) -> Option<Vec<u32>> {
    let mask = u64::from_str_radix(proc::status_of(pid)?.get("ShdPnd")?, 16).ok()?;
    Some((1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect())
}

/// Lets the probe begin, and waits until it is through. It stays until its standard input ends.
fn begin(run: &mut Run) -> Result<ChildStdin, Fail> {
    let mut stdin = run.stdin().ok_or_else(|| broken("no stdin"))?;
    stdin.write_all(b"!").map_err(|e| broken(format!("stdin: {e}")))?;
    run.wait_line("state ready").map(|()| stdin)
}

fn control(bench: &Bench) -> Result<Control, Fail> {
    let uid = bench.uid_range().start;
    let mut victim = bench.direct().with_uid(uid).probe("n_forge", &["victim"]).spawn()?;
    victim.wait_line("state armed")?;
    let before = standing(victim.pid)?;
    let pid = victim.pid.to_string();
    let mut run = bench.direct().with_uid(uid).probe("n_forge", &[&pid]).with_stdin().spawn()?;
    run.wait_line("state armed")?;
    let stdin = begin(&mut run)?;
    let after = standing(victim.pid)?;
    require!(before[0] != after[0] && before[1] != after[1] && before[3] != after[3], "{before:?}, then {after:?}");
    drop(stdin);
    run.finish()?;
    victim.signal(Signal::SIGTERM)?;
    let text = victim.finish()?.out;
    // By the sender's own words; by the kernel, of a descriptor's owner; for want of room.
    for signal in [64, libc::SIGHUP, libc::SIGIO, libc::SIGWINCH, 40] {
        require!(text.contains(&format!("nobody {signal}\n")), "signal {signal} had a sender: {text}");
    }
    Ok(Control::Works)
}

fn attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut run = bench.task(arm).opt("--cpus", "1").probe("n_forge", &["1"]).with_stdin().spawn()?;
    run.wait_line("state armed")?;
    let (init, payload) = run.init().zip(run.payload()).ok_or_else(|| broken("no init or payload"))?;
    let before = standing(init)?;
    let stdin = begin(&mut run)?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let idle =
        || pending(init).is_some_and(|left| left.is_empty()) && proc::stat_of(init).is_some_and(|s| s.state == 'S');
    require!(run.wait_until(Duration::from_secs(10), idle)?, "init does not come to rest: {:?}", pending(init));
    let forwarded: Vec<u32> = pending(payload).ok_or_else(|| broken("no payload"))?;
    let forwarded: Vec<u32> = forwarded.into_iter().filter(|signal| !OWN.contains(signal)).collect();
    ensure!(forwarded.is_empty(), "init has forwarded {forwarded:?} at the payload's own word");
    let after = standing(init)?;
    ensure!(before == after, "nice value, class, processors and io class of init were {before:?}, and are {after:?}");
    drop(stdin);
    let done = run.finish()?;
    Answers::parse(&done.out).all(&["main"], &CALLS)?;
    ended_well(&done)
}
