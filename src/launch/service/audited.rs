//! What follows from what the auditor says, or fails to say.

use std::time::Instant;

use super::auditor::Due;
use super::standing::Consequence;
use super::{Service, complain};
use crate::config::Config;
use crate::containment::{Answer, FromAuditor, Health, Query, Reason, Scan, Setup, Summary, ToAuditor};
use crate::error::{Context, SysError};
use crate::launch::Launcher;
use crate::task::id::TaskId;
use crate::wire::{Event, MAX_MESSAGE};

/// What is taken from the auditor in one turn: others wait meanwhile. It seldom has as much to say.
const BATCH: usize = 64;
/// Turns for the last words of one that has ended: more than its socket holds.
const LAST_WORDS: usize = 64;
/// Durations of scans kept for a server that does not read.
const SCANS: usize = 1024;
/// Lines of the journal in one message.
const LINES: usize = 256;
/// What surrounds an answer in the message to the server.
const FRAME: usize = 256;

/// What an auditor of this launcher must know.
pub fn setup(launcher: &Launcher, config: &Config) -> Result<Setup, SysError> {
    let shown = config.state_dir.display().to_string();
    Ok(Setup {
        state_dir: std::path::absolute(&config.state_dir).on("resolve", shown)?,
        instance: launcher.instance().to_owned(),
        uid_range: config.uid_range,
        launcher: Some(std::process::id() as i32),
        events: config.audit.events,
        scan_ms: config.audit.scan.as_millis() as u64,
        zombie_ms: config.audit.zombie.as_millis() as u64,
    })
}

impl Service<'_> {
    /// Takes what the auditor has said, and tells the server once what has come of it. Says whether there may be more, which is taken
    /// in the next turn: the poller reports it again.
    pub(super) fn hear_auditor(&mut self) -> bool {
        for heard in 0..BATCH {
            match self.auditor.hear() {
                None if heard == 0 => return false,
                None => {
                    self.tell_standing();
                    return false;
                }
                Some(Ok(message)) => self.heed(message),
                Some(Err(why)) => {
                    self.auditor_is_lost(&why);
                    return false;
                }
            }
        }
        self.tell_standing();
        true
    }

    fn heed(&mut self, message: FromAuditor) {
        match message {
            FromAuditor::Ready { health, .. } | FromAuditor::Health { health, .. } => self.believe(health),
            FromAuditor::Beat { scan } => {
                self.standing.write();
                self.tell_scan(scan);
            }
            FromAuditor::Found { task, summary } => self.found(task, &summary),
            FromAuditor::Answer { seq, answer } => {
                // Who has the answer may ask what has come of it.
                self.tell_standing();
                if let Some(seq) = self.questions.take(seq) {
                    self.answer(seq, answer);
                }
            }
        }
    }

    fn believe(&mut self, health: Health) {
        if self.standing.believe(health) {
            self.auditor.forgive();
        }
    }

    /// Why no task may start just now, if so: by the journal as it is now, which root may have written to on this host.
    pub(super) fn refusal(&mut self) -> Option<String> {
        match self.standing.unread() {
            Ok(Some(health)) => {
                self.believe(health);
                self.tell_standing();
            }
            Ok(None) => {}
            Err(error) => return Some(format!("nobody knows whether this worker may take tasks: {error}")),
        }
        self.standing.refusal(&self.auditor)
    }

    fn found(&mut self, task: Option<TaskId>, summary: &Summary) {
        complain(&format!("finding {}: {}: {}", summary.id, summary.kind.name(), summary.what));
        let detail = format!("containment: {} (finding {})", summary.kind.name(), summary.id);
        if let Some(task) = task {
            self.with_id(task, |live, poller| live.breach(detail, poller));
        }
    }

    /// When the auditor, or a question to it, must be seen to. Without a server nothing starts and nobody asks.
    pub(super) fn auditor_deadline(&self) -> Option<Instant> {
        let earliest = |until: Instant| self.questions.deadline().map_or(until, |first| first.min(until));
        self.phase.has_server().then(|| earliest(self.auditor.deadline()))
    }

    pub(super) fn auditor_is_due(&mut self) {
        match self.auditor.due() {
            Some(Due::Start) => {
                if let Err(error) = self.auditor.start(&self.poller) {
                    return self.auditor_is_lost(&error.to_string());
                }
                self.tell_standing();
            }
            Some(Due::Loss(why)) => self.auditor_is_lost(&why),
            None => {}
        }
        for seq in self.questions.overdue() {
            self.answer(seq, Answer::Refused("the auditor has not answered in time; try again".to_owned()));
        }
    }

    /// One that watches, or one that was given up, has ended. Its last words are heard.
    pub(super) fn auditor_ended(&mut self) {
        if self.auditor.has_ended() {
            let _ = (0..LAST_WORDS).all(|_| self.hear_auditor());
        }
        if self.auditor.has_ended() {
            self.auditor_is_lost("it has ended");
        }
        self.auditor.reap(&self.poller);
    }

    fn auditor_is_lost(&mut self, why: &str) {
        complain(&format!("the auditor is lost: {why}"));
        let too_many = self.auditor.lose(&self.poller);
        if too_many && self.phase.has_server() && !self.standing.is_quarantined() {
            let detail = format!("the auditor was lost several times within a minute, last because {why}");
            self.standing.quarantine(Reason::AuditorLost, detail);
        }
        for seq in self.questions.all() {
            self.answer(seq, Answer::Refused(format!("the auditor was lost before it answered: {why}; try again")));
        }
        self.tell_standing();
    }

    /// A question of the server's, passed on.
    pub(super) fn ask(&mut self, seq: u64, query: Query) {
        if !self.auditor.is_there() {
            let why = "the auditor is lost and will be started again; try again, or use taskman on this host with --state-dir";
            return self.answer(seq, Answer::Refused(why.to_owned()));
        }
        match self.questions.add(seq) {
            Some(number) => self.auditor.say(ToAuditor::Ask { seq: number, query }),
            None => self.answer(seq, Answer::Refused("too many questions are under way; try again".to_owned())),
        }
    }

    fn answer(&mut self, seq: u64, answer: Answer) {
        let size = serde_json::to_vec(&answer).map_or(usize::MAX, |json| json.len());
        let answer = match size.saturating_add(FRAME) > MAX_MESSAGE {
            true => Answer::Refused("the answer is too large; use taskman on this host with --state-dir".to_owned()),
            false => answer,
        };
        self.tell(Event::Containment { seq, answer: Box::new(answer) }, Vec::new());
    }

    /// A task's last event, unless it has one to come: counted, and the auditor's cue to look for what is left.
    pub(super) fn note_end(&mut self, owner: &str, event: &Event, gone: bool) {
        let (task, proven) = match event {
            Event::Ended(ended) => (ended.task, Some(ended.containment.is_proven())),
            // Of one that was not started nothing is proven, but what does not go is seen.
            Event::StartFailed { task, .. } => (*task, (!gone).then_some(false)),
            _ => return,
        };
        self.auditor.say(ToAuditor::Ended { task });
        let most = self.config.audit.cleanup_failures;
        match proven.map_or(Consequence::None, |proven| self.standing.count_end(owner, proven, most)) {
            Consequence::None => {}
            Consequence::ShutOut => {
                let what = format!(
                    "the ends of {most} tasks of {owner} in a row could not be proven, the last of task {task}"
                );
                complain(&format!("{what}; it starts no more for a while"));
            }
            Consequence::Quarantine => {
                let what = format!("the ends of {most} tasks in a row, of more than one owner, could not be proven");
                self.standing.quarantine(Reason::CleanupFailure, format!("{what}, the last of task {task} of {owner}"));
            }
        }
        self.tell_standing();
    }

    /// Tells the server what has changed, from the first answer of an auditor on, or its loss.
    fn tell_standing(&mut self) {
        if self.auditor.is_first_look() {
            return;
        }
        for lines in self.standing.news().chunks(LINES) {
            self.tell(Event::Journal(lines.to_vec()), Vec::new());
        }
        if let Some(view) = self.standing.change(&self.auditor) {
            self.tell(Event::Health(Box::new(view)), Vec::new());
        }
    }

    /// Passed on at once, or added to the next: a server that does not read is not sent more and more.
    fn tell_scan(&mut self, scan: Scan) {
        self.scan.events += scan.events;
        self.scan.looked_at += scan.looked_at;
        self.scan.unseen = scan.unseen;
        self.scan.scans.extend(scan.scans);
        self.scan.scans.truncate(SCANS);
        if self.outbox.is_empty() {
            let scan = Scan { uids: self.live.len() as u64, ..std::mem::take(&mut self.scan) };
            self.tell(Event::Scan(scan), Vec::new());
        }
    }
}
