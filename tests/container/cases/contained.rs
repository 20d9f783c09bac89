//! With what is shipped, a task in a container is contained as one on the host is, below the container's own group and limit.

use std::process::Stdio;

use crate::container::{Container, Runtime};
use crate::findings::Examination;
use crate::probes;
use crate::support::hierarchies::Hierarchies;
use crate::support::{Process, cgroups, wait_until};

/// A run whose report is the last line.
const RUN: &str = "taskman run --report /tmp/report.json";

#[test]
fn the_doctor_passes_with_the_shipped_options_and_says_what_a_container_takes() {
    for runtime in Runtime::BOTH {
        let ended = Container::new(runtime).run("exec taskman doctor --output json");
        assert_eq!(ended.status.code(), Some(0), "{runtime:?}: {ended:?}");
        let examination = Examination::of(&ended);
        assert!(examination.starts());
        assert!(examination.with_status("missing").is_empty(), "{ended:?}");
        for name in ["capabilities", "system calls", "cgroups", "cgroup access", "user namespace", "security module"] {
            assert_eq!(examination.finding(name)["status"], "ok", "{runtime:?} {name}: {ended:?}");
        }
        let reduced = examination.with_status("reduced");
        for name in ["container", "auditor", "limit io"] {
            assert!(reduced.contains(&name), "{runtime:?} {name}: {ended:?}");
        }
        let seen = examination.finding("container")["seen"].as_str().unwrap();
        assert!(seen.starts_with("yes: ") && seen.ends_with("pid, cgroup"), "{seen}");
    }
}

#[test]
fn a_task_is_proven_contained_and_its_groups_are_below_the_containers() {
    for runtime in Runtime::BOTH {
        let script = format!("{RUN} -- cat; code=$?; cat /tmp/report.json; exit $code");
        let mut running = Container::new(runtime).start(&script, Stdio::piped());
        let name = running.container.name.clone();
        running.started().take_stdin();
        running.started().send(b"ready\n");
        assert_eq!(running.started().line(), "ready", "{runtime:?}");
        let of_task = |process: &Process| {
            let groups = std::fs::read_to_string(process.path("cgroup")).unwrap_or_default();
            groups.contains(&format!("/{name}/")) && groups.contains("/taskman-run-") && process.status("Name") == "cat"
        };
        let payload = wait_until("the payload is seen from the host", || Process::all().into_iter().find(of_task));
        Hierarchies::assert_holds(&name, payload);
        cgroups::assert_no_swap(payload, 512 << 20);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(0), "{runtime:?}: {ended:?}");
        ended.assert_proven();
        let reduced = ended.report()["reduced"].clone();
        let said: Vec<&str> = reduced.as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
        assert!(said.len() == 1 && said[0].starts_with("limit io: ") && said[0].contains("overlay"), "{said:?}");
        for dir in Hierarchies::detect().directories(&name) {
            assert!(!dir.exists(), "{runtime:?}: {} is left", dir.display());
        }
    }
}

#[test]
fn the_task_inside_has_no_more_than_one_on_the_host() {
    for runtime in Runtime::BOTH {
        let look = "id -u; hostname; grep -cE '^(Cap(Inh|Prm|Eff|Bnd|Amb):\\s0+|NoNewPrivs:\\s1|Seccomp:\\s2)$' /proc/self/status; \
                    cut -d: -f3 /proc/self/cgroup | sort -u; ls /proc/sys 2>&1; cat /proc/net/route | wc -l; ps -e -o pid= | wc -l";
        let ended = Container::new(runtime).run(&format!("{RUN} -- sh -c \"{look}\"; cat /tmp/report.json"));
        ended.assert_proven();
        let text = ended.text();
        let lines: Vec<&str> = text.lines().collect();
        let uid: u32 = lines[0].parse().unwrap_or_else(|_| panic!("{runtime:?}: {ended:?}"));
        assert!((1_920_000_000..1_920_001_024).contains(&uid), "{runtime:?}: {uid}");
        assert_eq!(lines[1..4], ["taskman", "7", "/"], "{runtime:?}: {ended:?}");
        // An empty directory, a network of its own without a route, and its own processes.
        assert_eq!(lines[4], "1", "{runtime:?}: {ended:?}");
        assert!(lines[5].trim().parse::<u32>().unwrap() <= 5, "{runtime:?}: {ended:?}");
    }
}

/// Whoever can write to `devices` of version 1 can give the container every device of the host.
#[test]
fn of_the_control_groups_only_those_with_limits_can_be_written() {
    for runtime in Runtime::BOTH {
        let writable = r#"find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs -writable -printf '%h\n'"#;
        let ended = Container::new(runtime).run(writable);
        let text = ended.text();
        assert!(ended.status.success() && !text.is_empty(), "{runtime:?}: {ended:?}");
        for line in text.lines() {
            let name = line.trim_start_matches("/sys/fs/cgroup").trim_start_matches('/');
            let used = ["", "unified", "taskman-launcher", "memory", "cpu", "pids", "blkio"];
            assert!(name.split(',').any(|name| used.contains(&name)), "{runtime:?}: {text}");
        }
    }
}

#[test]
fn the_containers_memory_limit_holds_for_its_tasks_and_kills_them_first() {
    for runtime in Runtime::BOTH {
        let container = Container::new(runtime).with(|config| {
            config["linux"]["resources"]["memory"]["limit"] = (128u64 << 20).into();
        });
        // More than the container has, less than the task may: whoever dies, it is not taskman.
        let take = "python3 -c 'x = bytearray(400 << 20)'";
        let ended = container.run(&format!("{RUN} --memory 512M -- {take}; code=$?; cat /tmp/report.json; exit $code"));
        ended.assert_outcome(137, "signaled", "SIGKILL", "oom");
        let peak = ended.number("/usage/memory_peak_bytes");
        // The kernel counts what it is about to give before it asks the groups above.
        assert!(peak <= 129 << 20, "{runtime:?}: {peak}");
        let detail = ended.report()["outcome"]["detail"].as_str().unwrap();
        assert!(detail.contains("a group above it"), "{runtime:?}: {detail}");
    }
}

#[test]
fn each_limit_of_a_task_holds_inside() {
    let probe = format!("probe() {{ {RUN} \"$@\" >/dev/null 2>&1; told $? /tmp/report.json; }}");
    for runtime in Runtime::BOTH {
        let ended = Container::new(runtime).run(&probes::script(&probe));
        assert_eq!(ended.status.code(), Some(0), "{runtime:?}: {ended:?}");
        probes::assert_held(&ended.text());
    }
}
