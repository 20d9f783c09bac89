//! Parts of the kernel behind calls that every program needs: requests, flags and new calls that none in a task does.

use crate::ensure;
use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "K21",
        tier: 1,
        what: "asks for bridges, VLANs, btrfs, notification pipes, the host's page cache and attributes of inodes",
        defence: &["seccomp"],
        control: |bench| match surface(bench, None) {
            // As a user without privilege, too, each reaches the kernel's own code, whatever it answers.
            Ok(answers) => {
                let reached = |name: &&str| !matches!(answers.get("main", name), Some("EPERM") | None);
                let kept: Vec<&str> = REACHED.into_iter().filter(|name| !reached(name)).collect();
                if !kept.is_empty() {
                    return Control::Broken(format!("refused outside too: {kept:?}"));
                }
                match answers.get("main", "page-cache") {
                    Some("EOPNOTSUPP") => {
                        bench.note("SKIP page-cache: the file system of the probes does not tell outside either");
                        Control::Works
                    }
                    _ => answers.works(&EVERYWHERE, &[("page-cache", "told"), ("page-cache-high", "told")]),
                }
            }
            Err(fail) => Control::Broken(fail.to_string()),
        },
        attack: |bench, arm| {
            surface(bench, Some(arm))?.all(&EVERYWHERE, &SURFACE)?;
            copies(bench, arm)
        },
    }]
}

/// What answers otherwise than EPERM outside, to a user without privilege.
const REACHED: [&str; 9] = [
    "bridge-get",
    "bridge-get-high",
    "vlan-get",
    "ethtool",
    "of-the-device",
    "btrfs-sync",
    "btrfs-fs-info",
    "btrfs-subvolume",
    "notifications",
];

const SURFACE: [(&str, &str); 39] = [
    ("bridge-get", "EPERM"),
    ("bridge-get-high", "EPERM"),
    ("bridge-set", "EPERM"),
    ("vlan-get", "EPERM"),
    ("vlan-set", "EPERM"),
    ("ethtool", "EPERM"),
    ("wan", "EPERM"),
    ("namespace", "EPERM"),
    ("bond", "EPERM"),
    ("timestamping", "EPERM"),
    ("of-the-protocol", "EPERM"),
    ("of-the-device", "EPERM"),
    ("mii", "EPERM"),
    ("route", "EPERM"),
    ("arp", "EPERM"),
    ("allowed-flags", "ok"),
    ("allowed-address", "ok"),
    ("allowed-size", "ok"),
    ("allowed-index", "ok"),
    ("allowed-list", "ok"),
    ("allowed-mark", "ok"),
    ("allowed-unread", "ok"),
    ("allowed-unsent", "ok"),
    ("btrfs-sync", "EPERM"),
    ("btrfs-start-sync", "EPERM"),
    ("btrfs-subvolume", "EPERM"),
    ("btrfs-search", "EPERM"),
    ("btrfs-label", "EPERM"),
    ("btrfs-dedupe", "EPERM"),
    ("btrfs-fs-info", "EPERM"),
    ("btrfs-lookup", "EPERM"),
    ("allowed-clone", "answered"),
    ("notifications", "EINVAL"),
    ("allowed-pipe", "ok"),
    ("page-cache", "EOPNOTSUPP"),
    ("page-cache-high", "EOPNOTSUPP"),
    ("allowed-read", "ok"),
    ("attributes", "ENOSYS"),
    ("attributes-set", "ENOSYS"),
];

fn surface(bench: &Bench, arm: Option<Arm>) -> Result<Answers, Fail> {
    let own = bench.payload("k_surface").display().to_string();
    let launch = match arm {
        Some(arm) => bench.task(arm).probe("k_surface", &["/probe/k_surface", "/task"]),
        None => bench.direct().with_uid(bench.uid_range().start).probe("k_surface", &[&own, "/tmp"]),
    };
    Ok(watch(bench, arm, launch, |_| Ok(()))?.0)
}

/// What a program does without these: cp shares blocks where it can, and copies where it cannot.
fn copies(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let script = "cp /usr/bin/env one && cp --reflink=auto one two && cmp /usr/bin/env two && echo same";
    let done = bench.task(arm).sh(script).finish()?;
    ensure!(done.out == "same\n" && done.code() == 0, "cp: {}{}, exit {}", done.out, done.err, done.code());
    Ok(())
}
