//! Which control groups this process has, read from mountinfo and `/proc/self/cgroup`, never from guessed paths.
//!
//! `/sys/fs/cgroup` is a habit, not an interface: containers, hybrid hosts and namespaces put things elsewhere.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::delegate;
use super::mountinfo::Mount;
use crate::error::{Context, SysError};

/// Where the kernel first has `cgroup.kill`, without which a fork bomb cannot be ended in one step.
const NEEDED_KERNEL: (u32, u32) = (5, 14);

/// What a limit needs. `Swap` is no controller of its own, but can be absent where memory is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the kernel's names
pub enum Controller {
    Memory,
    Swap,
    Cpu,
    Pids,
    Io,
}

impl Controller {
    /// All of them, in the order that `taskman doctor` shows.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Swap, Self::Cpu, Self::Pids, Self::Io];

    /// The name in version 1 mount options.
    pub fn v1_name(self) -> &'static str {
        match self {
            Self::Memory | Self::Swap => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
            Self::Io => "blkio",
        }
    }

    /// The name in `cgroup.controllers`.
    pub fn v2_name(self) -> &'static str {
        match self {
            Self::Io => "io",
            other => other.v1_name(),
        }
    }
}

/// The shape of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everything in the cgroup2 tree.
    V2,
    /// Placement, kill and events in cgroup2; some limits in version 1 hierarchies.
    Hybrid,
}

/// The group under which a task's groups are made, in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its controllers that taskman uses.
    pub controllers: Vec<Controller>,
    /// The directory.
    pub dir: PathBuf,
    /// The same, as `/proc/<pid>/cgroup` writes it.
    pub cgroup: String,
    /// Where the hierarchy is mounted, and which of its groups that shows.
    pub mount: (PathBuf, String),
}

impl Hierarchy {
    /// The directory of another group of this hierarchy, if the mount shows it.
    pub(super) fn resolve(&self, cgroup: &str) -> Option<PathBuf> {
        below(&self.mount.0, &self.mount.1, cgroup)
    }
}

/// Where groups are made. Constructing one changes nothing on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub(super) v2: Hierarchy,
    pub(super) v1: Vec<Hierarchy>,
    pub(super) missing: BTreeSet<Controller>,
    /// Version 2 controllers that the first task has to switch on for its group's children.
    pub(super) to_enable: Vec<Controller>,
    /// The rule of no internal processes asks the launcher to leave the group before that.
    pub(super) must_leave: bool,
}

/// "Not enough": nothing can be contained here.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The kernel's own description could not be read.
    #[error(transparent)]
    Read(#[from] SysError),
    /// No version 2 tree.
    #[error(
        "no cgroup2 file system is mounted, and without its cgroup.kill and cgroup.events a task can be neither ended nor proven gone ({}); fix: {}",
        if *.v1 { "only version 1 hierarchies are" } else { "no control groups are" },
        if *.v1 { "mount -o X-mount.mkdir -t cgroup2 cgroup2 /sys/fs/cgroup/unified, or boot with systemd.unified_cgroup_hierarchy=1" } else { "mount -o X-mount.mkdir -t cgroup2 cgroup2 /sys/fs/cgroup" }
    )]
    NoCgroup2 {
        /// Version 1 is there.
        v1: bool,
    },
    /// A kernel without `cgroup.kill`.
    #[error(
        "kernel {0} has no cgroup.kill (5.14 has), so a fork bomb cannot be ended in one step; fix: boot a kernel of 5.14 or later"
    )]
    OldKernel(String),
    /// The mount shows another part of the tree than the one this process is in.
    #[error(
        "this process is in the {hierarchy} group {cgroup:?}, which no mount of that hierarchy shows, so nothing can be placed under it; fix: mount the hierarchy's root"
    )]
    Hidden {
        /// `cgroup2`, or the version 1 controller.
        hierarchy: String,
        /// As `/proc/self/cgroup` has it.
        cgroup: String,
    },
    /// systemd, or whoever manages this group, has not given it to us.
    #[error(
        "the cgroup {0:?} is managed by systemd and not delegated, so groups made in it may be changed or removed at any time; fix: systemd-run --scope -p Delegate=yes taskman run …"
    )]
    NotDelegated(String),
    /// Ours, but not ours alone.
    #[error(
        "the cgroup {cgroup:?} holds {others} other process(es), and controllers cannot be enabled below a group with processes in it; fix: systemd-run --scope -p Delegate=yes taskman run …"
    )]
    Shared {
        /// The group.
        cgroup: String,
        /// How many processes of others are in it.
        others: usize,
    },
}

impl Layout {
    /// Reads what this process has. Costs two files of proc, and a few of cgroupfs.
    pub fn detect() -> Result<Self, LayoutError> {
        let release = read(Path::new("/proc/sys/kernel/osrelease"))?;
        if !recent(&release) {
            return Err(LayoutError::OldKernel(release.trim().to_owned()));
        }
        let mountinfo = read(Path::new("/proc/self/mountinfo"))?;
        let mut layout = Self::parse(&mountinfo, &read(Path::new("/proc/self/cgroup"))?)?;
        delegate::examine(&mut layout)?;
        Ok(layout)
    }

    /// The pure part of [`Layout::detect`]. A controller without a version 1 hierarchy is taken to be in version 2.
    pub fn parse(mountinfo: &str, self_cgroup: &str) -> Result<Self, LayoutError> {
        let mounts: Vec<Mount<'_>> = Mount::all(mountinfo).filter(|mount| mount.kind.starts_with("cgroup")).collect();
        if !mounts.iter().any(|mount| mount.is_v2()) {
            return Err(LayoutError::NoCgroup2 { v1: !mounts.is_empty() });
        }
        let own = |wanted: Option<&str>| {
            self_cgroup.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (_id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                let found = match wanted {
                    Some(name) => controllers.split(',').any(|c| c == name),
                    None => controllers.is_empty(),
                };
                found.then(|| path.to_owned())
            })
        };
        let place = |wanted: Option<&str>, controllers: Vec<Controller>| {
            let cgroup = own(wanted).unwrap_or_default();
            // The last mount that fits is the one on top.
            let carries = |mount: &&Mount<'_>| match wanted {
                Some(name) => !mount.is_v2() && mount.options.split(',').any(|o| o == name),
                None => mount.is_v2(),
            };
            let fits = |m: &Mount<'_>| Some(((m.point.clone(), m.root.clone()), below(&m.point, &m.root, &cgroup)?));
            match mounts.iter().rev().filter(carries).find_map(fits) {
                Some((mount, dir)) => Ok(Hierarchy { controllers, dir, cgroup, mount }),
                None => Err(LayoutError::Hidden { hierarchy: wanted.unwrap_or("cgroup2").to_owned(), cgroup }),
            }
        };

        let mut v1: Vec<Hierarchy> = Vec::new();
        let mut in_v2 = Vec::new();
        for controller in Controller::ALL {
            let name = controller.v1_name();
            if !mounts.iter().any(|m| !m.is_v2() && m.options.split(',').any(|o| o == name)) {
                in_v2.push(controller);
                continue;
            }
            let found = place(Some(name), vec![controller])?;
            match v1.iter_mut().find(|known| known.dir == found.dir) {
                Some(known) => known.controllers.push(controller),
                None => v1.push(found),
            }
        }
        let mut v2 = place(None, in_v2)?;
        delegate::strip_leaf(&mut v2);
        Ok(Self { v2, v1, missing: BTreeSet::new(), to_enable: Vec::new(), must_leave: false })
    }

    /// Which of the two shapes.
    pub fn kind(&self) -> Kind {
        if self.v1.is_empty() { Kind::V2 } else { Kind::Hybrid }
    }

    /// Switches on what the groups to come need, once and for all. This process may then be in a leaf of its own.
    pub fn enabled(mut self) -> Result<Self, SysError> {
        delegate::enable(&self)?;
        (self.to_enable, self.must_leave) = (Vec::new(), false);
        Ok(self)
    }

    /// Controllers that a limit needs and that are absent here or not delegated.
    pub fn missing(&self) -> Vec<Controller> {
        self.missing.iter().copied().collect()
    }

    /// The hierarchy that carries `controller`, unless it is missing.
    pub fn hierarchy(&self, controller: Controller) -> Option<&Hierarchy> {
        let carries = |h: &&Hierarchy| h.controllers.contains(&controller);
        self.v1.iter().chain([&self.v2]).find(carries).filter(|_| !self.missing.contains(&controller))
    }

    /// Whether `controller`'s limit is written to a version 1 hierarchy.
    pub fn is_v1(&self, controller: Controller) -> bool {
        self.v1.iter().any(|h| h.controllers.contains(&controller))
    }

    /// The same host without `controller`, for judgements about hosts that are not at hand.
    #[cfg(test)]
    pub(crate) fn without(mut self, controller: Controller) -> Self {
        self.missing.insert(controller);
        self
    }

    /// The version 1 hierarchies in which a task has a group too.
    pub fn v1(&self) -> &[Hierarchy] {
        &self.v1
    }

    /// The group under which tasks are placed.
    pub fn base(&self) -> &Hierarchy {
        &self.v2
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "version 2",
            Self::Hybrid => "hybrid: version 2 with version 1 controllers",
        })
    }
}

/// The directory of `cgroup`, given that `point` shows `root` of the same hierarchy.
fn below(point: &Path, root: &str, cgroup: &str) -> Option<PathBuf> {
    // A root of `/..` lies outside this cgroup namespace; what it shows has no name here.
    if cgroup.is_empty() || root.starts_with("/..") || cgroup.starts_with("/..") {
        return None;
    }
    let rest = Path::new(cgroup).strip_prefix(root).ok()?;
    Some(if rest.as_os_str().is_empty() { point.to_owned() } else { point.join(rest) })
}

fn recent(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= NEEDED_KERNEL
}

pub(super) fn read(path: &Path) -> Result<String, SysError> {
    // Files of proc have no size to go by; with room from the start they take one read, not one per doubling.
    let mut text = String::with_capacity(16 << 10);
    File::open(path).and_then(|mut file| file.read_to_string(&mut text)).on("read", path.display().to_string())?;
    Ok(text)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
