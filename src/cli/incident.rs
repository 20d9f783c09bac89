//! `taskman audit show`: one incident as the report that `runbooks/orphan-process.md` asks for.

use super::containment::{facts, moment};
use crate::client::one_line;
use crate::containment::{Incident, ProcessState};

/// The whole report, with a heading for each of its parts.
pub fn report(incident: &Incident) -> String {
    let or_unknown = |text: Option<String>| Some(text.unwrap_or_else(|| "unknown".to_owned()));
    let mut text = facts(&[
        ("INCIDENT", Some(incident.id.to_string())),
        ("KIND", Some(incident.kind.name().to_owned())),
        ("WHAT", Some(incident.what.clone())),
        ("DETECTED", Some(format!("{} by {}", moment(incident.detected_at), incident.detected_by))),
        ("TASK", or_unknown(incident.task.map(|task| task.to_string()))),
        ("OWNER", or_unknown(incident.owner.clone())),
        ("CAUSE", Some(format!("{}: {}", name(&incident.cause), incident.cause_detail))),
        ("PROVEN OURS", Some(if incident.proven_ours { "yes" } else { "no, so nothing was signalled" }.to_owned())),
    ]);
    text += &list("FAULTS", incident.faults.iter().map(String::clone));
    if let Some(process) = &incident.process {
        text += "\nPROCESS\n";
        text += &indented(&of_process(process));
        let ancestry = process.ancestry.iter();
        text += &list("ANCESTRY", ancestry.map(|one| format!("{} {} (uid {})", one.pid, one.comm, one.uid)));
        text += &list("CGROUP", process.cgroup.iter().map(String::clone));
        text += &list("NAMESPACES", process.namespaces.iter().map(|(name, inode)| format!("{name} {inode}")));
        text += &list("CAPABILITIES", process.capabilities.iter().map(|(set, bits)| format!("{set} {bits}")));
    }
    let actions = incident.actions.iter();
    text + &list("ACTIONS", actions.map(|done| format!("{}  {}: {}", moment(done.at), done.what, done.result)))
}

fn of_process(process: &ProcessState) -> String {
    let numbers = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let inside = process.nspid.iter().map(i32::to_string).collect::<Vec<_>>().join(" > ");
    facts(&[
        ("PID", Some(format!("{} (in its namespaces {inside})", process.pid))),
        ("STARTED", Some(format!("{} ticks after boot", process.start_time))),
        ("STATE", Some(process.state.clone())),
        ("COMMAND", Some(process.comm.clone())),
        ("PROGRAM", Some(process.exe.clone())),
        ("CMDLINE", Some(process.cmdline.join(" "))),
        ("UID", Some(format!("{} (real, effective, saved, file system)", numbers(&process.uid)))),
        ("GID", Some(numbers(&process.gid))),
        ("NO_NEW_PRIVS", Some(u8::from(process.no_new_privs).to_string())),
        ("SECCOMP", Some(process.seccomp.to_string())),
    ])
}

fn list(heading: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<_> = lines.map(|line| format!("  {}\n", one_line(&line))).collect();
    if lines.is_empty() { String::new() } else { format!("\n{heading}\n{}", lines.concat()) }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// As in JSON.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containment::{Action, Ancestor, Cause, IncidentId, Kind};

    #[test]
    fn the_report_has_every_part_that_the_runbook_asks_for() {
        let incident = Incident {
            id: IncidentId::new(1_767_323_045_678),
            kind: Kind::OrphanDetected,
            detected_at: 1_767_323_045_678,
            detected_by: "cgroup write by pid 7 (bash)".into(),
            what: "pid 42 is outside its group".into(),
            faults: vec!["cgroup: expected /a, seen /".into()],
            task: Some("a7da14c7-b47a-4535-a263-5bb26e503002".parse().unwrap()),
            owner: Some("ann".into()),
            process: Some(ProcessState {
                pid: 42,
                nspid: vec![42, 3],
                comm: "evil\u{1b}[2J".into(),
                cmdline: vec!["sleep".into(), "1000".into()],
                ancestry: vec![Ancestor { pid: 40, comm: "sandbox-init".into(), uid: 1_900_000_000 }],
                uid: [1_900_000_000; 4],
                capabilities: [("CapEff".to_owned(), "0000000000000000".to_owned())].into(),
                seccomp: 2,
                cgroup: vec!["0::/".into()],
                namespaces: [("pid".to_owned(), "pid:[4026532000]".to_owned())].into(),
                ..Default::default()
            }),
            thing: None,
            cause: Cause::MovedFromOutside,
            cause_detail: "pid 7 wrote it".into(),
            proven_ours: true,
            actions: vec![Action { at: 1_767_323_045_700, what: "SIGKILL to pid 42".into(), result: "gone".into() }],
        };
        let text = report(&incident);
        for part in [
            "KIND         orphan_detected\n",
            "DETECTED     2026-01-02 03:04:05.678 by cgroup write by pid 7 (bash)\n",
            "TASK         a7da14c7-b47a-4535-a263-5bb26e503002\n",
            "OWNER        ann\n",
            "CAUSE        moved_from_outside: pid 7 wrote it\n",
            "FAULTS\n  cgroup: expected /a, seen /\n",
            "  PID           42 (in its namespaces 42 > 3)\n",
            "  CMDLINE       sleep 1000\n",
            "  UID           1900000000 1900000000 1900000000 1900000000",
            "  SECCOMP       2\n",
            "ANCESTRY\n  40 sandbox-init (uid 1900000000)\n",
            "CGROUP\n  0::/\n",
            "NAMESPACES\n  pid pid:[4026532000]\n",
            "CAPABILITIES\n  CapEff 0000000000000000\n",
            "ACTIONS\n  2026-01-02 03:04:05.700  SIGKILL to pid 42: gone\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "a task's own words reach the terminal:\n{text}");
        let unknown = Incident { task: None, owner: None, process: None, proven_ours: false, ..incident };
        let text = report(&unknown);
        assert!(text.contains("OWNER        unknown\n") && !text.contains("PROCESS"), "{text}");
        assert!(text.contains("PROVEN OURS  no, so nothing was signalled\n"), "{text}");
    }
}
