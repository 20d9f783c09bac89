//! What `--verify-clean` finds and `--recover` sweeps: things of this instance that no living task accounts for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftoverKind {
    /// A process.
    Process,
    /// A control group's directory.
    Cgroup,
    /// A mount in the host's namespace.
    Mount,
    /// A uid that is neither leased nor free.
    Uid,
    /// A file of a task's uid.
    File,
    /// A System V or POSIX IPC object of a task's uid.
    Ipc,
    /// A directory of ours that should be empty.
    Directory,
    /// A place that could not be looked into: what is there is not known. It quarantines nobody.
    Unseen,
}

impl fmt::Display for LeftoverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Cgroup => "cgroup",
            Self::Mount => "mount",
            Self::Uid => "uid",
            Self::File => "file",
            Self::Ipc => "ipc",
            Self::Directory => "directory",
            Self::Unseen => "unseen",
        })
    }
}

/// One thing that is left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Leftover {
    /// What kind.
    pub kind: LeftoverKind,
    /// Which: a pid, a path, an id.
    pub name: String,
    /// More about it.
    pub detail: String,
}

/// What became of one thing that was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// The thing.
    pub leftover: Leftover,
    /// Why it is still there; none if it is gone.
    pub error: Option<String>,
}
