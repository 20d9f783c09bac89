//! The two parties nearest to a task: another task beside it, and its own init above it.

use std::fs;

use super::KINDS;
use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, Launch, Run, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "N05",
            tier: 1,
            what: "two tasks at once reach for each other's processes, IPC, sockets and files",
            defence: &["uid-pool", "pid-namespace,uid-pool", "ipc-namespace", "net-namespace"],
            control: |bench| match pair(bench, None) {
                Ok((answers, _)) => answers.works(&EVERYWHERE, &REACH.map(|(name, _)| (name, "ok"))),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (answers, apart) = pair(bench, Some(arm))?;
                answers.all(&EVERYWHERE, &REACH)?;
                apart
            },
        },
        Case {
            id: "N10",
            tier: 1,
            what: "signals its init, takes its limits away, and reads it through /proc",
            defence: &["dumpable", "seccomp"],
            control: init_control,
            attack: init_attack,
        },
    ]
}

/// What reaching for the other task gives.
const REACH: [(&str, &str); 11] = [
    ("connect", "ECONNREFUSED"),
    ("shm", "ENOENT"),
    ("sem", "ENOENT"),
    ("msg", "ENOENT"),
    ("mq", "ENOENT"),
    ("file", "ENOENT"),
    ("shm-file", "ENOENT"),
    ("kill", "ESRCH"),
    ("prlimit", "EPERM"),
    ("pidfd", "ESRCH"),
    ("proc", "ENOENT"),
];

/// What the second task got at, and whether the host sees the two apart.
fn pair(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, Result<(), Fail>), Fail> {
    let start = || -> Launch<'_> {
        match arm {
            Some(arm) => bench.task(arm),
            None => bench.direct().with_uid(bench.uid_range().start),
        }
    };
    let name = format!("{}-pair", bench.nonce());
    let mut first = start().probe("n_pair", &["serve", &name]).with_stdin().spawn()?;
    first.wait_line("state ready")?;
    let main = |run: &Run| if arm.is_some() { run.payload() } else { Some(run.pid) };
    let target = main(&first).ok_or_else(|| broken("no first payload"))?;
    let second = start().probe("n_pair", &["reach", &name, &target.to_string()]);
    let mut apart = Ok(());
    let (answers, _) = watch(bench, arm, second, |run| {
        if arm.is_some() {
            apart = are_apart(target, main(run).ok_or_else(|| broken("no second payload"))?);
        }
        Ok(())
    })?;
    ensure!(proc::stat_of(target).is_some_and(|stat| stat.state != 'Z'), "the first task was killed by the second");
    drop(first.stdin());
    let done = first.finish()?;
    if arm == Some(Arm::Contained) {
        crate::harness::answers::ended_well(&done)?;
    }
    let served = Answers::parse(&done.out);
    for name in ["bind", "listen", "shm", "sem", "msg", "mq", "file", "shm-file"] {
        require!(served.get("main", name) == Some("ok"), "the first task could not offer {name}");
    }
    Ok((answers, apart))
}

fn are_apart(one: i32, other: i32) -> Result<(), Fail> {
    ensure!(proc::uid_of(one) != proc::uid_of(other), "both tasks have uid {:?}", proc::uid_of(one));
    for kind in KINDS.into_iter().filter(|kind| *kind != "user") {
        let (one, other) = (proc::ns_of(one, kind), proc::ns_of(other, kind));
        ensure!(one.is_some() && one != other, "both tasks are in {kind} namespace {one:?}");
    }
    Ok(())
}

/// What the calls against init give. `open-fd` and the like are directories and links that init, not being dumpable, hides.
const INIT: [(&str, &str); 21] = [
    ("prlimit-cpu", "EPERM"),
    ("prlimit-nofile", "EPERM"),
    ("prlimit-as", "EPERM"),
    ("prlimit-core", "EPERM"),
    ("open-mem", "EACCES"),
    ("open-environ", "EACCES"),
    ("open-maps", "EACCES"),
    ("open-exe", "EACCES"),
    ("open-cwd", "EACCES"),
    ("open-root", "EACCES"),
    ("open-fd", "EACCES"),
    ("open-fdinfo", "EACCES"),
    ("open-auxv", "EACCES"),
    ("open-map_files", "EACCES"),
    ("open-ns", "EACCES"),
    ("open-syscall", "EACCES"),
    ("open-io", "EACCES"),
    ("open-clear_refs", "EACCES"),
    ("open-pagemap", "EACCES"),
    ("write-oom", "EACCES"),
    ("write-mem", "EACCES"),
];

fn init_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let uid = bench.uid_range().start;
        // The victim shares the uid, as init does; it is not protected.
        let mut victim = bench.direct().with_uid(uid).probe("k_victim", &[]).with_stdin().spawn()?;
        victim.wait_line("state ready")?;
        let before = limits_of(victim.pid)?;
        let pid = victim.pid.to_string();
        let (answers, _) = watch(bench, None, bench.direct().with_uid(uid).probe("n_init", &[&pid]), |_| Ok(()))?;
        let after = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        let dead = proc::stat_of(victim.pid).is_none_or(|stat| stat.state == 'Z');
        require!(dead || after != before, "the victim kept its life and its limits");
        let ok = ["prlimit-cpu", "open-maps", "open-exe", "open-fd", "open-auxv"].map(|name| (name, "ok"));
        Ok(answers.works(&["main"], &ok))
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn limits_of(pid: i32) -> Result<String, Fail> {
    fs::read_to_string(format!("/proc/{pid}/limits")).map_err(|e| broken(format!("limits of {pid}: {e}")))
}

fn init_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // Limits of init before anything was tried, from a task that tries nothing: both have the same.
    let mut untouched = String::new();
    watch(bench, Some(arm), bench.task(arm).probe("k_victim", &[]), |run| {
        untouched = limits_of(run.init().ok_or_else(|| broken("no init"))?)?;
        Ok(())
    })?;
    let mut run = bench.task(arm).probe("n_init", &["1"]).with_stdin().spawn()?;
    let ready =
        run.pump(pace::time(std::time::Duration::from_secs(20)), |run| run.out.text().contains("state ready"))?;
    ensure!(ready, "the task did not survive its attack on init: {}", run.err.text());
    let init = run.init().ok_or_else(|| broken("no init"))?;
    let limits = limits_of(init)?;
    ensure!(limits == untouched, "init's limits were changed to\n{limits}");
    // It may still be taking the last signals in.
    let waits = || proc::stat_of(init).is_some_and(|stat| stat.state == 'S');
    let waits = run.wait_until(std::time::Duration::from_secs(2), waits)?;
    ensure!(waits, "init is in state {:?}", proc::stat_of(init).map(|stat| stat.state));
    drop(run.stdin());
    let done = run.finish()?;
    Answers::parse(&done.out).all(&EVERYWHERE, &INIT)?;
    let (reason, verdict) = (done.reason()?, done.verdict()?);
    ensure!(done.code() == 42 && reason == "exit" && verdict == "proven", "{} {reason} {verdict}", done.code());
    Ok(())
}
