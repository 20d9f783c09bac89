//! The default profile is a machine of the task's own size: the usual tools work and show its limits, not the host's.

use std::fs;

use taskman::sandbox::procfs::{PASS_THROUGH, SYNTHETIC};

use crate::support::Run;

#[test]
fn ps_shows_the_tasks_own_processes() {
    let script = "sleep 60 & until grep -q sleep /proc/$!/cmdline; do :; done; ps aux; exit 0";
    let text = Run::sh(script).end().ok();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("USER"), "{text}");
    let command = |line: &&str| line.split_whitespace().skip(10).collect::<Vec<_>>().join(" ");
    let commands: Vec<_> = lines[1..].iter().map(command).collect();
    assert_eq!(commands, ["taskman-init", &format!("sh -c {script}"), "sleep 60", "ps aux"], "{text}");
    assert!(lines[1..].iter().all(|line| line.starts_with("task ")), "{text}");
}

#[test]
fn top_works() {
    let ended = Run::command(&["top", "-bn1"]).with(&["--memory", "64M"]).end();
    let text = ended.ok();
    assert!(text.contains("Tasks:   2 total"), "{text}");
    assert!(text.contains("MiB Mem :     64.0 total"), "{text}");
    assert!(text.contains("MiB Swap:      0.0 total"), "{text}");
    assert!(text.contains(" taskman-i+\n"), "{text}");
}

#[test]
fn free_shows_the_memory_limit() {
    let text = Run::command(&["free", "-b"]).with(&["--memory", "64M"]).end().ok();
    let row = |name: &str| -> Vec<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    let memory = row("Mem:");
    assert_eq!(memory[0], 64 << 20, "{text}");
    assert!(memory[1..].iter().all(|value| *value <= 64 << 20), "{text}");
    assert_eq!(row("Swap:"), [0, 0, 0]);
}

#[test]
fn uptime_is_the_tasks_own() {
    let text = Run::command(&["cat", "/proc/uptime"]).end().ok();
    let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    assert!((0.0..30.0).contains(&seconds), "{text}");
    let text = Run::command(&["uptime"]).end().ok();
    assert!(text.contains("up 0 min"), "{text}");
    assert!(text.contains("load average: "), "{text}");
}

#[test]
fn nproc_shows_the_processor_limit() {
    assert_eq!(Run::command(&["nproc"]).with(&["--cpus", "1"]).end().ok(), "1\n");
    assert_eq!(Run::command(&["nproc"]).with(&["--cpus", "0.5"]).end().ok(), "1\n");
    let host = std::thread::available_parallelism().unwrap().get();
    let wanted = host.min(2).to_string() + "\n";
    assert_eq!(Run::command(&["nproc"]).with(&["--cpus", "1.5"]).end().ok(), wanted);
    assert_eq!(
        Run::command(&["grep", "-c", "^processor", "/proc/cpuinfo"]).with(&["--cpus", "1.5"]).end().ok(),
        wanted
    );
    assert_eq!(Run::command(&["grep", "-c", "^cpu[0-9]", "/proc/stat"]).with(&["--cpus", "1"]).end().ok(), "1\n");
}

#[test]
fn node_sees_the_tasks_machine() {
    let program = "const os = require('os'); console.log(os.cpus().length, os.totalmem(), os.hostname(), os.uptime() < 30, \
        os.loadavg().length, os.cpus().every(c => c.model.length > 0))";
    let ended = Run::command(&["node", "-e", program]).with(&["--memory", "256M"]).end();
    assert_eq!(ended.ok(), format!("1 {} taskman true 3 true\n", 256 << 20));
}

#[test]
fn the_load_is_the_tasks_own_and_so_are_boot_time_and_counters() {
    let text = Run::sh("cat /proc/loadavg; grep -E '^(btime|processes|intr|ctxt)' /proc/stat; date +%s").end().ok();
    let btime = text.lines().find_map(|line| line.strip_prefix("btime ")).unwrap_or_else(|| panic!("{text}"));
    let now: i64 = text.lines().last().unwrap().parse().unwrap();
    assert!((now - btime.parse::<i64>().unwrap()).abs() <= 30, "the host's boot time: {text}");
}

#[test]
fn more_processors_than_the_host_has_are_not_shown() {
    let host = std::thread::available_parallelism().unwrap().get();
    let script = "nproc; grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat";
    let text = Run::sh(script).with(&["--cpus", "1000"]).end().ok();
    assert_eq!(text, format!("{host}\n").repeat(3));
}

#[test]
fn of_the_hosts_proc_only_the_documented_list_can_be_read() {
    let mut task = Run::echo().start();
    let payload = task.ready();
    let documented = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/proc.md")).expect("docs/proc.md");
    let listed: Vec<_> = PASS_THROUGH.iter().map(|(name, _)| *name).chain(SYNTHETIC).collect();
    for name in &listed {
        assert!(documented.contains(&format!("`{name}`")), "docs/proc.md does not name {name}");
    }
    let mut hidden = 0;
    for name in payload.list("root/proc") {
        let path = payload.path("root/proc").join(&name);
        let kind = fs::symlink_metadata(&path).unwrap();
        // Links lead to the reader's own process.
        if name.starts_with(|c: char| c.is_ascii_digit()) || kind.is_symlink() || listed.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "/proc/{name} can be listed");
        } else {
            assert_eq!(fs::metadata(&path).unwrap().len(), 0, "/proc/{name}");
            assert_eq!(fs::read(&path).unwrap(), b"", "/proc/{name} can be read");
        }
        hidden += 1;
    }
    assert!(hidden > 20, "only {hidden} entries were hidden: the search went wrong");
    // The figures in what taskman writes are the task's, so they differ from the host's.
    for name in ["meminfo", "stat"] {
        assert_ne!(payload.read(&format!("root/proc/{name}")), fs::read_to_string(format!("/proc/{name}")).unwrap());
    }
    task.end().ok();
}

#[test]
fn the_judge_profile_has_processes_and_nothing_more() {
    let ended = Run::sh("cd /proc && ls -d [!0-9]*; cat /proc/self/comm").with(&["--profile", "judge"]).end();
    assert_eq!(ended.ok(), "self\nthread-self\ncat\n");
}

#[test]
fn in_either_profile_other_processes_do_not_exist() {
    for profile in ["default", "judge"] {
        let ended = Run::sh("cd /proc && echo [0-9]*").with(&["--profile", profile]).end();
        assert_eq!(ended.ok(), "1 2\n");
    }
}
