//! What retention lets go: the too old, and of too many or too large ones the oldest of whoever holds most.
//!
//! So nobody's tasks erase those of another who holds less: whatever the others run, a user keeps its part of what is retained, which is
//! all of it divided by those who hold any.

use rusqlite::{Connection, OptionalExtension};

use super::error::StoreError;
use crate::config::Retain;
use crate::task::id::TaskId;
use crate::task::record::UnixMillis;

/// One owner's ended tasks, less those that go.
struct Holder {
    owner: String,
    tasks: i64,
    bytes: i64,
    /// What was let go last, or is too old.
    after: (UnixMillis, String),
    /// The oldest that is left, once it was asked for.
    oldest: Option<Ended>,
}

#[derive(Clone)]
struct Ended {
    at: UnixMillis,
    id: String,
    bytes: i64,
}

/// Ended tasks that are not to be retained, oldest first.
pub(super) fn expired(database: &Connection, retain: &Retain, now: UnixMillis) -> Result<Vec<TaskId>, StoreError> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let age = i64::try_from(retain.age.as_millis()).unwrap_or(i64::MAX);
    let too_old = now.saturating_sub(age);
    // All questions of the same moment.
    let _moment = database.unchecked_transaction()?;
    let mut holders = holders(database, too_old)?;
    let mut gone = old(database, too_old, &mut holders)?;
    loop {
        let tasks: i64 = holders.iter().map(|holder| holder.tasks).sum();
        let bytes = holders.iter().fold(0i64, |sum, holder| sum.saturating_add(holder.bytes));
        if tasks <= number(retain.count) && bytes <= number(retain.bytes) {
            break;
        }
        let share = |holder: &Holder| if tasks > number(retain.count) { holder.tasks } else { holder.bytes };
        match largest(database, &mut holders, share)? {
            Some(ended) => gone.push(ended),
            // The sums were not those of the rows: damage. They are, after the next start.
            None => break,
        }
    }
    gone.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
    // An id that is none belongs to a damaged row: reading that sets it aside.
    Ok(gone.iter().filter_map(|ended| ended.id.parse().ok()).collect())
}

fn holders(database: &Connection, too_old: UnixMillis) -> Result<Vec<Holder>, StoreError> {
    let sql =
        "SELECT CAST(owner AS TEXT), CAST(ended AS INTEGER), CAST(ended_bytes AS INTEGER) FROM sums WHERE ended > 0";
    let mut statement = database.prepare_cached(sql)?;
    let holders = statement.query_map([], |row| {
        let after = (too_old, String::new());
        Ok(Holder { owner: row.get(0)?, tasks: row.get(1)?, bytes: row.get(2)?, after, oldest: None })
    })?;
    Ok(holders.collect::<Result<_, _>>()?)
}

/// Those that are too old, whoever has them. Casts, here and below: what is damaged is read like the rest, and goes when it is due.
fn old(database: &Connection, too_old: UnixMillis, holders: &mut [Holder]) -> Result<Vec<Ended>, StoreError> {
    let sql = format!("SELECT {ENDED}, CAST(owner AS TEXT) FROM tasks WHERE ended_at < ?1 ORDER BY ended_at, id");
    let mut statement = database.prepare_cached(&sql)?;
    let mut rows = statement.query([too_old])?;
    let mut gone = Vec::new();
    while let Some(row) = rows.next()? {
        let (ended, owner) = (ended(row)?, row.get::<_, String>(3)?);
        if let Some(holder) = holders.iter_mut().find(|holder| holder.owner == owner) {
            holder.lose(&ended);
        }
        gone.push(ended);
    }
    Ok(gone)
}

/// Takes the oldest task of the largest holder from it; where several hold as much, the oldest of all theirs.
fn largest(
    database: &Connection,
    holders: &mut [Holder],
    share: impl Fn(&Holder) -> i64,
) -> Result<Option<Ended>, StoreError> {
    let most = holders.iter().map(&share).max().unwrap_or(0);
    for holder in holders.iter_mut().filter(|holder| holder.tasks > 0 && share(holder) == most) {
        holder.look(database)?;
    }
    let candidates = holders.iter_mut().filter(|holder| holder.tasks > 0 && share(holder) == most);
    let oldest = candidates.filter_map(|holder| Some((holder.oldest.clone()?, holder)));
    let chosen = oldest.min_by(|(one, _), (other, _)| (one.at, &one.id).cmp(&(other.at, &other.id)));
    Ok(chosen.map(|(ended, holder)| {
        holder.lose(&ended);
        holder.after = (ended.at, ended.id.clone());
        holder.oldest = None;
        ended
    }))
}

impl Holder {
    fn lose(&mut self, ended: &Ended) {
        self.tasks -= 1;
        self.bytes = self.bytes.saturating_sub(ended.bytes);
    }

    /// Finds its oldest task. One that has none, against what the sums say, holds nothing.
    fn look(&mut self, database: &Connection) -> Result<(), StoreError> {
        if self.oldest.is_some() {
            return Ok(());
        }
        let sql = format!(
            "SELECT {ENDED} FROM tasks WHERE owner = ?1 AND ended_at IS NOT NULL AND (ended_at, id) > (?2, ?3)
             ORDER BY ended_at, id LIMIT 1"
        );
        let mut statement = database.prepare_cached(&sql)?;
        let (at, id) = &self.after;
        self.oldest = statement.query_row((&self.owner, at, id), ended).optional()?;
        if self.oldest.is_none() {
            (self.tasks, self.bytes) = (0, 0);
        }
        Ok(())
    }
}

const ENDED: &str = "CAST(id AS TEXT), CAST(ended_at AS INTEGER), coalesce(CAST(output_bytes AS INTEGER), 0)";

fn ended(row: &rusqlite::Row<'_>) -> rusqlite::Result<Ended> {
    Ok(Ended { id: row.get(0)?, at: row.get(1)?, bytes: row.get::<_, i64>(2)?.max(0) })
}
