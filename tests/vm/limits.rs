//! Limits as a kernel with nothing but cgroup v2 enforces them, measured.

use std::time::Duration;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::machine::{Machine, Spec};
use crate::{TASKMAN, on_one_machine, plain};

/// Of the disks: one to write to, and one to swap to.
pub const DISKS: [u64; 2] = [256, 512];

pub fn cases() -> Vec<Trial> {
    vec![on_one_machine(
        "limits_on_pure_v2",
        boot,
        [
            // First: a start has the controllers handed down.
            ("limits_without_delegated_controllers_nothing_starts", undelegated),
            ("plain_the_hosts_files_are_the_root_of_a_pure_v2_machine", |machine| {
                plain::hosts_files(machine, DISKS[0])
            }),
            ("limits_memory_cpu_io_and_placement_hold_on_pure_v2", |machine| limits(machine, 1000)),
            ("limits_swap_is_not_a_way_around_the_memory_limit", swap),
        ],
    )]
}

pub fn boot() -> Machine {
    Machine::boot(Spec { disks: DISKS.to_vec(), ..Spec::default() })
}

/// Runs a task and returns its report.
fn report(machine: &mut Machine, words: &str) -> Value {
    let text = machine.run(&format!("{TASKMAN} run --quiet --report /tmp/report {words}; cat /tmp/report")).1;
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn near(seen: f64, wanted: f64, what: &str) {
    println!("    {what}: {seen:.2}, wanted {wanted:.2}");
    assert!((seen / wanted - 1.0).abs() <= 0.2, "{what}: {seen:.2}, and {wanted:.2} within 20 % was wanted");
}

/// Starts a task in the background and returns the directory of its group.
fn background(machine: &mut Machine, words: &str) -> String {
    let script = format!(
        "({TASKMAN} run {words} >/tmp/background 2>&1 &) ; for i in $(seq 600); do \
         for group in /sys/fs/cgroup/taskman-run-*; do [[ $(<$group/cgroup.events) == *'populated 1'* ]] && break 2; done; \
         sleep 0.1; done 2>/dev/null; echo $group"
    );
    machine.ok(&script).trim().to_owned()
}

/// Each limit, and so many starts that are in their group from the first instruction on.
pub fn limits(machine: &mut Machine, starts: usize) {
    whole_task_dies(machine);
    share_of_a_processor(machine);
    bandwidth_of_a_disk(machine);
    always_in_its_group(machine, starts);
}

/// The process that asks for too much is the shell's child: without `memory.oom.group` the shell would go on.
fn whole_task_dies(machine: &mut Machine) {
    let hog = "sh -c 'perl -e \"\\$x = q(x) x (300 << 20)\"; echo survived'";
    let (code, said) = machine.run(&format!("{TASKMAN} run --report /tmp/report --memory 64M -- {hog}"));
    assert!(code == 137 && !said.contains("survived"), "{code}: {said}");
    let report: Value = serde_json::from_str(&machine.ok("cat /tmp/report")).unwrap();
    assert_eq!(report["outcome"]["reason"], "oom", "{report}");
    assert_eq!(report["containment"]["verdict"], "proven", "{report}");
}

/// Between two looks at the group's own account: what the start costs is in neither.
fn share_of_a_processor(machine: &mut Machine) {
    let group = background(machine, "--cpus 0.5 --timeout 40s -- sh -c 'while :; do :; done'");
    let look = "read -r _ usage <cpu.stat; echo $usage; cut -d' ' -f1 /proc/uptime";
    let text = machine.ok(&format!("cd {group}; sleep 3; {look}; sleep 10; {look}; echo 1 >cgroup.kill"));
    let numbers: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    near((numbers[2] - numbers[0]) / 1e6 / (numbers[3] - numbers[1]), 0.5, "processors, of --cpus 0.5");
}

/// A task has no disk to write to, so a process of the test's joins its group to write; reads are its own.
fn bandwidth_of_a_disk(machine: &mut Machine) {
    machine.ok("mke2fs -q -t ext4 /dev/vdb && mkdir -p /mnt/disk && mount /dev/vdb /mnt/disk && \
                dd if=/dev/zero of=/mnt/disk/file bs=1M count=24 conv=fsync && dd if=/mnt/disk/file iflag=nocache count=0");
    // With more memory the limits must be higher.
    let limits = "--bind-ro /mnt/disk --memory 16M";
    let read = report(machine, &format!("{limits} --io-read-bps 4M -- dd if=/mnt/disk/file of=/dev/null bs=1M"));
    assert_eq!(read["outcome"]["exit_code"], 0, "{read}");
    near(24e3 / read["usage"]["wall_ms"].as_f64().unwrap(), 4.0, "MiB/s read, of --io-read-bps 4M");
    let group = background(machine, &format!("{limits} --io-write-bps 4M -- sleep 60"));
    let write = "dd if=/dev/zero of=/mnt/disk/out bs=1M count=24 oflag=direct 2>&1 | tail -1";
    let said = machine.ok(&format!(
        "echo $$ >{group}/cgroup.procs && {write}; echo $$ >/sys/fs/cgroup/cgroup.procs; echo 1 >{group}/cgroup.kill"
    ));
    let seconds: f64 = said.split(", ").nth(2).and_then(|part| part.split(' ').next()?.parse().ok()).expect(&said);
    near(24.0 / seconds, 4.0, "MiB/s written, of --io-write-bps 4M");
}

fn always_in_its_group(machine: &mut Machine, starts: usize) {
    let me = std::env::current_exe().unwrap();
    let placements = format!("{} guest placements {starts}", me.display());
    let (code, said) = machine.run_within(&placements, Duration::from_secs(400));
    println!("    {}", said.trim().replace('\n', "\n    "));
    assert!(
        code == 0 && said.contains(&format!("{starts} starts, each proven")) && said.contains(" 0 outside"),
        "{code}: {said}"
    );
}

pub fn swap(machine: &mut Machine) {
    machine.ok("mkswap /dev/vdc >/dev/null && swapon /dev/vdc");
    let doctor: Value = serde_json::from_str(&machine.ok(&format!("{TASKMAN} doctor --output json"))).unwrap();
    let swap = doctor["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "limit swap").unwrap();
    assert_eq!(swap["status"], "ok", "{swap}");
    whole_task_dies(machine);
    let group = background(machine, "-- sleep 60");
    // A group has processes before it has this limit; a task's command comes after both.
    let limit = format!(
        "for i in $(seq 100); do read -r swap <{group}/memory.swap.max; [[ $swap == max ]] || break; sleep 0.1; done"
    );
    assert_eq!(machine.ok(&format!("{limit}; echo $swap; echo 1 >{group}/cgroup.kill")), "0\n");
}

/// A group that was handed down without controllers, and one that nobody has handed down.
pub fn undelegated(machine: &mut Machine) {
    let missing = ["limit memory", "limit cpu", "limit pids", "limit io"];
    machine.ok("mkdir /sys/fs/cgroup/poor");
    let enter = "echo $$ >/sys/fs/cgroup/poor/cgroup.procs";
    let doctor: Value = {
        let (code, text) = machine.run(&format!("{enter}; {TASKMAN} doctor --output json"));
        assert_eq!(code, 1, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let (code, refused) = machine.run(&format!("{enter}; {TASKMAN} run -- echo ran"));
    assert!(code == 125 && !refused.contains("\nran"), "{code}: {refused}");
    for name in missing {
        let finding = doctor["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name).unwrap();
        assert!(finding["blocks"] == true && finding["fix"].as_str().unwrap().contains("Delegate=yes"), "{finding}");
        assert!(refused.contains(name), "{name}: {refused}");
    }
    // With the controllers, but without systemd's word that the group is ours to divide.
    machine.ok("cd /sys/fs/cgroup && echo '+memory +cpu +pids +io' >cgroup.subtree_control");
    let (code, refused) = machine.run(&format!("{enter}; {TASKMAN} run -- echo ran"));
    assert!(code == 125 && refused.contains("Delegate=yes") && refused.contains("/poor"), "{code}: {refused}");
    assert_eq!(machine.ok("ls -d /sys/fs/cgroup/poor/*/ 2>/dev/null | wc -l"), "0\n", "nothing was made there");
    machine.ok("rmdir /sys/fs/cgroup/poor");
}
