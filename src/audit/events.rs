//! What the kernel tells by itself: process events, and writes to the membership of any control group.
//!
//! A migration from one group to another raises no process event. But it is a write to `cgroup.procs` or `tasks`, and a mark
//! on each control group file system tells of it, with the writer.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};

use super::auditor::Source;
use super::facts::{self, Facts};
use crate::error::{Context, SysError};
use crate::place::GroupName;
use crate::sys::connector::{Connector, ProcEvent};

/// Taken at once, so that beats and second looks come in between.
pub const BATCH: usize = 1024;

/// What the kernel tells here, of the two. In a container it tells of writes and not of processes.
#[derive(Default)]
pub struct Events {
    pub processes: Option<Connector>,
    pub writes: Option<Fanotify>,
}

/// A process to look at, and why.
pub struct Hint {
    pub pid: i32,
    pub source: Source,
}

/// Something was lost: only a full scan knows now.
pub struct Overrun;

impl Events {
    /// Begins to listen to whatever will speak; and why the rest will not.
    pub fn open() -> (Self, Vec<String>) {
        let (processes, writes) = (listen(), watch());
        let why = [processes.as_ref().err(), writes.as_ref().err()].into_iter().flatten().map(ToString::to_string);
        let why = why.collect();
        (Self { processes: processes.ok(), writes: writes.ok() }, why)
    }

    /// Processes that executed a program or changed their uid, and a few of those that were forked.
    pub fn of_processes(&self) -> Result<Vec<Hint>, Overrun> {
        let Some(processes) = &self.processes else { return Ok(Vec::new()) };
        let events = processes.read(BATCH).map_err(|_| Overrun)?;
        Ok(in_order(events))
    }

    /// Processes that stand in a group to which someone has just written.
    pub fn of_writes(&self) -> Result<Vec<Hint>, Overrun> {
        let mut hints = Vec::new();
        let Some(writes) = &self.writes else { return Ok(hints) };
        let (mut taken, mut lost) = (0, false);
        while taken < BATCH {
            match writes.read_events() {
                Ok(events) => {
                    taken += events.len();
                    heed_writes(events, &mut hints)?;
                }
                Err(Errno::EAGAIN) => break,
                Err(errno) => {
                    taken += 1;
                    lost |= !is_of_nobody(errno);
                }
            }
        }
        if lost { Err(Overrun) } else { Ok(hints) }
    }
}

/// Those that came last are likeliest to be there still. A change of uid is always looked at, and comes first.
fn in_order(events: Vec<ProcEvent>) -> Vec<Hint> {
    let hint = |event| match event {
        ProcEvent::Exec(pid) => Hint { pid, source: Source::Exec },
        ProcEvent::Uid(pid) => Hint { pid, source: Source::Uid },
        ProcEvent::Fork(pid) => Hint { pid, source: Source::Fork },
    };
    let mut hints: Vec<Hint> = events.into_iter().rev().map(hint).collect();
    hints.sort_by_key(|hint| hint.source != Source::Uid);
    hints
}

/// Whether a write that the kernel could not tell matters to nobody. It opens the file that was written to for whoever listens:
/// one whose group is gone has no members any more. What failed for want of descriptors or memory may have been a way out.
fn is_of_nobody(errno: Errno) -> bool {
    matches!(errno, Errno::ENODEV | Errno::ENOENT | Errno::ESTALE)
}

/// Process events. The kernel takes the request of a process in another PID or user namespace without a word and tells it
/// nothing; so that is not asked of it.
fn listen() -> Result<Connector, SysError> {
    let hint = "the kernel tells of processes in the host's own pid, user and network namespace only";
    let first = |name: &str, number: u64| facts::namespace(&format!("/proc/self/ns/{name}")) == Some(number);
    // The kernel numbers its first namespaces the same on every host.
    if !first("pid", 0xEFFF_FFFC) || !first("user", 0xEFFF_FFFD) {
        return Err(SysError::new("listen", "the proc connector", Errno::EPERM).hint(hint));
    }
    Connector::open().on("listen", "the proc connector").map_err(|error| error.hint(hint))
}

/// Writes on every control group file system that is mounted here. The queue has no bound, for whoever fills it would choose what
/// is lost; should the kernel say all the same that it has overflowed, that is an [`Overrun`], and a scan follows.
fn watch() -> Result<Fanotify, SysError> {
    let flags =
        InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK | InitFlags::FAN_UNLIMITED_QUEUE;
    let writes =
        Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).on("fanotify_init", "auditor")?;
    for point in mount_points()? {
        let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        match writes.mark(mark, MaskFlags::FAN_MODIFY, nix::fcntl::AT_FDCWD, Some(&*point)) {
            // Another mount covers it: nobody gets there by this name.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno).on("fanotify_mark", point),
        }
    }
    Ok(writes)
}

fn heed_writes(events: Vec<FanotifyEvent>, hints: &mut Vec<Hint>) -> Result<(), Overrun> {
    for event in events {
        if event.mask().contains(MaskFlags::FAN_Q_OVERFLOW) {
            return Err(Overrun);
        }
        let Some(fd) = event.fd() else { continue };
        let Some((into, members)) = members_of(fd.as_fd()) else { continue };
        // A sandbox that joins its own group writes itself.
        let is_task = into.rsplit('/').next().is_some_and(|name| GroupName::parse(name).is_some());
        if is_task && members.contains(&event.pid()) {
            continue;
        }
        let comm = Facts::read(event.pid()).map_or_else(|| "gone".to_owned(), |facts| facts.comm);
        let source = Source::Write { writer: format!("process {} ({comm})", event.pid()), into };
        hints.extend(members.into_iter().map(|pid| Hint { pid, source: source.clone() }));
    }
    Ok(())
}

/// The group of an open membership file, and who is in it; none if it is another file.
fn members_of(fd: std::os::fd::BorrowedFd<'_>) -> Option<(String, Vec<i32>)> {
    use std::os::fd::AsRawFd;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    if !matches!(path.file_name()?.to_str()?, "cgroup.procs" | "tasks" | "cgroup.threads") {
        return None;
    }
    let mut text = String::new();
    File::from(fd.try_clone_to_owned().ok()?).read_to_string(&mut text).ok()?;
    let members = text.lines().filter_map(|pid| pid.parse().ok()).collect();
    Some((path.parent()?.to_str()?.to_owned(), members))
}

/// Where control groups of either version are mounted.
fn mount_points() -> Result<Vec<String>, SysError> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").on("read", "/proc/self/mountinfo")?;
    let point = |line: &str| {
        let (fields, rest) = line.split_once(" - ")?;
        rest.starts_with("cgroup").then(|| fields.split(' ').nth(4).map(str::to_owned))?
    };
    Ok(text.lines().filter_map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_uid_is_looked_at_first_and_of_the_others_what_came_last() {
        let events = vec![ProcEvent::Fork(1), ProcEvent::Uid(2), ProcEvent::Exec(3), ProcEvent::Uid(4)];
        assert_eq!(in_order(events).iter().map(|hint| hint.pid).collect::<Vec<_>>(), [4, 2, 3, 1]);
    }

    #[test]
    fn a_write_to_a_group_that_is_gone_is_no_loss_and_any_other_that_cannot_be_told_is() {
        let tree = crate::cgroup::Layout::detect().unwrap().base().dir.clone();
        let group = tree.join(format!("events-test-{}", std::process::id()));
        let writes = watch().unwrap();
        let mut untold = Vec::new();
        // Others write to groups too, meanwhile; and behind one of their events that can be told, the kernel keeps ours to itself.
        for _ in 0..1000 {
            std::fs::create_dir(&group).unwrap();
            let written = std::fs::write(group.join("cgroup.max.descendants"), "max");
            std::fs::remove_dir(&group).unwrap();
            written.unwrap();
            loop {
                match writes.read_events() {
                    Ok(_) => {}
                    Err(Errno::EAGAIN) => break,
                    Err(errno) => untold.push(errno),
                }
            }
            if !untold.is_empty() {
                break;
            }
        }
        assert!(!untold.is_empty() && untold.iter().all(|errno| is_of_nobody(*errno)), "{untold:?}");
        assert!([Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].into_iter().all(|errno| !is_of_nobody(errno)));
    }
}
