//! The machines themselves: each boots, and is what it is said to be.

use libtest_mimic::Trial;

use crate::TASKMAN;
use crate::case;
use crate::machine::{Machine, Root, Spec};

pub fn cases() -> Vec<Trial> {
    vec![
        case("plain_the_hosts_files_are_the_root_of_a_pure_v2_machine", hosts_files),
        case("plain_debian_runs_systemd_and_keeps_its_disk_over_a_reboot", debian),
    ]
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

fn debian() {
    let mut machine = Machine::boot(Spec { root: Root::Debian, ..Spec::default() });
    assert_eq!(machine.ok("ps -o comm= 1"), "systemd\n");
    assert!(machine.ok("ls /host/usr").contains("bin"));
    machine.ok("echo kept > /etc/kept");
    let before = machine.ok("cat /proc/sys/kernel/random/boot_id");
    machine.reboot();
    assert_ne!(machine.ok("cat /proc/sys/kernel/random/boot_id"), before);
    assert_eq!(machine.ok("cat /etc/kept"), "kept\n");
    assert!(machine.ok("ls /host/usr").contains("bin"));
}
