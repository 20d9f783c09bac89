//! What is on this host of an instance that no living task accounts for: one file per kind of thing, each with how it is
//! found and how it is swept.
//!
//! Nobody's records are asked. A uid of the range is somebody's while its byte is locked, a group while its directory is: both
//! locks end with their holder, so a thing whose lock is free is nobody's.

mod file;
mod group;
mod ipc;
mod lease;
mod mount;
mod process;
mod run_dir;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};

pub(super) use self::file::{File, Unseen};
pub(super) use self::group::{Group, Half};
pub(super) use self::ipc::Object;
pub(super) use self::lease::{Lease, Leases};
pub(super) use self::mount::Mounted;
pub(super) use self::process::Process;
pub(super) use self::run_dir::Stray;
use self::walk::Bounds;
use super::clean::Extent;
use crate::cgroup::Census;
use crate::containment::{Leftover, LeftoverKind, Setup};
use crate::error::SysError;
use crate::place::RUN_DIR;

/// Between the two looks that a thing must be seen in. A group is locked a moment after it is made, and what a launcher held
/// is free a moment before its tasks have died with it.
const MOMENT: Duration = Duration::from_millis(200);
/// A dead process is given this long to be reaped: there are hosts whose first process is in no hurry.
const REAPED_WITHIN: Duration = Duration::from_secs(15);
/// Letters of a path that are told.
const SHOWN: usize = 300;
/// Where a process with a task's uid could write on a usual host.
const ROOTS: [&str; 3] = ["/tmp", "/var/tmp", "/run"];
/// Where IPC objects have names. What is here keeps a uid from being handed out.
const IPC_ROOTS: [&str; 2] = [file::SHARED_MEMORY, file::QUEUES];

/// Where to look, and for whose things.
pub(super) struct View<'a> {
    setup: &'a Setup,
    run_dir: &'a Path,
    processes: bool,
    roots: Vec<PathBuf>,
    bounds: Bounds,
    reaped_within: Duration,
}

/// One thing that is left.
#[derive(Debug, Clone)]
pub(super) enum Thing {
    Process(Process),
    /// It cannot be handed out: nobody leases it, and it has processes or IPC objects.
    Uid(u32),
    Ipc(Object),
    File(File),
    Mount(Mounted),
    Half(Half),
    Group(Group),
    Stray(Stray),
    /// Nobody knows what is there.
    Unseen(Unseen),
}

impl<'a> View<'a> {
    pub(super) fn new(setup: &'a Setup, extent: Extent) -> Self {
        let mut roots: Vec<PathBuf> = IPC_ROOTS.iter().map(PathBuf::from).collect();
        if extent != Extent::QuickThings {
            roots.extend(ROOTS.iter().map(PathBuf::from).chain([setup.state_dir.clone()]));
        }
        Self {
            setup,
            run_dir: Path::new(RUN_DIR),
            processes: extent == Extent::Everything,
            roots,
            bounds: Bounds::default(),
            reaped_within: REAPED_WITHIN,
        }
    }

    /// What is seen in two looks. One that forks or renames itself in between is still the same, by its uid.
    pub(super) fn confirmed(&self) -> Result<Vec<Thing>, SysError> {
        let deadline = Instant::now() + self.reaped_within;
        let first: BTreeSet<_> = self.look()?.iter().map(Thing::key).collect();
        if first.is_empty() {
            return Ok(Vec::new());
        }
        loop {
            let _ = poll(&mut [], PollTimeout::try_from(MOMENT).unwrap_or(PollTimeout::ZERO));
            let second: Vec<_> = self.look()?.into_iter().filter(|thing| first.contains(&thing.key())).collect();
            if !only_to_be_reaped(&second) || Instant::now() >= deadline {
                return Ok(second);
            }
        }
    }

    fn look(&self) -> Result<Vec<Thing>, SysError> {
        let leases = Leases::open(self.setup.uid_range)?;
        let census = Census::take(&self.setup.instance)?;
        let groups = group::dead(&census);
        let halves: Vec<Half> = census.orphans().map(|(_, path)| Half::new(path)).collect();
        let inside = groups.iter().map(Group::path).chain(halves.iter().map(Half::path));
        let (processes, busy) = match self.processes {
            true => (process::find(&leases, &process::members(inside))?, process::busy_uids(&leases)?),
            false => Default::default(),
        };
        let objects = ipc::find(&leases)?;
        let (files, unseen) = file::find(&self.roots, &leases, self.bounds)?;

        let uids: BTreeSet<u32> = (processes.iter().filter_map(Process::task_uid))
            .chain(busy)
            .chain(objects.iter().map(|object| object.uid))
            .chain(files.iter().filter(|file| file.is_ipc()).map(File::uid))
            .filter(|_| self.processes)
            .collect();
        Ok((processes.into_iter().map(Thing::Process))
            .chain(uids.into_iter().map(Thing::Uid))
            .chain(objects.into_iter().map(Thing::Ipc))
            .chain(files.into_iter().map(Thing::File))
            .chain(unseen.into_iter().map(Thing::Unseen))
            .chain(mount::find(self.run_dir, &census)?.into_iter().map(Thing::Mount))
            .chain(run_dir::find(self.run_dir)?.into_iter().map(Thing::Stray))
            .chain(halves.into_iter().map(Thing::Half))
            .chain(groups.into_iter().map(Thing::Group))
            .collect())
    }
}

impl Thing {
    /// What makes it the same thing in another look.
    pub(super) fn key(&self) -> (LeftoverKind, String) {
        let leftover = self.leftover();
        match self {
            Self::Process(process) => (leftover.kind, process.owner()),
            _ => (leftover.kind, leftover.name),
        }
    }

    /// As it is told.
    pub(super) fn leftover(&self) -> Leftover {
        match self {
            Self::Process(process) => process.leftover(),
            Self::Ipc(object) => object.leftover(),
            Self::File(file) => file.leftover(),
            Self::Mount(mount) => mount.leftover(),
            Self::Half(half) => half.leftover(),
            Self::Group(group) => group.leftover(),
            Self::Stray(stray) => stray.leftover(),
            Self::Unseen(unseen) => unseen.leftover(),
            Self::Uid(uid) => Leftover {
                kind: LeftoverKind::Uid,
                name: uid.to_string(),
                detail: "no task can have it while processes or IPC objects of it exist".to_owned(),
            },
        }
    }

    /// The uid whose lease must be held while it is swept.
    pub(super) fn task_uid(&self) -> Option<u32> {
        match self {
            Self::Process(process) => process.task_uid(),
            Self::Uid(uid) => Some(*uid),
            Self::Ipc(object) => Some(object.uid),
            Self::File(file) => Some(file.uid()),
            _ => None,
        }
    }

    /// Ends or removes it. A uid is free when what is of it is gone; what runs under it and was not found is ended here.
    pub(super) fn sweep(&self) -> Result<(), SysError> {
        match self {
            Self::Process(process) => process.sweep(),
            Self::Ipc(object) => object.sweep(),
            Self::File(file) => file.sweep(),
            Self::Mount(mount) => mount.sweep(),
            Self::Half(half) => half.sweep(),
            Self::Group(group) => group.sweep(),
            Self::Stray(stray) => stray.sweep(),
            Self::Unseen(unseen) => unseen.sweep(),
            Self::Uid(uid) => process::end_all_of(*uid),
        }
    }
}

/// Whether dead processes are all there is, and the uids that they keep.
fn only_to_be_reaped(things: &[Thing]) -> bool {
    let dead = |thing: &Thing| matches!(thing, Thing::Process(process) if process.is_dead());
    things.iter().any(dead) && things.iter().all(|thing| dead(thing) || matches!(thing, Thing::Uid(_)))
}

/// A path as one line of text: a name may hold anything but a slash and a zero, and a path be of any length.
fn shown(path: &Path) -> String {
    let whole = path.to_string_lossy();
    let (length, cut) = (whole.chars().count(), |text: &str| text.escape_debug().to_string());
    if length <= SHOWN {
        return cut(&whole);
    }
    let part = |skip: usize| whole.chars().skip(skip).take(SHOWN / 2).collect::<String>();
    format!("{}…({length} letters)…{}", cut(&part(0)), cut(&part(length - SHOWN / 2)))
}
