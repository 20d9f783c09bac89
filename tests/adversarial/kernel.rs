//! The kernel's attack surface: calls that no task needs give one errno each, from every thread and child.

mod filter;
mod runtimes;
mod surface;
mod table;
mod terminal;

use std::fs;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, breach, broken, proc, view};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            id: "K01",
            tier: 1,
            what: "sets an io_uring up",
            defence: &["seccomp"],
            control: |bench| calls_control(bench, "uring", &["io_uring_setup"]),
            attack: |bench, arm| {
                let calls = ["io_uring_setup", "io_uring_enter", "io_uring_register"];
                calls_attack(bench, arm, "uring")?.all(&EVERYWHERE, &calls.map(|name| (name, "ENOSYS")))
            },
        },
        Case {
            id: "K02",
            tier: 1,
            what: "calls for tracing, modules, swap, boot, accounting, quotas, logs, ports, clocks and names",
            defence: &["seccomp", "seccomp,caps,uid"],
            control: |bench| {
                calls_control(bench, "privileged", &["bpf", "perf_event_open", "userfaultfd", "fanotify_init"])
            },
            attack: |bench, arm| {
                let answers = calls_attack(bench, arm, "privileged")?;
                answers.all(&EVERYWHERE, &PRIVILEGED.map(|name| (name, "EPERM")))?;
                answers.all(&EVERYWHERE, &[("unknown-number", "ENOSYS")])
            },
        },
        Case {
            id: "K03",
            tier: 1,
            what: "reads the caller's session keyring and makes keys",
            defence: &["seccomp", "seccomp,keyring"],
            control: |bench| match keys(bench, None) {
                Ok(answers) if answers.get("main", "keyctl-session") == Some("ENOSYS") => {
                    Control::Cannot("this kernel has no keyrings".to_owned())
                }
                Ok(answers) => answers.works(&EVERYWHERE, &KEYS.map(|(name, _)| (name, "ok"))),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| keys(bench, Some(arm))?.all(&EVERYWHERE, &KEYS),
        },
        Case {
            id: "K04",
            tier: 1,
            what: "traces, reads and writes its init, and takes its descriptors",
            defence: &["seccomp", "seccomp,dumpable"],
            control: trace_control,
            attack: trace_attack,
        },
    ];
    cases.extend(filter::cases());
    cases.extend(runtimes::cases());
    cases.extend(surface::cases());
    cases.extend(table::cases());
    cases.extend(terminal::cases());
    cases
}

const PRIVILEGED: [&str; 23] = [
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "fanotify_init",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "swapon",
    "swapoff",
    "reboot",
    "acct",
    "quotactl",
    "syslog",
    "iopl",
    "ioperm",
    "settimeofday",
    "clock_settime",
    "sethostname",
    "setdomainname",
    "lookup_dcookie",
    "open_by_handle_at",
];

/// Outside, as root, a call must get past the entry: anything but ENOSYS and EPERM. Those in `must` must succeed.
fn calls_control(bench: &Bench, which: &str, must: &[&str]) -> Control {
    let answers = match watch(bench, None, bench.direct().probe("k_calls", &[which]), |_| Ok(())) {
        Ok((answers, _)) => answers,
        Err(fail) => return Control::Broken(fail.to_string()),
    };
    for name in PRIVILEGED {
        if let Some(errno @ ("ENOSYS" | "EPERM")) = answers.get("main", name) {
            bench.note(format_args!("SKIP {name}: {errno} outside too, so this kernel proves nothing about it"));
        }
    }
    for name in must {
        if answers.get("main", name) == Some("ENOSYS") {
            return Control::Cannot(format!("this kernel has no {name}"));
        }
    }
    let wanted: Vec<(&str, &str)> = must.iter().map(|name| (*name, "ok")).collect();
    answers.works(&EVERYWHERE, &wanted)
}

fn calls_attack(bench: &Bench, arm: Arm, which: &str) -> Result<Answers, Fail> {
    let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("k_calls", &[which]), |run| {
        for pid in run.members() {
            for (fd, target) in view::fds_of(pid) {
                ensure!(target.starts_with("pipe:["), "{} holds {fd} = {target}", proc::describe(pid));
            }
        }
        Ok(())
    })?;
    Ok(answers)
}

const KEYS: [(&str, &str); 5] = [
    ("request_key", "ENOSYS"),
    ("keyctl-read", "ENOSYS"),
    ("keyctl-session", "ENOSYS"),
    ("keyctl-join", "ENOSYS"),
    ("add_key", "ENOSYS"),
];

/// The caller has a key in its session keyring, which every program it executes inherits.
fn keys(bench: &Bench, arm: Option<Arm>) -> Result<Answers, Fail> {
    let host = bench.payload("k_keys").display().to_string();
    let name = format!("{}-key", bench.nonce());
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let launch = launch.wrapped(&[&host, "host", &name]).probe("k_keys", &[&name]);
    let mut held = Ok(());
    let (answers, _) = watch(bench, arm, launch, |run| {
        if arm.is_none() {
            return Ok(());
        }
        let uid = run.payload().and_then(proc::uid_of).ok_or_else(|| broken("no payload"))?;
        let users = fs::read_to_string("/proc/key-users").map_err(|e| broken(format!("key-users: {e}")))?;
        let own = users.lines().find(|line| line.trim_start().starts_with(&format!("{uid}:")));
        held = match own {
            Some(own) if uid != 0 => Err(breach(format!("the kernel holds keys for the task's uid: {own}"))),
            _ => Ok(()),
        };
        Ok(())
    })?;
    ensure!(arm.is_none() || answers.get("main", "request_key") != Some("ok"), "the caller's session keyring was read");
    held.map(|()| answers)
}

const TRACES: [&str; 11] = [
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "move_pages",
    "migrate_pages",
    "ptrace-traceme",
    "ptrace-seize",
    "ptrace-attach",
];

fn trace_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let uid = bench.uid_range().start;
        let mut victim = bench.direct().with_uid(uid).probe("k_victim", &[]).with_stdin().spawn()?;
        victim.wait_line("state ready")?;
        let heard = Answers::parse(&victim.out.text());
        let address = heard.get("main", "address").ok_or_else(|| broken("no address"))?;
        let args = [&*victim.pid.to_string(), address];
        let (answers, _) = watch(bench, None, bench.direct().with_uid(uid).probe("k_trace", &args), |_| Ok(()))?;
        drop(victim.stdin());
        let word = Answers::parse(&victim.finish()?.out);
        require!(word.get("main", "word") != Some("untouched-word"), "the victim's memory was not changed: {word:?}");
        let works = ["process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "ptrace-traceme", "ptrace-seize"];
        Ok(answers.works(&EVERYWHERE, &works.map(|name| (name, "ok"))))
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn trace_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("k_trace", &["1", "stack"]), |run| {
        let init = run.init().ok_or_else(|| broken("no init"))?;
        let status = proc::status_of(init).ok_or_else(|| broken("init is gone"))?;
        ensure!(status.get("TracerPid").is_some_and(|pid| pid == "0"), "init is traced: {status:?}");
        Ok(())
    })?;
    answers.all(&EVERYWHERE, &TRACES.map(|name| (name, "EPERM")))
}
