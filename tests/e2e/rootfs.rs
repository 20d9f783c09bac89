//! The task's root, seen from outside: what is in it, how it is mounted, and that the host's mounts know nothing of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::inside::look;
use crate::support::host::host_text;
use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Process, Run, Started};

/// Device nodes a task has; each may be a mount of its own.
const DEVICES: [&str; 9] =
    ["/dev", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];

/// What of `/etc` stands inside, beside the loader's and Java's files.
const ETC: [&str; 13] = [
    "alternatives",
    "crypto-policies",
    "gitconfig",
    "group",
    "hostname",
    "hosts",
    "localtime",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki",
    "resolv.conf",
    "ssl",
];

#[test]
fn every_mount_is_nosuid_and_nodev_and_all_but_the_work_places_read_only() {
    look(Run::echo(), |_, payload| {
        let mounts = payload.mounts();
        let points: BTreeSet<_> = mounts.iter().map(|mount| mount.point.as_str()).collect();
        for point in ["/", "/usr", "/proc", "/dev", "/task", "/tmp", "/dev/shm"] {
            assert!(points.contains(point), "{point} is no mount: {points:?}");
        }
        for mount in &mounts {
            assert!(mount.has("nosuid"), "{mount:?}");
            assert!(mount.has("nodev") || DEVICES.contains(&mount.point.as_str()), "{mount:?}");
            let writable = ["/task", "/tmp", "/dev/shm", "/dev/pts"].contains(&mount.point.as_str());
            assert!(mount.has("ro") || writable, "{mount:?}");
            assert!(!mount.kind.starts_with("cgroup") && mount.kind != "sysfs", "{mount:?}");
        }
        for place in ["/task", "/tmp", "/dev/shm"] {
            let mount = mounts.iter().find(|mount| mount.point == place).unwrap();
            assert_eq!(mount.kind, "tmpfs");
            assert!(mount.super_options.iter().any(|o| o == "size=262144k"), "{mount:?}");
            assert!(mount.super_options.iter().any(|o| o == "nr_inodes=16385"), "{mount:?}");
        }
        let proc = mounts.iter().find(|mount| mount.point == "/proc").unwrap();
        assert_eq!(proc.kind, "proc");
    });
}

#[test]
fn the_root_holds_what_is_documented_and_no_old_root() {
    look(Run::echo(), |_, payload| {
        let mut names: BTreeSet<_> = payload.list("root").into_iter().collect();
        for optional in ["lib32", "libx32"] {
            names.remove(optional); // as the host has them
        }
        let wanted = ["bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "task", "tmp", "usr"];
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
        assert_eq!(payload.list("root/task"), [""; 0]);
        assert_eq!(payload.list("root/tmp"), [""; 0]);
        let devices = [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
        ];
        assert_eq!(payload.list("root/dev"), devices);
        for name in payload.list("root/etc") {
            let documented = ETC.contains(&name.as_str());
            assert!(documented || name.starts_with("ld.so.") || name.starts_with("java-"), "/etc/{name} is inside");
        }
        assert_eq!(payload.link("cwd"), "/task");
        let task = fs::metadata(payload.path("root/task")).unwrap();
        assert_eq!((task.uid(), task.gid(), task.mode() & 0o7777), (payload.uid(), payload.uid(), 0o700));
        assert_eq!(fs::metadata(payload.path("root/tmp")).unwrap().mode() & 0o7777, 0o1777);
        for name in ["passwd", "group"] {
            assert!(!payload.read(&format!("root/etc/{name}")).contains("nologin"), "/etc/{name} is the host's");
        }
    });
}

#[test]
fn the_hosts_mounts_are_the_same_before_during_and_after() {
    let before = host_mounts();
    look(Run::echo(), |_, _| assert_eq!(host_mounts(), before));
    assert_eq!(host_mounts(), before);
}

fn host_mounts() -> Vec<String> {
    without_others(&Process { pid: 1 }.read("mountinfo"), "nothing is ours")
}

/// But for those of other tests, which come and go, also from a namespace that has a copy of them. Ours have `own` in their line.
fn without_others(mounts: &str, own: &str) -> Vec<String> {
    let stays = |line: &&str| !line.contains("taskman-e2e") || line.contains(own);
    mounts.lines().filter(stays).map(str::to_owned).collect()
}

#[test]
fn on_a_host_whose_root_is_shared_no_mount_passes_either_way() {
    let dir = HostDir::new();
    let (before, below) = (dir.path("before"), dir.path("below"));
    fs::create_dir(&below).unwrap();
    // Private first: with the host's own mounts, which may be shared too, this one's have nothing to do.
    let script = "mount --make-rshared /; cat /proc/self/mountinfo > \"$1\"; exec \"${@:2}\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", script, "bash"]).arg(&before);
    command.args([TASKMAN, "run", "--bind-ro", &dir.bound_at("/opt/x"), "--", "sh", "-c", "echo ready; exec sleep 60"]);
    let mut task = Started::spawn(command, HostDir::new(), GUARD);
    assert_eq!(task.line(), "ready");
    let launcher = Process { pid: task.pid() };
    let outside = |mounts: &str| without_others(mounts, dir.root().to_str().unwrap());
    let before = outside(&fs::read_to_string(before).unwrap());
    assert!(before.iter().any(|line| line.contains(" shared:")), "the control arm: {before:?}");
    assert_eq!(outside(&launcher.read("mountinfo")), before, "the task's mounts are seen outside");

    let inside = task.payload().read("mountinfo");
    let pid = task.pid().to_string();
    host_text(&["nsenter", "-m", "-t", &pid, "mount", "-t", "tmpfs", "tmpfs", below.to_str().unwrap()]);
    assert_ne!(outside(&launcher.read("mountinfo")), before, "the control arm: nothing was mounted");
    assert_eq!(task.payload().read("mountinfo"), inside, "a mount made outside is seen inside");
    task.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(task.end().status.code(), Some(143));
}
