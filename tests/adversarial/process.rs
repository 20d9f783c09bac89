//! Processes: whatever a payload forks, ignores, clears or orphans, it ends with its task, and the report says how.

mod ends;
mod orphans;
mod queue;
pub mod recycled;
mod stops;
mod supervisor;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [orphans::cases(), stops::cases(), queue::cases(), ends::cases(), supervisor::cases(), recycled::cases()]
        .into_iter()
        .flatten()
        .collect()
}
