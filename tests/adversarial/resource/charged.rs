//! Memory of the kernel that is charged to nobody: what could hold it is refused.

use crate::ensure;
use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail};

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
            defence: &["seccomp"],
            control: |bench| {
                // The two that take a program's descriptor are given none: EBADF says that the kernel looked for it.
                let wanted = ["ok", "ok", "EBADF", "EBADF", "ok"];
                let wanted: Vec<_> = ATTACH.iter().copied().zip(wanted).collect();
                control(grown(bench, None, &FILTER), &FILTER, &wanted)
            },
            attack: |bench, arm| {
                let (answers, bytes) = grown(bench, Some(arm), &FILTER)?;
                answers.all(&EVERYWHERE, &ATTACH.map(|name| (name, "EPERM")))?;
                ensure!(bytes < FILTER.mark, "{} grew by {bytes} bytes", FILTER.field);
                Ok(())
            },
        },
        Case {
            id: "R24",
            tier: 1,
            what: "asks sockets for error queues, sending times, keys of signed connections and IPv6 groups",
            defence: &["seccomp"],
            control: |bench| match options(bench, None) {
                Ok(answers) => {
                    // What this kernel does not have, it cannot be asked for; the rest looks at the value and says so.
                    for name in REFUSED.iter().filter(|name| answers.get("main", name) == Some("ENOPROTOOPT")) {
                        bench.note(format_args!("SKIP {name}: ENOPROTOOPT outside too"));
                    }
                    answers.works(&EVERYWHERE, &QUEUES.map(|name| (name, "ok")))
                }
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let answers = options(bench, Some(arm))?;
                answers.all(&EVERYWHERE, &QUEUES.map(|name| (name, "EPERM")))?;
                answers.all(&EVERYWHERE, &REFUSED.map(|name| (name, "EPERM")))?;
                answers.all(&EVERYWHERE, &[("allowed-nodelay", "ok"), ("allowed-v6only", "ok")])
            },
        },
    ]
}

/// Options that any kernel grants outside.
const QUEUES: [&str; 6] = ["recverr", "recverr6", "recverr-high", "timestamping", "timestamping-new", "zerocopy"];
/// Options that are asked for with a value that no kernel takes: what is learned is who refuses.
const REFUSED: [&str; 8] = ["md5", "md5-ext", "ao-key", "ulp", "group6", "anycast6", "join6", "source6"];

fn options(bench: &Bench, arm: Option<Arm>) -> Result<Answers, Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    watch(bench, arm, launch.probe("r_options", &[]), |_| Ok(())).map(|(answers, _)| answers)
}

const ATTACH: [&str; 5] = ["filter", "reuseport-filter", "bpf", "reuseport-bpf", "filter-high"];

/// A probe, how many sockets it takes, the kernel's counter that shows it, and from where on it does.
struct Holder {
    probe: &'static str,
    sockets: &'static str,
    field: &'static str,
    mark: u64,
}

/// Some 180 MiB if nothing refuses it, and half of that as the mark: others on this host use the kernel's memory too.
const NETLINK: Holder = Holder { probe: "r_netlink", sockets: "200", field: "SUnreclaim", mark: 80 << 20 };
/// Some 40 MiB.
const FILTER: Holder = Holder { probe: "r_attach", sockets: "300", field: "VmallocUsed", mark: 16 << 20 };

fn grown(bench: &Bench, arm: Option<Arm>, holder: &Holder) -> Result<(Answers, u64), Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let (before, mut during) = (super::meminfo(holder.field), 0);
    let (answers, _) = watch(bench, arm, launch.probe(holder.probe, &[holder.sockets]), |_| {
        during = super::meminfo(holder.field);
        Ok(())
    })?;
    let bytes = during.saturating_sub(before);
    bench.note(format!("{} grew by {} MiB", holder.field, bytes >> 20));
    Ok((answers, bytes))
}

fn control(result: Result<(Answers, u64), Fail>, holder: &Holder, wanted: &[(&str, &str)]) -> Control {
    match result {
        Ok((answers, bytes)) if bytes >= holder.mark => answers.works(&EVERYWHERE, wanted),
        Ok((answers, bytes)) => Control::Broken(format!("{} grew by only {bytes} bytes: {answers:?}", holder.field)),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}
