//! Control groups: no way out of them, none before them, none without them, and none left behind.

mod escape;
mod place;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [escape::cases(), place::cases()].into_iter().flatten().collect()
}
