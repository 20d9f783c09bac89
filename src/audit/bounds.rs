//! What findings may cost. A client can make as many as it likes of those that quarantine nobody, such as zombies: each owner has
//! a ration of them, and what is beyond it is counted and told with the next. Of the incident files the newest are kept.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::auditor::{Auditor, log};
use super::judge::Fault;
use crate::containment::IncidentId;

/// So many of an owner's are written down within [`SPAN`].
const MOST: u32 = 60;
const SPAN: Duration = Duration::from_secs(3600);
/// Incident files that are kept.
const FILES: usize = 10_000;
/// After so many new ones the oldest are looked for.
const EVERY: usize = 256;
/// Files that are removed with one beat.
const AT_ONCE: usize = 256;

/// What each owner has had of its ration; those of no known owner have one together.
#[derive(Debug, Default)]
pub struct Rations(HashMap<Option<String>, Ration>);

#[derive(Debug)]
struct Ration {
    since: Instant,
    told: u32,
    untold: u64,
}

impl Rations {
    /// Whether another one may be told, and how many were not since the last that was.
    fn take(&mut self, owner: &Option<String>, now: Instant) -> Option<u64> {
        // What nobody was told for so long, nobody misses.
        self.0.retain(|_, ration| now.duration_since(ration.since) < 2 * SPAN);
        let new = || Ration { since: now, told: 0, untold: 0 };
        let ration = self.0.entry(owner.clone()).or_insert_with(new);
        if now.duration_since(ration.since) >= SPAN {
            (ration.since, ration.told) = (now, 0);
        }
        if ration.told >= MOST {
            ration.untold += 1;
            return None;
        }
        ration.told += 1;
        Some(std::mem::take(&mut ration.untold))
    }

    fn is_first_untold(&self, owner: &Option<String>) -> bool {
        self.0.get(owner).is_some_and(|ration| ration.untold == 1)
    }
}

/// Incident files that are to go.
#[derive(Debug)]
pub struct Files {
    excess: Vec<IncidentId>,
    new: usize,
}

impl Default for Files {
    fn default() -> Self {
        // There may be too many from before.
        Self { excess: Vec::new(), new: EVERY }
    }
}

impl Auditor {
    /// Whether a finding is written down; one that quarantines the worker always is. Says in it how many were not.
    pub(super) fn may_tell(&mut self, fault: &mut Fault) -> bool {
        if fault.grave {
            return true;
        }
        match self.rations.take(&fault.owner, Instant::now()) {
            Some(0) => {}
            Some(untold) => {
                fault.faults.push(format!("{untold} findings of the same owner before it are not written down"))
            }
            None => {
                if self.rations.is_first_untold(&fault.owner) {
                    let owner = fault.owner.as_deref().unwrap_or("nobody known");
                    log(&format!("{MOST} findings of {owner} within an hour; more are only counted"));
                }
                return false;
            }
        }
        true
    }

    /// Notes that there is one file more.
    pub(super) fn note_file(&mut self) {
        self.files.new += 1;
    }

    /// Removes some of the oldest incident files, if there are too many; never the one that a quarantine in force names.
    pub(super) fn tidy(&mut self) {
        if self.files.excess.is_empty() {
            if self.files.new < EVERY {
                return;
            }
            self.files.new = 0;
            match self.incidents.beyond(FILES) {
                Ok(excess) => self.files.excess = excess,
                Err(error) => log(&error.to_string()),
            }
        }
        let rests_on = self.health.quarantine.as_ref().map_or("", |quarantine| &quarantine.detail);
        let some = self.files.excess.len().saturating_sub(AT_ONCE)..;
        for id in self.files.excess.drain(some) {
            if !rests_on.contains(&id.to_string())
                && let Err(error) = self.incidents.remove(&id)
            {
                log(&error.to_string());
            }
        }
    }
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
