//! A machine itself: it boots, and is what it is said to be. The one with systemd shows itself in `unit.rs`.

use crate::TASKMAN;
use crate::machine::Machine;

/// The second disk has so many MiB.
pub fn hosts_files(machine: &mut Machine, disk: u64) {
    let mounted = machine.ok("findmnt -no FSTYPE,PROPAGATION /");
    assert!(mounted.starts_with("ext4") && mounted.contains("shared"), "{mounted:?}");
    assert_eq!(machine.ok("findmnt -rnt cgroup2 | wc -l; findmnt -rnt cgroup | wc -l"), "1\n0\n");
    assert_eq!(machine.ok("cat /sys/block/vdb/size"), format!("{}\n", disk * 2048), "{disk} MiB");
    assert_eq!(machine.run("echo out; echo err >&2; exit 7"), (7, "out\nerr\n".to_owned()));
    assert_eq!(machine.ok(&format!("{TASKMAN} run -- echo contained")), "contained\n");
    let wanted = machine.ok("cat /sys/fs/cgroup/cgroup.controllers");
    assert!(["cpu", "io", "memory", "pids"].iter().all(|name| wanted.contains(name)), "{wanted}");
}
