//! One task's directories in all hierarchies: made, limited, joined, killed, waited for, removed.
//!
//! Nothing here writes `cgroup.procs`: moving another process waits for an RCU grace period, eight milliseconds on an idle
//! host. The child is cloned into version 2 and writes `0` to `tasks` of version 1 by itself.
//!
//! A [`Group`] is not removed when dropped: the forked child holds a copy of it.

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::device::Device;
use super::file::Dir;
use super::layout::{Controller, Layout};
use super::table::Form;
use super::{delegate, directory, file, owner, sweep, table};
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::place::GroupName;
use crate::sys::file::text;
use crate::task::id::TaskId;
use crate::task::limits::Limits;

/// A directory that should be empty but is busy is given this long.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);

/// One task's control group.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    /// The version 2 directory; its lock says that the owner lives. Closing alone unlocks it: an explicit unlock in a
    /// forked child would take the lock from the parent too.
    pub(super) v2: File,
    /// Where the version 1 directories are, or will be: a child created before them joins by path.
    pub(super) v1: Vec<(Vec<Controller>, PathBuf)>,
    v2_path: PathBuf,
    /// Controllers in version 2.
    pub(super) in_v2: Vec<Controller>,
    devices: Vec<Device>,
}

impl Group {
    /// Makes the version 2 directory, in which the task is created; [`Group::complete`] makes the rest.
    pub fn create(layout: &Layout, instance: &str, task: &TaskId) -> Result<Self, SysError> {
        let name = GroupName { instance: instance.to_owned(), task: *task }.to_string();
        if GroupName::parse(&name).is_none() {
            return Err(SysError::new("mkdir", name, Errno::EINVAL).hint("an instance is letters, digits, - and _"));
        }
        delegate::enable(layout)?;
        let v2_path = layout.v2.dir.join(&name);
        let v2 = directory::make_locked(&v2_path)?;
        fault::point("cgroup-made");
        let present = |c: &Controller| !layout.missing.contains(c);
        let group = Self {
            v2,
            v2_path,
            in_v2: layout.v2.controllers.iter().copied().filter(present).collect(),
            v1: layout.v1.iter().map(|half| (half.controllers.clone(), half.dir.join(&name))).collect(),
            devices: Vec::new(),
            name,
        };
        // The note comes before what it tells of, so that a sweeper from another session finds every directory.
        sweep::note(&group.v2, layout, &group.name).inspect_err(|_| drop(group.remove()))?;
        Ok(group)
    }

    /// Writes down who asked for the task, for [`owner_of`](super::owner_of).
    pub fn note_owner(&self, owner: &str) -> Result<(), SysError> {
        owner::note(&self.v2, &self.name, owner)
    }

    /// Makes the version 1 directories and writes every limit; nothing of the task may run before.
    pub fn complete(&mut self, limits: &Limits, devices: &[Device]) -> Result<(), SysError> {
        self.make_halves()?;
        fault::point("halves");
        self.devices = devices.to_vec();
        self.apply(limits, devices)
    }

    pub(super) fn make_halves(&self) -> Result<(), SysError> {
        self.v1.iter().try_for_each(|(_, path)| directory::make(path))
    }

    /// Writes every limit of the table.
    pub(super) fn apply(&self, limits: &Limits, devices: &[Device]) -> Result<(), SysError> {
        self.write_rows(|form| form.lines(limits, devices))
    }

    /// Takes processor and disk throttles back. A killed process still needs both to die: throttled, it would take as long
    /// as the limits of the living make it.
    pub fn lift_throttles(&self) -> Result<(), SysError> {
        if off(Defence::LiftThrottles) {
            return Ok(());
        }
        self.write_rows(|form| form.lifting_lines(&self.devices))
    }

    fn write_rows(&self, lines: impl Fn(&Form) -> Vec<String>) -> Result<(), SysError> {
        let mut last: Option<(&str, OwnedFd)> = None;
        for row in table::ROWS.iter().filter(|row| !off(row.defence)) {
            let (dir, forms) = match self.half(row.controller) {
                Some(half) => (half, row.v1),
                None if self.in_v2.contains(&row.controller) => (Dir::Open(&self.v2), row.v2),
                None => continue, // missing on this host: strict mode did not come here
            };
            for form in forms {
                for line in lines(form) {
                    let opened = match last.take() {
                        Some((name, fd)) if name == form.file => Ok(fd),
                        _ => file::open(dir, &self.name, form.file, OFlag::O_WRONLY),
                    };
                    match opened {
                        Ok(fd) => {
                            file::put(&fd, &self.name, form.file, &line)?;
                            last = Some((form.file, fd));
                        }
                        // Without any swap on the host there may be no file to forbid it in.
                        Err(e) if row.limit == table::Limit::Swap && e.errno() == Errno::ENOENT => {
                            if delegate::host_has_swap()? {
                                return Err(e.hint("the host has swap but does not count it; boot with swapaccount=1"));
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// The version 2 directory, for `CLONE_INTO_CGROUP`.
    pub fn dir_fd(&self) -> BorrowedFd<'_> {
        self.v2.as_fd()
    }

    /// Joins the version 1 hierarchies; called by the child itself, which is already in the version 2 group.
    pub fn join(&self) -> Result<(), SysError> {
        if off(Defence::V1Join) {
            return Ok(());
        }
        self.v1.iter().try_for_each(|(_, dir)| {
            let tasks = dir.join("tasks");
            fs::write(&tasks, "0").on("write \"0\" to", tasks.display().to_string())
        })
    }

    /// Checks in the child that the kernel places it in this group in every hierarchy: in version 2 by the group's own
    /// list, because a cgroup namespace already shows it as "/"; in version 1 by the child's.
    pub fn verify_joined(&self) -> Result<(), SysError> {
        let myself = std::process::id() as i32;
        if !off(Defence::CloneIntoCgroup) && !self.pids()?.contains(&myself) {
            return Err(self.not_in("cgroup2", "another"));
        }
        let places = text("/proc/self/cgroup").on("read", "/proc/self/cgroup")?;
        self.verify_v1_places(&places)
    }

    pub(super) fn verify_v1_places(&self, self_cgroup: &str) -> Result<(), SysError> {
        let place = |name: &str| {
            self_cgroup.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|c| c == name).then_some(path)
            })
        };
        let halves = self.v1.iter().filter(|_| !off(Defence::V1Join));
        for hierarchy in halves.flat_map(|(controllers, _)| controllers).map(|controller| controller.v1_name()) {
            let found = place(hierarchy).unwrap_or("none");
            // The directories above the group depend on the reader's cgroup namespace; its own name holds the task's id.
            if found.rsplit('/').next() != Some(self.name.as_str()) {
                return Err(self.not_in(hierarchy, found));
            }
        }
        Ok(())
    }

    fn not_in(&self, hierarchy: &str, found: &str) -> SysError {
        let object = format!("group {:?} of {hierarchy}, found in {found:?}", self.name);
        SysError::new("verify", object, Errno::EXDEV).hint("the task would run outside its limits")
    }

    /// Kills everything in the group at once; forking does not outrun it.
    pub fn kill(&self) -> Result<(), SysError> {
        if off(Defence::Kill) {
            return Ok(());
        }
        file::write_to(&self.v2, &self.name, "cgroup.kill", "1")
    }

    /// Stops everything in the group; [`Group::kill`] works on a frozen group too.
    pub fn freeze(&self) -> Result<(), SysError> {
        file::write_to(&self.v2, &self.name, "cgroup.freeze", "1")
    }

    /// The processes in the group, as the reader's PID namespace numbers them.
    pub fn pids(&self) -> Result<Vec<i32>, SysError> {
        let text = file::read_from(&self.v2, &self.name, "cgroup.procs")?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Whether any process is in the group.
    pub fn is_populated(&self) -> Result<bool, SysError> {
        directory::is_populated(&self.v2, &self.name)
    }

    /// Waits until no process is in the group; false if `timeout` comes first.
    pub fn wait_empty(&self, timeout: Duration) -> Result<bool, SysError> {
        directory::wait_empty(&self.v2, &self.name, timeout)
    }

    /// Removes the directories, version 1 first. The group must be empty; a busy one is given a bounded time.
    pub fn remove(&self) -> Result<(), SysError> {
        self.remove_within(REMOVE_PATIENCE)
    }

    /// As [`Group::remove`], with another bound for a busy one.
    pub fn remove_within(&self, patience: Duration) -> Result<(), SysError> {
        let deadline = Instant::now() + patience.min(REMOVE_PATIENCE);
        for (_, path) in &self.v1 {
            directory::remove_dir(path, &self.v2, deadline)?;
        }
        fault::point("halves-removed");
        directory::remove_dir(&self.v2_path, &self.v2, deadline)
    }

    /// Whether any of the directories is still there.
    pub fn exists(&self) -> bool {
        self.v1.iter().map(|(_, path)| path).chain([&self.v2_path]).any(|path| !is_gone(path))
    }

    /// The group's name, the same in every hierarchy.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the version 1 hierarchy that has this controller, if one has.
    pub(super) fn half(&self, controller: Controller) -> Option<Dir<'_>> {
        self.v1.iter().find(|(controllers, _)| controllers.contains(&controller)).map(|(_, path)| Dir::At(path))
    }
}

/// Only "no such file" says so; any other answer leaves it open.
fn is_gone(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}
