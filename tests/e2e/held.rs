//! The launcher waits for nobody: it goes on whoever holds a lock, a pipe or a socket that it uses, and while it does not, the
//! service says that it takes no tasks.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::rpc::{channel, identity, on};
use crate::support::supervisor::{SERVER_UID, Stopped, nonce};
use crate::support::{Server, wait_until};

/// Waits for the lock of `path` as this user, and keeps it; where the user may not open it, it ends at once.
struct Holder(Child);

impl Holder {
    fn new(path: &PathBuf, uid: u32) -> Self {
        let mut flock = Command::new("flock");
        flock.arg(path).args(["sleep", "1000"]).uid(uid).gid(uid).stderr(Stdio::null());
        // In a group of its own: it is killed with the program that it starts.
        Self(flock.process_group(0).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        self.0.wait().unwrap();
    }
}

#[test]
fn the_launcher_goes_on_whoever_holds_what_it_uses() {
    let server = Server::of_uids(1_910_120_000);
    let nonce = nonce();
    let traces = server.traces(&nonce);
    let task = server.marked(&nonce, &["--timeout", "6s"], "trap '' TERM");
    let state = server.state();
    let mut objects: Vec<PathBuf> = traces.groups().into_iter().collect();
    assert!(!objects.is_empty());
    let bases: Vec<PathBuf> = objects.iter().map(|group| group.parent().unwrap().to_owned()).collect();
    objects.extend(bases);
    objects.extend(["/run/taskman", "/run/taskman/uids", "/run"].map(PathBuf::from));
    objects.extend(["", "server", "instance", "containment.jsonl", "incidents"].map(|name| state.join(name)));
    // Root's alone: an operator's command that is stopped while it writes.
    let journal = File::options().append(true).create(true).open(state.join("containment.jsonl")).unwrap();
    journal.lock().unwrap();
    let holders: Vec<Holder> =
        objects.iter().flat_map(|path| [65_534, SERVER_UID].map(|uid| Holder::new(path, uid))).collect();
    {
        // The server does not read what it is told, nor does it hand over what it is asked.
        let _stopped = Stopped::new(server.half());
        wait_until("the task is ended at its limit", || traces.processes().is_empty().then_some(()));
        wait_until("its groups are gone", || traces.groups().is_empty().then_some(()));
    }
    assert_eq!(server.ended(&task)["outcome"]["reason"], "wall_time");
    for _ in 0..5 {
        let next = server.task(&["--", "true"]);
        assert_eq!(server.ended(&next)["containment"]["verdict"], "proven");
    }
    assert_eq!(server.taskman("admin", &["health", "--output", "json"]).json(0)["status"], "healthy");
    drop(holders);
}

#[test]
fn a_launcher_that_stands_still_is_not_healthy() {
    let server = Server::of_uids(1_910_121_000);
    let serving = || {
        on(async {
            let channel = channel(&server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap();
            HealthClient::new(channel).check(HealthCheckRequest::default()).await.unwrap().into_inner().status()
        })
    };
    assert_eq!(serving(), ServingStatus::Serving);
    let here = server.here(&["health", "--output", "json"]).json(0);
    assert!(here["status"] == "healthy" && here["heartbeat_age_ms"].is_u64(), "{here}");
    {
        let _stopped = Stopped::new(server.launcher());
        wait_until("gRPC health says no", || (serving() == ServingStatus::NotServing).then_some(()));
        let seen = server.taskman("admin", &["health", "--output", "json"]).json(1);
        assert!(seen["heartbeat_age_ms"].as_u64().unwrap() >= 5000 && seen["can_accept"] == false, "{seen}");
        assert!(seen["refusal"].as_str().unwrap().contains("last heard"), "{seen}");
        assert_eq!(seen["status"], "stalled", "{seen}");
        let here = server.here(&["health", "--output", "json"]).json(1);
        assert!(here["status"] == "stalled" && here["can_accept"] == false, "{here}");
        assert!(here["refusal"].as_str().unwrap().contains("has not answered"), "{here}");
        let (_, why) = server.try_start().unwrap_err();
        assert!(why.contains("last heard"), "{why}");
    }
    wait_until("it takes tasks again", || server.try_start().ok());
    wait_until("gRPC health says yes", || (serving() == ServingStatus::Serving).then_some(()));
}
