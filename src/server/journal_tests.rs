//! Each line of the journal is one record: over restarts, crashes at the worst moment, gaps, and an auditor that is away.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use super::*;
use crate::config::{self, Fsync};
use crate::containment::{Entry as Happened, IncidentId, Kind, Reason};
use crate::wire::{self, Event, PacketError, Request};

fn line(seq: u64) -> Line {
    let entry = match seq % 4 {
        0 => Happened::Finding { id: IncidentId::new(1), kind: Kind::ZombieDetected, task: None, owner: None },
        1 => Happened::Quarantined { reason: Reason::Manual, detail: "a drill".into(), by: "root".into() },
        2 => Happened::Recovered { by: "admin".into(), swept: 3, left: 1 },
        _ => Happened::Lifted { by: "admin".into(), reason: "done".into() },
    };
    Line { seq, at: 1_767_323_045_678, entry }
}

/// A launcher that knows this journal, or no auditor.
type Truth = Arc<Mutex<Option<Vec<Line>>>>;

async fn launcher(socket: OwnedFd, truth: Truth) {
    loop {
        match wire::receive::<Request>(socket.as_fd()) {
            Ok(Some(packet)) => {
                let Request::Containment { seq, query: Query::Journal { after } } = packet.message else { panic!() };
                let answer = match &*truth.lock().unwrap() {
                    // In pages of two.
                    Some(lines) => {
                        Answer::Journal(lines.iter().filter(|line| line.seq > after).take(2).cloned().collect())
                    }
                    None => Answer::Refused("lost".into()),
                };
                wire::send(socket.as_fd(), &Event::Containment { seq, answer: Box::new(answer) }, &[]).unwrap();
            }
            Err(PacketError::WouldBlock) => tokio::time::sleep(Duration::from_millis(1)).await,
            _ => return,
        }
    }
}

struct Stage {
    dir: tempfile::TempDir,
    truth: Truth,
}

impl Stage {
    fn new(lines: u64) -> Self {
        let lines = (1..=lines).map(line).collect();
        Self { dir: tempfile::tempdir().unwrap(), truth: Arc::new(Mutex::new(Some(lines))) }
    }

    /// One life of a server that hears of `told`, and then ends in order.
    async fn live(&self, told: &[&[u64]]) {
        let (here, there) = wire::pair().unwrap();
        let (link, _events) = Link::open(here).unwrap();
        let launcher = tokio::spawn(launcher(there, Arc::clone(&self.truth)));
        let policy = config::AuditLog { rotate: 1 << 20, keep: 2, fsync: Fsync::Interval };
        let audit = AuditLog::open(&self.dir.path().join("audit.log"), &policy).unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        for seqs in told {
            sender.send(seqs.iter().copied().map(line).collect()).unwrap();
        }
        drop(sender);
        Records::open(self.dir.path(), audit).unwrap().keep(link, lines, |_| ()).await;
        launcher.abort();
    }

    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("audit.log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn numbers(&self) -> Vec<u64> {
        self.records().iter().map(|record| record["journal"].as_u64().unwrap()).collect()
    }
}

#[tokio::test]
async fn every_line_is_recorded_once_over_restarts() {
    let stage = Stage::new(5);
    stage.live(&[]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4, 5]);
    stage.truth.lock().unwrap().as_mut().unwrap().extend([6, 7].map(line));
    // Told twice, and told what the catching up has taken already.
    stage.live(&[&[5, 6], &[6, 7], &[7]]).await;
    stage.live(&[&[7]]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4, 5, 6, 7]);
    let said =
        |at: usize| ["identity", "peer", "verb", "outcome", "reason"].map(|key| stage.records()[at][key].clone());
    let wanted = |words: [&str; 4]| {
        let [identity, verb, outcome, reason] = words.map(Value::from);
        [identity, Value::Null, verb, outcome, reason]
    };
    assert_eq!(said(0), wanted(["root", "quarantine", "manual", "a drill"]));
    assert_eq!(said(1), wanted(["admin", "recover", "incomplete", "3 swept, 1 left"]));
    assert_eq!(said(2), wanted(["admin", "unquarantine", "ok", "done"]));
    assert_eq!(said(3)[..4], wanted(["auditor", "finding", "zombie_detected", ""])[..4]);
}

#[tokio::test]
async fn a_crash_between_a_record_and_its_number_doubles_nothing() {
    let stage = Stage::new(3);
    stage.live(&[]).await;
    // As if the number had never reached the disk.
    for old in [None, Some("1\n"), Some("")] {
        match old {
            Some(text) => fs::write(stage.dir.path().join("journal-seq"), text).unwrap(),
            None => fs::remove_file(stage.dir.path().join("journal-seq")).unwrap(),
        }
        stage.live(&[]).await;
        assert_eq!(stage.numbers(), [1, 2, 3], "{old:?}");
    }
}

#[tokio::test]
async fn a_gap_is_filled_and_an_auditor_that_is_away_is_asked_again() {
    let stage = Stage::new(4);
    stage.live(&[&[4]]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4]);
    let lines = stage.truth.lock().unwrap().take();
    stage.live(&[&[5]]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4], "what cannot be had in order waits");
    *stage.truth.lock().unwrap() = lines.map(|lines| lines.into_iter().chain([line(5)]).collect());
    stage.live(&[]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_journal_that_was_begun_anew_is_recorded_anew() {
    let stage = Stage::new(4);
    stage.live(&[]).await;
    *stage.truth.lock().unwrap() = Some(vec![line(1)]);
    stage.live(&[]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4, 1]);
}

#[tokio::test]
async fn a_journal_that_was_shortened_is_recorded_on_and_lines_that_are_gone_are_one_record() {
    let stage = Stage::new(4);
    stage.live(&[]).await;
    let checkpoint = |seq| {
        let sum = crate::containment::Health { findings_total: 9, ..Default::default() };
        Line { entry: Happened::Checkpoint { sum }, ..line(seq) }
    };
    // It stands for lines that are recorded.
    *stage.truth.lock().unwrap() = Some(vec![checkpoint(3), line(4), line(5)]);
    stage.live(&[&[5]]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4, 5]);
    *stage.truth.lock().unwrap() = Some(vec![checkpoint(8), line(9)]);
    stage.live(&[&[9]]).await;
    assert_eq!(stage.numbers(), [1, 2, 3, 4, 5, 8, 9]);
    let record = stage.records().swap_remove(5);
    assert_eq!((&record["verb"], &record["outcome"]), (&"checkpoint".into(), &"incomplete".into()), "{record}");
    assert!(record["reason"].as_str().unwrap().contains("9 findings"), "{record}");
}
