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
