//! A record as a row: the whole of it as JSON, and beside it the columns that SQL has to see.
//!
//! The checksum covers all of them. It finds damage, not tampering: who can write the file can compute it too.

use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::error::StoreError;
use crate::task::id::TaskId;
use crate::task::outcome::ExitKind;
use crate::task::record::{Record, UnixMillis};

/// In the order that [`read`] expects; `seq` comes first.
pub(super) const COLUMNS: &str =
    "seq, id, owner, token, started_at, ended_at, status, output_bytes, labels, record, checksum";

/// Where a task is in its life, as lists are filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has no end yet.
    Running,
    /// It ended like this.
    Ended(ExitKind),
}

impl State {
    /// Of a record.
    pub fn of(record: &Record) -> Self {
        record.end.as_ref().map_or(Self::Running, |end| Self::Ended(end.outcome.status.kind()))
    }

    /// As it stands in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended(ExitKind::ExitedOk) => "exited_ok",
            Self::Ended(ExitKind::ExitedError) => "exited_error",
            Self::Ended(ExitKind::Signaled) => "signaled",
            Self::Ended(ExitKind::Unknown) => "unknown",
        }
    }
}

/// What stands in a row, without its number.
#[derive(Debug, PartialEq, Eq)]
struct Columns {
    id: String,
    owner: String,
    token: Option<String>,
    started_at: UnixMillis,
    ended_at: Option<UnixMillis>,
    status: String,
    output_bytes: i64,
    labels: String,
    record: String,
}

impl Columns {
    fn of(record: &Record) -> Result<Self, StoreError> {
        let json = |e: serde_json::Error| StoreError::Sqlite(format!("record of task {} as JSON: {e}", record.id));
        let output = record.end.as_ref().map_or(0, |end| end.output.bytes.saturating_sub(end.output.omitted));
        let text = serde_json::to_string(record).map_err(json)?;
        // The record itself counts too: a command line can be as long as an output.
        let stored = output.saturating_add(text.len() as u64);
        Ok(Self {
            id: record.id.to_string(),
            owner: record.owner.clone(),
            token: record.token.as_ref().map(|token| token.token.clone()),
            started_at: record.started_at,
            ended_at: record.end.as_ref().map(|end| end.ended_at),
            status: State::of(record).name().to_owned(),
            output_bytes: i64::try_from(stored).unwrap_or(i64::MAX),
            labels: serde_json::to_string(&record.labels).map_err(json)?,
            record: text,
        })
    }

    fn checksum(&self) -> i64 {
        let mut sum = Fnv::new();
        for text in [Some(&self.id), Some(&self.owner), self.token.as_ref(), Some(&self.status), Some(&self.labels)] {
            sum.text(text.map(String::as_str));
        }
        sum.text(Some(&self.record));
        sum.text(self.ended_at.map(|at| at.to_string()).as_deref());
        sum.number(self.started_at);
        sum.number(self.output_bytes);
        sum.0 as i64
    }
}

/// FNV-1a of 64 bits.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: i64) {
        self.bytes(&number.to_le_bytes());
    }

    /// With its length, so that two fields cannot trade bytes; an absent one differs from an empty one.
    fn text(&mut self, text: Option<&str>) {
        self.number(text.map_or(-1, |text| text.len() as i64));
        self.bytes(text.unwrap_or_default().as_bytes());
    }
}

/// One row: its number, and its record or what is wrong with it.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) seq: i64,
    pub(super) record: Result<Record, String>,
}

/// Reads a row of [`COLUMNS`]. Fails only when SQLite itself does.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Read> {
    let seq = row.get(0)?;
    let record = columns(row).map_err(|e| e.to_string()).and_then(|(columns, checksum)| {
        if columns.checksum() != checksum {
            return Err("its checksum differs".to_owned());
        }
        serde_json::from_str(&columns.record).map_err(|e| format!("its JSON does not parse: {e}"))
    });
    Ok(Read { seq, record })
}

fn columns(row: &Row<'_>) -> rusqlite::Result<(Columns, i64)> {
    let columns = Columns {
        id: row.get(1)?,
        owner: row.get(2)?,
        token: row.get(3)?,
        started_at: row.get(4)?,
        ended_at: row.get(5)?,
        status: row.get(6)?,
        output_bytes: row.get(7)?,
        labels: row.get(8)?,
        record: row.get(9)?,
    };
    Ok((columns, row.get(10)?))
}

/// Adds a row.
pub(super) fn insert(database: &Connection, record: &Record) -> Result<(), StoreError> {
    write(
        database,
        record,
        "INSERT INTO tasks (id, owner, token, started_at, ended_at, status, output_bytes, labels, record, checksum)
         VALUES (:id, :owner, :token, :started_at, :ended_at, :status, :output_bytes, :labels, :record, :checksum)",
    )
}

/// Replaces the row of the same task.
pub(super) fn update(database: &Connection, record: &Record) -> Result<(), StoreError> {
    write(
        database,
        record,
        "UPDATE tasks SET owner = :owner, token = :token, started_at = :started_at, ended_at = :ended_at,
         status = :status, output_bytes = :output_bytes, labels = :labels, record = :record, checksum = :checksum
         WHERE id = :id",
    )
}

fn write(database: &Connection, record: &Record, sql: &str) -> Result<(), StoreError> {
    let columns = Columns::of(record)?;
    let values = named_params! {
        ":id": columns.id, ":owner": columns.owner, ":token": columns.token, ":started_at": columns.started_at,
        ":ended_at": columns.ended_at, ":status": columns.status, ":output_bytes": columns.output_bytes,
        ":labels": columns.labels, ":record": columns.record, ":checksum": columns.checksum(),
    };
    match database.prepare_cached(sql)?.execute(values)? {
        0 => Err(StoreError::NotFound(record.id)),
        _ => Ok(()),
    }
}

/// Moves a damaged row out of the way, whole. Returns the report of it; none when the row is sound or gone by now.
pub(super) fn set_aside(database: &Connection, seq: i64) -> Result<Option<String>, StoreError> {
    let sql = format!("SELECT {COLUMNS}, CAST(id AS TEXT) FROM tasks WHERE seq = ?1");
    let found = database.query_row(&sql, [seq], |row| Ok((read(row)?, row.get::<_, String>(11).unwrap_or_default())));
    let (why, id) = match found.optional()? {
        Some((Read { record: Err(why), .. }, id)) => (why, id),
        _ => return Ok(None),
    };
    database.execute(
        &format!("INSERT INTO damaged (why, {COLUMNS}) SELECT ?2, {COLUMNS} FROM tasks WHERE seq = ?1"),
        (seq, &why),
    )?;
    database.execute("DELETE FROM tasks WHERE seq = ?1", [seq])?;
    Ok(Some(format!("the record of task {id:?} is damaged ({why}); it is kept in table damaged, seq {seq}")))
}

/// The row of one task, if there is one.
pub(super) fn find(database: &Connection, id: TaskId) -> Result<Option<Read>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE id = ?1");
    one(database.prepare_cached(&sql)?.query_map([id.to_string()], read)?)
}

/// The row of one owner's token, if there is one.
pub(super) fn find_token(database: &Connection, owner: &str, token: &str) -> Result<Option<Read>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE owner = ?1 AND token = ?2");
    one(database.prepare_cached(&sql)?.query_map([owner, token], read)?)
}

fn one(mut rows: impl Iterator<Item = rusqlite::Result<Read>>) -> Result<Option<Read>, StoreError> {
    Ok(rows.next().transpose()?)
}
