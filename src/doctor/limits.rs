//! Whether each limit can be enforced here, controller by controller.

use nix::errno::Errno;

use super::facts::{Facts, Unwritable};
use super::{Finding, container};
use crate::cgroup::{Controller, Devices, Kind, Layout, LayoutError};
use crate::error::SysError;
use crate::task::limits::Limits;

pub(super) fn judge(facts: &Facts, limits: &Limits) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &facts.layout {
        Ok(layout) => {
            findings.push(shape(layout));
            findings.push(writable(&facts.unwritable, facts.surroundings.is_container()));
            findings.extend(controllers(layout));
            findings.push(io(layout, &facts.devices));
        }
        Err(error) => findings.push(no_layout(error, facts.surroundings.is_container())),
    }
    findings.push(nofile(facts.nofile_hard, limits.nofile));
    findings
}

fn shape(layout: &Layout) -> Finding {
    let seen = format!("{}; tasks go under {}", layout.kind(), layout.base().dir.display());
    Finding::ok("cgroups", seen, "a task is placed, limited, killed and proven gone by its control group")
}

/// No group can be made: the error has all the words, but for a container's cure.
pub(super) fn no_layout(error: &LayoutError, in_container: bool) -> Finding {
    let text = error.to_string();
    let (seen, fix) = text.split_once("; fix: ").unwrap_or((&text, "mount /proc and /sys/fs/cgroup"));
    let fix = match error {
        LayoutError::NoCgroup2 { .. } | LayoutError::Hidden { .. } | LayoutError::Shared { .. } if in_container => {
            container::CGROUPS
        }
        _ => fix,
    };
    Finding::ok("cgroups", seen, "without a control group nothing of a task can be limited or proven gone").missing(fix)
}

pub(super) fn writable(unwritable: &[Unwritable], in_container: bool) -> Finding {
    let why = "each task gets a group of its own below these directories";
    if unwritable.is_empty() {
        return Finding::ok("cgroup access", "groups can be made", why);
    }
    let words = |one: &Unwritable| format!("{} ({:?})", one.dir.display(), one.errno);
    let refused: Vec<_> = unwritable.iter().map(words).collect();
    // Each hierarchy of version 1 is a mount of its own, and the one above them all is none of them.
    let read_only = unwritable.iter().filter(|one| one.errno == Errno::EROFS);
    let remounts: Vec<_> = read_only.map(|one| format!("mount -o remount,rw {}", one.mount.display())).collect();
    let fix = match (in_container, remounts.as_slice()) {
        (true, _) => container::CGROUPS.to_owned(),
        (false, []) => "run as root".to_owned(),
        (false, remounts) => remounts.join(" && "),
    };
    Finding::ok("cgroup access", format!("not writable: {}", refused.join(", ")), why).missing(fix)
}

/// Every controller but io, which needs the disks too.
pub(super) fn controllers(layout: &Layout) -> Vec<Finding> {
    let but_io = Controller::ALL.into_iter().filter(|controller| *controller != Controller::Io);
    but_io.map(|controller| self::controller(layout, controller)).collect()
}

fn controller(layout: &Layout, controller: Controller) -> Finding {
    let why = match controller {
        Controller::Memory => "without it a task can take all of the host's memory",
        Controller::Swap => "without it a task gets around its memory limit by swapping",
        Controller::Cpu => "without it a task can take every processor",
        Controller::Pids => "without it a fork bomb takes every process id of the host",
        Controller::Io => "without it a task can take a disk's whole bandwidth",
    };
    let name = match controller {
        Controller::Memory => "limit memory",
        Controller::Swap => "limit swap",
        Controller::Cpu => "limit cpu",
        Controller::Pids => "limit pids",
        Controller::Io => "limit io",
    };
    if layout.missing().contains(&controller) {
        let seen = match controller {
            Controller::Swap if !memory_is_missing(layout) => {
                "the host has swap, and the memory controller does not count it".to_owned()
            }
            _ => {
                let name = match layout.kind() {
                    Kind::V2 => controller.v2_name(),
                    Kind::Hybrid => controller.v1_name(),
                };
                format!("no {name} controller for {}", layout.base().cgroup)
            }
        };
        return Finding::ok(name, seen, why).missing(fix(layout, controller));
    }
    let seen = match (layout.is_v1(controller), controller) {
        (true, _) => format!("enforced by {} of version 1", controller.v1_name()),
        (false, _) => "enforced by version 2".to_owned(),
    };
    Finding::ok(name, seen, why)
}

/// Then nothing counts swap either, whether the host has any or not.
fn memory_is_missing(layout: &Layout) -> bool {
    layout.missing().contains(&Controller::Memory)
}

fn fix(layout: &Layout, controller: Controller) -> String {
    match (layout.kind(), controller) {
        (_, Controller::Swap) if !memory_is_missing(layout) => "swapoff -a, or boot with swapaccount=1".to_owned(),
        (Kind::V2, _) => {
            let name = controller.v2_name();
            format!(
                "systemd-run --scope -p Delegate=yes taskman run …, or as the manager of the groups above: echo +{name} > cgroup.subtree_control in each of them; boot without cgroup_disable={name}"
            )
        }
        (Kind::Hybrid, _) => {
            let name = controller.v1_name();
            format!(
                "mount -o X-mount.mkdir,{name} -t cgroup cgroup /sys/fs/cgroup/{name}; boot without cgroup_disable={name}"
            )
        }
    }
}

/// The io limit needs the controller, and a disk to put it on.
pub(super) fn io(layout: &Layout, devices: &Result<Devices, SysError>) -> Finding {
    let finding = controller(layout, Controller::Io);
    if finding.blocks {
        return finding;
    }
    let how = match layout.is_v1(Controller::Io) {
        true => {
            "blkio of version 1, which throttles reads and direct writes only; that leaves nothing unenforced while no writable disk is in the sandbox"
        }
        false => "version 2",
    };
    let no_disk = "put the path on a local disk, leave out that --bind-ro, or accept it with --no-strict";
    match devices {
        Ok(devices) if devices.unenforceable.is_empty() => {
            let disks: Vec<_> = devices.disks.iter().map(ToString::to_string).collect();
            let seen = match disks.as_slice() {
                [] => "no disk is in the sandbox".to_owned(),
                disks => format!("enforced on {} by {how}", disks.join(", ")),
            };
            let finding = Finding { seen, ..finding };
            let Some(less) = devices.reduction() else { return finding };
            let seen = format!("{}; {}", finding.seen, less.trim_start_matches("limit io: "));
            Finding { seen, ..finding }.reduced("nothing, if the layers are on disks of this host; else put them there")
        }
        Ok(devices) => Finding { seen: devices.unenforceable.join(", "), ..finding }.missing(no_disk),
        Err(error) => Finding { seen: error.to_string(), ..finding }.missing(no_disk),
    }
}

pub(super) fn nofile(hard: u64, asked: u64) -> Finding {
    let why = "a limit above the hard one cannot be set without a privilege that taskman does not need otherwise";
    let finding = Finding::ok("limit nofile", format!("{asked} asked, hard limit {hard}"), why);
    match asked <= hard {
        true => finding,
        false => finding.missing(format!("--nofile {hard}, or raise the hard limit: ulimit -Hn {asked}")),
    }
}
