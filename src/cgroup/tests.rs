//! The group on the real kernel, in a subtree of its own, of which nothing stays. Needs root, and fails without.

// Tests start plain processes to have something to contain; threads race on purpose.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollTimeout, poll};

use super::*;
use crate::place::GroupName;
use crate::task::id::TaskId;
use crate::task::limits::Limits;

const SOON: Duration = Duration::from_secs(10);

/// A layout whose bases are fresh groups, so that no other taskman's leftovers are touched.
struct Scratch {
    layout: Layout,
    dirs: Vec<PathBuf>,
}

impl Scratch {
    fn new() -> Self {
        let mut layout = Layout::detect().expect("needs root and control groups");
        let name = format!("tmtest-{}", TaskId::random());
        let mut dirs = Vec::new();
        if layout.kind() == Kind::V2 {
            delegate::enable(&layout).unwrap();
            layout.to_enable = layout.v2.controllers.iter().copied().filter(|c| *c != Controller::Swap).collect();
            layout.must_leave = false;
        }
        for base in [&mut layout.v2].into_iter().chain(&mut layout.v1) {
            base.dir.push(&name);
            base.cgroup = format!("{}/{name}", base.cgroup.trim_end_matches('/'));
            fs::create_dir(&base.dir).expect("needs root and control groups");
            dirs.push(base.dir.clone());
        }
        Self { layout, dirs }
    }

    fn group(&self, instance: &str) -> Group {
        let group = Group::create(&self.layout, instance, &TaskId::random()).unwrap();
        group.make_halves().unwrap();
        group
    }

    /// A shell in all of the group's directories that then runs `script`.
    fn run(&self, group: &Group, script: &str) -> Child {
        let v2 = self.layout.v2.dir.join(group.name()).join("cgroup.procs");
        let v1 = self.layout.v1.iter().map(|h| h.dir.join(group.name()).join("tasks"));
        let joins: String = v1.chain([v2]).map(|file| format!("echo 0 > '{}' && ", file.display())).collect();
        Command::new("sh").args(["-c", &format!("{joins} {{ {script}\n}}")]).spawn().unwrap()
    }

    fn read(&self, group: &Group, controller: Controller, v1: &str, v2: &str) -> String {
        let file = if self.layout.is_v1(controller) { v1 } else { v2 };
        let path = self.layout.hierarchy(controller).unwrap().dir.join(group.name()).join(file);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).trim().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for dir in self.dirs.iter().rev() {
            let left = fs::read_dir(dir).into_iter().flatten().flatten().filter(|e| e.path().is_dir());
            left.for_each(|entry| drop(fs::remove_dir(entry.path())));
            let removed = fs::remove_dir(dir);
            assert!(removed.is_ok() || std::thread::panicking(), "{}: {removed:?}", dir.display());
        }
    }
}

fn until(group: &Group, populated: bool) {
    let deadline = Instant::now() + SOON;
    while group.is_populated().unwrap() != populated {
        assert!(Instant::now() < deadline, "{} never became populated={populated}", group.name());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_limit_is_what_the_kernel_says_it_is() {
    let scratch = Scratch::new();
    let group = scratch.group("limits");
    let disks = device::behind(&[std::path::Path::new("/usr")]).unwrap().disks;
    let limits = Limits {
        memory_bytes: 64 << 20,
        cpus: 0.5,
        pids: 10,
        io_read_bps: 7 << 20,
        io_write_bps: 9 << 20,
        ..Limits::default()
    };
    group.apply(&limits, &disks).unwrap();
    let memory = (64u64 << 20).to_string();
    assert_eq!(scratch.read(&group, Controller::Memory, "memory.limit_in_bytes", "memory.max"), memory);
    let swap = scratch.read(&group, Controller::Swap, "memory.memsw.limit_in_bytes", "memory.swap.max");
    assert_eq!(swap, if scratch.layout.is_v1(Controller::Swap) { memory } else { "0".into() });
    let cpu = scratch.read(&group, Controller::Cpu, "cpu.cfs_quota_us", "cpu.max");
    assert_eq!(cpu, if scratch.layout.is_v1(Controller::Cpu) { "50000" } else { "50000 100000" });
    assert_eq!(scratch.read(&group, Controller::Pids, "pids.max", "pids.max"), "11");
    for disk in disks {
        let read = scratch.read(&group, Controller::Io, "blkio.throttle.read_bps_device", "io.max");
        assert!(read.starts_with(&disk.to_string()) && read.contains(&(7 << 20).to_string()), "{read}");
        let written = scratch.read(&group, Controller::Io, "blkio.throttle.write_bps_device", "io.max");
        assert!(written.contains(&(9 << 20).to_string()), "{written}");
    }
    group.remove().unwrap();
}

#[test]
fn a_refused_write_names_file_value_and_group() {
    let scratch = Scratch::new();
    let group = scratch.group("refused");
    let disk = Device { major: 4095, minor: 1048575 };
    let error = group.apply(&Limits::default(), &[disk]).unwrap_err().to_string();
    assert!(error.contains("4095:1048575") && error.contains(group.name()) && error.contains("hint"), "{error}");
    group.remove().unwrap();
    assert!(Group::create(&scratch.layout, "a/b", &TaskId::random()).unwrap_err().to_string().contains("EINVAL"));
}

#[test]
fn kill_empties_the_group_and_remove_leaves_nothing() {
    let scratch = Scratch::new();
    let group = scratch.group("kill");
    group.apply(&Limits::default(), &[]).unwrap();
    assert!(!group.is_populated().unwrap() && group.pids().unwrap().is_empty());
    assert!(group.wait_empty(Duration::ZERO).unwrap());
    let mut child = scratch.run(&group, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 60 & sleep 60 & wait");
    let deadline = Instant::now() + SOON;
    while group.pids().unwrap().len() < 3 {
        assert!(Instant::now() < deadline, "{:?}", group.pids());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(group.pids().unwrap().contains(&(child.id() as i32)));
    assert!(!group.wait_empty(Duration::from_millis(30)).unwrap(), "nobody has died yet");
    let busy = Instant::now();
    assert_eq!(group.remove().unwrap_err().errno(), nix::errno::Errno::EBUSY);
    assert!(busy.elapsed() < SOON, "the wait for a busy directory is bounded");
    group.kill().unwrap();
    assert!(group.wait_empty(SOON).unwrap());
    child.wait().unwrap();
    let usage = group.usage().unwrap();
    assert_eq!(usage.pids_peak, 2, "three processes, one of which stands for init");
    assert!(usage.cpu_user + usage.cpu_system > Duration::ZERO && usage.memory_peak > 0, "{usage:?}");
    assert!(group.cpu_time().unwrap() > Duration::from_millis(1), "{:?}", group.cpu_time());
    assert_eq!(group.oom_kills().unwrap(), 0);
    assert!(group.exists());
    group.remove().unwrap();
    assert!(!group.exists());
    group.remove().expect("what is gone is as good as removed");
    assert!(!group.is_populated().unwrap());
}

#[test]
fn a_frozen_group_stands_still_and_still_dies() {
    let scratch = Scratch::new();
    let group = scratch.group("freeze");
    let mut child = scratch.run(&group, "while :; do :; done");
    until(&group, true);
    group.freeze().unwrap();
    let events = scratch.layout.v2.dir.join(group.name()).join("cgroup.events");
    let deadline = Instant::now() + SOON;
    while !fs::read_to_string(&events).unwrap().contains("frozen 1") {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
    // Another processor may still have to count what it used until then.
    let mut before = group.cpu_time().unwrap();
    loop {
        std::thread::sleep(Duration::from_millis(10));
        let counted = group.cpu_time().unwrap();
        if std::mem::replace(&mut before, counted) == counted {
            break;
        }
        assert!(Instant::now() < deadline, "{counted:?} and counting");
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(group.cpu_time().unwrap(), before);
    group.kill().unwrap();
    assert!(group.wait_empty(SOON).unwrap());
    child.wait().unwrap();
    group.remove().unwrap();
}

#[test]
fn running_out_of_memory_is_told_and_counted() {
    let scratch = Scratch::new();
    let group = scratch.group("oom");
    group.apply(&Limits { memory_bytes: 16 << 20, ..Limits::default() }, &[]).unwrap();
    let watch = group.watch_oom().unwrap();
    assert!(!watch.clear().unwrap());
    let mut child = scratch.run(&group, "exec tail /dev/zero");
    let mut ready = [PollFd::new(watch.as_fd(), watch.interest().flags())];
    let deadline = Instant::now() + SOON;
    while !watch.clear().unwrap() {
        assert!(Instant::now() < deadline, "no event");
        poll(&mut ready, PollTimeout::from(1000u16)).unwrap();
    }
    child.wait().unwrap();
    assert_eq!(group.oom_kills().unwrap(), 1);
    assert!(group.usage().unwrap().memory_peak <= 16 << 20);
    assert!(group.wait_empty(SOON).unwrap());
    group.remove().unwrap();
    // Another group's counter is its own.
    let other = scratch.group("oom");
    assert_eq!(other.oom_kills().unwrap(), 0);
    other.remove().unwrap();
}

#[test]
fn a_host_without_controllers_still_has_groups_for_who_is_not_strict() {
    let mut scratch = Scratch::new();
    // Nothing is where limits are written: the version 2 group alone, with no controller.
    let halves = std::mem::take(&mut scratch.layout.v1);
    scratch.layout.missing.extend(Controller::ALL);
    let group = scratch.group("poor");
    group.apply(&Limits::default(), &[]).unwrap();
    let watch = group.watch_oom().unwrap();
    assert!(!watch.clear().unwrap());
    let mut child = scratch.run(&group, "exec sleep 60");
    until(&group, true);
    group.kill().unwrap();
    assert!(group.wait_empty(SOON).unwrap());
    child.wait().unwrap();
    assert_eq!(group.usage().unwrap().memory_peak, 0);
    assert!(group.cpu_time().unwrap() > Duration::ZERO, "version 2 counts processor time without a controller");
    assert_eq!(group.oom_kills().unwrap(), 0);
    group.remove().unwrap();
    scratch.layout.v1 = halves;
}

#[test]
fn a_thread_that_joins_is_in_every_version_1_half() {
    let scratch = Scratch::new();
    let group = scratch.group("join");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            group.join().unwrap();
            let places = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
            for (controllers, _) in &group.v1 {
                let named = |line: &str| line.ends_with(group.name()) && line.contains(controllers[0].v1_name());
                assert!(places.lines().any(named), "{places}");
            }
            group.verify_v1_places(&places).unwrap();
            // The whole process would have to be in version 2, and is not: exactly that is refused.
            let error = group.verify_joined().unwrap_err().to_string();
            assert!(error.contains("of cgroup2"), "{error}");
        });
    });
    if scratch.layout.kind() == Kind::Hybrid {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let error = group.verify_v1_places(&own).unwrap_err().to_string();
        assert!(error.contains("of memory") && error.contains("outside its limits"), "{error}");
    }
    group.remove().unwrap();
}

#[test]
fn a_sweep_takes_the_dead_and_leaves_the_living() {
    let scratch = Scratch::new();
    assert!(sweep(&scratch.layout).is_empty());
    let living = scratch.group("one");
    let dead = scratch.group("two");
    let mut orphan = scratch.run(&dead, "exec sleep 60");
    until(&dead, true);
    let name = dead.name().to_owned();
    assert!(sweep(&scratch.layout).is_empty(), "both owners live");
    drop(dead); // closes the locked directory, as the death of its owner does
    // A launcher in another version 1 group has to find the halves as well.
    let mut elsewhere = scratch.layout.clone();
    for half in &mut elsewhere.v1 {
        half.cgroup.push_str("/elsewhere");
        half.dir.push("elsewhere");
    }
    // Again and again, as its callers do: one that is slow to die is left to the next sweep. And a child that a test beside this
    // one has forked holds the lock until it executes its program.
    let deadline = Instant::now() + SOON;
    let mut swept = sweep(&elsewhere);
    while (swept.is_empty() || swept.iter().any(|one| one.error.is_some())) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
        swept = sweep(&elsewhere);
    }
    assert_eq!(swept.len(), 1, "{swept:?}");
    assert!(swept[0].name == name && swept[0].error.is_none(), "{swept:?}");
    assert_eq!(orphan.wait().unwrap().to_string(), "signal: 9 (SIGKILL)");
    for dir in &scratch.dirs {
        assert!(!dir.join(&name).exists(), "{}", dir.display());
        assert!(dir.join(living.name()).exists(), "{}", dir.display());
    }
    living.remove().unwrap();
}

#[test]
fn what_a_dying_process_still_holds_is_swept_when_it_has_let_go() {
    let scratch = Scratch::new();
    let group = scratch.group("held");
    let name = group.name().to_owned();
    let instance = GroupName::parse(&name).unwrap().instance.to_owned();
    let (seen, held) = std::sync::mpsc::channel();
    let lets_go = std::thread::spawn(move || {
        held.recv().unwrap();
        // The sweep below has most likely begun by then; it has the same result if it has not.
        std::thread::sleep(Duration::from_millis(300));
        drop(group);
    });
    assert!(sweep(&scratch.layout).is_empty(), "it is held");
    seen.send(()).unwrap();
    let swept = sweep_out(&scratch.layout, &instance, Duration::from_secs(10));
    assert!(swept.len() == 1 && swept[0].name == name && swept[0].error.is_none(), "{swept:?}");
    lets_go.join().unwrap();
    assert!(scratch.dirs.iter().all(|dir| !dir.join(&name).exists()));
    // One that nobody lets go of is given up.
    let held = scratch.group("held");
    let swept = sweep_out(&scratch.layout, &instance, Duration::from_millis(100));
    let why = swept.first().and_then(|one| one.error.as_ref()).map(crate::error::SysError::errno);
    assert!(swept.len() == 1 && why == Some(nix::errno::Errno::EWOULDBLOCK), "{swept:?}");
    held.remove().unwrap();
}

#[test]
fn a_sweeper_never_takes_what_is_being_made() {
    let scratch = Scratch::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let swept = std::thread::scope(|scope| {
        let sweepers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut swept = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let found = sweep(&scratch.layout);
                        assert!(found.iter().all(|s| s.error.is_none()), "{found:?}");
                        swept += found.len();
                    }
                    swept
                })
            })
            .collect();
        for _ in 0..300 {
            // A sweeper may win as often as one creation tries; its owner is told, and has nothing.
            let deadline = Instant::now() + SOON;
            let group = loop {
                match Group::create(&scratch.layout, "race", &TaskId::random()) {
                    Err(error) if error.errno() == nix::errno::Errno::EAGAIN && Instant::now() < deadline => {}
                    made => break made.unwrap(),
                }
            };
            group.make_halves().unwrap();
            let there = scratch.dirs.iter().all(|dir| dir.join(group.name()).exists());
            assert!(
                there && group.apply(&Limits::default(), &[]).is_ok(),
                "{} was swept while its owner lives",
                group.name()
            );
            group.remove().unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        sweepers.into_iter().map(|s| s.join().unwrap()).sum::<usize>()
    });
    println!("300 groups made beside 2 sweepers, which won {swept} races");
}
