//! System V objects of this IPC namespace. A sandbox has its own, so one of a task's uid here was made outside.

use super::lease::Leases;
use crate::containment::{Leftover, LeftoverKind};
use crate::error::{Context, SysError};
use crate::sys::ipc::{self, Kind};

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    kind: Kind,
    id: i32,
    /// The task's uid that owns it or made it.
    pub uid: u32,
}

/// Every object of a uid that nobody has.
pub fn find(leases: &Leases) -> Result<Vec<Object>, SysError> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        for (id, uids) in rows(&table(kind)?) {
            for uid in uids {
                if leases.is_nobodys(uid)? && !found.iter().any(|other: &Object| (other.kind, other.id) == (kind, id)) {
                    found.push(Object { kind, id, uid });
                }
            }
        }
    }
    Ok(found)
}

impl Object {
    /// As it is told.
    pub fn leftover(&self) -> Leftover {
        let detail = format!("System V object of uid {}", self.uid);
        Leftover { kind: LeftoverKind::Ipc, name: format!("{} {}", self.kind.name(), self.id), detail }
    }

    /// Removes it, if it still is that uid's: an id can have gone to another.
    pub fn sweep(&self) -> Result<(), SysError> {
        let still = rows(&table(self.kind)?).iter().any(|(id, uids)| *id == self.id && uids.contains(&self.uid));
        if !still {
            return Ok(());
        }
        ipc::remove(self.kind, self.id).on("IPC_RMID", format!("{} {}", self.kind.name(), self.id))
    }
}

fn table(kind: Kind) -> Result<String, SysError> {
    let path = format!("/proc/sysvipc/{}", kind.name());
    match std::fs::read_to_string(&path) {
        Ok(table) => Ok(table),
        // A kernel without System V IPC has no objects of it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).on("read", path),
    }
}

/// Ids with the uids that own and made them. The first line names the columns; the second column is the id.
fn rows(table: &str) -> Vec<(i32, Vec<u32>)> {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let header = lines.next().unwrap_or_default();
    let row = |fields: Vec<&str>| {
        let uids = header.iter().zip(&fields).filter(|(name, _)| name.ends_with("uid"));
        Some((fields.get(1)?.parse().ok()?, uids.filter_map(|(_, uid)| uid.parse().ok()).collect()))
    };
    lines.filter_map(row).collect()
}
