//! The suite lives in control groups of its own, so that whatever it starts can be told from the rest of the host.
//!
//! taskman puts a task below its own group. With a private group per suite, every process that descends from the
//! suite and every directory that a task leaves is found below it, also on a machine where others run taskman too.

use std::fs;
use std::path::{Path, PathBuf};

/// The version 1 controllers that taskman needs; processor time is counted by every v2 group, without cpuacct.
pub const CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "blkio"];

/// Groups that were made for this run, and where the suite was before.
pub struct Place {
    name: String,
    /// This run's group in each hierarchy; the v2 one first where there is one.
    pub groups: Vec<PathBuf>,
    before: Vec<PathBuf>,
    private: bool,
    /// Who was in a group that is not private before this run.
    others: Vec<i32>,
}

/// The hierarchies taskman uses, with this process's own group in each: `(controllers, directory)`; v2 is `""`.
pub fn own_groups() -> Vec<(String, PathBuf)> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = super::proc::cgroup_of(std::process::id() as i32);
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(root), Some(point)) = (left.split(' ').nth(3), left.split(' ').nth(4)) else { continue };
        let mut right = right.split(' ');
        let (kind, options) = (right.next().unwrap_or(""), right.nth(1).unwrap_or(""));
        let entry = own.iter().find(|(controllers, _)| match kind {
            "cgroup2" => controllers.is_empty(),
            "cgroup" => !controllers.is_empty() && controllers.split(',').all(|c| options.split(',').any(|o| o == c)),
            _ => false,
        });
        let Some((controllers, path)) = entry else { continue };
        if controllers.is_empty() || controllers.split(',').any(|c| CONTROLLERS.contains(&c)) {
            let below = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
            found.push((controllers.clone(), Path::new(point).join(below)));
        }
    }
    found.sort();
    found
}

/// Whether controllers are version 2's.
pub fn is_pure_v2() -> bool {
    own_groups().iter().any(|(controllers, dir)| {
        controllers.is_empty() && fs::read_to_string(dir.join("cgroup.controllers")).is_ok_and(|c| c.contains("memory"))
    })
}

impl Place {
    /// Moves this process into fresh groups. On a pure v2 host it stays where it is: a group with members cannot
    /// hand controllers to its children, and there the delegated group is the suite's own anyway.
    pub fn enter() -> Result<Self, String> {
        let own = own_groups();
        let name = format!("adv-{}", std::process::id());
        let v2_only = is_pure_v2();
        let before: Vec<PathBuf> = own.into_iter().map(|(_, dir)| dir).collect();
        if v2_only {
            let others = members_of(&before[0]);
            return Ok(Self { name, groups: before.clone(), before, private: false, others });
        }
        let mut groups = Vec::new();
        for dir in &before {
            remove_stale(dir);
            let group = dir.join(&name);
            fs::create_dir_all(&group).map_err(|e| format!("mkdir {}: {e}", group.display()))?;
            fs::write(group.join("cgroup.procs"), std::process::id().to_string())
                .map_err(|e| format!("join {}: {e}", group.display()))?;
            groups.push(group);
        }
        Ok(Self { name, groups, before, private: true, others: Vec::new() })
    }

    /// Goes back and removes the groups; what cannot be removed is said.
    pub fn leave(&self) -> Vec<String> {
        if !self.private {
            return Vec::new();
        }
        let mut left = Vec::new();
        for (group, before) in self.groups.iter().zip(&self.before) {
            let _ = fs::write(before.join("cgroup.procs"), std::process::id().to_string());
            if let Err(e) = fs::remove_dir(group) {
                left.push(format!("rmdir {}: {e}", group.display()));
            }
        }
        left
    }

    /// The v2 group of this run.
    pub fn v2(&self) -> &Path {
        &self.groups[0]
    }

    /// Every directory named `taskman-*` below this run's groups.
    pub fn task_dirs(&self) -> Vec<PathBuf> {
        let below = |group: &PathBuf| fs::read_dir(group).into_iter().flatten().flatten().map(|e| e.path());
        let is_task = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("taskman-"));
        self.groups.iter().flat_map(below).filter(|p| p.is_dir()).filter(is_task).collect()
    }

    /// The processes in this run's own v2 group, which are the suite and what it has started directly. Where that group is
    /// shared with others: those that came after them.
    pub fn members(&self) -> Vec<i32> {
        let mut members = members_of(self.v2());
        members.retain(|pid| !self.others.contains(pid) && !super::proc::is_kernel_thread(*pid));
        members
    }

    /// Whether a process is inside one of this run's groups, at any depth.
    pub fn holds(&self, pid: i32) -> bool {
        if !self.private {
            return self.task_dirs().iter().any(|dir| members_of(dir).contains(&pid));
        }
        // A name ends where its path does or goes on; `adv-12` is not inside `adv-123`.
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let mark = format!("/{}", self.name);
        groups
            .match_indices(&mark)
            .any(|(at, _)| matches!(groups.as_bytes().get(at + mark.len()), Some(b'/' | b'\n') | None))
    }
}

/// The processes of one group, as its `cgroup.procs` says.
pub fn members_of(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|l| l.parse().ok()).collect()
}

/// A suite that was killed leaves its empty groups; the next one removes them, never those of a living suite.
fn remove_stale(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.strip_prefix("adv-")) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            for child in fs::read_dir(entry.path()).into_iter().flatten().flatten().filter(|c| c.path().is_dir()) {
                let _ = fs::remove_dir(child.path());
            }
            let _ = fs::remove_dir(entry.path());
        }
    }
}
