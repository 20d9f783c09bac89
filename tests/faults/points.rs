//! The points of each way a task can go, as the processes themselves have noted them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::run::{LAST, WORK};

/// Points that were passed, in order, by a task that …
#[derive(Default)]
pub struct Traces {
    /// … ran by `taskman run`;
    pub run: Vec<String>,
    /// … could not be started by it;
    pub failed_run: Vec<String>,
    /// … ran in a sandbox that was parked;
    pub parked_run: Vec<String>,
    /// … ran beside the leftovers of another;
    pub sweeping_run: Vec<String>,
    /// … ran by the service;
    pub service: Vec<String>,
    /// … could not be started by it.
    pub failed_service: Vec<String>,
    /// And those of the service's own start.
    pub begun: Vec<String>,
}

impl Traces {
    pub fn all(&self) -> [&Vec<String>; 7] {
        let Self { run, failed_run, parked_run, sweeping_run, service, failed_service, begun } = self;
        [run, failed_run, parked_run, sweeping_run, service, failed_service, begun]
    }
}

/// Whether the command may have been executed when a process stands at `point`: only once the launcher has let it, and the
/// child has nothing more to do.
pub fn may_run_at(point: &str) -> bool {
    const BEFORE: [&str; 10] =
        ["begin", "admitted", "uid", "cgroup-made", "cgroup", "prepared", "created", "halves", "limits", "parked"];
    match point.split_once('.') {
        Some(("launcher", name)) => !BEFORE.contains(&name),
        Some(("server", name)) => name != "recorded",
        Some(("confine" | "init" | "payload", _)) => false,
        _ => true,
    }
}

/// A command that comes to `point`, and that lasts if it can.
pub fn command_until(point: &str) -> &'static [&'static str] {
    const ENDED: [&str; 10] = [
        "launcher.over",
        "launcher.killed",
        "launcher.reaped",
        "launcher.measured",
        "launcher.halves-removed",
        "launcher.removed",
        "launcher.proved",
        "server.ended",
        "server.flushed",
        "server.final",
    ];
    if ENDED.contains(&point) { &WORK } else { &LAST }
}

/// Whether a sandbox has its first process at `point`, which begins as `confine` and becomes `init`.
pub fn has_init(point: &str) -> bool {
    ["confine.", "init.", "payload."].iter().any(|role| point.starts_with(role))
}

/// Whether the sandbox's first process dies with its launcher when one of the sandbox stands at `point`: from its first step on,
/// but for the moment after it has changed its credentials, which clears the signal.
pub fn is_armed_at(point: &str) -> bool {
    has_init(point) && !["confine.begin", "init.identity"].contains(&point)
}

/// Whether it has its second one too.
pub fn has_payload(point: &str) -> bool {
    ["init.", "payload."].iter().any(|role| point.starts_with(role))
}

/// Whether a start error says that a process of the sandbox died: the launcher's words, or those of the payload that waited
/// for its init in vain.
pub fn tells_of_a_death(error: &str) -> bool {
    error.contains("killed from outside") || error.contains("sandbox-init could not be started")
}

/// The points of `all` that `known` has not, numbered as in `all`.
pub fn beyond<'a>(all: &'a [String], known: &[String]) -> Vec<(usize, &'a String)> {
    all.iter().enumerate().filter(|(_, point)| !known.contains(point)).collect()
}

/// A point has one name, so that the name means one place.
#[track_caller]
pub fn assert_unique(trace: &[String]) {
    let unique: BTreeSet<&String> = trace.iter().collect();
    assert_eq!(unique.len(), trace.len(), "a point is passed twice: {trace:?}");
}

/// The names of all points in the sources.
pub fn in_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = fs::read_to_string(&entry).unwrap_or_default();
            for call in ["fault::point(\"", " step(\""] {
                let calls = text.match_indices(call).map(|(at, _)| &text[at + call.len()..]);
                names.extend(calls.filter_map(|rest| rest.split_once('"')).map(|(name, _)| name.to_owned()));
            }
        }
    }
    names
}
