//! How a program ended is reported exactly: every code, every signal, and never one for the other.

use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::harness::{Arm, Bench, Case, Fail};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "P06",
            tier: 1,
            what: "raises ABRT, TERM and KILL on itself",
            defence: &["payload-not-pid1"],
            control: |bench| table(bench, &suicides()).map(drop).into(),
            attack: |bench, arm| same_as_control(bench, arm, &suicides()),
        },
        Case {
            id: "P15",
            tier: 1,
            what: "each exit code 0 to 255 and each signal 1 to 64",
            defence: &["payload-not-pid1"],
            control: |bench| table(bench, &everything()).map(drop).into(),
            attack: |bench, arm| same_as_control(bench, arm, &everything()),
        },
    ]
}

/// `exit N` or `signal N`, as the payload takes it.
type Way = (&'static str, i32);

fn suicides() -> Vec<Way> {
    [libc::SIGABRT, libc::SIGTERM, libc::SIGKILL].map(|n| ("signal", n)).to_vec()
}

fn everything() -> Vec<Way> {
    // A slow machine takes a sample.
    let step = pace::slow() as usize;
    let (codes, signals) = ((0..=255).step_by(step), (1..=64).step_by(step));
    codes.map(|n| ("exit", n)).chain(signals.map(|n| ("signal", n))).collect()
}

/// What the kernel tells a parent: a code or a signal.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Code(i32),
    Signal(i32),
}

fn control(bench: &Bench, (kind, n): Way) -> Result<End, Fail> {
    let done = bench.direct().probe("p_end", &[kind, &n.to_string()]).finish()?;
    let end = done.status.signal().map(End::Signal).or(done.status.code().map(End::Code));
    let end = end.ok_or_else(|| crate::harness::broken("neither code nor signal"))?;
    let expected = if kind == "exit" { End::Code(n) } else { End::Signal(n) };
    // Signals that do not end a process leave it to exit with 77; the kernel decides which those are.
    require!(end == expected || (kind == "signal" && end == End::Code(77)), "{kind} {n} ended as {end:?}");
    Ok(end)
}

fn table(bench: &Bench, ways: &[Way]) -> Result<Vec<End>, Fail> {
    ways.iter().map(|way| control(bench, *way)).collect()
}

/// The name a report gives a signal.
fn name(signal: i32) -> String {
    match signal {
        32 | 33 => format!("SIG{signal}"),
        34 => "SIGRTMIN".to_owned(),
        35.. => format!("SIGRTMIN+{}", signal - 34),
        _ => nix::sys::signal::Signal::try_from(signal).map(|s| s.as_str().to_owned()).unwrap_or_default(),
    }
}

fn same_as_control(bench: &Bench, arm: Arm, ways: &[Way]) -> Result<(), Fail> {
    let expected = table(bench, ways)?;
    // Signals first: of a mutant the first difference is enough.
    let mut order: Vec<usize> = (0..ways.len()).collect();
    order.sort_by_key(|i| ways[*i].0 == "exit");
    for i in order {
        let (kind, n) = ways[i];
        let done = bench.task(arm).opt("--timeout", "20s").probe("p_end", &[kind, &n.to_string()]).finish()?;
        let (code, signal) = (done.field("/outcome/exit_code")?, done.field("/outcome/signal")?);
        let (status, reason) = (done.field("/outcome/status")?, done.reason()?);
        let seen = format!("{kind} {n}: exit {}, {code}, {signal}, {status}, {reason}", done.code());
        match expected[i] {
            End::Code(c) => {
                let word = if c == 0 { "exited_ok" } else { "exited_error" };
                ensure!(*code == c && *signal == Value::Null && status == word && reason == "exit", "{seen}");
                ensure!(done.code() == c, "{seen}");
            }
            End::Signal(s) => {
                let right = *code == Value::Null && *signal == name(s).as_str();
                ensure!(right && status == "signaled" && reason == "signal", "{seen}; control: {}", name(s));
                ensure!(done.code() == 128 + s, "{seen}");
            }
        }
        ensure!(done.verdict()? == "proven", "{seen}: verdict {}", done.verdict()?);
        if arm == Arm::Contained && i == 0 {
            bench.canary()?;
        }
    }
    bench.note(format!("{} ways to end, each as the control arm's waitid told", ways.len()));
    Ok(())
}
