//! Every limit bites, with the kernel's own errno or its own reason, and what cannot be meant is refused by name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::support::{Ended, Run, cgroups, pace};

/// Makes a file grow by 64 KiB until that fails; prints the size reached and the errno.
const FILL: &str = "$| = 1; open(F, '>', $ARGV[0]) or die $!; my $b = 'x' x 65536; my $n = 0; \
    while (defined(my $w = syswrite(F, $b))) { $n += $w } printf qq(%d %d\\n), $n, $!+0;";

#[track_caller]
fn assert_oom(ended: &Ended) {
    assert_eq!(ended.report()["outcome"]["reason"], "oom", "{ended:?}");
    assert_eq!(ended.status.code(), Some(137));
    ended.assert_proven();
}

#[test]
fn the_report_states_every_limit_and_its_default() {
    let ended = Run::command(&["true"]).end();
    let wanted = serde_json::json!({
        "memory_bytes": 512 << 20, "cpus": 1.0, "cpu_time_ms": 600_000, "timeout_ms": 600_000, "pids": 128,
        "io_read_bps": 256 << 20, "io_write_bps": 256 << 20, "output_bytes": 64 << 20, "nofile": 1024,
        "fsize_bytes": 256 << 20, "disk_bytes": 256 << 20, "inodes": 16384,
    });
    assert_eq!(ended.report()["limits"], wanted);
    assert_eq!(ended.report()["reduced"], serde_json::json!([]));
}

#[test]
fn the_report_states_what_was_asked_for() {
    let ended = Run::command(&["true"])
        .with(&["--memory", "64M", "--cpus", "0.5", "--cpu-time", "2m", "--timeout", "1.5", "--pids", "9"])
        .with(&["--io-read-bps", "17M", "--io-write-bps", "16M", "--output-limit", "3K", "--nofile", "77"])
        .with(&["--fsize", "4K", "--disk", "5M", "--inodes", "66"])
        .end();
    let wanted = serde_json::json!({
        "memory_bytes": 64 << 20, "cpus": 0.5, "cpu_time_ms": 120_000, "timeout_ms": 1500, "pids": 9,
        "io_read_bps": 17 << 20, "io_write_bps": 16 << 20, "output_bytes": 3 << 10, "nofile": 77,
        "fsize_bytes": 4 << 10, "disk_bytes": 5 << 20, "inodes": 66,
    });
    assert_eq!(ended.report()["limits"], wanted);
    ended.ok();
}

#[test]
fn memory_within_the_limit_is_given_and_counted() {
    let ended =
        Run::command(&["perl", "-e", "my $x = 'a' x (40 << 20); print length $x"]).with(&["--memory", "128M"]).end();
    assert_eq!(ended.ok(), (40 << 20).to_string());
    let peak = ended.number("/usage/memory_peak_bytes");
    assert!((40 << 20..128 << 20).contains(&peak), "peak {peak}");
}

#[test]
fn memory_has_no_swap_to_hide_in() {
    let mut task = Run::echo().with(&["--memory", "64M"]).start();
    let payload = task.ready();
    cgroups::assert_no_swap(payload, 64 << 20);
    task.end().ok();
}

#[test]
fn files_in_memory_are_charged_as_memory() {
    for place in ["/dev/shm", "/tmp", "/task"] {
        let ended = Run::command(&["perl", "-e", FILL, &format!("{place}/x")])
            .with(&["--memory", "32M", "--disk", "256M"])
            .end();
        assert_oom(&ended);
    }
}

#[test]
fn cpus_is_a_share_of_the_clock() {
    let timeout = format!("{}s", pace::term(Duration::from_secs(5)).as_secs());
    let mut task = Run::sh("echo ready; (while :; do :; done) & while :; do :; done")
        .with(&["--cpus", "0.4", "--timeout", &timeout])
        .start();
    assert_eq!(task.line(), "ready");
    let (file, quota) = cgroups::read(task.payload(), "cpu", &["cpu.cfs_quota_us", "cpu.max"]);
    let share = if file == "cpu.max" {
        let mut words = quota.split(' ').map(|word| word.parse::<f64>().unwrap());
        words.next().unwrap() / words.next().unwrap()
    } else {
        let period = cgroups::read(task.payload(), "cpu", &["cpu.cfs_period_us"]).1;
        quota.parse::<f64>().unwrap() / period.parse::<f64>().unwrap()
    };
    assert_eq!(share, 0.4, "{file}: {quota}");
    let ended = task.end();
    let used = ended.cpu_ms();
    let share = used as f64 / ended.number("/usage/wall_ms") as f64;
    // Two spinners would take 2.0 of an idle machine; a busy one may give less than the share, never more.
    assert!((0.1..0.55).contains(&share), "two spinners got {share} of the clock");
}

#[test]
fn processor_time_is_summed_over_short_children() {
    let ended = Run::sh("while :; do /bin/true; done").with(&["--cpu-time", "400ms"]).end();
    ended.assert_outcome(124, "signaled", "SIGKILL", "cpu_time");
    let used = ended.cpu_ms();
    assert!((400..5400).contains(&used), "used {used} ms");
}

#[test]
fn processor_time_counts_all_processors() {
    let ended =
        Run::sh("(while :; do :; done) & while :; do :; done").with(&["--cpus", "2", "--cpu-time", "600ms"]).end();
    assert_eq!(ended.report()["outcome"]["reason"], "cpu_time", "{}", ended.report());
    let used = ended.cpu_ms();
    assert!((600..5600).contains(&used), "used {used} ms");
}

#[test]
fn the_last_process_too_many_is_refused_with_eagain() {
    // 16 = the payload and 15 children; init is taskman's and not counted.
    let program = "$| = 1; my $n = 0; while (1) { my $p = fork; if (!defined $p) { printf qq(%d %d\\n), $n, $!+0; last } \
        if ($p == 0) { sleep 60; exit } $n++; last if $n > 100 }";
    let ended = Run::command(&["perl", "-e", program]).with(&["--pids", "16"]).end();
    assert_eq!(ended.ok(), format!("15 {}\n", nix::libc::EAGAIN));
    assert_eq!(ended.number("/usage/pids_peak"), 16);
    assert!(ended.report()["outcome"]["detail"].as_str().unwrap().contains("left 15 processes"));
}

#[test]
fn io_bandwidth_stands_on_the_disk_behind_usr() {
    let mut task = Run::echo().with(&["--memory", "20M", "--io-read-bps", "7M", "--io-write-bps", "5M"]).start();
    let payload = task.ready();
    let disk = disk_behind("/usr");
    let (file, content) = cgroups::read(payload, "blkio", &["blkio.throttle.read_bps_device", "io.max"]);
    if file == "io.max" {
        let line = content
            .lines()
            .find(|line| line.starts_with(&format!("{disk} ")))
            .unwrap_or_else(|| panic!("{disk}: {content}"));
        assert!(line.contains(&format!("rbps={}", 7 << 20)) && line.contains(&format!("wbps={}", 5 << 20)), "{line}");
    } else {
        assert_eq!(content, format!("{disk} {}", 7 << 20));
        let content = cgroups::read(payload, "blkio", &["blkio.throttle.write_bps_device"]).1;
        assert_eq!(content, format!("{disk} {}", 5 << 20));
    }
    task.end().ok();
}

/// Major and minor number of the whole disk that holds `path`: the kernel throttles disks, not partitions.
fn disk_behind(path: &str) -> String {
    let device = fs::metadata(path).unwrap().dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let node = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).expect("/usr lies on a block device");
    let whole = if node.join("partition").exists() { node.parent().unwrap().to_owned() } else { node };
    fs::read_to_string(whole.join("dev")).unwrap().trim().to_owned()
}

#[test]
fn open_files_end_with_emfile() {
    let program = "my @f; while (open(my $f, '<', '/dev/null')) { push @f, $f } printf qq(%d %d\\n), @f + 3, $!+0;";
    let ended = Run::command(&["perl", "-e", program]).with(&["--nofile", "64"]).end();
    assert_eq!(ended.ok(), format!("64 {}\n", nix::libc::EMFILE));
}

#[test]
fn a_file_over_its_size_is_a_sigxfsz() {
    let ended =
        Run::command(&["dd", "if=/dev/zero", "of=/task/f", "bs=1024", "count=128"]).with(&["--fsize", "64K"]).end();
    ended.assert_outcome(153, "signaled", "SIGXFSZ", "signal");
    let ended = Run::sh("dd if=/dev/zero of=/task/f bs=1024 count=128 2>/dev/null; stat -c %s /task/f")
        .with(&["--fsize", "64K"])
        .end();
    assert_eq!(ended.ok(), "65536\n");
}

#[test]
fn resource_limits_cannot_be_raised_and_cores_are_never_written() {
    let mut task = Run::echo().with(&["--nofile", "64", "--fsize", "64K"]).start();
    let payload = task.ready();
    let both = |value: &str| (value.to_owned(), value.to_owned());
    assert_eq!(payload.limit("Max open files"), both("64"));
    assert_eq!(payload.limit("Max file size"), both("65536"));
    // A handler behind a pipe would run on the host for a limit of 0; 1 is the value that keeps it from starting.
    let piped = fs::read("/proc/sys/kernel/core_pattern").unwrap().starts_with(b"|");
    assert_eq!(payload.limit("Max core file size"), both(if piped { "1" } else { "0" }));
    task.end().ok();
    let ended = Run::sh("sh -c 'kill -SEGV $$'; ls -A /task").end();
    assert_eq!(ended.ok(), "", "a core file was written");
}

#[test]
fn a_full_disk_is_enospc_in_each_writable_place() {
    for place in ["/task", "/tmp", "/dev/shm"] {
        let ended = Run::command(&["perl", "-e", FILL, &format!("{place}/x")]).with(&["--disk", "1M"]).end();
        assert_eq!(ended.ok(), format!("{} {}\n", 1 << 20, nix::libc::ENOSPC), "{place}");
    }
}

#[test]
fn too_many_files_are_enospc_in_each_writable_place() {
    let program = "my $n = 0; while (open(my $f, '>', qq($ARGV[0]/$n))) { $n++; last if $n > 1000 } printf qq(%d %d\\n), $n, $!+0;";
    for place in ["/task", "/tmp", "/dev/shm"] {
        let ended = Run::command(&["perl", "-e", program, place]).with(&["--inodes", "64"]).end();
        assert_eq!(ended.ok(), format!("64 {}\n", nix::libc::ENOSPC), "{place}");
    }
}

#[test]
fn values_that_cannot_be_meant_are_refused_with_the_fields_name() {
    let bytes = ["--memory", "--io-read-bps", "--io-write-bps", "--output-limit", "--fsize", "--disk"];
    let times = ["--cpu-time", "--timeout", "--grace"];
    let counts = ["--pids", "--nofile", "--inodes"];
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for (flags, overflow) in [
        (&bytes[..], "99999999999T"),
        (&times[..], "99999999999d"),
        (&counts[..], "99999999999"),
        (&["--cpus"][..], "1e12"),
    ] {
        for flag in flags {
            cases.extend(["0", "-1", "NaN", "inf", "", "1X", overflow].map(|value| (*flag, value)));
        }
    }
    // No grace at all is a choice.
    cases.retain(|case| *case != ("--grace", "0"));
    for (flag, value) in cases {
        let ended = Run::command(&["echo", "ran"]).with(&[format!("{flag}={value}")]).end();
        let name = flag.trim_start_matches('-');
        assert!(ended.stderr.contains(name), "{flag}={value}: {}", ended.stderr);
        ended.assert_refused(125, &[]);
    }
    // As people type it, with a space.
    Run::command(&["echo", "ran"]).with(&["--memory", "-1"]).end().assert_refused(125, &["--memory"]);
}

/// `8192` is more than any host has. It is said once, by whoever is asked, and refused by nobody.
#[test]
fn more_cpus_than_are_available_are_said_and_not_refused() {
    let available = std::thread::available_parallelism().unwrap();
    let run = |options: &[&str]| Run::command(&["echo", "ran"]).with(options).end();
    let many = run(&["--cpus", "8192"]);
    let (first, rest) = many.stderr.split_once('\n').unwrap_or((&many.stderr, ""));
    assert_eq!(first, format!("taskman: --cpus 8192: {available} are available here"));
    assert_eq!((many.status.code(), many.text().as_str()), (Some(0), "ran\n"), "{many:?}");
    assert!(!rest.contains("--cpus"), "{many:?}");
    for silent in [&["--cpus", "8192", "--quiet"][..], &["--cpus", "0.5"]] {
        assert!(!run(silent).stderr.contains("--cpus"), "{silent:?}");
    }
}

#[test]
fn values_too_small_to_build_a_sandbox_in_say_so() {
    Run::command(&["echo", "ran"])
        .with(&["--memory", "1M"])
        .end()
        .assert_refused(125, &["taskman: error: ", "memory", "8M"]);
    Run::command(&["echo", "ran"])
        .with(&["--nofile", "3"])
        .end()
        .assert_refused(125, &["taskman: error: ", "nofile", "16"]);
}

#[test]
fn io_limits_so_low_that_others_would_wait_are_refused() {
    for flag in ["--io-read-bps", "--io-write-bps"] {
        let low = |value| Run::command(&["echo", "ran"]).with(&["--memory", "64M", flag, value]).end();
        let wanted = format!("taskman: error: {flag}: must be at least 16M with a memory of 64M, or others could wait");
        for value in ["1", "64K", "16777215"] {
            low(value).assert_refused(125, &[&wanted, "give more, or less memory"]);
        }
        assert_eq!(low("16M").ok(), "ran\n");
    }
    // Who asks for much memory has the limits that go with it.
    let ended = Run::command(&["true"]).with(&["--memory", "2G"]).end();
    assert_eq!(ended.report()["limits"]["io_read_bps"], 512 << 20);
    assert_eq!(ended.report()["limits"]["io_write_bps"], 512 << 20);
}
