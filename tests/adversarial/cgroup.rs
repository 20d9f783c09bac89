//! Control groups: no way out of them, none before them, none without them, and none left behind.

mod escape;
mod locks;
mod nested;
mod place;

use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    [escape::cases(), nested::cases(), place::cases(), locks::cases()].into_iter().flatten().collect()
}
