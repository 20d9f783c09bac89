//! Judgements over made-up hosts, and the examination of this one.

use std::collections::BTreeMap;
use std::path::Path;

use caps::{Capability, CapsHashSet};
use nix::errno::Errno;

use super::facts::{Identity, NAMESPACES, Surroundings, Unwritable};
use super::*;
use crate::cgroup::device;
use crate::cgroup::{Controller, Device, Devices};
use crate::error::SysError;

const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
const MEMORY_V1: &str = "30 23 0:27 / /cg/memory rw - cgroup cgroup rw,memory";
const BLKIO_V1: &str = "31 23 0:28 / /cg/blkio rw - cgroup cgroup rw,blkio";

/// A host on which all is well.
fn healthy() -> Facts {
    let values = [
        ("fs.protected_symlinks", "1"),
        ("fs.protected_hardlinks", "1"),
        ("fs.protected_fifos", "1"),
        ("fs.protected_regular", "2"),
        ("fs.suid_dumpable", "0"),
        ("kernel.core_pattern", "core"),
        ("kernel.pid_max", "4194304"),
        ("kernel.unprivileged_bpf_disabled", "2"),
        ("user.max_user_namespaces", "0"),
    ];
    Facts {
        release: "6.8.0-1-amd64\n".into(),
        refused_calls: Vec::new(),
        namespaces: NAMESPACES.map(|name| (name, true, Some(96343))).to_vec(),
        seccomp_actions: Some("kill_process kill_thread trap errno user_notif trace log allow\n".into()),
        layout: Layout::parse(V2, "0::/\n"),
        unwritable: Vec::new(),
        devices: Ok(Devices { disks: vec![Device { major: 254, minor: 0 }], ..Devices::default() }),
        nofile_hard: 1 << 20,
        identity: Identity {
            euid: 0,
            effective_capabilities: &caps::all() - &CapsHashSet::from([Capability::CAP_SYS_RESOURCE]),
            uid_map: "         0          0 4294967295\n".into(),
            passwd: "root:x:0:0:root:/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n".into(),
            group: "root:x:0:\n".into(),
            subuid: "u:100000:65536\n".into(),
            subgid: "u:100000:65536\n".into(),
            in_container: false,
        },
        strangers: Vec::new(),
        sysctls: BTreeMap::from(values.map(|(name, value)| (name, value.to_owned()))),
        surroundings: Surroundings::default(),
    }
}

fn lose(facts: &mut Facts, capability: Capability) {
    assert!(facts.identity.effective_capabilities.remove(&capability));
}

/// What is not ok, after a change to the healthy host, and whether strict mode still starts.
fn ill(change: impl FnOnce(&mut Facts)) -> (Vec<Finding>, bool) {
    let mut facts = healthy();
    change(&mut facts);
    let findings = judge(&facts, &Options::default());
    let starts = would_start(&findings);
    (findings.into_iter().filter(|finding| finding.status != Status::Ok).collect(), starts)
}

/// One change must spoil one point, and only that.
fn blocked(name: &str, change: impl FnOnce(&mut Facts)) -> Finding {
    let (mut ill, starts) = ill(change);
    assert_eq!(ill.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), [name]);
    assert!(!starts && ill[0].status == Status::Missing && ill[0].blocks, "{ill:?}");
    assert!(!ill[0].why.is_empty() && !ill[0].fix.is_empty(), "{ill:?}");
    ill.remove(0)
}

/// As [`blocked`], but a task would start.
fn reduced(name: &str, change: impl FnOnce(&mut Facts)) -> Finding {
    let (mut ill, starts) = ill(change);
    assert_eq!(ill.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), [name]);
    assert!(starts && ill[0].status == Status::Reduced, "{ill:?}");
    assert!(!ill[0].why.is_empty() && !ill[0].fix.is_empty(), "{ill:?}");
    ill.remove(0)
}

fn read_only_memory() -> Unwritable {
    let mount = Path::new("/sys/fs/cgroup/memory");
    Unwritable { dir: mount.join("x"), mount: mount.to_owned(), errno: Errno::EROFS }
}

#[test]
fn a_healthy_host_has_nothing_to_say_and_every_point_is_argued() {
    let (ill, starts) = ill(|_| ());
    assert!(ill.is_empty() && starts, "{ill:?}");
    let all = judge(&healthy(), &Options::default());
    assert!(all.iter().all(|f| !f.why.is_empty() && !f.seen.is_empty() && f.fix.is_empty()), "{all:#?}");
    let mut names: Vec<_> = all.iter().map(|f| &f.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len(), "a name stands for one point");
}

#[test]
fn each_lack_of_the_kernel_blocks() {
    assert!(blocked("kernel", |f| f.release = "5.10.0-28-amd64".into()).why.contains("cgroup.kill"));
    let seen = blocked("system calls", |f| f.refused_calls = vec![("clone3", Errno::ENOSYS)]).seen;
    assert!(seen.contains("clone3 (ENOSYS)"), "{seen}");
    for (index, name) in NAMESPACES.into_iter().enumerate() {
        let point = format!("namespace {name}");
        let fix = blocked(&point, |f| f.namespaces[index].1 = false).fix;
        assert!(fix.contains("CONFIG_"), "{fix}");
        let fix = blocked(&point, |f| f.namespaces[index].2 = Some(0)).fix;
        assert_eq!(fix, format!("sysctl -w user.max_{name}_namespaces=65536"));
        reduced(&point, |f| f.namespaces[index].2 = Some(3));
    }
    blocked("seccomp", |f| f.seccomp_actions = None);
    assert!(
        blocked("seccomp", |f| f.seccomp_actions = Some("kill_thread allow".into()))
            .seen
            .contains("errno, kill_process")
    );
}

#[test]
fn each_limit_that_cannot_be_enforced_blocks() {
    for (controller, name) in [
        (Controller::Memory, "limit memory"),
        (Controller::Swap, "limit swap"),
        (Controller::Cpu, "limit cpu"),
        (Controller::Pids, "limit pids"),
        (Controller::Io, "limit io"),
    ] {
        let lacking = |f: &mut Facts| f.layout = Layout::parse(V2, "0::/\n").map(|layout| layout.without(controller));
        let finding = blocked(name, lacking);
        let command = if controller == Controller::Swap { "swapoff" } else { "Delegate=yes" };
        assert!(finding.fix.contains(command), "{finding:?}");
    }
    let no_groups = blocked("cgroups", |f| f.layout = Layout::parse("", ""));
    assert!(no_groups.fix.starts_with("mount ") && no_groups.seen.contains("no cgroup2"), "{no_groups:?}");
    let read_only = |f: &mut Facts| f.unwritable = vec![read_only_memory()];
    let finding = blocked("cgroup access", read_only);
    assert!(finding.seen.contains("/sys/fs/cgroup/memory/x (EROFS)"), "{finding:?}");
    assert_eq!(finding.fix, "mount -o remount,rw /sys/fs/cgroup/memory");
    let not_root = |f: &mut Facts| f.unwritable = vec![Unwritable { errno: Errno::EACCES, ..read_only_memory() }];
    assert_eq!(blocked("cgroup access", not_root).fix, "run as root");
    assert!(blocked("limit nofile", |f| f.nofile_hard = 1000).seen.contains("1024 asked, hard limit 1000"));
    let far = Devices { unenforceable: vec!["/usr is on nfs4".into()], ..Devices::default() };
    assert_eq!(blocked("limit io", |f| f.devices = Ok(far)).seen, "/usr is on nfs4");
    blocked("limit io", |f| f.devices = Err(SysError::new("stat", "/usr", Errno::EIO)));
}

#[test]
fn what_is_missing_is_named_as_this_host_names_it() {
    let layout = || Layout::parse(V2, "0::/\n").unwrap();
    assert_eq!(blocked("limit io", |f| f.layout = Ok(layout().without(Controller::Io))).seen, "no io controller for /");
    // Whether the host has swap is no matter where nothing counts memory.
    let neither = |f: &mut Facts| f.layout = Ok(layout().without(Controller::Memory).without(Controller::Swap));
    let (ill, starts) = ill(neither);
    let finding = ill.iter().find(|finding| finding.name == "limit swap").unwrap();
    assert!(finding.seen == "no memory controller for /" && finding.fix.contains("+memory") && !starts, "{finding:?}");
}

#[test]
fn a_path_on_layers_has_the_limit_on_every_disk_and_that_is_said() {
    let layered = Devices { layered: vec!["/usr".into()], ..healthy().devices.unwrap() };
    let finding = reduced("limit io", |f| f.devices = Ok(layered));
    assert!(finding.seen.contains("254:0") && finding.seen.contains("/usr is on overlay"), "{finding:?}");
}

#[test]
fn what_version_1_does_not_throttle_is_said() {
    let mut facts = healthy();
    facts.layout = Layout::parse(&format!("{V2}\n{MEMORY_V1}\n{BLKIO_V1}"), "3:blkio:/\n2:memory:/a\n0::/\n");
    let findings = judge(&facts, &Options::default());
    assert!(would_start(&findings));
    let seen = |name: &str| findings.iter().find(|f| f.name == name).unwrap().seen.clone();
    assert!(seen("limit io").contains("reads and direct writes only"), "{}", seen("limit io"));
    assert!(seen("limit io").contains("254:0"), "{}", seen("limit io"));
    assert_eq!(seen("limit memory"), "enforced by memory of version 1");
    assert_eq!(seen("limit cpu"), "enforced by version 2");
    assert!(seen("cgroups").contains("hybrid"));
}

/// All that an ordinary user lacks, on a host that is no container.
#[test]
fn nobody_is_told_of_a_containers_options_outside_of_one() {
    let (ill, starts) = ill(|f| {
        f.identity.euid = 1000;
        f.identity.effective_capabilities.clear();
        f.unwritable = vec![Unwritable { errno: Errno::EACCES, ..read_only_memory() }, read_only_memory()];
        f.refused_calls = vec![("clone3", Errno::EPERM), ("mount", Errno::EPERM), ("openat2", Errno::ENOSYS)];
        f.namespaces[0].2 = Some(0);
    });
    assert!(!starts && judge(&healthy(), &Options::default()).iter().any(|f| f.name == "container" && f.seen == "no"));
    for point in ["root", "capabilities", "cgroup access", "system calls", "auditor"] {
        assert!(ill.iter().any(|finding| finding.name == point), "{point}: {ill:?}");
    }
    for finding in &ill {
        for word in ["container", "--cap-add", "--security-opt", "--cgroupns", "--userns", "securityContext", "podman"]
        {
            assert!(!finding.fix.contains(word), "{word}: {finding:?}");
        }
    }
    let hidden = || LayoutError::Hidden { hierarchy: "cgroup2".into(), cgroup: "/a".into() };
    for error in [LayoutError::NoCgroup2 { v1: true }, hidden(), LayoutError::Shared { cgroup: "/a".into(), others: 1 }]
    {
        let finding = limits::no_layout(&error, false);
        assert!(!finding.fix.contains("container") && !finding.fix.contains("--cgroupns"), "{finding:?}");
    }
    assert_eq!(limits::no_layout(&hidden(), false).fix, "mount the hierarchy's root");
    assert!(limits::no_layout(&hidden(), true).fix.contains("--cgroupns=private"));
}

#[test]
fn who_taskman_is_and_whose_the_uids_are() {
    let refusal = blocked("root", |f| f.identity.euid = 1000).refusal();
    assert_eq!(refusal, NOT_ROOT, "run and doctor say the same");
    let seen = blocked("capabilities", |f| lose(f, Capability::CAP_SYS_ADMIN)).seen;
    assert!(seen.starts_with("without CAP_SYS_ADMIN (to "), "{seen}");
    blocked("uid map", |f| f.identity.uid_map = "0 100000 65536\n".into());
    let seen = blocked("uid range", |f| f.identity.passwd += "x:x:1900000005:5::/:/bin/sh\n").seen;
    assert!(seen.contains("x of /etc/passwd"), "{seen}");
    blocked("uid range", |f| f.identity.group += "g:x:1900065535:\n");
    blocked("uid range", |f| f.identity.subuid += "y:1899999999:2\n");
    let seen = blocked("uid range", |f| f.identity.subgid += "z:1000000000:2000000000\n").seen;
    assert!(seen.contains("z of /etc/subgid"), "{seen}");
    // Next to the range is not in it.
    let (beside, starts) = ill(|f| {
        f.identity.passwd += "a:x:1899999999:1::/:\nb:x:1900065536:1::/:\nbroken\n:::\n";
        f.identity.subuid += "c:1899934464:65536\nd:1900065536:9\n";
    });
    assert!(beside.is_empty() && starts, "{beside:?}");
    reduced("uid use", |f| f.strangers = vec![(77, 1_900_000_001)]);
}

#[test]
fn the_servers_uid_is_nobodys_but_an_accounts_that_is_there_for_it() {
    let judged = |passwd: &str, group: &str, subuid: &str| {
        let mut identity = healthy().identity;
        identity.passwd += passwd;
        identity.group += group;
        identity.subuid += subuid;
        identity::servers(&identity, 1_899_999_999)
    };
    let its_own = ("taskman:x:1899999999:1899999999::/:/usr/sbin/nologin\n", "taskman:x:1899999999:\n");
    assert!(!judged("", "", "").blocks && !judged(its_own.0, its_own.1, "").blocks);
    for (passwd, group, subuid) in [
        ("taskman2:x:1899999999:1::/:/bin/sh\n", "", ""),
        (its_own.0, "others:x:1899999999:\n", ""),
        (its_own.0, its_own.1, "taskman:1899999999:1\n"),
    ] {
        let finding = judged(passwd, group, subuid);
        assert!(finding.blocks && finding.refusal().contains("set server_uid"), "{}", finding.refusal());
    }
}

#[test]
fn settings_reduce_only_what_depends_on_them() {
    for (name, value) in [
        ("kernel.core_pattern", "|/usr/share/apport/apport %p"),
        ("kernel.core_pattern", "@/run/coredump.socket"),
        ("fs.suid_dumpable", "1"),
        ("fs.protected_symlinks", "0"),
        ("fs.protected_regular", "0"),
        ("fs.protected_fifos", "0"),
        ("kernel.pid_max", "32768"),
    ] {
        let fix = reduced(name, |f| drop(f.sysctls.insert(name, value.into()))).fix;
        assert!(fix.starts_with(&format!("sysctl -w {name}=")), "{fix}");
    }
    for (name, value) in [
        ("fs.protected_hardlinks", "0"),
        ("kernel.unprivileged_bpf_disabled", "0"),
        ("user.max_user_namespaces", "96343"),
        ("fs.suid_dumpable", "2"),
    ] {
        let (ill, _) = ill(|f| drop(f.sysctls.insert(name, value.into())));
        assert!(ill.is_empty(), "{ill:?}");
    }
    let (unknown, starts) = ill(|f| f.sysctls.clear());
    assert!(unknown.is_empty() && starts, "a setting that this kernel lacks is no setting to change");
}

#[test]
fn a_container_is_told_by_its_namespaces_not_by_a_file() {
    let signs = || vec!["/.dockerenv exists".to_owned()];
    let (ill, _) = ill(|f| f.surroundings.signs = signs());
    assert!(ill.is_empty(), "{ill:?}");
    let seen = reduced("container", |f| {
        f.surroundings = Surroundings { signs: signs(), foreign: vec!["cgroup"], ..Surroundings::default() }
    });
    assert!(seen.seen.contains("/.dockerenv") && seen.seen.contains("cgroup"), "{seen:?}");
    reduced("container", |f| f.surroundings.foreign = vec!["cgroup"]);
}

/// What is not ok in a container, after a further change.
fn contained(change: impl FnOnce(&mut Facts)) -> (Vec<Finding>, bool) {
    ill(|f| {
        f.surroundings.foreign = vec!["pid", "cgroup"];
        f.identity.in_container = true;
        change(f);
    })
}

/// The one finding that blocks in a container.
fn blocked_inside(name: &str, change: impl FnOnce(&mut Facts)) -> Finding {
    let (ill, starts) = contained(change);
    let mut blocking: Vec<_> = ill.into_iter().filter(|finding| finding.blocks).collect();
    assert_eq!((blocking.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), starts), (vec![name], false));
    blocking.remove(0)
}

#[test]
fn a_container_is_told_the_option_that_gives_what_is_missing() {
    let (ill, starts) = contained(|_| ());
    assert_eq!(ill.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["container", "auditor"]);
    assert!(starts, "{ill:?}");
    for (name, capability, what) in CAPABILITIES {
        let finding = blocked_inside("capabilities", |f| lose(f, capability));
        assert_eq!(finding.seen, format!("without {name} (to {what})"));
        let short = name.trim_start_matches("CAP_");
        for option in [format!("--cap-add={short} "), format!("capabilities.add: [{short}]")] {
            assert!(finding.fix.contains(&option), "{finding:?}");
        }
    }
    let finding = blocked_inside("system calls", |f| f.refused_calls = vec![("pivot_root", Errno::EPERM)]);
    assert!(finding.fix.contains("--security-opt seccomp=deploy/containers/seccomp.json"), "{finding:?}");
    // Without the capability the kernel refuses the call too: one lack, one finding.
    blocked_inside("capabilities", |f| {
        f.refused_calls = vec![("pivot_root", Errno::EPERM)];
        lose(f, Capability::CAP_SYS_ADMIN);
    });
    let read_only = |f: &mut Facts| f.unwritable = vec![read_only_memory()];
    for finding in [
        blocked_inside("cgroup access", read_only),
        blocked_inside("cgroups", |f| f.layout = Layout::parse("", "")),
        blocked_inside("cgroups", |f| f.layout = Err(LayoutError::Shared { cgroup: "/".into(), others: 1 })),
    ] {
        assert!(finding.fix.contains("deploy/containers/entrypoint"), "{finding:?}");
    }
    let finding = blocked_inside("user namespace", |f| f.surroundings.foreign.push("user"));
    assert!(finding.fix.contains("--userns=host") && finding.fix.contains("hostUsers: true"), "{finding:?}");
    for (confinement, option) in [
        ("docker-default (enforce)", "apparmor=unconfined"),
        ("cri-containerd.apparmor.d (enforce)", "{type: Unconfined}"),
        ("system_u:system_r:container_t:s0:c1,c2", "label=disable"),
    ] {
        let finding = blocked_inside("security module", |f| f.surroundings.confinement = confinement.into());
        assert!(finding.fix.contains(option) && finding.seen.contains(confinement), "{finding:?}");
    }
    for confinement in ["", "docker-default (complain)", "/usr/sbin/taskman-server (enforce)"] {
        let (_, starts) = contained(|f| f.surroundings.confinement = confinement.into());
        assert!(starts, "{confinement}");
    }
}

#[test]
fn what_the_auditor_lacks_is_said_and_takes_no_task() {
    let blind = |f: &mut Facts| lose(f, AUDITOR_CAPABILITY.1);
    let finding = reduced("auditor", blind);
    assert!(
        finding.seen.contains("CAP_SYS_PTRACE") && finding.fix == "run as root, with all that root has",
        "{finding:?}"
    );
    let (ill, starts) = contained(blind);
    let finding = ill.iter().find(|f| f.name == "auditor").unwrap();
    assert!(starts && finding.seen.contains("pid namespace") && finding.seen.contains("CAP_SYS_PTRACE"), "{finding:?}");
    assert!(finding.fix.contains("--cap-add=SYS_PTRACE"), "{finding:?}");
}

#[test]
fn this_host_is_examined_and_would_start_a_task() {
    let findings = examine(&Options::default());
    let blocking: Vec<_> = findings.iter().filter(|finding| finding.blocks).collect();
    assert!(blocking.is_empty(), "the tests need a host that can contain: {blocking:#?}");
    let layout = Layout::detect().unwrap();
    let spec = TaskSpec::new("true", [""; 0]).unwrap();
    let devices = device::behind(&sandbox::host_paths(&spec));
    assert_eq!(strict_refusals(&layout, &spec, &devices), [""; 0]);
    assert_eq!(launcher_refusals(UidRange::default()), [""; 0]);
    assert!(super::server_refusals(0).iter().any(|r| r.contains("root of /etc/passwd") && r.contains("server_uid")));
}

#[test]
fn a_start_is_refused_in_the_doctors_words() {
    let layout = Layout::detect().unwrap().without(Controller::Pids);
    let limits = Limits { nofile: 1 << 40, ..Limits::default() };
    let spec = TaskSpec::new("true", [""; 0]).unwrap().with_limits(limits.clone()).unwrap();
    let mut facts = healthy();
    facts.devices = device::behind(&[Path::new("/usr")]);
    let refused = strict_refusals(&layout, &spec, &facts.devices);
    facts.layout = Ok(layout);
    facts.nofile_hard = facts::nofile_hard();
    let findings = judge(&facts, &Options { limits, ..Options::default() });
    let words: Vec<_> = findings.iter().filter(|f| f.blocks).map(Finding::refusal).collect();
    assert_eq!(refused, words);
    assert_eq!(refused.len(), 2, "{refused:?}");
    // An account with the tasks' uid, on the real host: root's group of uids is in /etc/passwd.
    let everyone = UidRange { first: 0, count: 10 };
    assert!(launcher_refusals(everyone).iter().any(|r| r.contains("root of /etc/passwd")));
    let text = layout_refusal(&Layout::parse("", "").unwrap_err());
    assert!(text.starts_with("cgroups: no cgroup2") && text.contains("; fix: mount "), "{text}");
}
