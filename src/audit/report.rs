//! From a fault to an incident: everything that somebody will ask afterwards, read while it can still be read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use super::auditor::Source;
use super::facts::Facts;
use super::judge::Fault;
use crate::containment::{Ancestor, Cause, Incident, IncidentId, Kind, Leftover, ProcessState};
use crate::log;
use crate::task::record::now;

/// Ancestors that are written down.
const GENERATIONS: usize = 32;
/// Longest command line that is written down, in bytes: it is the payload's text.
const LONGEST: u64 = 4096;

/// The incident of a process.
pub fn incident(facts: &Facts, fault: &Fault, source: &Source) -> Incident {
    let detected_at = now();
    let (cause, cause_detail) = match source {
        // Whoever wrote is known, which beats every inference.
        Source::Write { writer, into } if fault.cause != Cause::NamespaceEscape => {
            (Cause::MovedFromOutside, format!("{writer} wrote it into {into}"))
        }
        _ => (fault.cause, fault.why.clone()),
    };
    Incident {
        id: IncidentId::new(detected_at),
        kind: fault.kind,
        detected_at,
        detected_by: source.to_string(),
        what: format!("process {} ({}): {}", facts.pid, log::plain(&facts.comm), fault.faults.join("; ")),
        faults: fault.faults.clone(),
        task: fault.task,
        owner: fault.owner.clone(),
        process: Some(state(facts)),
        thing: None,
        cause,
        cause_detail,
        proven_ours: fault.proven,
        actions: Vec::new(),
    }
}

/// The incident, and the fault, of something that is not a process.
pub fn of_thing(thing: &Leftover) -> (Incident, Fault) {
    let detected_at = now();
    let what = format!("{} {}: {}", thing.kind, thing.name, thing.detail);
    let why = "nothing that lives accounts for it".to_owned();
    let fault = Fault {
        kind: Kind::PostCleanupLeak,
        task: None,
        owner: None,
        group: None,
        uid: None,
        faults: vec![what.clone()],
        cause: Cause::SupervisorCrash,
        why: why.clone(),
        proven: true,
        grave: true,
    };
    let incident = Incident {
        id: IncidentId::new(detected_at),
        kind: fault.kind,
        detected_at,
        detected_by: Source::Scan.to_string(),
        what,
        faults: fault.faults.clone(),
        task: None,
        owner: None,
        process: None,
        thing: Some(thing.clone()),
        cause: fault.cause,
        cause_detail: why,
        proven_ours: true,
        actions: Vec::new(),
    };
    (incident, fault)
}

fn state(facts: &Facts) -> ProcessState {
    let directory = format!("/proc/{}", facts.pid);
    let names = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let hex = |(name, set): (&&str, u64)| (name.to_string(), format!("{set:016x}"));
    ProcessState {
        pid: facts.pid,
        nspid: facts.nspid.clone(),
        start_time: facts.start_time,
        state: facts.state.to_string(),
        comm: facts.comm.clone(),
        exe: fs::read_link(format!("{directory}/exe"))
            .map_or_else(|_| String::new(), |path| path.display().to_string()),
        cmdline: command_line(&format!("{directory}/cmdline")),
        ancestry: ancestry(facts),
        uid: facts.uid,
        gid: facts.gid,
        capabilities: names.iter().zip(facts.caps).map(hex).collect(),
        no_new_privs: facts.no_new_privs,
        seccomp: facts.seccomp,
        cgroup: facts.cgroup.clone(),
        namespaces: namespaces(&directory),
    }
}

/// The process itself says where in its memory this is, and how long: gigabytes, if it likes.
fn command_line(path: &str) -> Vec<String> {
    let mut bytes = Vec::new();
    // What cannot be read of it says nothing.
    let _ = fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn ancestry(facts: &Facts) -> Vec<Ancestor> {
    let mut line = Vec::new();
    let mut next = facts.ppid;
    while next > 0 && line.len() < GENERATIONS {
        let Some(parent) = Facts::read(next) else { break };
        next = parent.ppid;
        line.push(Ancestor { pid: parent.pid, comm: parent.comm, uid: parent.uid[0] });
    }
    line
}

fn namespaces(directory: &str) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(format!("{directory}/ns")) else { return BTreeMap::new() };
    let read = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().into_string().ok()?, target.display().to_string()))
    };
    entries.filter_map(|entry| read(entry.ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_without_end_is_cut() {
        // As long as nobody stops reading.
        assert!(command_line("/dev/zero").is_empty());
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "x".repeat(10_000)).unwrap();
        assert_eq!(command_line(file.path().to_str().unwrap()), ["x".repeat(LONGEST as usize)]);
    }
}
