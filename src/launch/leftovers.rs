//! What of a uid exists on the host right now: processes, System V and POSIX IPC objects.
//!
//! Asked before a uid is handed out and again when its task has ended. Files need no search: no writable file system of
//! the host is in a sandbox, so a task's files go with its mount namespace. A task cannot reach the host's IPC objects either: they
//! are looked at all the same, but not for longer than anybody else's should hold the launcher up.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Context, SysError};
use crate::sys::{file, user};

/// Names of a directory that are looked at: every account can make as many as there is memory, and the launcher has one thread.
const MOST_NAMES: usize = 4096;
/// The same of each System V table, in bytes: about a thousand objects. An account can make tens of thousands.
const MOST_OF_A_TABLE: u64 = 128 << 10;

/// Everything found, in words; empty when nothing is left.
pub fn of_uid(uid: u32) -> Result<Vec<String>, SysError> {
    let mut found = ipc_of_uid(uid)?;
    if user::has_processes(uid).on("getpriority", format!("uid {uid}"))? {
        found.push(format!("processes of uid {uid}"));
    }
    Ok(found)
}

/// Shared memory, semaphores and message queues of the host's IPC namespace that `uid` owns or made.
pub fn ipc_of_uid(uid: u32) -> Result<Vec<String>, SysError> {
    let mut found = Vec::new();
    for kind in ["shm", "sem", "msg"] {
        let path = format!("/proc/sysvipc/{kind}");
        let table = match file::first_lines(&path, MOST_OF_A_TABLE) {
            Ok(table) => table,
            // A kernel without System V IPC has no objects of it.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e).on("read", path),
        };
        if table_names_uid(&table, uid) {
            found.push(format!("System V {kind} of uid {uid}"));
        }
    }
    for directory in ["/dev/shm", "/dev/mqueue"] {
        found.extend(names_of_uid(Path::new(directory), uid).on("readdir", directory)?);
    }
    Ok(found)
}

/// The files of `uid` among the first names of `directory`.
fn names_of_uid(directory: &Path, uid: u32) -> std::io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.take(MOST_NAMES) {
        let entry = entry?;
        // One that is gone by now is nobody's.
        if entry.metadata().is_ok_and(|meta| meta.uid() == uid) {
            found.push(entry.path().display().to_string());
        }
    }
    Ok(found)
}

/// Whether a `/proc/sysvipc` table has a row owned or created by `uid`; its first line names the columns.
fn table_names_uid(table: &str, uid: u32) -> bool {
    let mut lines = table.lines();
    let is_owner: Vec<bool> = lines.next().unwrap_or("").split_whitespace().map(|name| name.ends_with("uid")).collect();
    let uid = uid.to_string();
    lines.any(|line| line.split_whitespace().zip(&is_owner).any(|(field, is_owner)| *is_owner && field == uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_creators_are_found_and_other_numbers_are_not() {
        let table = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n         0          7   600          1  5000  5000  6000  6000          0 1700000000\n";
        assert!(table_names_uid(table, 5000));
        assert!(table_names_uid(table, 6000));
        assert!(!table_names_uid(table, 7));
        assert!(!table_names_uid("", 0));
    }

    #[test]
    fn a_directory_full_of_names_is_not_walked_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let uid = nix::unistd::getuid().as_raw();
        let found = |uid| names_of_uid(directory.path(), uid).unwrap().len();
        std::fs::write(directory.path().join("one"), "").unwrap();
        assert_eq!((found(uid), found(uid + 1)), (1, 0));
        (0..MOST_NAMES).for_each(|name| std::fs::write(directory.path().join(name.to_string()), "").unwrap());
        assert_eq!(found(uid), MOST_NAMES);
        assert!(names_of_uid(Path::new("/nonexistent"), uid).unwrap().is_empty());
    }

    #[test]
    fn the_kernel_knows_whether_a_uid_has_processes() {
        assert!(user::has_processes(nix::unistd::getuid().as_raw()).unwrap());
        assert!(!user::has_processes(1_999_999_999).unwrap());
    }
}
