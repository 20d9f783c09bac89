//! The launcher and its auditor: who may start when, what a finding does to a task, and what becomes of a worker whose auditor
//! does not stay.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use taskman::StartError;
use taskman::containment::{Answer, Entry, IncidentId, Journal, Kind, Line, RUNBOOK};
use taskman::task::id::TaskId;
use taskman::task::outcome::Reason;
use taskman::wire::{Event, Request};

use crate::played::{FLOOD, HOLD, order};
use crate::stage::{Case, Client, play_audited};

pub fn cases() -> Vec<Case> {
    vec![
        ("nothing_starts_before_the_auditors_first_look_is_done", nothing_starts_before_the_first_look),
        ("a_finding_ends_its_task_for_containment_whatever_else_ended_it", a_finding_ends_its_task_for_containment),
        ("questions_are_answered_under_the_servers_own_numbers", questions_are_answered_under_the_servers_numbers),
        ("more_questions_than_the_bound_are_refused", more_questions_than_the_bound_are_refused),
        ("a_lost_auditors_open_questions_are_refused", a_lost_auditors_open_questions_are_refused),
        ("a_silent_auditor_is_replaced_and_meanwhile_no_task_starts", a_silent_auditor_is_replaced),
        ("an_auditor_that_is_lost_again_and_again_is_a_quarantine", a_flapping_auditor_is_a_quarantine),
        ("an_auditor_that_floods_holds_up_nobody", an_auditor_that_floods_holds_up_nobody),
        ("unproven_ends_shut_their_owner_out_and_then_the_worker", unproven_ends_shut_out),
    ]
}

impl Client {
    /// Has the played auditor do something.
    fn order(&self, seq: u64, what: &str) {
        self.send(&Request::Containment { seq, query: order(what) });
    }

    /// The answer to a question, which the played auditor and the launcher give as a refusal.
    fn answer(&mut self, seq: u64) -> String {
        self.wait_for(|event| match event {
            Event::Containment { seq: of, answer } if *of == seq => match &**answer {
                Answer::Refused(why) => Some(why.clone()),
                other => panic!("{other:?}"),
            },
            _ => None,
        })
        .0
    }

    /// Starts a task, which must be refused because of the worker, and gives the text.
    fn refused(&mut self) -> String {
        let task = self.start(&["true"], |_| {});
        match self.refusal(task) {
            StartError::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Starts a task, which must go well.
    fn runs(&mut self) {
        let task = self.start(&["true"], |_| {});
        assert_eq!(self.ended(task).outcome.status.code(), Some(0));
    }
}

fn nothing_starts_before_the_first_look() {
    let played = play_audited(
        |directory| std::fs::write(directory.join(HOLD), "").unwrap(),
        |client| {
            let why = client.refused();
            assert!(why.contains("first look"), "{why}");
            std::fs::remove_file(client.directory.join(HOLD)).unwrap();
            let health = client.health(|_| true);
            assert_eq!((health.can_accept, health.auditor.as_str()), (true, "watching"), "the first news");
            client.runs();
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
}

fn a_finding_ends_its_task_for_containment() {
    let played = play_audited(
        |_| {},
        |client| {
            client.health(|health| health.can_accept);
            let (plain, pid) = client.start_sleeper("true");
            client.order(1, &format!("found {plain} {pid}"));
            let outcome = client.ended(plain).outcome;
            assert_eq!(outcome.reason, Reason::Containment, "{outcome:?}");
            assert!(outcome.detail.starts_with("containment: orphan_detected (finding 1970"), "{outcome:?}");
            // Its owner had asked it to stop; the finding is what counts.
            let (stopped, pid) = client.start_sleeper("trap '' TERM");
            client.send(&Request::Stop { task: stopped, grace_ms: 3_600_000 });
            client.order(2, &format!("found {stopped} {pid}"));
            let outcome = client.ended(stopped).outcome;
            assert_eq!(outcome.reason, Reason::Containment, "{outcome:?}");
            assert!(outcome.detail.contains("before that: stopped"), "{outcome:?}");
            // One about a task that is not there any more is no other's: what is killed meanwhile was killed by a signal.
            let (other, pid) = client.start_sleeper("true");
            client.order(3, &format!("found {plain} {pid}"));
            assert_eq!(client.ended(other).outcome.reason, Reason::Signal);
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}

fn questions_are_answered_under_the_servers_numbers() {
    let played = play_audited(
        |_| {},
        |client| {
            client.order(77, "later");
            client.order(u64::MAX, "later");
            client.order(3, "now");
            for seq in [3, u64::MAX, 77] {
                assert_eq!(client.answer(seq), "done: now");
            }
            client.send(&Request::Containment { seq: 5, query: taskman::containment::Query::VerifyClean });
            assert_eq!(client.answer(5), "VerifyClean", "it was not passed on as it was");
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
}

fn more_questions_than_the_bound_are_refused() {
    let played = play_audited(
        |_| {},
        |client| {
            (0..65).for_each(|seq| client.order(seq, "never"));
            let why = client.answer(64);
            assert!(why.contains("too many questions"), "{why}");
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
}

fn a_lost_auditors_open_questions_are_refused() {
    let played = play_audited(
        |_| {},
        |client| {
            client.order(1, "never");
            client.order(2, "die");
            for seq in [1, 2] {
                let why = client.answer(seq);
                assert!(why.contains("the auditor was lost before it answered"), "{why}");
            }
            let health = client.health(|health| health.can_accept && health.auditor_restarts == 1);
            assert_eq!((health.status.as_str(), health.auditor.as_str()), ("healthy", "watching"));
            client.order(3, "now");
            assert_eq!(client.answer(3), "done: now");
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
}

fn a_silent_auditor_is_replaced() {
    let played = play_audited(
        |_| {},
        |client| {
            client.health(|health| health.can_accept);
            let (task, _) = client.start_sleeper("true");
            std::fs::write(client.directory.join(HOLD), "").unwrap();
            client.order(1, "silence");
            let began = Instant::now();
            client.health(|health| !health.can_accept);
            // A second and a half, and once more where the launcher itself came late.
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            let why = client.refused();
            assert!(why.contains("the auditor does not answer"), "{why}");
            // Those that run can be seen to.
            client.send(&Request::Stop { task, grace_ms: 0 });
            assert_eq!(client.ended(task).outcome.reason, Reason::Stopped);
            std::fs::remove_file(client.directory.join(HOLD)).unwrap();
            let health = client.health(|health| health.can_accept);
            assert_eq!((health.status.as_str(), health.auditor_restarts), ("healthy", 1));
            client.runs();
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}

fn a_flapping_auditor_is_a_quarantine() {
    let played = play_audited(
        |_| {},
        |client| {
            for loss in 0..3 {
                client.health(|health| health.auditor_restarts == loss && health.auditor == "watching");
                client.order(loss, "die");
            }
            let health = client.health(|health| health.status == "quarantined");
            assert_eq!((health.reason.as_deref(), health.by.as_deref()), (Some("auditor_lost"), Some("launcher")));
            assert_eq!((health.can_accept, health.runbook.as_deref()), (false, Some(RUNBOOK)));
            let why = client.refused();
            assert!(why.contains("quarantined (auditor_lost)") && why.contains(RUNBOOK), "{why}");
            // On disk, told to the server, and still in force when another auditor watches.
            let lines = Journal::new(&client.directory).read().unwrap();
            assert_eq!(lines.len(), 1, "{lines:?}");
            let (told, _) = client.wait_for(|event| match event {
                Event::Journal(lines) => Some(lines.clone()),
                _ => None,
            });
            assert_eq!(told, lines);
            client.health(|health| health.status == "quarantined" && health.auditor == "watching");
            client.refused();
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
}

fn an_auditor_that_floods_holds_up_nobody() {
    // Whoever read it once for each message would not come to an end.
    let journal = |directory: &Path| {
        let (id, kind, owner) = (IncidentId::new(1), Kind::ZombieDetected, Some("alice".to_owned()));
        let entry = Entry::Finding { id, kind, task: None, owner };
        let line = |seq| serde_json::to_string(&Line { seq, at: 1, entry: entry.clone() }).unwrap() + "\n";
        std::fs::write(directory.join("containment.jsonl"), (1..=20_000).map(line).collect::<String>()).unwrap();
        std::fs::write(directory.join(FLOOD), "").unwrap();
    };
    let played = play_audited(journal, |client| {
        client.health(|health| health.can_accept);
        let (stopped, _) = client.start_sleeper("true");
        client.order(1, "flood");
        client.health(|health| health.findings > 21_000);
        let timed = client.start(&["sleep", "600"], |request| request.limits.timeout = Duration::from_millis(300));
        assert_eq!(client.ended(timed).outcome.reason, Reason::WallTime);
        assert_eq!(client.signal(2, stopped, libc::SIGCONT), None);
        client.send(&Request::Stop { task: stopped, grace_ms: 0 });
        assert_eq!(client.ended(stopped).outcome.reason, Reason::Stopped);
        std::fs::remove_file(client.directory.join(FLOOD)).unwrap();
        assert_eq!(client.answer(1), "done: flood");
        client.leave();
    });
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}

/// A group that something is in cannot be removed.
fn occupy(task: TaskId) -> std::path::PathBuf {
    let name = format!("taskman-*.{task}");
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
    let groups = String::from_utf8(found.stdout).unwrap();
    let group = groups.lines().map(std::path::PathBuf::from).find(|group| group.join("cgroup.kill").exists()).unwrap();
    std::fs::create_dir(group.join("occupied")).unwrap();
    group
}

fn unproven_ends_shut_out() {
    let played = play_audited(
        |_| {},
        |client| {
            client.health(|health| health.can_accept);
            let end = |client: &mut Client, owner: &str, occupied: bool| {
                let task = client.start(&["sleep", "600"], |request| request.owner = owner.into());
                let (started, _) = client.started(task);
                client.note(started.process_id);
                let group = occupied.then(|| occupy(task));
                client.send(&Request::Stop { task, grace_ms: 0 });
                let (proven, _) = client.wait_for(|event| match event {
                    Event::Ended(ended) if ended.task == task => Some(ended.containment.is_proven()),
                    _ => None,
                });
                assert_eq!(proven, !occupied);
                if let Some(group) = group {
                    std::fs::remove_dir(group.join("occupied")).unwrap();
                    std::fs::remove_dir(group).unwrap();
                }
            };
            // One that is proven between them begins the count anew.
            [true, false, true].into_iter().for_each(|occupied| end(client, "alice", occupied));
            let health = client.health(|health| health.cleanup_failures == 2);
            assert_eq!((health.can_accept, health.cleanup_failures_in_a_row), (true, 1));
            end(client, "alice", true);
            let health = client.health(|health| health.cleanup_failures == 3);
            assert!(health.can_accept, "others are served: {health:?}");
            let why = client.refused();
            assert!(why.contains("2 of your tasks") && why.contains("runbooks/cleanup-failure.md"), "{why}");
            // A second owner's, with none that was proven in between.
            [true, true].into_iter().for_each(|occupied| end(client, "bob", occupied));
            let health = client.health(|health| !health.can_accept);
            assert_eq!((health.reason.as_deref(), health.cleanup_failures), (Some("cleanup_failure"), 5));
            let why = client.refused();
            assert!(why.contains("quarantined (cleanup_failure)") && why.contains(RUNBOOK), "{why}");
            client.leave();
        },
    );
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}
