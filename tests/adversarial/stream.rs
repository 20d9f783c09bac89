//! The three pipes that a task shares with its launcher, and the host's streams behind them: whatever the task does to its
//! ends, and whatever others do with the host's, the launcher never waits for either without looking at its clock.

mod drain;
mod race;
mod sink;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [race::cases(), drain::cases(), sink::cases()].into_iter().flatten().collect()
}
