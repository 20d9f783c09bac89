//! A task's control groups, found from outside: `/proc/<pid>/cgroup` says which, the host's mountinfo says where.

use std::fs;
use std::path::PathBuf;

use super::proc::Process;

/// The directory of the group that holds `process` for `controller`, on either layout.
#[track_caller]
pub fn directory(process: Process, controller: &str) -> PathBuf {
    let groups = process.read("cgroup");
    let find = |wanted: &dyn Fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(id, names).then(|| path.to_owned())
        })
    };
    let v1 = find(&|id, names| id != "0" && names.split(',').any(|name| name == controller));
    let (path, kind) = match v1 {
        Some(path) => (path, "cgroup"),
        None => (find(&|id, _| id == "0").expect("a cgroup2 membership"), "cgroup2"),
    };
    let mounts = Process::own().mounts();
    let hierarchy = |mount: &&super::proc::Mount| {
        mount.kind == kind && (kind == "cgroup2" || mount.super_options.iter().any(|option| option == controller))
    };
    let mount = mounts.iter().find(hierarchy).unwrap_or_else(|| panic!("no {kind} mount of {controller}"));
    let below = path.strip_prefix(mount.root.trim_end_matches('/')).expect("the mount shows the group");
    PathBuf::from(&mount.point).join(below.trim_start_matches('/'))
}

/// Reads the first of `files` that exists in the group of `process` for `controller`.
#[track_caller]
pub fn read(process: Process, controller: &str, files: &[&str]) -> (String, String) {
    let directory = directory(process, controller);
    for file in files {
        if let Ok(content) = fs::read_to_string(directory.join(file)) {
            return ((*file).to_owned(), content.trim().to_owned());
        }
    }
    panic!("none of {files:?} in {}", directory.display());
}

/// A process may use so much memory, and none of it may be swapped out.
#[track_caller]
pub fn assert_no_swap(process: Process, memory: u64) {
    let (file, value) = read(process, "memory", &["memory.limit_in_bytes", "memory.max"]);
    assert_eq!(value, memory.to_string(), "{file}");
    let (file, value) =
        read(process, "memory", &["memory.memsw.limit_in_bytes", "memory.swap.max", "memory.swappiness"]);
    let wanted = if file.contains("memsw") { memory.to_string() } else { "0".to_owned() };
    assert_eq!(value, wanted, "{file}");
}
