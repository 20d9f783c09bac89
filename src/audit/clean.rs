//! `--verify-clean`: everything of this instance that no living task accounts for.

use super::remains::{Thing, View};
use crate::containment::{Leftover, LeftoverKind, Setup};
use crate::error::SysError;

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Everything,
    /// All but processes, which the auditor looks for by itself.
    Things,
    /// Of that, what is found without a walk through the host's files: it takes milliseconds.
    QuickThings,
}

impl Extent {
    /// Whether such things are always found.
    pub fn sees(self, kind: LeftoverKind) -> bool {
        match kind {
            LeftoverKind::Process | LeftoverKind::Uid => self == Self::Everything,
            LeftoverKind::File | LeftoverKind::Unseen => self != Self::QuickThings,
            _ => true,
        }
    }
}

/// What is left; empty when this instance has left nothing. Things of other instances and of living tasks are not among it.
/// A host with many files takes seconds.
pub fn left(setup: &Setup, extent: Extent) -> Result<Vec<Leftover>, SysError> {
    Ok(View::new(setup, extent).confirmed()?.iter().map(Thing::leftover).collect())
}
