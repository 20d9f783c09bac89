//! Memory of the kernel that is charged to nobody: what could hold it is refused.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::ensure;
use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail};
use crate::support::pace;

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "R22",
            tier: 1,
            what: "leaves the kernel's answers unread in netlink sockets",
            defence: &["seccomp"],
            control: |bench| {
                let wanted = [("route", "ok"), ("route-high", "ok")];
                control(grown(bench, None, &NETLINK), &NETLINK, &wanted)
            },
            attack: |bench, arm| {
                let (answers, bytes) = grown(bench, Some(arm), &NETLINK)?;
                ensure!(bytes < NETLINK.mark, "{} grew by {bytes} bytes", NETLINK.field);
                answers.all(&EVERYWHERE, &[("route", "EPERM"), ("route-high", "EPERM")])
            },
        },
        Case {
            id: "R23",
            tier: 2,
            what: "attaches packet filters, which are compiled into memory of the whole host's budget, to sockets",
            // A filter counts as what a socket of a task may have 4 KiB of, on kernels where that is set for each network.
            defence: &["seccomp,socket-memory"],
            control: |bench| {
                // The two that take a program's descriptor are given none: EBADF says that the kernel looked for it.
                let wanted = ["ok", "ok", "EBADF", "EBADF", "ok"];
                let wanted: Vec<_> = ATTACH.iter().copied().zip(wanted).collect();
                control(grown(bench, None, &FILTER), &FILTER, &wanted)
            },
            attack: |bench, arm| {
                let (answers, bytes) = grown(bench, Some(arm), &FILTER)?;
                answers.all(&EVERYWHERE, &ATTACH.map(|name| (name, "ENOPROTOOPT")))?;
                ensure!(bytes < FILTER.mark, "{} grew by {bytes} bytes", FILTER.field);
                Ok(())
            },
        },
        Case {
            id: "R24",
            tier: 1,
            what: "asks sockets for error queues, sending times, keys of signed connections, packet options and groups",
            defence: &["seccomp"],
            control: |bench| match options(bench, None) {
                Ok(answers) => {
                    // What this kernel does not have, it cannot be asked for; the rest looks at the value and says so.
                    for name in REFUSED.iter().filter(|name| answers.get("main", name) == Some("ENOPROTOOPT")) {
                        bench.note(format_args!("SKIP {name}: ENOPROTOOPT outside too"));
                    }
                    let set = PRETENDED.map(|name| [(name, "ok"), (set(name), "yes")]);
                    let wanted = GRANTED.map(|name| (name, "ok")).into_iter().chain(set.into_iter().flatten());
                    answers.works(&EVERYWHERE, &wanted.collect::<Vec<_>>())
                }
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let answers = options(bench, Some(arm))?;
                answers.all(&EVERYWHERE, &GRANTED.map(|name| (name, "ENOPROTOOPT")))?;
                answers.all(&EVERYWHERE, &REFUSED.map(|name| (name, "ENOPROTOOPT")))?;
                for name in PRETENDED {
                    answers.all(&EVERYWHERE, &[(name, "ok"), (set(name), "no")])?;
                }
                answers.all(&EVERYWHERE, &[("allowed-nodelay", "ok"), ("allowed-v6only", "ok")])
            },
        },
        Case {
            id: "R25",
            tier: 1,
            what: "keeps 64 KB of IPv6 packet options on each of its sockets",
            // As R23.
            defence: &["seccomp,socket-memory"],
            control: |bench| control(grown(bench, None, &PACKET_OPTIONS), &PACKET_OPTIONS, &[]),
            attack: |bench, arm| bounded(bench, arm, &PACKET_OPTIONS),
        },
        Case {
            id: "R26",
            tier: 1,
            what: "gives every other page of a shared file a memory policy of its own",
            defence: &["seccomp"],
            control: |bench| match grown(bench, None, &POLICIES) {
                Ok((answers, _)) if answers.get("main", "policy") == Some("ENOSYS") => {
                    Control::Cannot("this kernel has no memory policies (CONFIG_NUMA)".to_owned())
                }
                result => control(result, &POLICIES, &[]),
            },
            attack: |bench, arm| bounded(bench, arm, &POLICIES),
        },
        Case {
            id: "R28",
            tier: 1,
            what: "puts seccomp filters, which share one budget of the whole host and can write its log, on itself",
            defence: &["seccomp"],
            control: |bench| control(grown(bench, None, &SECCOMP), &SECCOMP, &INSTALL.map(|name| (name, "ok"))),
            attack: |bench, arm| {
                let (answers, bytes) = grown(bench, Some(arm), &SECCOMP)?;
                ensure!(bytes < SECCOMP.mark, "{} grew by {bytes} bytes", SECCOMP.field);
                answers.all(&EVERYWHERE, &INSTALL.map(|name| (name, "EINVAL")))?;
                let granted = bench.task(arm).opt("--profile", "filters").probe(SECCOMP.probe, &["1"]);
                let (answers, _) = watch(bench, Some(arm), granted, |_| Ok(()))?;
                answers.all(&EVERYWHERE, &INSTALL.map(|name| (name, "ok")))
            },
        },
    ]
}

/// Options that any kernel grants outside.
const GRANTED: [&str; 6] = ["timestamping", "timestamping-new", "zerocopy", "rcvlowat", "save-syn", "fastopen"];
/// Options that programs cannot do without, and that are not set.
const PRETENDED: [&str; 4] = ["recverr", "recverr6", "recverr-high", "rcvbuf"];
/// Options that not every kernel has, or that are asked for with a value that none takes: what is learned is who refuses.
const REFUSED: [&str; 20] = [
    "gro",
    "md5",
    "md5-ext",
    "ao-key",
    "ulp",
    "encap",
    "group4",
    "source4",
    "filter4",
    "join4",
    "join-source4",
    "join-filter4",
    "packet-options6",
    "hop-options6",
    "dest-options6",
    "flow-label6",
    "group6",
    "anycast6",
    "join6",
    "source6",
];

/// The name under which the probe says whether a pretended option was set after all.
fn set(name: &str) -> &'static str {
    match name {
        "recverr" => "recverr-set",
        "recverr6" => "recverr6-set",
        "recverr-high" => "recverr-high-set",
        _ => "rcvbuf-set",
    }
}

fn options(bench: &Bench, arm: Option<Arm>) -> Result<Answers, Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    watch(bench, arm, launch.probe("r_options", &[]), |_| Ok(())).map(|(answers, _)| answers)
}

const ATTACH: [&str; 5] = ["filter", "reuseport-filter", "bpf", "reuseport-bpf", "filter-high"];

/// A probe, how many objects it makes, the kernel's counter that shows it, and from where on it does.
struct Holder {
    probe: &'static str,
    objects: &'static str,
    field: &'static str,
    mark: u64,
}

/// Some 180 MiB if nothing refuses it, and half of that as the mark: others on this host use the kernel's memory too.
const NETLINK: Holder = Holder { probe: "r_netlink", objects: "200", field: "SUnreclaim", mark: 80 << 20 };
/// Some 40 MiB.
const FILTER: Holder = Holder { probe: "r_attach", objects: "300", field: "VmallocUsed", mark: 16 << 20 };

/// Some 65 MiB on 1,000 sockets.
const PACKET_OPTIONS: Holder = Holder { probe: "r_pktopt", objects: "1000", field: "SUnreclaim", mark: 30 << 20 };
/// Some 70 MiB.
const POLICIES: Holder = Holder { probe: "r_policy", objects: "200000", field: "SUnreclaim", mark: 30 << 20 };

/// Some 40 MiB of 100 processes.
const SECCOMP: Holder = Holder { probe: "r_seccomp", objects: "100", field: "VmallocUsed", mark: 16 << 20 };
const INSTALL: [&str; 4] = ["seccomp", "prctl", "log", "seccomp-high"];

/// What the task could make of them takes no more than the counter's noise.
fn bounded(bench: &Bench, arm: Arm, holder: &Holder) -> Result<(), Fail> {
    let (_, bytes) = grown(bench, Some(arm), holder)?;
    ensure!(bytes < holder.mark, "{} grew by {bytes} bytes", holder.field);
    Ok(())
}

/// By how much the counter is above what it was before and is after: half of each, because it is the whole host's, and
/// what others take or give back meanwhile is then in one half only.
fn grown(bench: &Bench, arm: Option<Arm>, holder: &Holder) -> Result<(Answers, u64), Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let (before, mut during) = (super::meminfo(holder.field), 0);
    let (answers, _) = watch(bench, arm, launch.probe(holder.probe, &[holder.objects]), |_| {
        during = super::meminfo(holder.field);
        Ok(())
    })?;
    let bytes = (during.saturating_sub(before) + during.saturating_sub(released(holder, during))) / 2;
    bench.note(format!("{} grew by {} MiB", holder.field, bytes >> 20));
    Ok((answers, bytes))
}

/// The counter once what the probe held has been given back. The kernel does that a moment after the probe's end, if there was
/// anything to give.
fn released(holder: &Holder, during: u64) -> u64 {
    let end = Instant::now() + pace::time(Duration::from_secs(1));
    loop {
        let now = super::meminfo(holder.field);
        if now + holder.mark < during || Instant::now() > end {
            return now;
        }
        sleep(Duration::from_millis(20));
    }
}

fn control(result: Result<(Answers, u64), Fail>, holder: &Holder, wanted: &[(&str, &str)]) -> Control {
    match result {
        Ok((answers, bytes)) if bytes >= holder.mark => answers.works(&EVERYWHERE, wanted),
        Ok((answers, bytes)) => Control::Broken(format!("{} grew by only {bytes} bytes: {answers:?}", holder.field)),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}
