//! The death of each process of the service, and of a task's own init, by SIGKILL; and a stop of each by SIGSTOP.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::supervisor::{Stopped, nonce, send};
use crate::support::{GUARD, Process, Server, pace, wait_until};

/// Two tasks of which nothing dies by itself, one that has ended, and what the server told of all three.
fn populated(server: &Server, nonce: &str) -> (Vec<String>, Value) {
    let ended = server.task(&["--label", "kind=ended", "--", "sh", "-c", "seq 1000; exit 3"]);
    let before = server.ended(&ended);
    let deaf = server.marked(nonce, &[], "trap '' TERM HUP INT; seq 5000");
    let daemon =
        server.marked(nonce, &["--label", "kind=daemon"], "setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' &");
    (vec![ended, deaf, daemon], before)
}

/// After `kill` nothing of the tasks runs, and after a restart all is told as it was.
fn dies(kill: impl FnOnce(&Server)) {
    let mut server = Server::start();
    let nonce = nonce();
    let (tasks, ended) = populated(&server, &nonce);
    let traces = server.traces(&nonce);
    // Two inits, two shells, their sleeps, and the daemon with its own, which nobody waits for.
    wait_until("every process runs", || (traces.processes().len() >= 8).then_some(()));
    let outputs: Vec<_> = tasks.iter().map(|task| server.output(task)).collect();
    kill(&server);
    traces.assert_dead_within(Duration::from_secs(2));
    assert_ne!(server.end().status.code(), Some(0));
    server.restart();
    traces.assert_nothing_left();
    let listed = server.list();
    assert_eq!(listed.iter().map(|task| task["task_id"].as_str().unwrap()).collect::<Vec<_>>(), tasks);
    assert_eq!(listed[0], ended, "a task that had ended");
    for running in &listed[1..] {
        assert_eq!(running["outcome"]["reason"], "server_lost", "{running:#}");
        assert_eq!(running["status"], "JOB_STATUS_UNKNOWN");
        assert_eq!(running["containment"]["verdict"], "unproven", "nobody was left to ask the kernel");
        assert_eq!((&running["owner"], &running["outcome"]["exit_code"]), (&"client001".into(), &Value::Null));
    }
    for (task, output) in tasks.iter().zip(outputs) {
        assert!(server.output(task) == output, "output was lost");
    }
    let next = server.task(&["--", "true"]);
    assert_eq!(server.ended(&next)["outcome"]["reason"], "exit");
    let traces = server.traces(&nonce);
    assert_eq!(server.stop().status.code(), Some(0));
    traces.assert_nothing_left();
}

#[test]
fn s01_a_killed_server_ends_all_its_tasks_and_nothing_is_forgotten() {
    dies(|server| send(server.half(), Signal::SIGKILL));
}

#[test]
fn s01_a_killed_launcher_ends_all_its_tasks_and_nothing_is_forgotten() {
    dies(|server| send(server.launcher(), Signal::SIGKILL));
}

#[test]
fn s01_both_killed_at_once_end_all_tasks_and_nothing_is_forgotten() {
    dies(|server| {
        let half = server.half();
        send(server.launcher(), Signal::SIGKILL);
        send(half, Signal::SIGKILL);
    });
}

/// The same probe where the kernel does not kill a sandbox with its launcher.
#[test]
fn s01_without_the_death_signal_tasks_outlive_their_launcher() {
    let mut server = Server::without("death-signal");
    let nonce = nonce();
    server.marked(&nonce, &[], "trap '' TERM HUP INT");
    let traces = server.traces(&nonce);
    let half = server.half();
    let reserved = traces.reserve();
    // Its last look would end what the death signal has not.
    let auditor = server.auditor();
    send(auditor, Signal::SIGSTOP);
    send(server.launcher(), Signal::SIGKILL);
    send(half, Signal::SIGKILL);
    send(auditor, Signal::SIGKILL);
    let locks: Vec<_> = reserved.into_iter().map(|lock| lock.join().unwrap()).collect();
    std::thread::sleep(Duration::from_secs(2));
    assert!(!traces.processes().is_empty(), "something else has killed them");
    server.end();
    drop(locks);
    server.restart();
    traces.assert_nothing_left();
}

#[test]
fn s03_a_killed_init_takes_its_task_along_and_no_other() {
    let server = Server::start();
    let nonce = nonce();
    let victim = server.marked(&nonce, &[], "setsid sleep 1000 & true");
    let other = server.marked(&nonce, &[], "true");
    let traces = server.traces(&nonce);
    let pid = server.status(&victim)["process_id"].as_i64().unwrap();
    let init: i32 = Process { pid: pid as i32 }.status("PPid").parse().unwrap();
    let all = traces.processes();
    send(Process { pid: init }, Signal::SIGKILL);
    let ended = server.ended(&victim);
    let outcome = &ended["outcome"];
    assert_eq!((&outcome["reason"], &outcome["exit_code"]), (&"containment".into(), &Value::Null), "{ended:#}");
    assert_eq!((&outcome["signal"], &ended["containment"]["verdict"]), (&"SIGKILL".into(), &"proven".into()));
    assert!(outcome["detail"].as_str().unwrap().contains("sandbox-init was killed"), "{ended:#}");
    assert_eq!(server.taskman("client001", &["wait", &victim]).status.code(), Some(125));
    // The other's init, shell and sleep.
    let left = traces.processes();
    assert_eq!((left.len(), left.is_subset(&all)), (3, true), "{left:?} of {all:?}");
    assert_eq!(server.status(&other)["status"], "JOB_STATUS_STARTED");
}

/// Resident memory in KiB; none of a process that is gone.
fn resident(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What a process has used, as its line in /proc counts it: in hundredths of a second.
fn cpu_time(pid: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').collect::<Vec<_>>()).unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse().ok()).unwrap_or(0u64);
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Stopped for fourteen seconds and not for a minute: some more than the longest limit of these tasks. Nothing counts the time but
/// their limits, so that a longer stop would only show a larger overshoot. The limits are longer than all starts together take;
/// what uses up its own begins to when the launcher is stopped.
#[test]
fn s04_while_the_launcher_is_stopped_kernel_limits_hold_and_then_time_is_enforced_and_told() {
    let server = Server::start();
    let sleeper = server.task(&["--timeout", "8s", "--", "sleep", "1000"]);
    let hog = "import time; time.sleep(8)\nx = []\nwhile True: x.append(bytearray(1 << 20))";
    let hog = server.task(&["--memory", "64M", "--", "/usr/bin/python3", "-c", hog]);
    let quick = server.task(&["--timeout", "12s", "--", "sh", "-c", "sleep 8; exit 5"]);
    let pid = |task: &str| server.status(task)["process_id"].as_i64().unwrap() as i32;
    let (sleeper_pid, hog_pid) = (pid(&sleeper), pid(&hog));
    let spin = "trap 'while :; do :; done' USR1; echo ready; while :; do sleep 0.1; done";
    let spinner = server.task(&["--cpu-time", "3s", "--", "sh", "-c", spin]);
    let spinner_pid = pid(&spinner);
    wait_until("the spinner is ready", || (server.output(&spinner) == b"ready\n").then_some(()));
    let stopped = Stopped::new(server.launcher());
    send(Process { pid: spinner_pid }, Signal::SIGUSR1);
    let began = Instant::now();
    let mut most = 0;
    // A busy host gives the spinner less than a CPU.
    while began.elapsed() < Duration::from_secs(14) || cpu_time(spinner_pid) < Duration::from_secs(4) {
        assert!(began.elapsed() < pace::time(GUARD), "the spinner has used {:?}", cpu_time(spinner_pid));
        most = most.max(resident(hog_pid).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Pages of libraries that others use too are resident, and not charged to it.
    assert!(most < 96 << 10, "{most} KiB resident with a limit of 64 MiB");
    assert!(Process { pid: sleeper_pid }.status("Name").contains("sleep"), "someone else enforced its timeout");
    // Who is stopped does not answer, and the others do: the API is the server's.
    assert_eq!(server.status(&sleeper)["status"], "JOB_STATUS_STARTED");
    drop(stopped);
    for (task, reason, overshoot) in [(&sleeper, "wall_time", 3000..60_000), (&spinner, "cpu_time", 500..60_000)] {
        let ended = server.ended(task);
        assert_eq!(ended["outcome"]["reason"], reason, "{ended:#}");
        let over = ended["usage"]["overshoot_ms"].as_u64().unwrap_or(0);
        assert!(overshoot.contains(&over), "{reason}: {over} ms over; {ended:#}");
        assert_eq!(ended["containment"]["verdict"], "proven");
    }
    let ended = server.ended(&hog);
    assert_eq!((&ended["outcome"]["reason"], &ended["usage"]["overshoot_ms"]), (&"oom".into(), &Value::Null));
    let peak = ended["usage"]["memory_peak_bytes"].as_u64().unwrap();
    assert!((32 << 20..65 << 20).contains(&peak), "{peak} bytes with a limit of 64 MiB");
    // It had ended by itself in time, however late that was seen.
    let ended = server.ended(&quick);
    assert_eq!((&ended["outcome"]["reason"], &ended["outcome"]["exit_code"]), (&"exit".into(), &5.into()), "{ended:#}");
}

#[test]
fn s04_while_the_server_is_stopped_the_launcher_enforces_time_and_nothing_is_lost() {
    let server = Server::start();
    let nonce = nonce();
    let env = format!("NONCE={nonce}");
    let sleeper = server.task(&["--timeout", "1s", "--env", &env, "--", "sh", "-c", "echo so far; sleep 1000"]);
    let traces = server.traces(&nonce);
    let half = server.half();
    let stopped = Stopped::new(half);
    let began = Instant::now();
    // Another second for a busy host.
    traces.assert_dead_within(Duration::from_millis(2500));
    std::thread::sleep(Duration::from_secs(3).saturating_sub(began.elapsed()));
    drop(stopped);
    let ended = server.ended(&sleeper);
    assert_eq!(ended["outcome"]["reason"], "wall_time", "{ended:#}");
    // Less than what the server has stood still for.
    let over = ended["usage"]["overshoot_ms"].as_u64().unwrap_or(0);
    assert!(over < 1500, "it was noticed in time: {ended:#}");
    assert_eq!(server.output(&sleeper), b"so far\n");
    let after = wait_until("tasks start again", || {
        let ended = server.taskman("client001", &["start", "--follow", "--", "echo", "on"]);
        (ended.text().ends_with("on\n")).then_some(ended)
    });
    assert_eq!(after.status.code(), Some(0));
}
