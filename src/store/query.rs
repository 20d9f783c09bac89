//! Questions to the table that are more than one row: lists, page by page, and sums.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use super::error::StoreError;
use super::row::{self, Read, State};
use crate::task::id::TaskId;
use crate::task::record::{Record, UnixMillis};

/// The longest page.
pub const LARGEST_PAGE: usize = 1000;
/// A page that has come to this many bytes is over: it has to fit into memory, and into a message of the 4 MiB that
/// clients take by default, together with one more task of the largest size.
const PAGE_BYTES: usize = 2 << 20;
/// How many tasks a page looks at, and how much of their labels: others wait for it.
const LOOKED: usize = 5000;
const LABEL_BYTES: i64 = 4 << 20;
/// What a task's entry has besides the texts that its owner chose.
const ENTRY_BYTES: usize = 1024;

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Only this owner's.
    pub owner: Option<String>,
    /// Only these; all when empty.
    pub states: Vec<State>,
    /// Only tasks that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// The page's length, at least 1 and at most [`LARGEST_PAGE`].
    pub limit: usize,
    /// Go on after the page before.
    pub after: Option<Cursor>,
}

/// A page of tasks, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The tasks.
    pub records: Vec<Record>,
    /// Where the next page begins; none after the last. There may be one after a page that is short or empty.
    pub next: Option<Cursor>,
}

/// A place in the list. Tasks that start or go meanwhile do not shift it. Its text form is for the server alone to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    started_at: UnixMillis,
    id: TaskId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.started_at, self.id)
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let parse = || {
            let (started_at, id) = text.split_once('-')?;
            let started_at = u64::from_str_radix(started_at, 16).ok()? as UnixMillis;
            let cursor = Self { started_at, id: id.parse().ok()? };
            (cursor.to_string() == text).then_some(cursor)
        };
        parse().ok_or(StoreError::BadCursor)
    }
}

/// At most two ids that begin with `prefix`, which is of letters that ids are made of.
pub(super) fn beginning_with(
    database: &Connection,
    prefix: &str,
    owner: Option<&str>,
) -> Result<Vec<TaskId>, StoreError> {
    // No id has a letter beyond f, so this is the index's own order.
    let sql = "SELECT id FROM tasks WHERE id >= ?1 AND id < ?1 || 'g' AND (?2 IS NULL OR owner = ?2) LIMIT 2";
    let mut statement = database.prepare_cached(sql)?;
    let ids = statement.query_map((prefix, owner), |row| row.get::<_, String>(0))?;
    // A damaged id names no task.
    ids.filter_map(|id| id.map(|id| id.parse().ok()).transpose()).collect::<Result<_, _>>().map_err(Into::into)
}

/// A page, and the rows of it that are damaged. Each page looks at a bounded number of tasks, and so may be short, or empty, and not the
/// last: a filter that nothing matches costs no more than a page.
pub(super) fn list(database: &Connection, query: &Query) -> Result<(Page, Vec<Read>), StoreError> {
    let limit = query.limit.clamp(1, LARGEST_PAGE);
    let (mut is_wanted, mut values) = ("TRUE".to_owned(), Vec::<Value>::new());
    if !query.states.is_empty() {
        is_wanted += &format!(" AND status IN ({})", vec!["?"; query.states.len()].join(", "));
        values.extend(query.states.iter().map(|state| state.name().to_owned().into()));
    }
    for (key, value) in &query.labels {
        // Labels that are no JSON have no match here: the damage is one row's, not the list's.
        is_wanted += " AND json_valid(labels) AND EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ? AND value = ?)";
        values.extend([key.clone().into(), value.clone().into()]);
    }
    let weight = if query.labels.is_empty() { "0" } else { "length(CAST(labels AS BLOB))" };
    let mut sql = format!(
        "SELECT seq, CAST(started_at AS INTEGER), CAST(id AS TEXT), {is_wanted}, {weight} FROM tasks WHERE TRUE"
    );
    if let Some(owner) = &query.owner {
        sql += " AND owner = ?";
        values.push(owner.clone().into());
    }
    if let Some(after) = &query.after {
        sql += " AND (started_at, id) < (?, ?)";
        values.extend([after.started_at.into(), after.id.to_string().into()]);
    }
    sql += " ORDER BY started_at DESC, id DESC";
    // Of those that are not wanted, what else is stored is not read.
    let whole = format!("SELECT {} FROM tasks WHERE seq = ?", row::COLUMNS);
    let mut whole = database.prepare_cached(&whole)?;

    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    let (mut bytes, mut looked, mut labels) = (0, 0, 0);
    let (mut last, mut more) = (None, false);
    let mut statement = database.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        more = records.len() == limit || bytes > PAGE_BYTES || looked == LOOKED || labels > LABEL_BYTES;
        if more {
            break;
        }
        looked += 1;
        labels += row.get::<_, i64>(4)?;
        let (started_at, id): (_, String) = (row.get(1)?, row.get(2)?);
        last = id.parse().ok().map(|id| Cursor { started_at, id }).or(last);
        if !row.get::<_, bool>(3)? {
            continue;
        }
        match whole.query_row([row.get::<_, i64>(0)?], row::read)? {
            Read { record: Ok(record), .. } => {
                bytes += size(&record);
                records.push(record);
            }
            read => damaged.push(read),
        }
    }
    Ok((Page { records, next: last.filter(|_| more) }, damaged))
}

fn size(record: &Record) -> usize {
    let labels = record.labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    // In memory, where many empty ones are not nothing.
    let args = record.args.iter().map(|arg| arg.len() + size_of::<String>()).sum::<usize>();
    ENTRY_BYTES + record.command.len() + args + labels
}

/// Every task without an end.
pub(super) fn running(database: &Connection) -> Result<(Vec<Record>, Vec<Read>), StoreError> {
    let sql = format!("SELECT {} FROM tasks WHERE ended_at IS NULL ORDER BY started_at, id", row::COLUMNS);
    let rows = database.prepare_cached(&sql)?.query_map([], row::read)?.collect::<Result<Vec<_>, _>>()?;
    let (sound, damaged): (Vec<_>, Vec<_>) = rows.into_iter().partition(|read| read.record.is_ok());
    Ok((sound.into_iter().filter_map(|read| read.record.ok()).collect(), damaged))
}

/// Bytes that are stored of one owner's tasks.
pub(super) fn stored_bytes(database: &Connection, owner: &str) -> Result<u64, StoreError> {
    let mut statement = database.prepare_cached("SELECT CAST(bytes AS INTEGER) FROM sums WHERE owner = ?1")?;
    let sum: Option<i64> = statement.query_row([owner], |row| row.get(0)).optional()?;
    Ok(u64::try_from(sum.unwrap_or(0)).unwrap_or(0))
}
