//! Opening the file: settings, schema, and what to do when it is not what it should be.
//!
//! Nothing is ever thrown away because it cannot be read: a damaged row moves to table `damaged`, a damaged file is
//! renamed, what is still readable in it is taken over, and each of these is reported.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};

use super::error::StoreError;
use super::row;
use crate::error::Context;
use crate::task::record::Record;

/// Step n brings a file of version n to version n + 1. Steps are added at the end and never changed.
pub(super) const STEPS: &[&str] = &[
    "
    CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        token TEXT,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        status TEXT NOT NULL,
        output_bytes INTEGER NOT NULL, -- stored bytes, of an ended task
        labels TEXT NOT NULL,
        record TEXT NOT NULL,
        checksum INTEGER NOT NULL -- FNV-1a of all the others but seq
    );
    CREATE UNIQUE INDEX tasks_by_token ON tasks (owner, token) WHERE token IS NOT NULL;
    CREATE INDEX tasks_newest ON tasks (started_at, id);
    CREATE INDEX tasks_newest_of_owner ON tasks (owner, started_at, id);
    CREATE INDEX tasks_ended ON tasks (ended_at, id, output_bytes) WHERE ended_at IS NOT NULL;
    CREATE INDEX tasks_running ON tasks (started_at, id) WHERE ended_at IS NULL;
    CREATE INDEX tasks_bytes ON tasks (owner, output_bytes);
    CREATE TABLE damaged (why, seq, id, owner, token, started_at, ended_at, status, output_bytes, labels, record, checksum);
",
    // Sums, so that what a start and the forgetting of old tasks ask for does not take longer the more tasks are remembered.
    // What is added or taken away goes through one view; the casts are there because a damaged row must not keep others from being written, nor
    // itself from being set aside.
    "
    CREATE TABLE sums (
        owner TEXT PRIMARY KEY,
        bytes INTEGER NOT NULL, -- stored bytes
        ended INTEGER NOT NULL, -- ended tasks
        ended_bytes INTEGER NOT NULL -- stored bytes of those
    ) WITHOUT ROWID;
    CREATE VIEW changes AS SELECT 1 AS sign, owner, NULL AS ended_at, bytes FROM sums;
    CREATE TRIGGER changes_counted INSTEAD OF INSERT ON changes BEGIN
        INSERT INTO sums VALUES (
            new.owner,
            new.sign * coalesce(CAST(new.bytes AS INTEGER), 0),
            new.sign * (new.ended_at IS NOT NULL),
            new.sign * iif(new.ended_at IS NULL, 0, coalesce(CAST(new.bytes AS INTEGER), 0))
        ) ON CONFLICT (owner) DO UPDATE SET
            bytes = bytes + excluded.bytes,
            ended = ended + excluded.ended,
            ended_bytes = ended_bytes + excluded.ended_bytes;
    END;
    CREATE TRIGGER tasks_added AFTER INSERT ON tasks BEGIN
        INSERT INTO changes VALUES (1, new.owner, new.ended_at, new.output_bytes);
    END;
    CREATE TRIGGER tasks_removed AFTER DELETE ON tasks BEGIN
        INSERT INTO changes VALUES (-1, old.owner, old.ended_at, old.output_bytes);
    END;
    CREATE TRIGGER tasks_changed AFTER UPDATE ON tasks BEGIN
        INSERT INTO changes VALUES (-1, old.owner, old.ended_at, old.output_bytes);
        INSERT INTO changes VALUES (1, new.owner, new.ended_at, new.output_bytes);
    END;
    DROP INDEX tasks_bytes;
",
    // Of too many ended tasks, those of one owner go.
    "
    CREATE INDEX tasks_ended_of_owner ON tasks (owner, ended_at, id, output_bytes) WHERE ended_at IS NOT NULL;
",
];

/// What was found on opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// What was damaged and where it is kept, one sentence each.
    pub set_aside: Vec<String>,
    /// Whether a whole file was set aside: then tasks may be missing, and output without a record is not garbage.
    pub lost_file: bool,
    /// The schema version before, when it was older.
    pub migrated_from: Option<u32>,
}

/// Opens the file for writing, whatever state it is in. The other connections are for reading.
pub(super) fn open(path: &Path) -> Result<(Connection, [Connection; 2], Opened), StoreError> {
    let mut opened = Opened::default();
    let writer = match prepare(path, &mut opened) {
        Err(StoreError::Damaged(why)) => {
            let kept = rename_aside(path)?;
            opened = Opened { lost_file: true, ..Opened::default() };
            let database = prepare(path, &mut opened)?;
            let saved = take_over(&kept, &database)?;
            opened.set_aside.insert(
                0,
                format!(
                    "{} is damaged ({why}); it is kept as {}, and {saved} tasks were read from it",
                    path.display(),
                    kept.display()
                ),
            );
            database
        }
        prepared => prepared?,
    };
    Ok((writer, [reader(path)?, reader(path)?], opened))
}

fn reader(path: &Path) -> Result<Connection, StoreError> {
    let reader = Connection::open(path)?;
    reader.busy_timeout(Duration::from_secs(5))?;
    reader.pragma_update(None, "query_only", true)?;
    // The first look opens the files beside it: now, so that what the server holds does not depend on who has asked.
    version(&reader)?;
    Ok(reader)
}

fn prepare(path: &Path, opened: &mut Opened) -> Result<Connection, StoreError> {
    // SQLite would make it readable for others; the files beside it get the same mode.
    let made = File::options().append(true).create(true).mode(0o600).open(path);
    made.on("open", path.display().to_string())?;
    let mut database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(5))?;
    // The version first: a file of a newer taskman is left exactly as it is.
    let found = version(&database)?;
    let known = STEPS.len() as u32;
    if found > known {
        return Err(StoreError::Newer { path: path.display().to_string(), found, known });
    }
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "FULL")?;
    let verdict: String = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(StoreError::Damaged(verdict));
    }
    if migrate(&mut database, STEPS)? {
        opened.migrated_from = (found > 0).then_some(found);
    }
    opened.set_aside.extend(check_rows(&mut database)?);
    add_up(&mut database)?;
    Ok(database)
}

fn version(database: &Connection) -> Result<u32, StoreError> {
    Ok(database.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Brings the file up to the newest version, each step whole or not at all. False when it was that already.
pub(super) fn migrate(database: &mut Connection, steps: &[&str]) -> Result<bool, StoreError> {
    let found = version(database)? as usize;
    for (at, step) in steps.iter().enumerate().skip(found) {
        let whole = database.transaction()?;
        whole.execute_batch(step)?;
        whole.pragma_update(None, "user_version", at as u32 + 1)?;
        whole.commit()?;
    }
    Ok(found < steps.len())
}

/// Reads every row once, so that damage is known before anybody asks for it.
fn check_rows(database: &mut Connection) -> Result<Vec<String>, StoreError> {
    let whole = database.transaction()?;
    let mut damaged = Vec::new();
    let sql = format!("SELECT {} FROM tasks", row::COLUMNS);
    for read in whole.prepare(&sql)?.query_map([], row::read)? {
        let read = read?;
        if read.record.is_err() {
            damaged.push(read.seq);
        }
    }
    let reports = damaged.iter().map(|seq| row::set_aside(&whole, *seq)).collect::<Result<Vec<_>, _>>()?;
    whole.commit()?;
    Ok(reports.into_iter().flatten().collect())
}

/// The sums anew, of what is sound: whatever was damaged, they are right from now on.
fn add_up(database: &mut Connection) -> Result<(), StoreError> {
    let whole = database.transaction()?;
    whole.execute_batch(
        "DELETE FROM sums;
         INSERT INTO sums
         SELECT owner, sum(output_bytes), count(ended_at), sum(iif(ended_at IS NULL, 0, output_bytes))
         FROM tasks GROUP BY owner",
    )?;
    Ok(whole.commit()?)
}

/// Renames the file, and those that belong to it. The new name says when.
fn rename_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_millis());
    let with = |base: &Path, suffix: &str| PathBuf::from(format!("{}{suffix}", base.display()));
    let kept = with(path, &format!(".damaged-{now}"));
    for suffix in ["", "-wal", "-shm"] {
        let (from, to) = (with(path, suffix), with(&kept, suffix));
        match fs::rename(&from, &to) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e).on("rename", from.display().to_string())?,
            _ => {}
        }
    }
    Ok(kept)
}

/// Copies every sound record of a damaged file: from the first on up to the damage, and from the last on down to it.
fn take_over(kept: &Path, database: &Connection) -> Result<usize, StoreError> {
    let Ok(old) = Connection::open_with_flags(kept, OpenFlags::SQLITE_OPEN_READ_ONLY) else { return Ok(0) };
    let mut saved = 0;
    for order in ["ASC", "DESC"] {
        for record in readable(&old, order) {
            // Seen from the other side already, or not unique in the damaged file.
            saved += usize::from(row::insert(database, &record).is_ok());
        }
    }
    Ok(saved)
}

fn readable(old: &Connection, order: &str) -> Vec<Record> {
    let sql = format!("SELECT {} FROM tasks ORDER BY seq {order}", row::COLUMNS);
    let Ok(mut statement) = old.prepare(&sql) else { return Vec::new() };
    let Ok(rows) = statement.query_map([], row::read) else { return Vec::new() };
    rows.map_while(Result::ok).filter_map(|read| read.record.ok()).collect()
}
