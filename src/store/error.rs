//! What can go wrong with the store, told apart by what its caller can do about it.

use rusqlite::ErrorCode;

use crate::error::SysError;
use crate::task::id::TaskId;

/// A call to the store failed. Nothing of that call was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file was written by a newer taskman.
    #[error(
        "{path} has schema version {found}, this taskman knows up to {known} (hint: use the newer taskman, or another state directory)"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// No such task.
    #[error("no task {0} is stored")]
    NotFound(TaskId),
    /// Not a cursor of this store.
    #[error("the page token is not one of this server (hint: use next_page_token of the page before, unchanged)")]
    BadCursor,
    /// The disk is full. The store goes on with what it holds.
    #[error("the disk of the task store is full")]
    Full,
    /// What is stored cannot be read.
    #[error("what is stored is damaged: {0}")]
    Damaged(String),
    /// SQLite refused.
    #[error("task store: {0}")]
    Sqlite(String),
    /// The kernel refused.
    #[error("task store: {0}")]
    Sys(#[from] SysError),
    /// The store's thread has ended.
    #[error("the task store is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error.to_string()),
            _ => Self::Sqlite(error.to_string()),
        }
    }
}
