//! A task's name: a version 4 UUID, as the source design says.

use std::fmt;

use serde::{Serialize, Serializer};
use uuid::Uuid;

/// Identifies one task, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
