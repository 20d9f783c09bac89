//! Names on the host that more than one process must agree on: where locks lie, and what a task's control group is called.
//!
//! Here and nowhere else, so that the auditor, which uses nothing of `launch/`, looks where the launcher writes.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::error::{Context, SysError};
use crate::task::id::TaskId;
use crate::task::spec::SpecError;

/// Where uid locks live and, in its own mount namespace, where each sandbox assembles its root.
pub const RUN_DIR: &str = "/run/taskman";
/// A lock on the byte of this file whose offset is a uid is that uid's lease.
pub const UID_LOCKS: &str = "/run/taskman/uids";
/// In a state directory: where root asks the running launcher whether tasks are taken.
pub const HEALTH_SOCKET: &str = "health.sock";
/// What every task's group name begins with.
pub const GROUP_PREFIX: &str = "taskman-";

/// Opens the file of uid locks, making it on the first use of the host. Each call opens a description of its own: a lock
/// belongs to one, and ends when its last copy is closed.
pub fn open_uid_locks() -> Result<File, SysError> {
    // With its mode from the start: whoever dies right here leaves no directory that others can write to.
    match std::fs::DirBuilder::new().mode(0o700).create(RUN_DIR) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e).on("mkdir", RUN_DIR),
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(UID_LOCKS).on("open", UID_LOCKS)
}

/// Uids that no account of the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UidRange {
    /// The first uid.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Default for UidRange {
    /// Above every range that distributions, subuid tools and systemd hand out.
    fn default() -> Self {
        Self { first: 1_900_000_000, count: 65_536 }
    }
}

impl std::str::FromStr for UidRange {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong =
            || SpecError::new("uid_range", format!("{text:?} is not FIRST:COUNT; write for example 1900000000:65536"));
        let (first, count) = text.split_once(':').ok_or_else(wrong)?;
        let range = Self { first: first.parse().map_err(|_| wrong())?, count: count.parse().map_err(|_| wrong())? };
        // Below 65536 live accounts; the top two values mean "nobody" and "no change" to the kernel.
        if range.first < 65_536
            || range.count == 0
            || range.first.checked_add(range.count).is_none_or(|end| end >= u32::MAX - 1)
        {
            return Err(SpecError::new(
                "uid_range",
                format!("{text:?} must start at 65536 or above and hold at least one uid"),
            ));
        }
        Ok(range)
    }
}

impl UidRange {
    /// Whether `uid` lies in the range.
    pub fn contains(&self, uid: u32) -> bool {
        uid >= self.first && uid - self.first < self.count
    }
}

/// The name of a task's group, the same in every hierarchy: `taskman-<instance>.<uuid>`. Nothing else is a task's, whatever
/// it begins with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    /// Which launcher's: `run-<pid>` of `taskman run`, `srv-<hex>` of a server, the same over restarts.
    pub instance: String,
    /// Which task's.
    pub task: TaskId,
}

impl GroupName {
    /// Reads a directory's name; none if it is not a task's.
    pub fn parse(name: &str) -> Option<Self> {
        let (instance, task) = name.strip_prefix(GROUP_PREFIX)?.rsplit_once('.')?;
        (is_instance(instance) && task.len() == 36)
            .then(|| Some(Self { instance: instance.to_owned(), task: task.parse().ok()? }))?
    }
}

impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{GROUP_PREFIX}{}.{}", self.instance, self.task)
    }
}

fn is_instance(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// What the server of a state directory is called, on every start the same, so that what an earlier one left is known as ours.
pub fn instance_of(state_dir: &Path) -> Result<String, SysError> {
    let path = instance_file(state_dir);
    let shown = path.display().to_string();
    match std::fs::read_to_string(&path) {
        Ok(text) if is_instance(text.trim()) => Ok(text.trim().to_owned()),
        Ok(_) => Err(SysError::new("read", shown, Errno::EINVAL).hint(
            "it must hold the instance's name; remove it to be given a new one, after taskman health --verify-clean",
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let name = format!("srv-{:08x}", TaskId::random().entropy() as u32);
            write_whole(&path, &name)?;
            Ok(name)
        }
        Err(error) => Err(error).on("read", shown),
    }
}

/// The uids of the server that used this state directory last, for commands that are not told its configuration: what has one of them
/// is ours. None of a server from before they were written down.
pub fn uid_range_of(state_dir: &Path) -> Result<Option<UidRange>, SysError> {
    let path = uid_range_file(state_dir);
    let shown = path.display().to_string();
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map(Some).map_err(|error: SpecError| {
            SysError::new("read", shown, Errno::EINVAL).hint(format!("{error}; a start of the server writes it anew"))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).on("read", shown),
    }
}

/// Writes down the uids of the server of this state directory, if they are others than before: its disk may be full.
pub fn set_uid_range(state_dir: &Path, range: UidRange) -> Result<(), SysError> {
    if uid_range_of(state_dir).is_ok_and(|last| last == Some(range)) {
        return Ok(());
    }
    write_whole(&uid_range_file(state_dir), &format!("{}:{}", range.first, range.count))
}

/// Whole or not there, and root's alone: by what it says processes are known as ours, and killed.
fn write_whole(path: &Path, line: &str) -> Result<(), SysError> {
    let fresh = path.with_extension("new");
    let shown = fresh.display().to_string();
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(&fresh).on("open", &*shown)?;
    file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_all()).on("write", &*shown)?;
    std::fs::rename(&fresh, path).on("rename", shown)
}

fn instance_file(state_dir: &Path) -> PathBuf {
    state_dir.join("instance")
}

fn uid_range_file(state_dir: &Path) -> PathBuf {
    state_dir.join("uid_range")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn ranges_that_reach_real_accounts_are_refused() {
        assert_eq!("70000:10".parse::<UidRange>().unwrap(), UidRange { first: 70_000, count: 10 });
        for bad in ["", "70000", "0:10", "1000:10", "70000:0", "4294967290:10", "a:b", "70000:-1"] {
            assert_eq!(bad.parse::<UidRange>().unwrap_err().field, "uid_range", "{bad}");
        }
    }

    #[test]
    fn only_a_tasks_group_has_a_tasks_name() {
        let name = "taskman-run-1.00000000-0000-4000-8000-000000000000";
        assert_eq!(GroupName::parse(name).unwrap().to_string(), name);
        for other in [
            "taskman-launcher",
            "taskman-x",
            "taskman-.00000000-0000-4000-8000-000000000000",
            "taskman-x.00000000-0000-4000-8000",
            "taskman-x/y.00000000-0000-4000-8000-000000000000",
            "other-x.00000000-0000-4000-8000-000000000000",
            "init.scope",
        ] {
            assert_eq!(GroupName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_instance_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = instance_of(dir.path()).unwrap();
        assert!(name.starts_with("srv-") && instance_of(dir.path()).unwrap() == name);
        let mode = std::fs::metadata(dir.path().join("instance")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "whoever can write it decides what is killed");
        std::fs::write(dir.path().join("instance"), "../x\n").unwrap();
        assert!(instance_of(dir.path()).is_err());
    }

    #[test]
    fn a_state_directory_knows_the_uids_of_its_server() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(uid_range_of(dir.path()).unwrap(), None);
        for first in [70_000, 80_000] {
            set_uid_range(dir.path(), UidRange { first, count: 10 }).unwrap();
            assert_eq!(uid_range_of(dir.path()).unwrap(), Some(UidRange { first, count: 10 }));
        }
        std::fs::write(dir.path().join("uid_range"), "0:10\n").unwrap();
        assert!(uid_range_of(dir.path()).is_err());
    }
}
