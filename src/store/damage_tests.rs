//! What becomes of a store that is not as it was left: damaged, of another version, or out of disk.

use std::fs;
use std::os::unix::fs::FileExt;

use rusqlite::Connection;
use tempfile::TempDir;

use super::tests::{end, file, open, record, run};
use super::*;
use crate::task::outcome::ExitStatus;

fn insert(store: &Store, tasks: &[Record]) {
    run(async {
        for task in tasks {
            assert_eq!(store.insert(task.clone()).await.unwrap(), Inserted::New);
        }
    });
}

#[test]
fn a_damaged_row_is_set_aside_and_the_others_stay() {
    // Each kind of damage: to the JSON, to a column beside it, to a value's type, to the id.
    for damage in [
        "record = 'x' || record",
        "owner = 'eve'",
        "ended_at = 5",
        "record = x'00ff'",
        "id = 'no id'",
        "labels = '{'",
        "checksum = 1",
    ] {
        let dir = TempDir::new().unwrap();
        let tasks = [record("ann", 1), record("ann", 2), record("ann", 3)];
        insert(&open(&file(&dir)), &tasks);
        let sqlite = Connection::open(file(&dir)).unwrap();
        let damaged = sqlite.execute(&format!("UPDATE tasks SET {damage} WHERE id = ?1"), [tasks[1].id.to_string()]);
        assert_eq!(damaged.unwrap(), 1);
        drop(sqlite);

        let (store, opened) = Store::open(&file(&dir)).unwrap();
        assert_eq!(opened.set_aside.len(), 1, "{damage}: {opened:?}");
        assert!(opened.set_aside[0].contains("table damaged") && !opened.lost_file, "{opened:?}");
        run(async {
            let query = Query { limit: 10, ..Query::default() };
            assert_eq!(store.list(query).await.unwrap().records, [tasks[2].clone(), tasks[0].clone()]);
            assert_eq!(store.get(tasks[1].id).await.unwrap(), None);
        });
        drop(store);
        let sqlite = Connection::open(file(&dir)).unwrap();
        let kept: i64 = sqlite.query_row("SELECT count(*) FROM damaged", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1);
        drop(open(&file(&dir))); // reported once
    }
}

#[test]
fn a_row_damaged_while_the_server_runs_is_set_aside_when_it_is_met() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let tasks: Vec<_> = (0..6).map(|at| record("ann", at)).collect();
    insert(&store, &tasks);
    let sqlite = Connection::open(file(&dir)).unwrap();
    let damage = |at: usize| {
        sqlite.execute("UPDATE tasks SET checksum = 1 WHERE id = ?1", [tasks[at].id.to_string()]).unwrap();
    };
    run(async {
        damage(5);
        damage(4);
        let page = store.list(Query { limit: 2, ..Query::default() }).await.unwrap();
        assert_eq!(page.records, [tasks[3].clone(), tasks[2].clone()], "the page is full of sound ones");
        sqlite.execute("UPDATE tasks SET labels = '{' WHERE id = ?1", [tasks[3].id.to_string()]).unwrap();
        let labels = [("team".to_owned(), "ann".to_owned())].into();
        let page = store.list(Query { labels, limit: 10, ..Query::default() }).await.unwrap();
        assert_eq!(page.records.len(), 3, "broken labels are one row's damage");
        assert_eq!(store.get(tasks[3].id).await.unwrap(), None);
        damage(2);
        assert_eq!(store.running().await.unwrap(), tasks[..2]);
        damage(1);
        let finished = store.finish(tasks[1].id, end(ExitStatus::Exited(0), 1, 1)).await;
        assert!(matches!(finished, Err(StoreError::Damaged(_))), "{finished:?}");
    });
    let kept: i64 = sqlite.query_row("SELECT count(*) FROM damaged", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 4);
}

#[test]
fn a_file_that_is_no_database_is_kept_aside_and_a_new_one_begun() {
    let dir = TempDir::new().unwrap();
    let garbage = b"not a database at all, though it is long enough to be looked at as one".repeat(100);
    fs::write(file(&dir), &garbage).unwrap();
    let (store, opened) = Store::open(&file(&dir)).unwrap();
    assert!(opened.lost_file && opened.set_aside.len() == 1, "{opened:?}");
    let kept = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.filter(|path| path.to_str().unwrap().contains(".damaged-")).collect::<Vec<_>>();
    assert!(kept.iter().any(|kept| fs::read(kept).unwrap() == garbage), "{kept:?}");
    assert!(opened.set_aside[0].contains(".damaged-"));
    insert(&store, &[record("ann", 1)]);
    drop(store);
    drop(open(&file(&dir)));
}

#[test]
fn what_is_readable_in_a_damaged_file_is_taken_over() {
    let dir = TempDir::new().unwrap();
    let tasks: Vec<_> = (0..200).map(|at| record("ann", at)).collect();
    insert(&open(&file(&dir)), &tasks);
    // The page that holds one record of the middle is overwritten.
    let victim = format!("{{\"id\":\"{}\"", tasks[100].id);
    let bytes = fs::read(file(&dir)).unwrap();
    let at = bytes.windows(victim.len()).position(|window| window == victim.as_bytes()).unwrap() as u64;
    let damaged = fs::File::options().write(true).open(file(&dir)).unwrap();
    damaged.write_all_at(&[0xa5; 4096], at / 4096 * 4096).unwrap();
    let (store, opened) = Store::open(&file(&dir)).unwrap();
    assert!(opened.lost_file, "{opened:?}");
    let left = run(store.running()).unwrap();
    assert!(
        left.len() >= 190 && left.len() < 200 && left.iter().all(|task| tasks.contains(task)),
        "{} of 200",
        left.len()
    );
    assert!(opened.set_aside[0].contains(&format!("{} tasks were read", left.len())), "{opened:?}");
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let sqlite = Connection::open(file(&dir)).unwrap();
    sqlite.execute_batch("CREATE TABLE future (x); PRAGMA user_version = 99").unwrap();
    drop(sqlite);
    let before = fs::read(file(&dir)).unwrap();
    let refused = Store::open(&file(&dir)).unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused:?}");
    assert!(refused.to_string().contains("schema version 99") && refused.to_string().contains("hint"));
    assert_eq!(fs::read(file(&dir)).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing beside it");
}

#[test]
fn an_older_file_is_brought_up_to_date_step_by_step() {
    let dir = TempDir::new().unwrap();
    let task = record("ann", 1);
    insert(&open(&file(&dir)), std::slice::from_ref(&task));
    let mut sqlite = Connection::open(file(&dir)).unwrap();
    let version =
        |sqlite: &Connection| -> u32 { sqlite.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap() };
    let now = schema::STEPS.len() as u32;
    // Steps that do not exist yet, the second of which fails half way.
    let next = "ALTER TABLE tasks ADD COLUMN note TEXT NOT NULL DEFAULT 'old'";
    let broken = "UPDATE tasks SET note = 'half'; SELECT no_such_function()";
    let steps = |more: &[&'static str]| [schema::STEPS, more].concat();
    schema::migrate(&mut sqlite, &steps(&[next, broken])).unwrap_err();
    assert_eq!(version(&sqlite), now + 1, "the step before is kept");
    let note: String = sqlite.query_row("SELECT note FROM tasks", [], |row| row.get(0)).unwrap();
    assert_eq!(note, "old", "the failed step left nothing");
    assert!(schema::migrate(&mut sqlite, &steps(&[next, "UPDATE tasks SET note = 'new'"])).unwrap());
    assert!(!schema::migrate(&mut sqlite, &steps(&[next, ""])).unwrap());
    assert_eq!(version(&sqlite), now + 2);
    let found = row::find(&sqlite, task.id).unwrap().unwrap();
    assert_eq!(found.record, Ok(task));
}

#[test]
fn a_full_disk_is_the_calls_error_and_the_store_lives_on() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let first = record("ann", 1);
    insert(&store, std::slice::from_ref(&first));
    let limit = |pages: u32| {
        let set = move |database: &Connection| {
            Ok(database.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, u32>(0))?)
        };
        run(store.workers.write(set)).unwrap()
    };
    limit(1); // as many as there are
    let large = Record { args: vec!["x".repeat(100_000)], ..record("ann", 2) };
    assert_eq!(run(store.insert(large.clone())), Err(StoreError::Full));
    assert_eq!(run(store.get(first.id)).unwrap(), Some(first.clone()));
    run(store.remove(vec![first.id])).unwrap();
    limit(10_000);
    insert(&store, &[large]);
}
