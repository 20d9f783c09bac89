//! What callers rely on: acknowledged is durable, a token is one task, lists page without gaps, retention spares the running.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::task::limits::Limits;
use crate::task::outcome::{ExitKind, ExitStatus, Outcome, Reason};
use crate::task::record::{StoredOutput, Token};
use crate::task::report::{Containment, Usage};

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(super) fn file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("tasks.db")
}

pub(super) fn open(path: &Path) -> Store {
    let (store, opened) = Store::open(path).unwrap();
    assert_eq!(opened, Opened::default());
    store
}

pub(super) fn record(owner: &str, started_at: UnixMillis) -> Record {
    Record {
        id: TaskId::random(),
        owner: owner.to_owned(),
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), "echo 'ü\n'".to_owned()],
        labels: [("team".to_owned(), owner.to_owned())].into(),
        profile: "default".to_owned(),
        limits: Limits::default(),
        reduced: Vec::new(),
        split_output: false,
        token: None,
        process_id: 42,
        started_at,
        end: None,
    }
}

fn with_token(owner: &str, token: &str) -> Record {
    let token = Token { token: token.to_owned(), digest: "d".to_owned() };
    Record { token: Some(token), ..record(owner, 1) }
}

pub(super) fn end(status: ExitStatus, ended_at: UnixMillis, stored: u64) -> End {
    let outcome = Outcome { status, reason: Reason::Exit, detail: String::new(), by_client: false };
    let output = StoredOutput { bytes: stored + 7, omitted: 7, truncation: None };
    let containment = Containment::from_checks(Vec::new());
    End { outcome, ended_at, usage: Usage::default(), containment, output }
}

#[test]
fn ids_are_found_by_their_beginning() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let ids = [
        "aaaa0000-0000-4000-8000-000000000000",
        "aaaaf000-0000-4000-8000-000000000000",
        "aaab0000-0000-4000-8000-000000000000",
    ];
    for (id, owner) in ids.iter().zip(["ann", "bob", "ann"]) {
        run(store.insert(Record { id: id.parse().unwrap(), ..record(owner, 1) })).unwrap();
    }
    let found = |prefix: &str, owner| run(store.beginning_with(prefix, owner)).unwrap().len();
    assert_eq!([found("aaaa", Some("ann")), found("aaaa", Some("bob")), found("aaaa", Some("eve"))], [1, 1, 0]);
    assert_eq!([found("aaaa", None), found("aaaaf", None), found("aaac", None), found(ids[2], None)], [2, 1, 0, 1]);
}

/// Whoever copies the file when the server has ended has it all.
#[test]
fn a_closed_store_is_one_file() {
    let close = || {
        let dir = TempDir::new().unwrap();
        let store = open(&file(&dir));
        let one = record("ann", 1);
        assert_eq!(run(store.insert(one.clone())).unwrap(), Inserted::New);
        assert_eq!(run(store.get(one.id)).unwrap(), Some(one));
        drop(store);
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["tasks.db"]);
    };
    // Many at once: the two threads of one come to their end in every order.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..20).for_each(|_| close()));
        }
    });
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let (running, ended) = (record("ann", 1), record("ann", 2));
    let stored = run(async {
        assert_eq!(store.insert(running.clone()).await.unwrap(), Inserted::New);
        assert_eq!(store.insert(ended.clone()).await.unwrap(), Inserted::New);
        store.finish(ended.id, end(ExitStatus::Exited(0), 9, 100)).await.unwrap()
    });
    // What a kill leaves: the files as they are while the store is open.
    let killed = TempDir::new().unwrap();
    for name in ["tasks.db", "tasks.db-wal"] {
        std::fs::copy(dir.path().join(name), killed.path().join(name)).unwrap();
    }
    drop(store);
    for dir in [&dir, &killed] {
        let store = open(&file(dir));
        run(async {
            assert_eq!(store.get(running.id).await.unwrap(), Some(running.clone()));
            assert_eq!(store.get(ended.id).await.unwrap(), Some(stored.clone()));
            assert_eq!(store.get(TaskId::random()).await.unwrap(), None);
            assert_eq!(store.running().await.unwrap(), std::slice::from_ref(&running));
            let records: usize =
                [&stored, &running].map(|record| serde_json::to_string(record).unwrap().len()).iter().sum();
            assert_eq!(store.stored_bytes("ann").await.unwrap(), 100 + records as u64, "records count too");
            assert_eq!(store.stored_bytes("cid").await.unwrap(), 0);
        });
    }
    use std::os::unix::fs::PermissionsExt;
    for file in std::fs::read_dir(dir.path()).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0, "for the server alone");
    }
}

#[test]
fn a_token_is_one_task_of_its_owner() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let first = with_token("ann", "t");
    run(async {
        assert_eq!(store.insert(first.clone()).await.unwrap(), Inserted::New);
        let again = store.insert(with_token("ann", "t")).await.unwrap();
        assert_eq!(again, Inserted::Repeated(Box::new(first.clone())));
        assert_eq!(store.insert(with_token("bob", "t")).await.unwrap(), Inserted::New);
        assert_eq!(store.insert(with_token("ann", "u")).await.unwrap(), Inserted::New);
        assert_eq!(store.find_token("ann", "t").await.unwrap(), Some(first.clone()));
        assert_eq!(store.find_token("eve", "t").await.unwrap(), None);
        // Many at once: still one.
        let racing = (0..50).map(|_| store.insert(with_token("ann", "race")));
        let mut new = 0;
        for inserted in join(racing).await {
            new += usize::from(inserted.unwrap() == Inserted::New);
        }
        assert_eq!(new, 1);
        store.remove(vec![first.id]).await.unwrap();
        assert_eq!(
            store.insert(with_token("ann", "t")).await.unwrap(),
            Inserted::New,
            "a forgotten task's token is free"
        );
    });
}

/// All of them at once.
async fn join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<_> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in waiting.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[test]
fn the_first_end_stays() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let task = record("ann", 1);
    run(async {
        let unknown = store.finish(task.id, end(ExitStatus::Exited(0), 5, 0)).await;
        assert_eq!(unknown, Err(StoreError::NotFound(task.id)));
        store.insert(task.clone()).await.unwrap();
        let first = store.finish(task.id, end(ExitStatus::Exited(0), 5, 0)).await.unwrap();
        assert_eq!(store.finish(task.id, end(ExitStatus::Unknown, 6, 0)).await.unwrap(), first);
        assert_eq!(store.get(task.id).await.unwrap(), Some(first));
    });
}

#[test]
fn one_failure_in_a_batch_is_not_the_others() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let tasks: Vec<_> = (0..40).map(|at| record("ann", at)).collect();
    run(async {
        // Each twice: the second of a pair fails, whatever transaction it is in.
        let inserted = join(tasks.iter().flat_map(|task| [task, task]).map(|task| store.insert(task.clone()))).await;
        let fine = inserted.iter().filter(|inserted| inserted.is_ok()).count();
        assert_eq!(fine, tasks.len());
        assert!(inserted.iter().flatten().all(|inserted| *inserted == Inserted::New));
        assert_eq!(store.running().await.unwrap().len(), tasks.len());
    });
}

#[test]
fn pages_go_from_the_newest_on_without_gaps_while_tasks_come_and_go() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    // Several in the same millisecond, and one before 1970 for the sign.
    let tasks: Vec<_> = (0..23).map(|at| record("ann", at / 4 - 1)).collect();
    run(async {
        for task in &tasks {
            store.insert(task.clone()).await.unwrap();
        }
        let mut seen: Vec<Record> = Vec::new();
        let mut after = None;
        loop {
            let page = store.list(Query { limit: 5, after, ..Query::default() }).await.unwrap();
            assert!(page.records.len() <= 5);
            seen.extend(page.records);
            store.insert(record("ann", 100)).await.unwrap(); // newer: not on a later page
            let Some(next) = page.next else { break };
            if seen.len() > 10 {
                store.remove(vec![seen.last().unwrap().id]).await.unwrap(); // the cursor's own task goes
            }
            after = Some(next.to_string().parse().unwrap());
        }
        let mut expected = tasks.clone();
        expected.sort_by_key(|task| std::cmp::Reverse((task.started_at, task.id.to_string())));
        assert_eq!(seen, expected);
        let exact = store.list(Query { limit: 23 - 2 + 5, ..Query::default() }).await.unwrap();
        assert_eq!(exact.next, None, "no empty page after a full last one");
    });
}

#[test]
fn lists_are_filtered_by_owner_state_and_labels() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let odd = "a\"b.c'd %_\n".to_owned();
    let mut labelled = record("bob", 3);
    labelled.labels.insert(odd.clone(), odd.clone());
    let (running, ok, failed) = (record("ann", 1), record("ann", 2), labelled);
    let all = Query { limit: 100, ..Query::default() };
    let ids = async |query: Query| {
        let page = store.list(query).await.unwrap();
        page.records.iter().map(|record| record.id).collect::<BTreeSet<_>>()
    };
    run(async {
        for task in [&running, &ok, &failed] {
            store.insert(task.clone()).await.unwrap();
        }
        store.finish(ok.id, end(ExitStatus::Exited(0), 5, 0)).await.unwrap();
        store.finish(failed.id, end(ExitStatus::Exited(1), 6, 0)).await.unwrap();
        let owner = Query { owner: Some("ann".to_owned()), ..all.clone() };
        assert_eq!(ids(owner).await, [running.id, ok.id].into());
        let states = |states: &[State]| Query { states: states.to_vec(), ..all.clone() };
        assert_eq!(ids(states(&[State::Running])).await, [running.id].into());
        let ended = [State::Ended(ExitKind::ExitedOk), State::Ended(ExitKind::ExitedError)];
        assert_eq!(ids(states(&ended)).await, [ok.id, failed.id].into());
        let labels = |labels: &[(&str, &str)]| Query {
            labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            ..all.clone()
        };
        assert_eq!(ids(labels(&[("team", "ann")])).await, [running.id, ok.id].into());
        assert_eq!(ids(labels(&[("team", "bob"), (&odd, &odd)])).await, [failed.id].into());
        assert_eq!(ids(labels(&[("team", "ann"), (&odd, &odd)])).await, [].into());
        assert_eq!(ids(labels(&[("team", "an%")])).await, [].into());
    });
}

#[test]
fn a_foreign_cursor_is_refused() {
    let good = "00000000000000ff-6d4f2c1e-9a0b-4c3d-8e7f-0a1b2c3d4e5f";
    for bad in ["", "x", "5", "-", &format!("{good} "), &good[1..], &good.to_uppercase(), "00-not-a-task"] {
        assert_eq!(bad.parse::<Cursor>(), Err(StoreError::BadCursor), "{bad:?}");
    }
    assert_eq!(good.parse::<Cursor>().unwrap().to_string(), good);
}

#[test]
fn retention_goes_by_age_count_and_bytes_and_spares_the_running() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let tasks: Vec<_> = (0..5).map(|at| record("ann", at)).collect();
    let keep = Retain { age: Duration::from_millis(1000), count: 100, bytes: 1_000_000 };
    run(async {
        store.insert(record("ann", -1_000_000)).await.unwrap(); // running since long ago
        for (at, task) in tasks.iter().enumerate() {
            store.insert(task.clone()).await.unwrap();
            store.finish(task.id, end(ExitStatus::Exited(0), 100 * (at as i64 + 1), 100_000)).await.unwrap();
        }
        let oldest = |n: usize| tasks[..n].iter().map(|task| task.id).collect::<Vec<_>>();
        let expired = async |retain: Retain, now| store.expired(&retain, now).await.unwrap();
        assert_eq!(expired(keep.clone(), 500).await, []);
        assert_eq!(expired(keep.clone(), 1300).await, oldest(2), "age: 100 and 200 ended before 300");
        assert_eq!(expired(Retain { count: 2, ..keep.clone() }, 500).await, oldest(3));
        assert_eq!(expired(Retain { count: 0, ..keep.clone() }, 500).await, oldest(5));
        assert_eq!(expired(Retain { bytes: 450_000, ..keep.clone() }, 500).await, oldest(1));
        assert_eq!(expired(Retain { bytes: 390_000, ..keep.clone() }, 500).await, oldest(2));
        let forever = Retain { age: Duration::MAX, count: u64::MAX, bytes: u64::MAX };
        assert_eq!(expired(forever, i64::MAX).await, []);
        // Damage to one row is not the others' end.
        let sqlite = Connection::open(file(&dir)).unwrap();
        for size in ["-1000000000000", "'junk'", "-9223372036854775808"] {
            let sql = format!("UPDATE tasks SET output_bytes = {size} WHERE id = '{}'", tasks[0].id);
            sqlite.execute(&sql, []).unwrap();
            assert_eq!(expired(Retain { count: 4, ..keep.clone() }, 500).await, oldest(1), "{size}");
            assert!(store.stored_bytes("ann").await.is_ok(), "{size}");
        }
        store.remove(oldest(5)).await.unwrap();
        assert_eq!(expired(Retain { count: 0, ..keep }, i64::MAX).await, []);
        assert_eq!(store.running().await.unwrap().len(), 1);
    });
}

/// M3 of the review: one user's tasks erased another's results.
#[test]
fn the_largest_holder_is_forgotten_first() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let keep = Retain { age: Duration::from_secs(1000), count: 30, bytes: 1 << 40 };
    run(async {
        let add = async |owner: &str, at: i64, bytes: u64| {
            let task = record(owner, at);
            store.insert(task.clone()).await.unwrap();
            store.finish(task.id, end(ExitStatus::Exited(0), at, bytes)).await.unwrap();
            task.id
        };
        // The victim's are the oldest of all, and half of what is retained is its own whatever the other runs.
        let mut victims = Vec::new();
        for at in 0..28 {
            victims.push(add("victim", at, 1_000_000).await);
        }
        let mut others = Vec::new();
        for at in 100..145 {
            others.push(add("other", at, 10).await);
        }
        let gone = store.expired(&keep, 200).await.unwrap();
        assert_eq!(gone, [&victims[..13], &others[..30]].concat());
        let roomy = Retain { count: 60, ..keep.clone() };
        assert_eq!(store.expired(&roomy, 200).await.unwrap(), others[..13], "the victim has less than its half");
        // The same of bytes: the victim holds most of those.
        let small = Retain { count: 1000, bytes: 27_500_000, ..keep.clone() };
        assert_eq!(store.expired(&small, 200).await.unwrap(), victims[..1]);
        // What is too old goes first, whoever has it, and leaves room.
        let aged = Retain { age: Duration::from_millis(100), count: 60, ..keep.clone() };
        assert_eq!(store.expired(&aged, 120).await.unwrap(), victims[..20]);
        // Among those who hold as much, the oldest goes.
        let newcomers = [add("ann", 300, 0).await, add("bob", 299, 0).await, add("cid", 301, 0).await];
        store.remove([victims, others].concat()).await.unwrap();
        assert_eq!(store.expired(&Retain { count: 2, ..keep }, 400).await.unwrap(), newcomers[1..2]);
    });
}

#[test]
fn the_sums_are_those_of_the_rows_whatever_happened() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let tasks: Vec<_> = (0..40).map(|at| record(["ann", "bob", "cid"][at % 3], at as i64)).collect();
    run(async {
        for (at, task) in tasks.iter().enumerate() {
            store.insert(task.clone()).await.unwrap();
            store.update(Record { process_id: 7, ..task.clone() });
            if at % 4 != 0 {
                store.finish(task.id, end(ExitStatus::Exited(0), at as i64, 1000 * at as u64)).await.unwrap();
            }
        }
        store.remove(tasks.iter().step_by(5).map(|task| task.id).collect()).await.unwrap();
        store.remove(tasks.iter().filter(|task| task.owner == "cid").map(|task| task.id).collect()).await.unwrap();
    });
    let sqlite = Connection::open(file(&dir)).unwrap();
    let sums = |sql: &str| -> Vec<(String, [i64; 3])> {
        let mut statement = sqlite.prepare(sql).unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?]));
        statement.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let kept = sums("SELECT owner, bytes, ended, ended_bytes FROM sums WHERE bytes <> 0 ORDER BY owner");
    let true_ones = sums(
        "SELECT owner, sum(output_bytes), count(ended_at), sum(CASE WHEN ended_at IS NULL THEN 0 ELSE output_bytes END)
         FROM tasks GROUP BY owner ORDER BY owner",
    );
    assert_eq!(kept, true_ones);
    assert_eq!(run(store.stored_bytes("bob")).unwrap(), kept[1].1[0] as u64);
    assert_eq!(run(store.stored_bytes("cid")).unwrap(), 0);

    // Whatever was lost of them is right again after a restart; a file of the first version has none at all.
    drop(store);
    sqlite.execute("UPDATE sums SET bytes = 5, ended = 6, ended_bytes = -7", []).unwrap();
    drop(open(&file(&dir)));
    assert_eq!(sums("SELECT owner, bytes, ended, ended_bytes FROM sums ORDER BY owner"), true_ones);
    for what in [
        "INDEX tasks_ended_of_owner",
        "TRIGGER tasks_added",
        "TRIGGER tasks_removed",
        "TRIGGER tasks_changed",
        "VIEW changes",
        "TABLE sums",
    ] {
        sqlite.execute_batch(&format!("DROP {what}")).unwrap();
    }
    sqlite.execute_batch("CREATE INDEX tasks_bytes ON tasks (owner, output_bytes); PRAGMA user_version = 1").unwrap();
    assert_eq!(Store::open(&file(&dir)).unwrap().1.migrated_from, Some(1));
    assert_eq!(sums("SELECT owner, bytes, ended, ended_bytes FROM sums ORDER BY owner"), true_ones);
}

/// A filter that nothing matches made one thread, which everybody waits for, look at all that a user has.
#[test]
fn a_list_looks_at_a_bounded_number_of_tasks() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let tasks: Vec<_> = (0..5010).map(|at| record("ann", at)).collect();
    run(async {
        let inserted = join(tasks.iter().map(|task| store.insert(task.clone()))).await;
        assert!(inserted.iter().all(Result::is_ok));
        store.finish(tasks[0].id, end(ExitStatus::Signaled(9), 1, 0)).await.unwrap();
        let query =
            |after| Query { states: vec![State::Ended(ExitKind::Signaled)], limit: 5, after, ..Query::default() };
        let first = store.list(query(None)).await.unwrap();
        assert!(first.records.is_empty() && first.next.is_some(), "not the last page");
        let second = store.list(query(first.next)).await.unwrap();
        assert_eq!((second.records.len(), second.records[0].id, second.next), (1, tasks[0].id, None));
        // Large labels are read sooner than many tasks.
        let labels: std::collections::BTreeMap<_, _> =
            (0..64).map(|n| (format!("{n:0256}"), "v".repeat(256))).collect();
        let heavy: Vec<_> = (0..200).map(|at| Record { labels: labels.clone(), ..record("bob", at) }).collect();
        assert!(join(heavy.iter().map(|task| store.insert(task.clone()))).await.iter().all(Result::is_ok));
        let wanted = [("none".to_owned(), "such".to_owned())].into();
        let query = Query { owner: Some("bob".to_owned()), labels: wanted, limit: 5, ..Query::default() };
        assert!(store.list(query).await.unwrap().next.is_some());
    });
}

#[test]
fn a_page_of_long_command_lines_is_short_and_nothing_is_left_out() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    let long = |at| Record { args: vec!["x".repeat(1 << 20)], ..record("ann", at) };
    run(async {
        for at in 0..10 {
            store.insert(long(at)).await.unwrap();
        }
        let (mut pages, mut seen, mut after) = (0, BTreeSet::new(), None);
        loop {
            let page = store.list(Query { limit: LARGEST_PAGE, after, ..Query::default() }).await.unwrap();
            let bytes: usize = page.records.iter().map(|record| record.args[0].len()).sum();
            assert!(bytes <= 3 << 20, "{bytes} bytes on one page");
            seen.extend(page.records.iter().map(|record| record.id));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((seen.len(), pages), (10, 5));
    });
}

#[test]
fn many_empty_arguments_fill_a_page_too() {
    let dir = TempDir::new().unwrap();
    let store = open(&file(&dir));
    run(async {
        for at in 0..10 {
            store.insert(Record { args: vec![String::new(); 40_000], ..record("ann", at) }).await.unwrap();
        }
        let page = store.list(Query { limit: LARGEST_PAGE, ..Query::default() }).await.unwrap();
        assert!(page.records.len() == 3 && page.next.is_some(), "{} records of a MB each", page.records.len());
    });
}
