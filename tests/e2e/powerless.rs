//! The network-facing process as the host sees it: nobody, with one directory to write to. And what somebody with its uid can
//! reach, should it be taken over.

use std::process::{Command, Stdio};

use crate::support::supervisor::SERVER_UID;
use crate::support::{GUARD, HostDir, Server, Started};

#[test]
fn the_server_process_has_no_privilege_and_holds_nothing_open_that_it_does_not_need() {
    let server = Server::start();
    let running = server.task(&["--", "sleep", "1000"]);
    let half = server.half();
    let ids = [SERVER_UID.to_string().as_str(); 4].join("\t");
    assert_eq!((half.status("Uid"), half.status("Gid"), half.status("Groups").as_str()), (ids.clone(), ids, ""));
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(half.status(set), "0000000000000000", "{set}");
    }
    assert_eq!((half.status("NoNewPrivs").as_str(), half.status("Seccomp").as_str()), ("1", "2"));
    for thread in half.list("task") {
        // The runtime's own threads come and go.
        let Ok(status) = std::fs::read_to_string(half.path(&format!("task/{thread}/status"))) else { continue };
        assert!(status.contains("\nSeccomp:\t2\n") && status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
    }
    let state = server.state();
    let state = state.to_str().unwrap();
    for target in half.descriptors() {
        let known = ["socket:", "pipe:", "anon_inode:", "/dev/null"].iter().any(|kind| target.starts_with(kind));
        // The directory itself is the lock.
        let own = target == format!("{state}/server") || target.starts_with(&format!("{state}/server/"));
        assert!(known || own, "it holds {target} open");
    }
    assert_eq!(server.status(&running)["status"], "JOB_STATUS_STARTED");
}

/// Runs a script as what the server is: its uid, no group, no capability, no way to gain any.
fn as_server(script: &str) -> String {
    let uid = SERVER_UID.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "--no-new-privs", "--bounding-set", "-all"]);
    command.args(["--inh-caps", "-all", "sh", "-c", script]).stdin(Stdio::null());
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    ended.text() + &ended.stderr
}

#[test]
fn whoever_has_the_servers_uid_reaches_neither_keys_nor_launcher_nor_tasks() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let (state, launcher) = (server.state().display().to_string(), server.launcher().pid);
    let payload = server.status(&task)["process_id"].as_i64().unwrap();
    // The control: its own it can reach.
    assert_eq!(as_server(&format!("echo x > {state}/server/probe && cat {state}/server/probe")), "x\n");
    let denied = |what: &str| {
        let said = as_server(&format!("{what} && echo REACHED"));
        let refused = ["ermission denied", "not permitted"];
        assert!(!said.contains("REACHED") && refused.iter().any(|text| said.contains(text)), "{what}: {said}");
    };
    for path in ["certs", "certs/ca.key", "certs/server.key", "certs/client001.key"] {
        denied(&format!("ls {state}/{path}/."));
        denied(&format!("cat {state}/{path}"));
    }
    for place in [&format!("{state}/x"), &format!("{state}/certs/x"), "/run/taskman/x", "/etc/x", "/usr/bin/x"] {
        denied(&format!("touch {place}"));
    }
    for pid in [i64::from(launcher), i64::from(server.half().pid), payload] {
        for name in ["mem", "environ", "fd/0", "maps"] {
            denied(&format!("head -c 1 /proc/{pid}/{name}"));
        }
        denied(&format!("ls /proc/{pid}/fd/ /proc/{pid}/root/"));
    }
    denied(&format!("kill -0 {launcher}"));
    denied(&format!("kill -0 {payload}"));
    denied(&format!("mv {state}/server {state}/moved"));
    denied(&format!("rmdir {state}/certs"));
    let groups = server.traces("none").groups();
    assert!(!groups.is_empty());
    for group in groups {
        denied(&format!("echo 1 > {}/cgroup.procs", group.display()));
    }
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
}
