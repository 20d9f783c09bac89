//! What the kernel has shown of this instance's tasks so far: which group, uid and namespaces belong together.
//!
//! Nobody tells the auditor. A task is a directory of our name; its namespaces are those of its first process; its uid is the
//! one that its processes take on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use super::facts::Facts;
use crate::cgroup::Layout;
use crate::place::{GroupName, UidRange};
use crate::task::id::TaskId;

/// Ended tasks that are remembered, so that a leak can be told by its task.
const REMEMBERED: usize = 4096;

/// One task.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its group.
    pub group: GroupName,
    /// The group's directory: one that comes later under the same name is another task's.
    directory: u64,
    /// Who started it, as the launcher noted it on the group; for reports alone.
    pub owner: Option<String>,
    /// Its uid, once a process has taken it on.
    pub uid: Option<u32>,
    /// Its first process: number, start time, namespaces.
    pub init: Option<(i32, u64, BTreeMap<&'static str, u64>)>,
    /// First processes that were seen with everything on; from then on nothing less is right.
    pub seen_confined: [bool; 2],
    /// That its first process does not reap was told.
    pub zombies_told: bool,
    /// That it does not die was told.
    pub undead_told: bool,
    /// When the launcher said that it has ended.
    pub ended: Option<Instant>,
}

impl Known {
    fn new(group: GroupName, owner: Option<String>, directory: u64) -> Self {
        Self {
            group,
            directory,
            owner,
            uid: None,
            init: None,
            seen_confined: [false; 2],
            zombies_told: false,
            undead_told: false,
            ended: None,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Tasks {
    live: HashMap<String, Known>,
    by_uid: HashMap<u32, String>,
    by_pid_namespace: HashMap<u64, String>,
    gone: VecDeque<(u32, TaskId, Option<String>)>,
}

impl Tasks {
    /// The task of this group's name, made known if it is new.
    pub fn meet(&mut self, layout: &Layout, name: &str) -> Option<&mut Known> {
        let path = layout.base().dir.join(name);
        let inode = std::fs::metadata(&path).ok().map(|meta| meta.ino());
        if self.live.get(name).is_some_and(|known| inode.is_some_and(|inode| inode != known.directory)) {
            self.forget(name);
        }
        let owner = || crate::cgroup::owner_of(File::open(&path).ok()?).ok().flatten();
        if let Some(known) = self.live.get_mut(name) {
            // A sandbox that stands ready has none before it is somebody's.
            known.owner = known.owner.take().or_else(owner);
        } else {
            let group = GroupName::parse(name)?;
            self.live.insert(name.to_owned(), Known::new(group, owner(), inode?));
        }
        self.live.get_mut(name)
    }

    /// Learns from a process that is in a group of ours.
    pub fn learn(&mut self, layout: &Layout, name: &str, range: UidRange, facts: &Facts) {
        if self.meet(layout, name).is_none() {
            return;
        }
        let Some(known) = self.live.get_mut(name) else { return };
        if facts.exiting || facts.nspid.len() < 2 {
            return;
        }
        if known.init.is_none() && facts.inner() == 1 && !facts.namespaces.is_empty() {
            known.init = Some((facts.pid, facts.start_time, facts.namespaces.clone()));
            if let Some(inode) = facts.namespaces.get("pid") {
                self.by_pid_namespace.insert(*inode, name.to_owned());
            }
        }
        if known.uid.is_none() && facts.uid.iter().all(|uid| *uid == facts.uid[0]) && range.contains(facts.uid[0]) {
            known.uid = Some(facts.uid[0]);
            self.by_uid.insert(facts.uid[0], name.to_owned());
        }
    }

    /// Forgets the tasks whose group is gone, but for what a leak would be told by.
    pub fn keep(&mut self, present: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.live.keys().filter(|name| !present(name)).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
    }

    /// Forgets a task whose group is gone.
    pub fn forget(&mut self, name: &str) {
        let Some(known) = self.live.remove(name) else { return };
        if let Some(uid) = known.uid {
            if self.by_uid.get(&uid).is_some_and(|of| of == name) {
                self.by_uid.remove(&uid);
            }
            self.gone.push_front((uid, known.group.task, known.owner));
            self.gone.truncate(REMEMBERED);
        }
        if let Some(inode) = known.init.and_then(|(_, _, namespaces)| namespaces.get("pid").copied())
            && self.by_pid_namespace.get(&inode).is_some_and(|of| of == name)
        {
            self.by_pid_namespace.remove(&inode);
        }
    }

    /// The living task with this uid.
    pub fn of_uid(&self, uid: u32) -> Option<&Known> {
        self.by_uid.get(&uid).and_then(|name| self.live.get(name))
    }

    /// The living task with this PID namespace.
    pub fn of_pid_namespace(&self, inode: u64) -> Option<&Known> {
        self.by_pid_namespace.get(&inode).and_then(|name| self.live.get(name))
    }

    /// The living task of this group.
    pub fn of_group(&self, name: &str) -> Option<&Known> {
        self.live.get(name)
    }

    /// The same, to be changed.
    pub fn of_group_mut(&mut self, name: &str) -> Option<&mut Known> {
        self.live.get_mut(name)
    }

    /// The living task of this id.
    pub fn of_id(&mut self, task: TaskId) -> Option<&mut Known> {
        self.live.values_mut().find(|known| known.group.task == task)
    }

    /// The last task that had this uid, with its owner.
    pub fn last_of_uid(&self, uid: u32) -> Option<(TaskId, Option<String>)> {
        self.gone.iter().find(|(had, ..)| *had == uid).map(|(_, task, owner)| (*task, owner.clone()))
    }

    /// A task whose group only the test knows.
    #[cfg(test)]
    pub(super) fn plant(&mut self, name: &str) {
        let group = GroupName::parse(name).expect("a task's name");
        self.live.insert(name.to_owned(), Known::new(group, None, 0));
    }
}
