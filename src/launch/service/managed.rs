//! What the service manager is told, and when: ready once clients are served and the auditor watches, alive while every part of
//! the service answers. Where the parts do not, it hears nothing, and does what its unit says.
//!
//! | part | what shows that it answers |
//! |---|---|
//! | launcher | this loop turns |
//! | server | its main task, which takes connections too, has answered a question that waited behind everything else for it |
//! | auditor | it watches and was heard lately, as for a start; one that is being replaced has the rest of the manager's patience |

use std::time::Instant;

use super::Service;
use super::manager::{Life, Line};
use super::phase::Phase;
use super::poller::MANAGER;
use crate::wire::Event;

/// The line to the manager, and what is to be said on it.
pub struct Signs {
    line: Line,
    /// The server listens.
    serving: bool,
    /// It was told as ready.
    ready: bool,
    /// The last question to the server, and the last that it has answered.
    asked: u64,
    answered: u64,
    /// The server has answered, and the manager was not told so yet.
    owed: bool,
    /// The question behind the certificates that are to be read anew.
    reload: Option<u64>,
}

impl Signs {
    pub fn new(line: Line) -> Self {
        Self { line, serving: false, ready: false, asked: 0, answered: 0, owed: false, reload: None }
    }
}

impl Service<'_> {
    /// The server listens, and serves whoever comes.
    pub(super) fn server_serves(&mut self) {
        self.signs.serving = true;
    }

    /// The server has answered. What it was not asked is no sign of anything.
    pub(super) fn server_answers(&mut self, seq: u64) {
        let signs = &mut self.signs;
        if seq > signs.answered && seq <= signs.asked {
            (signs.answered, signs.owed) = (seq, signs.line.every().is_some());
            signs.reload.take_if(|reload| *reload <= seq);
        }
    }

    /// It is time for a sign of life, if the manager waits for one. A question that is not answered yet is enough.
    pub(super) fn sign_is_due(&mut self) {
        let Some(every) = self.signs.line.every() else { return };
        self.poller.set_deadline(MANAGER, Some(Instant::now() + every));
        if self.signs.asked == self.signs.answered {
            self.ask_server();
        }
    }

    /// The certificates were sent anew because someone asked for it: once the server answers, it has seen to them.
    pub(super) fn note_reload(&mut self) {
        if self.signs.ready && self.phase == Phase::Serving {
            self.ask_server();
            self.signs.reload = Some(self.signs.asked);
        }
    }

    fn ask_server(&mut self) {
        self.signs.asked += 1;
        self.tell(Event::Ping { seq: self.signs.asked }, Vec::new());
    }

    /// Tells the manager what has changed, and that all is well if that is due. In every turn of the loop.
    pub(super) fn tell_manager(&mut self) {
        if !self.signs.line.is_open() {
            return;
        }
        let watched = self.auditor.refusal().is_none();
        if self.phase == Phase::Serving && self.signs.serving && watched && !self.signs.ready {
            self.signs.ready = true;
            self.sign_is_due();
        }
        let (life, status) = self.standing_of_service();
        self.signs.line.tell(life, &status);
        if self.signs.owed && watched {
            self.signs.owed = !self.signs.line.is_alive();
        }
    }

    fn standing_of_service(&self) -> (Life, String) {
        match self.phase {
            Phase::Serving if !self.signs.serving => (Life::Starting, "starting".to_owned()),
            Phase::Serving if !self.signs.ready => (Life::Starting, "waiting for the auditor's first look".to_owned()),
            Phase::Serving if self.signs.reload.is_some() => (Life::Reloading, "reading certificates anew".to_owned()),
            Phase::Serving => match self.standing.refusal(&self.auditor) {
                None => (Life::Ready, "serving".to_owned()),
                Some(why) => (Life::Ready, format!("taking no tasks: {why}")),
            },
            Phase::Draining => {
                (Life::Stopping, format!("draining: tasks are given {:?} to end", self.config.stop.shutdown))
            }
            Phase::Leaving | Phase::Left => (Life::Stopping, "drained: every end is recorded".to_owned()),
            Phase::Closed | Phase::Lost | Phase::Overdue => {
                (Life::Stopping, "the server is lost: its tasks are being ended".to_owned())
            }
        }
    }
}
