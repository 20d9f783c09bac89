//! The filter itself: on from the first instruction, in every thread, and for every way into the kernel.

use std::fs;
use std::time::Duration;

use crate::filesystem::{at_first_instruction, first_instruction};
use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::place::members_of;
use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, proc, view};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "K07",
            tier: 1,
            what: "makes calls by their x32 numbers",
            defence: &["seccomp"],
            control: |bench| match abi(bench, None, "x32", "main") {
                Ok((answers, _)) if answers.get("main", "x32-getpid") == Some("ENOSYS") => {
                    Control::Cannot("this kernel has no x32 (CONFIG_X86_X32_ABI)".to_owned())
                }
                Ok((answers, _)) => answers.works(&["main"], &[("x32-getpid", "ok")]),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                for place in EVERYWHERE {
                    let (answers, _) = abi(bench, Some(arm), "x32", place)?;
                    answers.all(&[place], &[("x32-getpid", "ENOSYS")])?;
                }
                bench.canary()
            },
        },
        Case {
            id: "K08",
            tier: 1,
            what: "makes calls through the 32-bit entry, where the numbers mean others",
            defence: &["seccomp"],
            control: |bench| {
                for place in EVERYWHERE {
                    match abi(bench, None, "int80", place) {
                        Ok((answers, _)) if answers.get(place, "int80-getpid") == Some("ok") => {}
                        Ok((_, code)) => return Control::Cannot(format!("no 32-bit entry here (ended with {code})")),
                        Err(fail) => return Control::Broken(fail.to_string()),
                    }
                }
                Control::Works
            },
            attack: |bench, arm| {
                for place in EVERYWHERE {
                    let (answers, code) = abi(bench, Some(arm), "int80", place)?;
                    let went_on = answers.get(place, "int80-getpid").or(answers.get("main", "state"));
                    ensure!(went_on.is_none() && code == 128 + libc::SIGSYS, "{place} went on: {answers:?}, {code}");
                }
                bench.canary()
            },
        },
        Case {
            id: "K10",
            tier: 1,
            what: "the filter is on at the first instruction, in every thread and child, and its listener is nowhere inside",
            defence: &["seccomp"],
            control: filter_control,
            attack: filter_attack,
        },
    ]
}

fn abi(bench: &Bench, arm: Option<Arm>, how: &str, place: &str) -> Result<(Answers, i32), Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let done = launch.probe("k_abi", &[how, place]).finish()?;
    if arm == Some(Arm::Contained) {
        ensure!(done.verdict()? == "proven", "{how} in {place}: {:?}", done.report);
        if done.code() != 0 {
            let (reason, signal) = (done.reason()?, done.field("/outcome/signal")?);
            ensure!(reason == "signal" && signal == "SIGSYS", "{how} in {place}: {reason}, {signal}");
        }
    }
    Ok((Answers::parse(&done.out), done.code()))
}

/// Seccomp mode of every thread of these processes: `(pid, tid, mode)`.
fn modes(pids: &[i32]) -> Vec<(i32, i32, String)> {
    let mut found = Vec::new();
    for pid in pids {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for tid in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            // A thread that is gone has no mode; one that is there has a line.
            let Some(status) = proc::status_of(tid) else { continue };
            found.push((*pid, tid, status.get("Seccomp").cloned().unwrap_or_default()));
        }
    }
    found
}

fn filter_control(bench: &Bench) -> Control {
    let mut seen = Vec::new();
    let result = watch(bench, None, bench.direct().probe("k_threads", &[]), |run| {
        seen = modes(&[run.pid]);
        Ok(())
    });
    match result {
        Ok(_) if seen.len() == 5 && seen.iter().all(|(.., mode)| mode == "0") => Control::Works,
        Ok(_) => Control::Cannot(format!("the suite itself runs under a filter: {seen:?}")),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn filtered(run: &mut Run, least: usize) -> Result<(), Fail> {
    let group = run.group().ok_or_else(|| broken("no group"))?;
    let all = run.wait_until(Duration::from_secs(10), || modes(&members_of(&group)).len() >= least)?;
    let members = members_of(&group);
    let modes = modes(&members);
    require!(all, "only {} threads: {modes:?}", modes.len());
    for (pid, tid, mode) in modes {
        ensure!(mode == "2", "thread {tid} of {} has seccomp mode {mode}", proc::describe(pid));
    }
    for pid in members {
        for (fd, target) in view::fds_of(pid) {
            ensure!(!target.contains("seccomp"), "{} holds {fd} = {target}", proc::describe(pid));
        }
    }
    Ok(())
}

fn filter_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    first_instruction(bench)?;
    // As the payload itself: nothing of it has run but one jump.
    let mut run = bench.task(arm).command("/probe/k_first", [bench.nonce()]).opt("--grace", "1s").spawn()?;
    let taskman = run.pid;
    let started = || {
        let init = proc::children_of(taskman).first().map(|stat| stat.pid);
        init.is_some_and(|init| proc::children_of(init).iter().any(|stat| at_first_instruction(stat.pid)))
    };
    require!(run.wait_until(Duration::from_secs(10), started)?, "the payload never started: {}", run.err.text());
    filtered(&mut run, 2)?;
    run.signal(nix::sys::signal::Signal::SIGTERM)?;
    run.finish()?;
    // Threads, children, a new session, and a program that the payload executes; main and init: ten in all.
    watch(bench, Some(arm), bench.task(arm).probe("k_threads", &["/probe/k_first"]), |run| filtered(run, 10))?;
    Ok(())
}
