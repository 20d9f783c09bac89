//! What the server remembers: one row per task, on disk before anybody is told.
//!
//! SQLite in one file, in WAL mode with `synchronous=FULL`: what a call has acknowledged survives the death of the server
//! and of the machine. People can open it with tools they know. The schema's version is `PRAGMA user_version`; a file of
//! an older one is brought up to date on opening, a newer one is refused and left as it is.
//!
//! Damage is set aside, reported and survived: see [`Opened`] for what is found on opening; what is found later is logged.

mod error;
mod expired;
mod query;
mod row;
mod schema;
mod worker;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::path::Path;

use rusqlite::Connection;

use crate::config::Retain;
use crate::task::id::TaskId;
use crate::task::record::{End, Record, UnixMillis};

pub use error::StoreError;
pub use query::{Cursor, LARGEST_PAGE, Page, Query};
pub use row::State;
pub use schema::Opened;

use row::Read;
use worker::Workers;

/// The tasks of one server.
#[derive(Debug)]
pub struct Store {
    workers: Workers,
}

/// What became of an insertion.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// It is stored.
    New,
    /// The owner used the same token before, for this task; nothing was stored.
    Repeated(Box<Record>),
}

impl Store {
    /// Opens, or begins, the file at `path`. Blocks; called once, before the server answers anybody.
    pub fn open(path: &Path) -> Result<(Self, Opened), StoreError> {
        let (writer, readers, opened) = schema::open(path)?;
        Ok((Self { workers: Workers::start(writer, readers)? }, opened))
    }

    /// Stores a new task, unless its owner's token is known already.
    pub async fn insert(&self, record: Record) -> Result<Inserted, StoreError> {
        let insert = move |database: &Connection| {
            if let Some(token) = &record.token
                && let Some(known) = row::find_token(database, &record.owner, &token.token)?
            {
                match known.record {
                    Ok(known) => return Ok(Inserted::Repeated(Box::new(known))),
                    Err(_) => report(row::set_aside(database, known.seq)?),
                }
            }
            row::insert(database, &record).map(|()| Inserted::New)
        };
        self.workers.write(insert).await
    }

    /// Stores how a task ended. The first end stays: later ones change nothing. Returns the record as it is now.
    pub async fn finish(&self, id: TaskId, end: End) -> Result<Record, StoreError> {
        let finish = move |database: &Connection| {
            let known = row::find(database, id)?.ok_or(StoreError::NotFound(id))?;
            let mut record = known.record.map_err(StoreError::Damaged)?;
            if record.end.is_none() {
                record.end = Some(end);
                row::update(database, &record)?;
            }
            Ok(record)
        };
        self.workers.write(finish).await
    }

    /// Stores what changed about a task that runs, soon: that it was asked for is durable already, and after a crash it is lost
    /// whatever else is known of it.
    pub fn update(&self, record: Record) {
        self.workers.write_later(move |database: &Connection| row::update(database, &record));
    }

    /// One task.
    pub async fn get(&self, id: TaskId) -> Result<Option<Record>, StoreError> {
        let found = self.workers.read(move |database| row::find(database, id)).await?;
        self.sound(found).await
    }

    /// Tasks whose ids begin with this, of `owner` or of anybody: at most two, which is one too many.
    pub async fn beginning_with(&self, prefix: &str, owner: Option<&str>) -> Result<Vec<TaskId>, StoreError> {
        let (prefix, owner) = (prefix.to_owned(), owner.map(str::to_owned));
        self.workers.read(move |database| query::beginning_with(database, &prefix, owner.as_deref())).await
    }

    /// The task that `owner` started with `token`.
    pub async fn find_token(&self, owner: &str, token: &str) -> Result<Option<Record>, StoreError> {
        let (owner, token) = (owner.to_owned(), token.to_owned());
        let found = self.workers.read(move |database| row::find_token(database, &owner, &token)).await?;
        self.sound(found).await
    }

    /// A page of tasks, newest first. A damaged one is left out and set aside.
    pub async fn list(&self, query: Query) -> Result<Page, StoreError> {
        let again = query.clone();
        let (page, damaged) = self.workers.list(move |database| query::list(database, &query)).await?;
        if damaged.is_empty() {
            return Ok(page);
        }
        self.set_aside(damaged).await?;
        // A page of nothing but damage would look like the last one.
        Ok(self.workers.list(move |database| query::list(database, &again)).await?.0)
    }

    /// Every task without an end, oldest first.
    pub async fn running(&self) -> Result<Vec<Record>, StoreError> {
        let (records, damaged) = self.workers.read(query::running).await?;
        self.set_aside(damaged).await?;
        Ok(records)
    }

    /// Forgets tasks. Unknown ones are no error.
    pub async fn remove(&self, ids: Vec<TaskId>) -> Result<(), StoreError> {
        let remove = move |database: &Connection| {
            let mut statement = database.prepare_cached("DELETE FROM tasks WHERE id = ?1")?;
            ids.iter().try_for_each(|id| Ok(statement.execute([id.to_string()]).map(drop)?))
        };
        self.workers.write(remove).await
    }

    /// Ended tasks beyond what is to be retained, oldest first: of too many, those of whoever has most. Running ones are never among them, nor
    /// counted.
    pub async fn expired(&self, retain: &Retain, now: UnixMillis) -> Result<Vec<TaskId>, StoreError> {
        let retain = retain.clone();
        self.workers.read(move |database| expired::expired(database, &retain, now)).await
    }

    /// Bytes that are stored of `owner`'s tasks.
    pub async fn stored_bytes(&self, owner: &str) -> Result<u64, StoreError> {
        let owner = owner.to_owned();
        self.workers.read(move |database| query::stored_bytes(database, &owner)).await
    }

    async fn sound(&self, found: Option<Read>) -> Result<Option<Record>, StoreError> {
        match found {
            Some(Read { record: Ok(record), .. }) => Ok(Some(record)),
            Some(damaged) => self.set_aside(vec![damaged]).await.map(|()| None),
            None => Ok(None),
        }
    }

    async fn set_aside(&self, damaged: Vec<Read>) -> Result<(), StoreError> {
        if damaged.is_empty() {
            return Ok(());
        }
        let set_aside = move |database: &Connection| {
            damaged.iter().try_for_each(|read| row::set_aside(database, read.seq).map(report))
        };
        self.workers.write(set_aside).await
    }
}

fn report(set_aside: Option<String>) {
    if let Some(what) = set_aside {
        tracing::error!("{what}");
    }
}
