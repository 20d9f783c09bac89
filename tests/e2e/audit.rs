//! `taskman audit`: a full audit now, findings, and the whole of one; the same over the network and on the host.

use std::fs;
use std::path::PathBuf;

use nix::errno::Errno;
use serde_json::{Value, json};

use crate::support::{Process, Server, cgroups, wait_until};

/// A control group beside those of the tasks, and none of theirs. Gone with the test.
pub struct Elsewhere(PathBuf);

impl Elsewhere {
    pub fn beside(process: Process) -> Self {
        // No version 1 hierarchy has such a controller, so this is the group of version 2.
        let group = cgroups::directory(process, "unified");
        let name = format!("elsewhere-{}", group.file_name().unwrap().to_str().unwrap().rsplit_once('.').unwrap().1);
        let path = group.with_file_name(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Moves a process in; false if it is gone.
    pub fn take(&self, pid: i32) -> bool {
        match fs::write(self.0.join("cgroup.procs"), pid.to_string()) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_worker_on_which_all_is_well_has_nothing_to_tell() {
    let server = Server::of_uids(1_910_110_000);
    server.task(&["--", "sleep", "1000"]);
    for output in [server.taskman("admin", &["audit", "run"]), server.here(&["audit", "run"])] {
        let text = output.said(0);
        assert!(text.starts_with("nothing was found: 1 tasks, "), "{text}");
    }
    let seen = server.taskman("admin", &["audit", "run", "--output", "json"]).json(0);
    assert_eq!((&seen["findings"], &seen["leftovers"], &seen["tasks"]), (&json!([]), &json!([]), &1.into()));
    assert!(seen["processes"].as_u64().is_some_and(|count| count >= 2), "init and sleep: {seen}");
    assert_eq!(server.taskman("admin", &["audit", "findings", "--output", "json"]).json(0), json!({"findings": []}));
    assert_eq!(server.here(&["audit", "findings"]).said(0), "nothing was found so far\n");
    for id in ["20260102-030405678-00000000", "x"] {
        server.taskman("admin", &["audit", "show", id]).assert_refused(125, &["audit findings"]);
        server.here(&["audit", "show", id]).assert_refused(125, &["audit findings"]);
    }
    server.taskman("admin", &["audit", "show", "../x"]).assert_refused(125, &["is not a finding's id"]);
}

#[test]
fn what_was_found_is_told_alike_by_the_server_and_on_the_host_and_stands_in_the_audit_log_once() {
    let mut server = Server::of_uids(1_910_111_000);
    let task = server.task(&["--", "sleep", "1000"]);
    let pid = server.status(&task)["process_id"].as_i64().unwrap() as i32;
    let elsewhere = Elsewhere::beside(Process { pid });
    assert!(elsewhere.take(pid));
    let ended = server.ended(&task);
    assert_eq!(ended["outcome"]["reason"], "containment", "{ended:#}");
    let listed = wait_until("the finding is listed", || {
        let seen = server.taskman("admin", &["audit", "findings", "--output", "json"]).json(0);
        seen["findings"].as_array().unwrap().first().cloned()
    });
    assert_eq!((&listed["kind"], &listed["task"]), (&"orphan_detected".into(), &Value::from(&*task)), "{listed}");
    assert_eq!((&listed["owner"], &listed["pid"]), (&"client001".into(), &pid.into()), "{listed}");
    let id = listed["id"].as_str().unwrap().to_owned();
    let table = server.taskman("admin", &["audit", "findings"]).said(0);
    assert!(table.contains(&id) && table.contains("orphan_detected") && table.contains(&task), "{table}");

    let show = ["audit", "show", &id];
    let incident = wait_until("what was done is written down", || {
        let seen = server.taskman("admin", &[&show[..], &["--output", "json"]].concat()).json(0);
        (!seen["actions"].as_array().unwrap().is_empty()).then_some(seen)
    });
    assert_eq!(incident["process"]["cmdline"], json!(["sleep", "1000"]));
    assert_eq!(incident["proven_ours"], true);
    let report = server.taskman("admin", &show).said(0);
    for part in ["orphan_detected", "client001", &task, "sleep 1000", "ANCESTRY", "CGROUP", "NAMESPACES", "ACTIONS"] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    let seen = server.taskman("admin", &["health", "--output", "json"]).json(1);
    assert_eq!((&seen["status"], &seen["findings"]), (&"quarantined".into(), &1.into()), "{seen}");
    assert_eq!((&seen["reason"], &seen["by"]), (&"orphan".into(), &"auditor".into()), "{seen}");

    server.stop();
    assert_eq!(server.here(&show).said(0), report, "the same report without a server");
    assert_eq!(server.here(&["audit", "findings"]).said(0), table);
    server.restart();
    server.kill();
    server.restart();
    server.taskman("admin", &["health"]).said(1);
    server.stop();
    let lines = server.journalled();
    assert_eq!(lines[0], json!([1, "finding", "auditor", "orphan_detected", format!("incident {id}, of client001")]));
    assert_eq!((&lines[1][1], &lines[1][3]), (&"quarantine".into(), &"orphan".into()), "{lines:?}");
    assert_eq!(lines.len(), 2, "once, over restarts: {lines:?}");
}
