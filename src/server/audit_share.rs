//! Each user's share of the audit log: a user who has filled its part of the present file goes on in a log of its own.
//!
//! That is rotated and kept by the same policy. So whoever floods the log pushes out its own records, as late as ever, and those of
//! others only until its share is full; nothing that was asked for goes unrecorded.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::audit_log::Shared;

/// One user's part of a file. So at most this many users have logs of their own open at once.
const PART: u64 = 8;

/// Who has written how much to the present file of the log for all.
#[derive(Default)]
pub(super) struct Shares {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file that is counted: so many were rotated before it.
    file: u64,
    written: HashMap<String, u64>,
    own: HashMap<String, Arc<Shared>>,
}

impl Shares {
    /// The log that a line of `user` goes to, `all` or the user's own.
    pub fn place(&self, all: &Arc<Shared>, user: &str, bytes: usize) -> Arc<Shared> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let file = all.rotations();
        if state.file != file {
            *state = State { file, ..State::default() };
        }
        let written = state.written.entry(user.to_owned()).or_default();
        if *written < all.policy.rotate / PART {
            *written += bytes as u64;
            return Arc::clone(all);
        }
        if let Some(own) = state.own.get(user) {
            return Arc::clone(own);
        }
        match Shared::open(path(all, user), &all.policy) {
            Ok(own) => {
                tracing::warn!(user, "its share of the audit log is full; its records go on in {}", own.path.display());
                state.own.insert(user.to_owned(), Arc::clone(&own));
                own
            }
            // Records matter more than shares.
            Err(error) => {
                tracing::error!(%error, user, "its share of the audit log is full, and there is no log of its own");
                Arc::clone(all)
            }
        }
    }

    /// The logs of users that are open.
    pub fn own(&self) -> Vec<Arc<Shared>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).own.values().cloned().collect()
    }
}

/// `audit-USER.log` beside `audit.log`. A user's name is plain, and never empty: that is who has none.
fn path(all: &Shared, user: &str) -> PathBuf {
    let stem = all.path.file_stem().unwrap_or_default().to_string_lossy();
    all.path.with_file_name(format!("{stem}-{user}.log"))
}
