//! A control group of the test's own in each hierarchy of the host, for whoever starts tasks: as a container, a slice or an operator has one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Process;
use super::host::host_text;

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

    /// Makes the group everywhere, with this much memory, and for its processes to divide: what a runtime does that knows the layout.
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
        let (dir, file) = match of("memory") {
            Some(dir) => (dir, "memory.limit_in_bytes"),
            None => (self.v2.join(name), "memory.max"),
        };
        if !self.is_hybrid() {
            fs::write(self.v2.join("cgroup.subtree_control"), "+memory +cpu +pids +io").unwrap();
            let delegate = "import os, sys; os.setxattr(sys.argv[1], 'user.delegate', b'1')";
            host_text(&["python3", "-c", delegate, dir.to_str().unwrap()]);
        }
        if let Some(memory) = memory {
            fs::write(dir.join(file), memory.to_string()).unwrap();
        }
    }

    /// The groups of a task's process are below the group of this name, and in each hierarchy with limits a task's own.
    #[track_caller]
    pub fn assert_holds(name: &str, process: Process) {
        let groups = process.read("cgroup");
        for line in groups.lines() {
            let (_, rest) = line.split_once(':').unwrap();
            let (controllers, path) = rest.split_once(':').unwrap();
            let below = path.strip_prefix(&format!("/{name}")).unwrap_or_else(|| panic!("outside of {name}: {line}"));
            let used = ["", "memory", "cpu", "pids", "blkio"];
            if controllers.split(',').any(|name| used.contains(&name)) {
                assert!(below.starts_with("/taskman-run-"), "{line}");
            }
        }
    }

    /// Removes the group and what is below it.
    pub fn remove(&self, name: &str) {
        self.directories(name).iter().for_each(|dir| remove(dir));
    }
}

fn remove(dir: &Path) {
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).for_each(|entry| remove(&entry.path()));
    // After a test that failed, those in it may still be dying.
    let deadline = Instant::now() + Duration::from_secs(2);
    while fs::remove_dir(dir).is_err() && dir.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}
