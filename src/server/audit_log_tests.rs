//! A record is one line, whatever a client sends; none is lost or torn; old files go by the policy.

use std::collections::HashSet;

use serde_json::Value;

use super::*;

const PLENTY: config::AuditLog = config::AuditLog { rotate: 1 << 30, keep: 3, fsync: Fsync::Interval };

fn entry<'a>(identity: &'a str, reason: &'a str) -> Entry<'a> {
    let peer = Some("[::1]:9".parse().unwrap());
    Entry { identity: Some(identity), peer, verb: "start", task: None, outcome: "ok", reason, journal: None }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn a_record_has_its_fields_and_a_time() {
    let task = TaskId::random();
    let at = time::macros::datetime!(2026-01-02 03:04:05.678901 UTC);
    let text = line(&Entry { task: Some(task), outcome: "NOT_FOUND", ..entry("ann", "no such task") }, at);
    let expected = format!(
        "{{\"time\":\"2026-01-02T03:04:05.678Z\",\"identity\":\"ann\",\"peer\":\"[::1]:9\",\"verb\":\"start\",\
         \"task\":\"{task}\",\"outcome\":\"NOT_FOUND\",\"reason\":\"no such task\"}}\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_line_of_the_journal_has_its_number_its_own_time_and_no_peer() {
    let origin = Some(Origin { seq: 7, at: 1_767_323_045_678 });
    let entry = Entry { peer: None, verb: "quarantine", journal: origin, ..entry("root", "a drill") };
    let expected = "{\"time\":\"2026-01-02T03:04:05.678Z\",\"identity\":\"root\",\"peer\":null,\"verb\":\"quarantine\",\
         \"task\":null,\"outcome\":\"ok\",\"reason\":\"a drill\",\"journal\":7}\n";
    assert_eq!(line(&entry, OffsetDateTime::now_utc()), expected);
}

#[test]
fn nothing_that_a_client_sends_forges_a_record() {
    let forged = "x\"}\n{\"identity\":\"admin\"}\r\u{1b}[2J\u{9b}31m\u{2028}\u{202e}\u{7f}\0é😀";
    let text = line(&entry(forged, forged), OffsetDateTime::now_utc());
    assert_eq!(text.matches('\n').count(), 1);
    assert!(text.trim_end().bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{text:?}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((value["identity"].as_str(), value["reason"].as_str()), (Some(forged), Some(forged)));
    let long = "é".repeat(1 << 20);
    assert!(line(&entry("ann", &long), OffsetDateTime::now_utc()).len() < 8 << 10);
}

#[tokio::test]
async fn a_line_that_a_crash_cut_short_spoils_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    fs::write(&path, "{\"time\":\"20").unwrap();
    AuditLog::open(&path, &PLENTY).unwrap().record(&entry("ann", "")).await.unwrap();
    AuditLog::open(&path, &PLENTY).unwrap().record(&entry("bob", "")).await.unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let names = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap()["identity"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["ann", "bob"]);
}

#[tokio::test]
async fn rotation_keeps_as_many_as_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let size = line(&entry("user00", ""), OffsetDateTime::now_utc()).len() as u64;
    let log = AuditLog::open(&path, &config::AuditLog { rotate: 2 * size, keep: 2, fsync: Fsync::Always }).unwrap();
    for number in 0..11 {
        log.record(&entry(&format!("user{number:02}"), "")).await.unwrap();
    }
    let mut files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["audit.log", "audit.log.1", "audit.log.2"]);
    let names =
        |file: &str| lines(&dir.path().join(file)).iter().map(|line| line["identity"].clone()).collect::<Vec<_>>();
    assert_eq!(
        (names("audit.log"), names("audit.log.1")),
        (vec!["user10".into()], vec!["user08".into(), "user09".into()])
    );
    assert_eq!(names("audit.log.2"), ["user06", "user07"]);
}

#[tokio::test]
async fn a_file_that_cannot_be_rotated_goes_on_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    // A directory in the way of the new file: it is not removed, and no file can have its name.
    fs::create_dir(dir.path().join("audit.log.new")).unwrap();
    let log = AuditLog::open(&path, &config::AuditLog { rotate: 10, keep: 2, fsync: Fsync::Always }).unwrap();
    for user in ["ann", "bob", "cid", "dan", "eve"] {
        log.record(&entry(user, "")).await.unwrap();
    }
    assert_eq!(lines(&path).len(), 5);
    assert!(!dir.path().join("audit.log.1").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_at_once_leave_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let policy = config::AuditLog { rotate: 20 << 10, keep: 1000, fsync: Fsync::Interval };
    let log = AuditLog::open(&path, &policy).unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let log = log.clone();
        writers.spawn(async move {
            for number in 0..100 {
                log.record(&entry(&format!("{writer}.{number}"), &"r".repeat(number))).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    log.flush().unwrap();
    let mut seen = HashSet::new();
    for file in fs::read_dir(dir.path()).unwrap() {
        seen.extend(lines(&file.unwrap().path()).into_iter().map(|line| line["identity"].to_string()));
    }
    assert_eq!(seen.len(), 800);
}

#[tokio::test]
async fn a_record_is_readable_when_the_answer_goes_out() {
    for fsync in [Fsync::Always, Fsync::Interval] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path, &config::AuditLog { fsync, ..PLENTY }).unwrap();
        log.record(&entry("ann", "")).await.unwrap();
        assert_eq!(lines(&path).len(), 1);
        assert_eq!(*log.shared.synced.lock().unwrap(), u64::from(fsync == Fsync::Always));
        log.flush().unwrap();
        assert_eq!(*log.shared.synced.lock().unwrap(), 1);
    }
}

#[tokio::test]
async fn with_the_interval_policy_the_disk_has_it_soon() {
    let dir = tempfile::tempdir().unwrap();
    let log = AuditLog::open(&dir.path().join("audit.log"), &PLENTY).unwrap();
    log.record(&entry("ann", "")).await.unwrap();
    let on_disk = async {
        while *log.shared.synced.lock().unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // A busy disk takes its time.
    tokio::time::timeout(INTERVAL * 60, on_disk).await.unwrap();
}

/// A user who floods the log has a part of each file, and fills a log of its own with the rest.
#[tokio::test]
async fn a_flood_pushes_out_nobody_elses_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let size = line(&entry("mallory", "0001"), OffsetDateTime::now_utc()).len() as u64;
    let policy = config::AuditLog { rotate: 80 * size, keep: 2, fsync: Fsync::Interval };
    let log = AuditLog::open(&path, &policy).unwrap();
    log.record(&entry("ann", "")).await.unwrap();
    let mut asked = 0;
    let mut flood = async |times: u64| {
        for _ in 0..times {
            asked += 1;
            log.record(&entry("mallory", &format!("{asked:04}"))).await.unwrap();
        }
    };
    // More than all files have room for.
    flood(1000).await;
    let journal = Some(Origin { seq: 1, at: 1 });
    log.record(&Entry { journal, ..entry("mallory", "no user's") }).await.unwrap();
    let of = |file: &str, user: &str| {
        lines(&dir.path().join(file)).iter().filter(|line| line["identity"] == user).cloned().collect::<Vec<_>>()
    };
    assert_eq!((of("audit.log", "ann").len(), of("audit.log", "mallory").len()), (1, 10 + 1));
    assert!(!dir.path().join("audit.log.1").exists());
    let own = of("audit-mallory.log", "mallory");
    assert_eq!(
        own.last().unwrap()["reason"],
        "1000",
        "its last is recorded, and its oldest have gone as they would have"
    );
    assert!(dir.path().join("audit-mallory.log.2").exists() && !dir.path().join("audit-mallory.log.3").exists());
    // The next file has a share for everyone again.
    for number in 0..80 {
        log.record(&entry(&format!("user{number}"), "")).await.unwrap();
    }
    flood(1).await;
    assert_eq!((of("audit.log.1", "ann").len(), of("audit.log", "mallory").len()), (1, 1));
    log.flush().unwrap();
}
