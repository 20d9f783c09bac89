//! `--recover`: sweeps what is left, in reverse order of creation, and reports each thing. Done twice it does no more.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;

use super::clean::Extent;
use super::remains::{Lease, Leases, Thing, View};
use crate::containment::{Setup, Swept};
use crate::error::SysError;

/// Sweeps what [`left`](super::clean::left) lists. What stays has an error, which says why.
pub fn recover(setup: &Setup) -> Result<Vec<Swept>, SysError> {
    sweep(&View::new(setup, Extent::Everything))
}

pub(super) fn sweep(view: &View<'_>) -> Result<Vec<Swept>, SysError> {
    let things = view.confirmed()?;
    if things.is_empty() {
        return Ok(Vec::new());
    }
    let errors = sweep_each(&things)?;
    // The last word has the kernel: what was swept and is there nevertheless is told as left.
    let left: BTreeSet<_> = view.confirmed()?.iter().map(Thing::key).collect();
    let result = things.iter().zip(errors).map(|(thing, error)| {
        let stays = || left.contains(&thing.key()).then(|| "it is still there".to_owned());
        Swept { leftover: thing.leftover(), error: error.map(|error| error.to_string()).or_else(stays) }
    });
    Ok(result.collect())
}

/// In the order they are given: what was made last goes first. Their uids are held meanwhile, so that no task is started with
/// one.
fn sweep_each(things: &[Thing]) -> Result<Vec<Option<SysError>>, SysError> {
    let uids: BTreeSet<u32> = things.iter().filter_map(Thing::task_uid).collect();
    let leases: BTreeMap<u32, Option<Lease>> =
        uids.into_iter().map(|uid| Ok((uid, Leases::take(uid)?))).collect::<Result<_, SysError>>()?;
    // Whole groups first: nothing in them forks away from this. Their own turn comes, and reports.
    for thing in things {
        if let Thing::Group(group) = thing {
            let _ = group.kill();
        }
    }
    let sweep = |thing: &Thing| {
        let Some(uid) = thing.task_uid() else { return thing.sweep() };
        if leases[&uid].is_none() {
            let error = SysError::new("lease", format!("uid {uid}"), Errno::EAGAIN);
            return Err(error.hint("a task was started with it, or somebody else sweeps it; try again"));
        }
        thing.sweep()
    };
    Ok(things.iter().map(|thing| sweep(thing).err()).collect())
}
