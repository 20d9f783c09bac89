//! Sandboxes that stand ready: a task that gets one is a task like any other, and one that nobody comes for leaves nothing.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::scrape::{scrape, series};
use crate::support::supervisor::send;
use crate::support::{Process, Server, cgroups};

/// A server that tells what stands ready, and does not end it before it is asked to.
fn server(warm: &str) -> Server {
    Server::configured(&format!("metrics_address = \"localhost:0\"\n[warm]\n{warm}\n"))
}

#[track_caller]
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    crate::support::wait_until(what, || is().then_some(()));
}

fn ready(server: &Server) -> usize {
    series(&scrape(server))["taskman_warm_slots"] as usize
}

/// Tasks whose sandbox stood ready, and tasks whose sandbox was built for them.
fn starts(server: &Server) -> (usize, usize) {
    let series = series(&scrape(server));
    let count = |how: &str| series[&format!("taskman_warm_starts_total{{sandbox=\"{how}\"}}")] as usize;
    (count("ready"), count("built"))
}

/// Sandboxes that have ever stood ready.
fn built(server: &Server) -> usize {
    series(&scrape(server))["taskman_warm_build_seconds_count"] as usize
}

/// Starts a task that lasts, and waits until a sandbox of its shape has been built ahead.
fn first(server: &Server, options: &[&str]) -> (String, Process) {
    let task = server.task(&[options, &["--", "sleep", "600"]].concat());
    // Not for one that stands: where it is soon given up, a slow host would never see it.
    wait_until("a sandbox has been built", || built(server) > 0);
    let process = process(server, &task);
    (task, process)
}

fn process(server: &Server, task: &str) -> Process {
    Process { pid: server.status(task)["process_id"].as_i64().unwrap() as i32 }
}

/// The version 2 directories of this server's tasks, and of sandboxes for them; `one` is a process of a task.
fn groups(one: &Path) -> Vec<PathBuf> {
    let name = one.file_name().unwrap().to_str().unwrap();
    let (instance, _) = name.split_once('.').expect("instance and task");
    let beside = std::fs::read_dir(one.parent().unwrap()).unwrap().flatten().map(|entry| entry.path());
    beside.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{instance}."))).collect()
}

fn members(group: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// What of a process says how it is confined.
fn confinement(process: Process) -> Vec<String> {
    let fields = ["Groups", "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let limits = ["Max open files", "Max file size", "Max core file size", "Max pending signals"];
    let fields = fields.iter().map(|field| format!("{field} {}", process.status(field)));
    let limits = limits.iter().map(|name| format!("{name} {:?}", process.limit(name)));
    let score = format!("oom_score_adj {}", process.read("oom_score_adj"));
    fields.chain(limits).chain([score]).collect()
}

#[test]
fn a_task_whose_sandbox_stood_ready_is_a_task_like_any_other() {
    let server = server("slots = 4\nidle = \"10m\"");
    let (_, cold) = first(&server, &[]);
    let words = ["--workdir", "/tmp", "--env", "A=of the request", "--timeout", "5m", "--"];
    let script = "echo \"$PWD $A $TASKMAN_TASK_ID $(id -u) $(find /task /tmp -mindepth 1 | wc -l)\"; exec sleep 600";
    let task = server.task(&[&words[..], &["sh", "-c", script]].concat());
    assert_eq!(starts(&server), (1, 1));
    let warm = process(&server, &task);
    assert_eq!(confinement(warm), confinement(cold));
    assert_ne!(warm.uid(), cold.uid());
    for kind in ["pid", "mnt", "net", "ipc", "uts", "cgroup", "time"] {
        let of = |process: Process| process.link(&format!("ns/{kind}"));
        assert_ne!(of(warm), of(cold), "{kind}");
        assert_ne!(of(warm), of(Process::own()), "{kind}");
    }
    for controller in ["memory", "pids", "cpu", ""] {
        let group = cgroups::directory(warm, controller);
        assert!(group.to_str().unwrap().ends_with(&task), "{controller}: {}", group.display());
    }
    let limit = |process| cgroups::read(process, "memory", &["memory.max", "memory.limit_in_bytes"]);
    assert_eq!(limit(warm), limit(cold));
    let line = format!("/tmp of the request {task} {} 0\n", warm.uid());
    wait_until("it has written", || server.text("client001", &["stream", "--no-follow", &task]) == line);
    server.text("client001", &["stop", &task, "--grace", "0s"]);
    let ended = server.ended(&task);
    assert_eq!(ended["containment"]["verdict"], "proven", "{ended}");
    assert_eq!(ended["limits"]["timeout_ms"], 300_000, "{ended}");
}

#[test]
fn a_command_that_cannot_be_executed_is_told_as_from_a_sandbox_built_for_it() {
    let server = server("slots = 4\nidle = \"10m\"");
    first(&server, &[]);
    for (command, code) in [("/no/such/command", 127), ("no-such-command", 127), ("/etc/passwd", 126)] {
        wait_until("a sandbox stands ready", || ready(&server) > 0);
        server.taskman("client001", &["start", "--", command]).assert_refused(code, &["taskman: error: ", command]);
    }
    wait_until("a sandbox stands ready", || ready(&server) > 0);
    let refused = server.taskman("client001", &["start", "--workdir", "/no/such", "--", "true"]);
    refused.assert_refused(125, &["/no/such", "--workdir"]);
    assert_eq!(starts(&server), (0, 1), "none of them became a task");
}

#[test]
fn tasks_of_another_shape_get_a_sandbox_of_their_own() {
    let server = server("slots = 4\nidle = \"10m\"");
    first(&server, &[]);
    for (number, options) in
        [&["--memory", "64M"][..], &["--hostname", "other"], &["--split-output"]].iter().enumerate()
    {
        let task = server.task(&[options, &["--", "sh", "-c", "hostname; exec sleep 600"][..]].concat());
        assert_eq!(starts(&server), (0, 2 + number), "{options:?}");
        assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
    }
    // What does not fit through in one piece does not wait for a sandbox that stands ready.
    let long = "x".repeat(100_000);
    let task = server.task(&["--", "sh", "-c", "echo ${#0}", &long]);
    assert_eq!(server.ended(&task)["outcome"]["exit_code"], 0);
    assert_eq!(server.text("client001", &["stream", &task]), "100000\n");
    assert_eq!(starts(&server), (0, 5));
}

#[test]
fn a_sandbox_that_dies_while_it_waits_costs_nobody_a_task() {
    let server = server("slots = 1\nidle = \"10m\"");
    let (_, cold) = first(&server, &[]);
    let group = cgroups::directory(cold, "");
    // Whatever is seen first, its death or the request: so several times.
    for victim in [0, 1, 0, 1, 0, 1, 0, 1] {
        wait_until("a sandbox stands ready", || ready(&server) > 0);
        let slot = groups(&group).into_iter().find(|path| *path != group).expect("the group of a sandbox");
        let pids = members(&slot);
        assert_eq!(pids.len(), 2, "{pids:?}");
        send(Process { pid: pids[victim] }, Signal::SIGKILL);
        let task = server.task(&["--", "echo", "all the same"]);
        assert_eq!(server.ended(&task)["containment"]["verdict"], "proven");
        assert_eq!(server.text("client001", &["stream", &task]), "all the same\n");
        wait_until("it is gone", || !slot.exists());
    }
    assert_eq!(starts(&server).0 + starts(&server).1, 9);
}

/// It was given the command, and has not read it.
#[test]
fn a_sandbox_that_dies_with_its_command_costs_nobody_a_task() {
    let server = server("slots = 1\nidle = \"10m\"");
    let (_, cold) = first(&server, &[]);
    let group = cgroups::directory(cold, "");
    wait_until("a sandbox stands ready", || ready(&server) > 0);
    let slot = groups(&group).into_iter().find(|path| *path != group).expect("the group of a sandbox");
    let pids = members(&slot);
    assert_eq!(pids.len(), 2, "{pids:?}");
    pids.iter().for_each(|pid| send(Process { pid: *pid }, Signal::SIGSTOP));
    let mut start = server.begin("client001", &["start", "--follow", "--", "echo", "all the same"]);
    wait_until("it is taken", || ready(&server) == 0);
    assert!(
        !start.ends_within(std::time::Duration::from_millis(200)),
        "it was executed by a process that stands still"
    );
    send(Process { pid: pids[0] }, Signal::SIGKILL);
    assert_eq!(start.line(), "all the same");
    assert_eq!(start.end().status.code(), Some(0));
    assert_eq!(starts(&server), (0, 2));
    wait_until("it is gone", || !slot.exists());
}

#[test]
fn what_nobody_comes_for_is_ended_and_nothing_of_it_is_left() {
    let server = server("slots = 4\nidle = \"300ms\"");
    let (task, process) = first(&server, &[]);
    let group = cgroups::directory(process, "");
    wait_until("only the task is left", || ready(&server) == 0 && groups(&group) == [group.clone()]);
    assert_eq!(server.status(&task)["status"], "JOB_STATUS_STARTED");
}

#[test]
fn a_quarantined_worker_keeps_nothing_ready() {
    let server = server("slots = 4\nidle = \"10m\"");
    let (_, process) = first(&server, &[]);
    let group = cgroups::directory(process, "");
    server.taskman("admin", &["health", "--quarantine", "--reason", "a drill", "--output", "json"]).json(0);
    wait_until("only the task is left", || ready(&server) == 0 && groups(&group) == [group.clone()]);
    server.taskman("client001", &["start", "--", "true"]).assert_refused(125, &["quarantine"]);
}

#[test]
fn with_the_service_go_the_sandboxes_that_stand_ready() {
    for end in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut server = server("slots = 4\nidle = \"10m\"");
        let (task, process) = first(&server, &[]);
        let group = cgroups::directory(process, "");
        let slot = groups(&group).into_iter().find(|path| *path != group).expect("the group of a sandbox");
        assert_eq!(members(&slot).len(), 2);
        server.text("client001", &["stop", &task, "--grace", "0s"]);
        if end == Signal::SIGTERM {
            let ended = server.stop();
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
            assert!(groups(&group).is_empty());
        } else {
            server.kill();
        }
        wait_until("its processes are gone", || members(&slot).is_empty());
    }
}

#[test]
fn without_slots_nothing_stands_ready_and_shapes_that_show_the_hosts_paths_never_do() {
    let none = server("slots = 0");
    let task = none.task(&["--", "sleep", "600"]);
    let group = cgroups::directory(process(&none, &task), "");
    assert_eq!((none.ended_of_many(3), starts(&none)), (3, (0, 4)));
    assert_eq!(groups(&group), std::slice::from_ref(&group));

    let text = "metrics_address = \"localhost:0\"\n[profiles.default]\nbind_ro = [\"/etc/ssl\"]\n";
    let server = Server::configured(text);
    for _ in 0..3 {
        let task = server.task(&["--bind-ro", "/etc/ssl:/shown", "--", "ls", "/shown"]);
        assert_eq!(server.ended(&task)["outcome"]["exit_code"], 0);
    }
    assert_eq!((starts(&server), ready(&server)), ((0, 3), 0));
}

impl Server {
    /// Runs so many tasks one after the other, and counts those that end well.
    fn ended_of_many(&self, count: usize) -> usize {
        let well = |ended: Value| ended["outcome"]["exit_code"] == 0 && ended["containment"]["verdict"] == "proven";
        (0..count).filter(|_| well(self.ended(&self.task(&["--", "true"])))).count()
    }
}
