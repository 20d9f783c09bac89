//! Everything that is asked of the host, asked in one place, so that the judgements are plain functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use caps::{CapSet, CapsHashSet};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{AccessFlags, access};

use super::Options;
use crate::cgroup::{Controller, Devices, Hierarchy, Layout, LayoutError, device};
use crate::error::SysError;
use crate::place::UidRange;
use crate::sys::{file, probe};

/// Namespaces that a sandbox is made of.
pub(super) const NAMESPACES: [&str; 7] = ["pid", "mnt", "ipc", "uts", "net", "cgroup", "time"];
/// Settings that are looked at.
pub(super) const SYSCTLS: [&str; 10] = [
    "fs.protected_symlinks",
    "fs.protected_hardlinks",
    "fs.protected_fifos",
    "fs.protected_regular",
    "fs.suid_dumpable",
    "kernel.core_pattern",
    "kernel.pid_max",
    "net.core.tstamp_allow_data",
    "kernel.unprivileged_bpf_disabled",
    "user.max_user_namespaces",
];

/// Who taskman is, and which numbers are taken.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs)] // named as the kernel and the files are
pub struct Identity {
    pub euid: u32,
    pub effective_capabilities: CapsHashSet,
    pub uid_map: String,
    pub passwd: String,
    pub group: String,
    pub subuid: String,
    pub subgid: String,
    /// Whether a container is where this is, which decides what the cure is called.
    pub in_container: bool,
}

/// What the host says of itself.
#[derive(Debug)]
pub struct Facts {
    /// The kernel's release.
    pub release: String,
    /// System calls that are refused.
    pub refused_calls: Vec<(&'static str, Errno)>,
    /// Each of [`NAMESPACES`]: whether it exists, and how many there may be.
    pub namespaces: Vec<(&'static str, bool, Option<u64>)>,
    /// Actions that a filter can take; none if there are no filters.
    pub seccomp_actions: Option<String>,
    /// The control groups.
    pub layout: Result<Layout, LayoutError>,
    /// Group directories in which no group can be made.
    pub unwritable: Vec<Unwritable>,
    /// Disks behind the paths.
    pub devices: Result<Devices, SysError>,
    /// Most open files that a process here can have.
    pub nofile_hard: u64,
    /// Who and which numbers.
    pub identity: Identity,
    /// Processes with a task uid that are in no task's group: pid and uid.
    pub strangers: Vec<(u32, u32)>,
    /// Values of [`SYSCTLS`] that exist.
    pub sysctls: BTreeMap<&'static str, String>,
    /// What taskman itself runs in.
    pub surroundings: Surroundings,
}

/// What taskman itself runs in: the host, or a container on it.
#[derive(Debug, Default, Clone)]
pub struct Surroundings {
    /// Files and variables that containers have, and not they alone.
    pub signs: Vec<String>,
    /// Namespaces that are not the host's first ones.
    pub foreign: Vec<&'static str>,
    /// What a security module says of this process; empty without one.
    pub confinement: String,
}

impl Surroundings {
    fn gather() -> Self {
        let confinement = text("/proc/self/attr/current");
        let confinement = confinement.trim_matches(['\0', '\n']);
        let confinement = if confinement == "unconfined" { "" } else { confinement }.to_owned();
        Self { signs: container_signs(), foreign: foreign_namespaces(), confinement }
    }

    /// Its namespaces tell, not a file.
    pub fn is_container(&self) -> bool {
        !self.foreign.is_empty()
    }
}

impl Facts {
    /// Asks.
    pub fn gather(options: &Options) -> Self {
        let layout = Layout::detect();
        Self {
            release: text("/proc/sys/kernel/osrelease"),
            refused_calls: probe::refused_calls(),
            namespaces: NAMESPACES.map(namespace).to_vec(),
            seccomp_actions: fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").ok(),
            unwritable: layout.as_ref().map(unwritable).unwrap_or_default(),
            layout,
            devices: device::behind(&options.paths),
            nofile_hard: nofile_hard(),
            identity: Identity::gather(),
            strangers: strangers(options.uids),
            sysctls: SYSCTLS.into_iter().filter_map(|name| Some((name, sysctl(name)?))).collect(),
            surroundings: Surroundings::gather(),
        }
    }
}

impl Identity {
    /// Asks; cheap enough for every start.
    pub fn gather() -> Self {
        Self {
            euid: nix::unistd::geteuid().as_raw(),
            effective_capabilities: caps::read(None, CapSet::Effective).unwrap_or_default(),
            uid_map: text("/proc/self/uid_map"),
            passwd: text("/etc/passwd"),
            group: text("/etc/group"),
            subuid: text("/etc/subuid"),
            subgid: text("/etc/subgid"),
            in_container: in_container(),
        }
    }
}

/// Most open files that a process here can have.
pub(super) fn nofile_hard() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map(|(_, hard)| hard).unwrap_or(0)
}

/// A file's text; what cannot be read says nothing.
fn text(path: &str) -> String {
    file::text(path).unwrap_or_default()
}

fn sysctl(name: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some(value.trim().to_owned())
}

fn namespace(name: &'static str) -> (&'static str, bool, Option<u64>) {
    let exists = Path::new("/proc/self/ns").join(name).symlink_metadata().is_ok();
    (name, exists, sysctl(&format!("user.max_{name}_namespaces")).and_then(|max| max.parse().ok()))
}

/// A group directory in which no group can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritable {
    /// The directory.
    pub dir: PathBuf,
    /// Where its hierarchy is mounted.
    pub mount: PathBuf,
    /// Why.
    pub errno: Errno,
}

/// Those of the layout.
pub(super) fn unwritable(layout: &Layout) -> Vec<Unwritable> {
    let carried = Controller::ALL.into_iter().filter_map(|controller| layout.hierarchy(controller));
    let mut hierarchies: Vec<_> = carried.chain([layout.base()]).collect();
    hierarchies.sort_by_key(|hierarchy| &hierarchy.dir);
    hierarchies.dedup_by_key(|hierarchy| &hierarchy.dir);
    let refused = |hierarchy: &Hierarchy| {
        let errno = access(&hierarchy.dir, AccessFlags::W_OK).err()?;
        Some(Unwritable { dir: hierarchy.dir.clone(), mount: hierarchy.mount.0.clone(), errno })
    };
    hierarchies.into_iter().filter_map(refused).collect()
}

/// Processes with a uid of the range that run in no task's group.
fn strangers(uids: UidRange) -> Vec<(u32, u32)> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let status = text(&format!("/proc/{pid}/status"));
        let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let uid = numbers.split_whitespace().filter_map(|n| n.parse().ok()).find(|uid| uids.contains(*uid))?;
        let of_a_task = text(&format!("/proc/{pid}/cgroup")).contains("/taskman-");
        (!of_a_task).then_some((pid, uid))
    })
    .collect()
}

fn container_signs() -> Vec<String> {
    let files = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    let mut signs: Vec<String> =
        files.into_iter().filter(|path| Path::new(path).exists()).map(|path| format!("{path} exists")).collect();
    let environment = text("/proc/1/environ");
    signs.extend(environment.split('\0').find(|pair| pair.starts_with("container=")).map(|p| format!("pid 1 has {p}")));
    signs
}

/// The namespaces of this process that are not the host's. The kernel numbers its first ones the same on every host.
pub(super) fn foreign_namespaces() -> Vec<&'static str> {
    let is_foreign = |(name, number): (&'static str, u64)| {
        let link = fs::read_link(format!("/proc/self/ns/{name}"));
        (!link.is_ok_and(|link| link == Path::new(&format!("{name}:[{number}]")))).then_some(name)
    };
    [("pid", 0xEFFF_FFFC), ("cgroup", 0xEFFF_FFFB), ("user", 0xEFFF_FFFD)].into_iter().filter_map(is_foreign).collect()
}

/// Whether this is a container: three links, read at every start.
pub(super) fn in_container() -> bool {
    !foreign_namespaces().is_empty()
}
