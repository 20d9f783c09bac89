//! What the auditor is asked: by an administrator through the server, or by root on this host. One place answers both.
//!
//! A question that needs a look at the disks is answered in two halves, so that the auditor can watch in between.

use nix::errno::Errno;

use super::auditor::{Auditor, log};
use super::clean::{self, Extent};
use super::recover;
use crate::cgroup;
use crate::containment::{
    Answer, Audited, Entry, Leftover, LeftoverKind, Query, Reason, Setup, Summary, stated_reason,
};
use crate::error::SysError;
use crate::task::name;

/// The most findings that are told at once.
const MOST: u32 = 1000;

/// Lines of the journal that are told at once; who wants more asks again.
const LINES: usize = 1000;

/// What a question about what is left needs.
const EVERYTHING: Work = Work::Look(Extent::Everything);

/// Answers on this host, without a server.
pub fn answer(setup: &Setup, query: Query) -> Answer {
    match Auditor::open(setup.clone(), None) {
        Ok(mut auditor) => auditor.answer(query),
        Err(error) => Answer::Refused(error),
    }
}

/// What takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Looks for what is left, so far.
    Look(Extent),
    /// Sweeps everything that is.
    Sweep,
}

impl Work {
    /// Does it.
    pub fn run(self, setup: &Setup) -> Answer {
        let done = match self {
            Self::Look(extent) => clean::left(setup, extent).map(Answer::Left),
            Self::Sweep => recover::recover(setup).map(Answer::Recovered),
        };
        done.unwrap_or_else(|error| Answer::Refused(error.to_string()))
    }
}

/// The half of an answer that waits for the other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // as in Query
pub enum Pending {
    /// Nobody asked: what is left is a finding.
    Things(Extent),
    /// The same, beside what an audit has found.
    Audit(Audited),
    VerifyClean,
    Recover {
        by: String,
    },
    Lift {
        by: String,
        reason: String,
        /// Places that need not be looked into.
        accept: Vec<String>,
        /// How many there were ever, when it was asked.
        findings: u64,
    },
}

/// A question's first half.
pub enum Begun {
    /// That was all.
    Done(Answer),
    /// This has to be done first.
    Needs(Work, Pending),
}

impl Auditor {
    /// Does what is asked, however long it takes.
    pub fn answer(&mut self, query: Query) -> Answer {
        match self.begin(query) {
            Begun::Done(answer) => answer,
            Begun::Needs(work, pending) => {
                let found = work.run(&self.setup);
                self.finish(pending, found)
            }
        }
    }

    /// Does what can be done at once.
    pub fn begin(&mut self, query: Query) -> Begun {
        // Root may have written on this host since the last beat.
        if self.journal.has_changed() {
            self.reread();
        }
        self.try_begin(query).unwrap_or_else(|why| Begun::Done(Answer::Refused(why)))
    }

    fn try_begin(&mut self, query: Query) -> Result<Begun, String> {
        let text = |error: crate::error::SysError| error.to_string();
        let stated = |reason: &str| stated_reason(reason).map_err(|error| error.to_string());
        // The server has it from a certificate, and the server is not trusted.
        let asked = |by: String| name::check(&by).map(|()| by);
        Ok(Begun::Done(match query {
            Query::Audit => return Ok(Begun::Needs(EVERYTHING, Pending::Audit(self.audit()))),
            Query::VerifyClean => return Ok(Begun::Needs(EVERYTHING, Pending::VerifyClean)),
            Query::Recover { by } => return Ok(Begun::Needs(Work::Sweep, Pending::Recover { by: asked(by)? })),
            Query::Lift { by, reason, accept } => {
                let (by, reason) = (asked(by)?, stated(&reason)?);
                if self.health.quarantine.is_none() {
                    return Err("this worker is not quarantined".to_owned());
                }
                if !self.write_quarantine() {
                    return Err("the quarantine stays: the containment journal cannot be written to".to_owned());
                }
                if let Some(Summary { id, kind, what, .. }) = self.audit().findings.first() {
                    let found = format!("{}: {what}; finding {id}", kind.name());
                    return Err(format!("the quarantine stays: an audit has just found {found}"));
                }
                return Ok(Begun::Needs(
                    EVERYTHING,
                    Pending::Lift { by, reason, accept, findings: self.health.findings_total },
                ));
            }
            Query::Quarantine { by, reason } => {
                let (by, detail) = (asked(by)?, stated(&reason)?);
                self.write(Entry::Quarantined { reason: Reason::Manual, detail, by })?;
                Answer::Health(self.health.clone())
            }
            Query::Findings { most } => {
                let newest = self.incidents.newest(most.min(MOST) as usize).map_err(text)?;
                Answer::Findings(newest.iter().map(Summary::from).collect())
            }
            Query::Finding { id } => Answer::Finding(Box::new(self.incidents.get(&id).map_err(text)?)),
            Query::Journal { after } => {
                let lines = self.journal.read().map_err(text)?;
                Answer::Journal(lines.into_iter().filter(|line| line.seq > after).take(LINES).collect())
            }
        }))
    }

    /// Does the rest, with what the look or the sweep has brought.
    pub fn finish(&mut self, pending: Pending, brought: Answer) -> Answer {
        match (pending, brought) {
            (Pending::Things(extent), Answer::Left(left)) => {
                self.report_things(extent, &left);
                Answer::Left(left)
            }
            (Pending::Audit(audited), Answer::Left(left)) => {
                self.found.clear();
                self.report_things(Extent::Everything, &left);
                let findings = audited.findings.into_iter().chain(self.found.drain(..)).collect();
                Answer::Audited(Audited { findings, leftovers: left, ..audited })
            }
            (Pending::Lift { findings, accept, .. }, Answer::Left(left))
                if is_accepted(&left, &accept) && findings != self.health.findings_total =>
            {
                Answer::Refused(
                    "the quarantine stays: something was found meanwhile; see taskman audit findings".to_owned(),
                )
            }
            (Pending::Lift { by, reason, accept, .. }, Answer::Left(left)) if is_accepted(&left, &accept) => {
                let unseen: Vec<String> = left.into_iter().map(|place| place.name).collect();
                let reason = match unseen.is_empty() {
                    true => reason,
                    false => format!("{reason}; accepted as not looked into: {}", unseen.join(", ")),
                };
                match self.write(Entry::Lifted { by, reason }) {
                    Ok(()) => Answer::Health(self.health.clone()),
                    Err(why) => Answer::Refused(why),
                }
            }
            (Pending::Recover { by }, Answer::Recovered(swept)) => {
                let left = swept.iter().filter(|one| one.error.is_some()).count() as u64;
                match self.write(Entry::Recovered { by, swept: swept.len() as u64 - left, left }) {
                    Ok(()) => Answer::Recovered(swept),
                    Err(why) => Answer::Refused(why),
                }
            }
            (_, brought) => brought,
        }
    }

    fn write(&mut self, entry: Entry) -> Result<(), String> {
        self.journal.append(entry).map_err(|error| error.to_string())?;
        self.reread();
        Ok(())
    }

    /// Ends what is left of this instance's tasks after their launcher has died, and writes down what does not end.
    pub fn end_instance(&mut self) {
        let swept = cgroup::sweep_out(&self.layout, &self.setup.instance, cgroup::LEFT_TO_DIE);
        // Those that are held are of a server that came after us.
        let is_left = |error: &SysError| error.errno() != Errno::EWOULDBLOCK;
        let left = swept.iter().filter(|one| one.error.as_ref().is_some_and(is_left)).count();
        if left > 0 {
            log(&format!("{left} groups of a dead launcher are not empty"));
            if let Answer::Left(left) = Work::Look(Extent::QuickThings).run(&self.setup) {
                self.report_things(Extent::QuickThings, &left);
            }
        }
    }
}

/// Whether nothing is left but places that could not be looked into, each of which somebody has named.
fn is_accepted(left: &[Leftover], accept: &[String]) -> bool {
    left.iter().all(|place| place.kind == LeftoverKind::Unseen && accept.contains(&place.name))
}
