//! What this host can enforce, in words that `taskman run` repeats when it refuses.
//!
//! A limit that is written but not enforced is worse than none. So the host is examined as a whole by `taskman doctor`
//! ([`examine`]), and in a few microseconds by every start ([`strict_refusals`]), with the same judgements: functions from
//! facts to [`Finding`]s that touch nothing themselves.

mod container;
mod facts;
mod identity;
mod kernel;
mod limits;
mod settings;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

use crate::cgroup::{Devices, Layout, LayoutError};
use crate::error::SysError;
use crate::place::UidRange;
use crate::sandbox;
use crate::task::limits::Limits;
use crate::task::spec::TaskSpec;

pub use container::AUDITOR_CAPABILITY;
pub use facts::Facts;
pub use identity::{CAPABILITIES, NOT_ROOT};

/// How well the host does on one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Contained, but with less in reserve.
    Reduced,
    /// Not there.
    Missing,
}

/// One point of the examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// The verdict.
    pub status: Status,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub why: String,
    /// The command that changes it; empty when nothing need be changed.
    pub fix: String,
    /// Whether strict mode refuses to start a task because of it.
    pub blocks: bool,
}

impl Finding {
    fn ok(name: impl Into<String>, seen: impl Into<String>, why: impl Into<String>) -> Self {
        let (name, seen, why) = (name.into(), seen.into(), why.into());
        Self { name, status: Status::Ok, seen, why, fix: String::new(), blocks: false }
    }

    /// Strict mode starts all the same.
    fn reduced(self, fix: impl Into<String>) -> Self {
        Self { status: Status::Reduced, fix: fix.into(), ..self }
    }

    /// Strict mode refuses.
    fn missing(self, fix: impl Into<String>) -> Self {
        Self { status: Status::Missing, fix: fix.into(), blocks: true, ..self }
    }

    /// The sentence with which a start is refused.
    pub fn refusal(&self) -> String {
        format!("{}: {}; {}; fix: {}", self.name, self.seen, self.why, self.fix)
    }
}

/// What to examine the host for.
#[derive(Debug, Clone)]
pub struct Options {
    /// The uids that tasks get.
    pub uids: UidRange,
    /// The limits to enforce.
    pub limits: Limits,
    /// Host paths that tasks can read.
    pub paths: Vec<PathBuf>,
}

impl Default for Options {
    /// A task with the default limits and no binds.
    fn default() -> Self {
        let paths = TaskSpec::new("true", [""; 0]).map(|spec| sandbox::host_paths(&spec)).unwrap_or_default();
        Self { uids: UidRange::default(), limits: Limits::default(), paths }
    }
}

/// Every check.
pub fn examine(options: &Options) -> Vec<Finding> {
    judge(&Facts::gather(options), options)
}

/// The judgement alone.
pub fn judge(facts: &Facts, options: &Options) -> Vec<Finding> {
    let mut findings = kernel::judge(facts);
    findings.extend(limits::judge(facts, &options.limits));
    findings.extend(identity::judge(facts, options.uids));
    findings.extend(settings::judge(facts));
    findings.extend(container::judge(facts));
    findings
}

/// Whether strict mode would start a task.
pub fn would_start(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| !finding.blocks)
}

/// What every start asks: the limits of this very task, on this host. Empty when all can be enforced.
pub fn strict_refusals(layout: &Layout, spec: &TaskSpec, devices: &Result<Devices, SysError>) -> Vec<String> {
    let mut findings = limits::controllers(layout);
    findings.push(limits::io(layout, devices));
    findings.push(limits::nofile(facts::nofile_hard(), spec.limits.nofile));
    refusals(findings)
}

/// What every launcher asks once: who it is, and whether the task uids belong to nobody.
pub fn launcher_refusals(uids: UidRange) -> Vec<String> {
    let identity = facts::Identity::gather();
    refusals(vec![
        identity::root(&identity),
        container::user_namespace(&facts::foreign_namespaces()),
        identity::capabilities(&identity),
        identity::mapped(&identity, uids),
        identity::allocated(&identity, uids),
    ])
}

/// What every server asks of its own uid.
pub fn server_refusals(uid: u32) -> Vec<String> {
    let identity = facts::Identity::gather();
    let mapped = identity::mapped(&identity, UidRange { first: uid, count: 1 });
    refusals(vec![mapped, identity::servers(&identity, uid)])
}

/// The same for a layout that could not be had at all.
pub fn layout_refusal(error: &LayoutError) -> String {
    limits::no_layout(error, facts::in_container()).refusal()
}

/// The same for one in which no group can be made.
pub fn group_refusals(layout: &Layout) -> Vec<String> {
    let unwritable = facts::unwritable(layout);
    let in_container = !unwritable.is_empty() && facts::in_container();
    refusals(vec![limits::writable(&unwritable, in_container)])
}

fn refusals(findings: Vec<Finding>) -> Vec<String> {
    findings.into_iter().filter(|finding| finding.blocks).map(|finding| finding.refusal()).collect()
}
