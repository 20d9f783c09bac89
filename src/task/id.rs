//! A task's name: a version 4 UUID, as the source design says.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::spec::SpecError;

/// Identifies one task, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Uuid);

impl TaskId {
    /// A fresh, random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// 64 of its random bits, for choices that should differ from task to task.
    pub fn entropy(&self) -> u64 {
        self.0.as_u64_pair().1
    }
}

/// A task as people name it: by its id, or by the beginning of one, if no other task of theirs begins so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskName {
    /// The whole id.
    Id(TaskId),
    /// At least [`SHORTEST_PREFIX`] letters of one, in lower case.
    Prefix(String),
}

/// Shorter ones would soon mean two tasks, and cost a search.
pub const SHORTEST_PREFIX: usize = 4;

impl std::str::FromStr for TaskName {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        const ANY: &str = "00000000-0000-4000-8000-000000000000";
        let prefix = text.to_ascii_lowercase();
        let rest = ANY.get(prefix.len()..).filter(|_| (SHORTEST_PREFIX..ANY.len()).contains(&prefix.len()));
        match rest.is_some_and(|rest| format!("{prefix}{rest}").parse::<TaskId>().is_ok()) {
            true => Ok(Self::Prefix(prefix)),
            false => text.parse().map(Self::Id).map_err(|_| {
                let meant = format!("neither a task id nor its beginning, of {SHORTEST_PREFIX} letters or more");
                SpecError::new("task_id", format!("{text:?} is {meant}; `taskman list` shows yours"))
            }),
        }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Prefix(prefix) => prefix.fmt(f),
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for TaskId {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        // Only the usual form: the parser also takes braces and other spellings of the same id.
        let id = Uuid::parse_str(text).ok().filter(|id| id.to_string() == text.to_ascii_lowercase());
        id.map(Self)
            .ok_or_else(|| SpecError::new("task_id", format!("{text:?} is not a task id; `taskman list` shows yours")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_by_its_id_or_its_beginning() {
        let id = "a7da14c7-b47a-4535-a263-5bb26e503002";
        let name = |text: &str| text.parse::<TaskName>();
        assert_eq!(name(id).unwrap(), TaskName::Id(id.parse().unwrap()));
        for length in SHORTEST_PREFIX..id.len() {
            let prefix = &id[..length];
            assert_eq!(name(&prefix.to_uppercase()).unwrap(), TaskName::Prefix(prefix.to_owned()));
        }
        for bad in ["", "a7d", "a7dx", "a7da-14c7", "a7da14c7b", "{a7da14c7", "../x", "a7d\u{e4}", "%%%%"] {
            let error = name(bad).unwrap_err().to_string();
            assert!(error.contains("4 letters or more"), "{bad:?}: {error}");
        }
    }
}
