//! The observer outside: what the host's `/proc` says about a process, never what the process says about itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// A process, by its pid on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
}

impl Process {
    /// This process.
    pub fn own() -> Self {
        Self { pid: std::process::id() as i32 }
    }

    /// Every process on the host.
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").expect("read /proc");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.map(|pid| Self { pid }).collect()
    }

    /// Processes whose parent is `pid`.
    pub fn children_of(pid: i32) -> Vec<Self> {
        Self::all().into_iter().filter(|process| process.parent() == Some(pid)).collect()
    }

    /// Processes of which any of the four uids is `uid`.
    pub fn of_uid(uid: u32) -> Vec<Self> {
        let text = uid.to_string();
        let owned = |process: &Self| process.try_status("Uid").is_some_and(|u| u.split_whitespace().any(|u| u == text));
        Self::all().into_iter().filter(owned).collect()
    }

    /// The same without those that have ended and only wait to be reaped, by whom taskman cannot choose.
    pub fn running_of_uid(uid: u32) -> Vec<Self> {
        let ended = |process: &Self| process.try_status("State").is_none_or(|state| state.starts_with(['Z', 'X']));
        Self::of_uid(uid).into_iter().filter(|process| !ended(process)).collect()
    }

    /// A process and its descendants, for messages.
    pub fn tree(pid: i32) -> String {
        let line = format!("{pid} {:?}\n", fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
        Self::children_of(pid).iter().fold(line, |text, child| text + &Self::tree(child.pid))
    }

    /// `/proc/<pid>/name`.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    /// The content of `/proc/<pid>/name`.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.path(name)).unwrap_or_else(|e| panic!("read {:?}: {e}", self.path(name)));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The target of the link `/proc/<pid>/name`.
    #[track_caller]
    pub fn link(&self, name: &str) -> String {
        let target = fs::read_link(self.path(name)).unwrap_or_else(|e| panic!("readlink {:?}: {e}", self.path(name)));
        target.to_string_lossy().into_owned()
    }

    /// What its descriptors are, of those that are still open when they are looked at.
    #[track_caller]
    pub fn descriptors(&self) -> Vec<String> {
        let read = |fd: String| fs::read_link(self.path(&format!("fd/{fd}"))).ok();
        let links = self.list("fd").into_iter().filter_map(read);
        links.map(|link| link.to_string_lossy().into_owned()).collect()
    }

    /// One field of `status`, trimmed.
    #[track_caller]
    pub fn status(&self, field: &str) -> String {
        self.try_status(field).unwrap_or_else(|| panic!("process {} is gone or has no {field}", self.pid))
    }

    fn try_status(&self, field: &str) -> Option<String> {
        let status = fs::read_to_string(self.path("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    fn parent(&self) -> Option<i32> {
        self.try_status("PPid")?.parse().ok()
    }

    /// The pid in the innermost namespace.
    pub fn inner_pid(&self) -> i32 {
        let inner = self.try_status("NSpid").and_then(|ids| ids.split_whitespace().last()?.parse().ok());
        inner.unwrap_or(i32::MAX)
    }

    /// The real uid.
    #[track_caller]
    pub fn uid(&self) -> u32 {
        self.status("Uid").split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The environment.
    #[track_caller]
    pub fn environ(&self) -> BTreeMap<String, String> {
        let text = self.read("environ");
        let pairs = text.split_terminator('\0').map(|pair| pair.split_once('=').expect("NAME=value"));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The names in the directory `/proc/<pid>/name`, sorted.
    #[track_caller]
    pub fn list(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap_or_else(|e| panic!("list {:?}: {e}", self.path(name)));
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Its mounts.
    #[track_caller]
    pub fn mounts(&self) -> Vec<Mount> {
        self.read("mountinfo").lines().map(Mount::parse).collect()
    }

    /// Soft and hard value of a line of `limits`, such as `Max open files`.
    #[track_caller]
    pub fn limit(&self, name: &str) -> (String, String) {
        let limits = self.read("limits");
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }
}

/// One line of `mountinfo`.
#[derive(Debug, Clone)]
pub struct Mount {
    pub root: String,
    pub point: String,
    pub options: Vec<String>,
    pub kind: String,
    pub super_options: Vec<String>,
}

impl Mount {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let dash = words.iter().position(|word| *word == "-").expect("mountinfo has a separator");
        let list = |text: &str| text.split(',').map(str::to_owned).collect();
        Self {
            root: words[3].to_owned(),
            point: words[4].to_owned(),
            options: list(words[5]),
            kind: words[dash + 1].to_owned(),
            super_options: list(words.get(dash + 3).copied().unwrap_or_default()),
        }
    }

    /// Whether the mount, not only its file system, has this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }
}
