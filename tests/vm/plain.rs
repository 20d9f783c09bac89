//! A machine itself: it boots, and is what it is said to be. The one with systemd shows itself in `unit.rs`.

use libtest_mimic::Trial;

use crate::TASKMAN;
use crate::case;
use crate::machine::{Machine, Spec};

pub fn cases() -> Vec<Trial> {
    vec![case("plain_the_hosts_files_are_the_root_of_a_pure_v2_machine", hosts_files)]
}

fn hosts_files() {
    let mut machine = Machine::boot(Spec { disks: vec![64], ..Spec::default() });
    let mounted = machine.ok("findmnt -no FSTYPE,PROPAGATION /");
    assert!(mounted.starts_with("ext4") && mounted.contains("shared"), "{mounted:?}");
    assert_eq!(machine.ok("findmnt -rnt cgroup2 | wc -l; findmnt -rnt cgroup | wc -l"), "1\n0\n");
    assert_eq!(machine.ok("cat /sys/block/vdb/size"), "131072\n", "64 MiB");
    assert_eq!(machine.run("echo out; echo err >&2; exit 7"), (7, "out\nerr\n".to_owned()));
    assert_eq!(machine.ok(&format!("{TASKMAN} run -- echo contained")), "contained\n");
    let wanted = machine.ok("cat /sys/fs/cgroup/cgroup.controllers");
    assert!(["cpu", "io", "memory", "pids"].iter().all(|name| wanted.contains(name)), "{wanted}");
}
