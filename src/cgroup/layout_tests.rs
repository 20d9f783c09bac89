//! Host shapes as text: the same parser must place a task on each of them, or say why not.

use super::*;

const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate";
const ROOT: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw";
const HYBRID: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
const HYBRID_SELF: &str =
    "9:name=systemd:/\n8:pids:/\n7:blkio:/\n4:memory:/a/b c\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n";

#[test]
fn a_version_2_host_has_everything_in_one_tree() {
    let layout = Layout::parse(&format!("{ROOT}\n{V2}"), "0::/system.slice/x.service\n").unwrap();
    assert_eq!(layout.kind(), Kind::V2);
    for controller in Controller::ALL {
        let found = layout.hierarchy(controller).unwrap();
        assert_eq!(found.dir, Path::new("/sys/fs/cgroup/system.slice/x.service"));
        assert!(!layout.is_v1(controller));
    }
}

#[test]
fn a_hybrid_host_has_its_limits_where_the_controllers_are() {
    let layout = Layout::parse(HYBRID, HYBRID_SELF).unwrap();
    assert_eq!(layout.kind(), Kind::Hybrid);
    assert_eq!(layout.base().dir, Path::new("/sys/fs/cgroup/unified"));
    let dir = |controller| layout.hierarchy(controller).unwrap().dir.to_str().unwrap().to_owned();
    assert_eq!(dir(Controller::Memory), "/sys/fs/cgroup/memory/a/b c");
    assert_eq!(dir(Controller::Swap), "/sys/fs/cgroup/memory/a/b c");
    assert_eq!(dir(Controller::Cpu), "/sys/fs/cgroup/cpu");
    assert_eq!(dir(Controller::Io), "/sys/fs/cgroup/blkio");
    assert_eq!(layout.v1.len(), 4, "one directory per hierarchy: {:?}", layout.v1);
    assert!(layout.missing().is_empty());
}

#[test]
fn controllers_mounted_together_share_a_directory() {
    let mounts = format!("{V2}\n30 23 0:27 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct");
    let layout = Layout::parse(&mounts, "1:cpu,cpuacct:/x\n0::/\n").unwrap();
    assert_eq!(layout.kind(), Kind::Hybrid);
    assert_eq!(layout.v1.len(), 1);
    assert_eq!(layout.v1[0].controllers, [Controller::Cpu]);
    assert_eq!(layout.v1[0].dir, Path::new("/cg/cpu,cpuacct/x"));
    assert_eq!(layout.hierarchy(Controller::Memory).unwrap().dir, Path::new("/sys/fs/cgroup"));
}

#[test]
fn a_cgroup_namespace_shows_its_own_root() {
    let layout = Layout::parse(V2, "0::/\n").unwrap();
    assert_eq!(layout.base().dir, Path::new("/sys/fs/cgroup"));
    // A bind of part of the tree, as containers without a namespace of their own have.
    let part = V2.replace(" / /sys", " /docker/7f /sys");
    let layout = Layout::parse(&part, "0::/docker/7f/inner\n").unwrap();
    assert_eq!(layout.base().dir, Path::new("/sys/fs/cgroup/inner"));
    assert_eq!(layout.base().cgroup, "/docker/7f/inner");
    // The mount was made outside the namespace, or shows a sibling: nothing under it is ours.
    for root in ["/../..", "/docker/7"] {
        let elsewhere = V2.replace(" / /sys", &format!(" {root} /sys"));
        let error = Layout::parse(&elsewhere, "0::/docker/7f\n").unwrap_err();
        assert!(matches!(error, LayoutError::Hidden { .. }), "{error}");
        assert!(error.to_string().contains("fix: mount the hierarchy's root"), "{error}");
    }
}

#[test]
fn not_enough_says_what_is_missing_and_the_command() {
    let v1_only = HYBRID.lines().filter(|l| !l.contains("cgroup2")).collect::<Vec<_>>().join("\n");
    let error = Layout::parse(&v1_only, HYBRID_SELF).unwrap_err();
    assert!(matches!(error, LayoutError::NoCgroup2 { v1: true }), "{error}");
    assert!(error.to_string().contains("only version 1") && error.to_string().contains("mount -"), "{error}");
    let error = Layout::parse(ROOT, "").unwrap_err();
    assert!(matches!(error, LayoutError::NoCgroup2 { v1: false }), "{error}");
    assert!(matches!(Layout::parse("", "").unwrap_err(), LayoutError::NoCgroup2 { v1: false }));
    // A hierarchy whose own group is hidden is as bad as none.
    let hidden = HYBRID.replace("0:32 / ", "0:32 /other ");
    assert!(
        matches!(Layout::parse(&hidden, HYBRID_SELF).unwrap_err(), LayoutError::Hidden { hierarchy, .. } if hierarchy == "memory")
    );
}

#[test]
fn the_launchers_own_leaf_is_not_where_tasks_go() {
    let layout = Layout::parse(V2, "0::/a.scope/taskman-launcher\n").unwrap();
    assert_eq!((layout.base().dir.to_str(), &*layout.base().cgroup), (Some("/sys/fs/cgroup/a.scope"), "/a.scope"));
    let layout = Layout::parse(V2, "0::/taskman-launcher\n").unwrap();
    assert_eq!((layout.base().dir.to_str(), &*layout.base().cgroup), (Some("/sys/fs/cgroup"), "/"));
}

#[test]
fn versions_are_read_as_the_kernel_writes_them() {
    for (release, enough) in
        [("5.14.0-1-amd64", true), ("6.18.44\n", true), ("5.13.19", false), ("4.19", false), ("", false)]
    {
        assert_eq!(recent(release), enough, "{release}");
    }
    let old = LayoutError::OldKernel("5.4".into()).to_string();
    assert!(old.contains("cgroup.kill") && old.contains("5.14"), "{old}");
}
