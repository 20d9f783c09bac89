//! The container's control group in each hierarchy of the host.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::Process;

/// The hierarchies of the host, by where they are mounted.
pub struct Hierarchies {
    pub v2: PathBuf,
    pub v1: Vec<(PathBuf, Vec<String>)>,
}

impl Hierarchies {
    pub fn detect() -> Self {
        let mounts = Process::own().mounts();
        let v2 = mounts.iter().find(|mount| mount.kind == "cgroup2").expect("a cgroup2 mount");
        let v1 = mounts.iter().filter(|mount| mount.kind == "cgroup");
        Self {
            v2: v2.point.clone().into(),
            v1: v1.map(|mount| (mount.point.clone().into(), mount.super_options.clone())).collect(),
        }
    }

    pub fn is_hybrid(&self) -> bool {
        !self.v1.is_empty()
    }

    /// Where a group of this name would be.
    pub fn directories(&self, name: &str) -> Vec<PathBuf> {
        let points = self.v1.iter().map(|(point, _)| point).chain([&self.v2]);
        points.map(|point| point.join(name)).collect()
    }

    /// Makes the group everywhere, with this much memory: what a runtime does that knows the layout.
    pub fn make(&self, name: &str, memory: Option<u64>) {
        for dir in self.directories(name) {
            fs::create_dir(&dir).unwrap_or_else(|e| panic!("mkdir {}: {e}", dir.display()));
        }
        let of = |controller: &str| {
            let fits = |options: &[String]| options.iter().any(|option| option == controller);
            self.v1.iter().find(|(_, options)| fits(options)).map(|(point, _)| point.join(name))
        };
        if let Some(dir) = of("cpuset") {
            // An empty set takes no processes.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let all = fs::read_to_string(dir.parent().unwrap().join(file)).unwrap();
                fs::write(dir.join(file), all).unwrap();
            }
        }
        if let (Some(memory), Some(dir)) = (memory, of("memory")) {
            fs::write(dir.join("memory.limit_in_bytes"), memory.to_string()).unwrap();
        }
    }

    /// Which of the group's directories are still there.
    pub fn left(&self, name: &str) -> Vec<PathBuf> {
        self.directories(name).into_iter().filter(|dir| dir.exists()).collect()
    }

    /// Removes the group and what is below it.
    pub fn remove(&self, name: &str) {
        self.directories(name).iter().for_each(|dir| remove(dir));
    }
}

fn remove(dir: &Path) {
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).for_each(|entry| remove(&entry.path()));
    let _ = fs::remove_dir(dir);
}
