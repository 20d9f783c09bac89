//! How long what was killed is waited for: briefly, unless it is seen on its way down.

use std::time::{Duration, Instant};

use crate::launch::end::{self, Placement, SLOWEST, VANISH};

/// What is on its way down is looked at again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// From the kill to the moment at which it is given up.
#[derive(Clone, Copy)]
pub struct Patience {
    /// When to look again.
    pub until: Instant,
    /// For one that is on its way down.
    latest: Instant,
}

impl Patience {
    /// With what was killed then.
    pub fn since(killed: Instant) -> Self {
        Self { until: killed + VANISH, latest: killed + SLOWEST }
    }

    /// Whether its end is still to be waited for; one that dies slowly only if there is no hurry.
    pub fn lasts(&mut self, placement: &Placement, hurried: bool) -> bool {
        if placement.init_has_ended().unwrap_or(true) {
            return false;
        }
        let now = Instant::now();
        if now >= self.until && !hurried && end::is_going_down(&placement.group) {
            self.until = (now + AGAIN).min(self.latest);
        }
        now < self.until
    }
}
