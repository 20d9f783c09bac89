//! `taskman-server` in a container: start, stream, stop, and an auditor that says what it does not hear and finds all the same.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::container::{Container, Runtime, UIDS};
use crate::placement::Seen;
use crate::support::{Ended, GUARD, Process, pace};

/// Starts the server and waits until it answers.
fn server(then: &str) -> String {
    // Less than what the container as a whole is given, or nobody would be told.
    let patience = pace::time(GUARD).as_secs() / 2;
    format!(
        r#"
set -e
ip link set lo up
mkdir -m 700 /tmp/state
printf 'uid_range = "{UIDS}"\n[audit]\nscan = "60s"\n' >/tmp/server.toml
taskman-server --dev --config /tmp/server.toml --state-dir /tmp/state >/tmp/log 2>&1 & server=$!
export TASKMAN_CERTS=/tmp/state/certs
admin() {{ taskman "$@" --user-id admin; }}
# Again and again until it succeeds. What it said last, and what the server said, are told when it never does.
within() {{
  end=$(($(date +%s) + {patience}))
  until "$@" >/tmp/last 2>&1; do
    [ $(date +%s) -lt $end ] || {{ echo "never: $*"; cat /tmp/last /tmp/log; ps -eo pid,ppid,stat,user,args; exit 1; }} >&2
    sleep 0.05
  done
}}
within admin health
export TASKMAN_USER_ID=client001
{then}
kill -TERM $server
wait $server && echo "server ended"
"#
    )
}

#[track_caller]
fn ok(runtime: Runtime, ended: &Ended) -> String {
    assert_eq!(ended.status.code(), Some(0), "{runtime:?}: {ended:?}");
    ended.text()
}

#[test]
fn the_server_starts_streams_and_stops_tasks() {
    let script = server(
        r#"
taskman start --follow -- sh -c 'echo hello; exit 3' || echo "code $?"
id=$(taskman start --output json -- sh -c 'echo up; sleep 600' | grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' | head -1)
until taskman stream --no-follow "$id" | grep -q up; do sleep 0.05; done
taskman stop --grace 30s "$id" >/dev/null
taskman wait "$id" || echo "stopped $?"
taskman list --output json | tr ',' '\n' | grep '"verdict"'
"#,
    );
    for runtime in Runtime::BOTH {
        let text = ok(runtime, &Container::new(runtime).run(&script));
        assert!(text.contains("hello\n") && text.contains("code 3\n"), "{runtime:?}: {text}");
        assert!(text.contains("stopped 143\n") && text.ends_with("server ended\n"), "{runtime:?}: {text}");
        assert_eq!(text.matches(r#""verdict":"proven""#).count(), 2, "{runtime:?}: {text}");
    }
}

/// The launcher of the server in a container, as the host sees it: the parent of the other two.
fn launcher(container: &str) -> Process {
    let read = |process: &Process, name: &str| std::fs::read_to_string(process.path(name)).unwrap_or_default();
    let mut servers = Process::all();
    servers
        .retain(|process| read(process, "comm") == "taskman-server\n" && read(process, "cgroup").contains(container));
    let parent = |of: &Process, process: &Process| read(of, "status").contains(&format!("\nPPid:\t{}\n", process.pid));
    let children = |process: &Process| servers.iter().filter(|other| parent(other, process)).count();
    *servers.iter().max_by_key(|process| children(process)).expect("the server runs")
}

#[test]
fn a_task_is_in_its_group_before_its_first_instruction() {
    let tasks = if pace::slow() > 1 { 8 } else { 30 };
    let script = server(&format!(
        "echo ready; read -r line
         for task in $(seq {tasks}); do
           until said=$(taskman start --follow -- true </dev/null 2>&1); do
             case $said in *'the auditor '*'try again'*) sleep 0.2 ;; *) echo \"$said\"; exit 1 ;; esac
           done
         done
         echo started; read -r line"
    ));
    for runtime in Runtime::BOTH {
        let mut running = Container::new(runtime).start(&script, Stdio::piped());
        let name = running.container.name.clone();
        running.started().take_stdin();
        assert_eq!(running.started().line(), "ready", "{runtime:?}");
        let (launcher, done) = (launcher(&name).pid, AtomicBool::new(false));
        let seen = std::thread::scope(|scope| {
            let watcher =
                scope.spawn(|| Seen::watch(launcher, Duration::from_millis(2), || done.load(Ordering::Relaxed)));
            running.started().send(b"on\n");
            assert_eq!(running.started().line(), "started", "{runtime:?}");
            done.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        running.started().send(b"on\n");
        ok(runtime, &running.end());
        assert!(seen.is_inside(3), "{runtime:?}: {seen}");
    }
}

#[test]
fn the_auditor_says_what_it_does_not_hear_scans_sooner_and_finds_an_escape() {
    let script = server(
        r#"
admin health --output json
setpriv --reuid 1920000007 --regid 1920000007 --clear-groups sleep 600 & stray=$!
begun=$(date +%s%N)
while kill -0 $stray 2>/dev/null; do sleep 0.02; done
echo "killed after $(( ($(date +%s%N) - begun) / 1000000 )) ms"
until admin health | grep -q quarantined; do sleep 0.05; done
taskman start -- true 2>&1 || echo "refused $?"
"#,
    );
    for runtime in Runtime::BOTH {
        let text = ok(runtime, &Container::new(runtime).run(&script));
        let said = "watching without events: listen the proc connector: EPERM";
        assert!(text.contains(said) && text.contains("scanning every 1s instead"), "{runtime:?}: {text}");
        assert!(!text.contains("fanotify") && !text.contains("CAP_SYS_PTRACE"), "{runtime:?}: {text}");
        let killed = text.lines().find_map(|line| line.strip_prefix("killed after ")?.strip_suffix(" ms"));
        let killed: u64 = killed.unwrap_or_else(|| panic!("{runtime:?}: {text}")).parse().unwrap();
        // A second between two scans, and time for an emulated machine; without the sooner scans it would be up to sixty.
        assert!(killed < 20_000, "{runtime:?}: {killed} ms");
        assert!(text.contains("quarantined") && text.contains("refused "), "{runtime:?}: {text}");
    }
}

#[test]
fn a_server_that_was_killed_with_its_container_leaves_nothing_and_starts_again() {
    let script = server(
        r#"
taskman start -- sleep 600 >/dev/null
kill -KILL $server
wait $server || true
within flock -n /tmp/state true # its other half has seen it, and is gone
taskman-server --dev --config /tmp/server.toml --state-dir /tmp/state >>/tmp/log 2>&1 & server=$!
within admin health
taskman list --all --output json 2>/dev/null | tr ',' '\n' | grep -c server_lost || true
within admin health --verify-clean
echo clean
taskman start --follow -- echo again
"#,
    );
    for runtime in Runtime::BOTH {
        let text = ok(runtime, &Container::new(runtime).run(&script));
        assert!(text.contains("clean\n") && text.contains("again\n"), "{runtime:?}: {text}");
    }
}
