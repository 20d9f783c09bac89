//! The observer outside: what of the suite's tasks lives, whether it is confined, and what is left.

use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

#[allow(dead_code)] // the adversarial suite asks for more
#[path = "../adversarial/harness/place.rs"]
mod place;
#[allow(dead_code)]
#[path = "../adversarial/harness/proc.rs"]
mod proc;
#[allow(dead_code)]
#[path = "../adversarial/harness/sys.rs"]
mod sys;

use place::Place;

/// How long anything of a task may live after the fault, and how long the rest: the auditor, the other half of the service.
const DEADLINE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(5);

/// The suite's place on the host: control groups and uids that nobody else has.
pub struct Host {
    place: Place,
    /// Two uids: of `taskman run`, and of the service. One each, so that the next start proves that it is free.
    uids: Range<u32>,
}

impl Host {
    pub fn enter() -> Result<Self, String> {
        // What a killed launcher leaves becomes the suite's child, so that the suite can see and reap it.
        nix::sys::prctl::set_child_subreaper(true).map_err(|e| format!("subreaper: {e}"))?;
        let first = 1_930_000_000 + std::process::id() % 10_000 * 512;
        Ok(Self { place: Place::enter()?, uids: first..first + 2 })
    }

    /// What could not be removed.
    pub fn leave(&self) -> Vec<String> {
        self.place.leave()
    }

    /// A range of one uid, for `taskman run`.
    pub fn run_uid(&self) -> String {
        format!("{}:1", self.uids.start)
    }

    /// The same for the service.
    pub fn service_uid(&self) -> String {
        format!("{}:1", self.uids.end - 1)
    }

    /// Everything that the suite has started and that has not ended.
    fn alive(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        let ended = |pid: i32| proc::stat_of(pid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'));
        let is_ours = |pid: i32| self.place.holds(pid) || proc::has_uid(pid, &self.uids);
        let others = proc::pids().into_iter().filter(|pid| *pid != own);
        others.filter(|pid| is_ours(*pid) && !ended(*pid)).collect()
    }

    /// Whether it is of a task: of a task's uid, or in a task's group already.
    fn is_of_task(&self, pid: i32) -> bool {
        let in_group = |(controllers, path): &(String, String)| controllers.is_empty() && path.contains("/taskman-");
        proc::has_uid(pid, &self.uids) || proc::cgroup_of(pid).iter().any(in_group)
    }

    /// The process that has this number in the task's own PID namespace: 1 is its init, 2 its payload.
    pub fn inside(&self, number: i32) -> Option<i32> {
        let is_it = |pid: &i32| {
            let status = proc::status_of(*pid).unwrap_or_default();
            let numbers: Vec<i32> = status
                .get("NSpid")
                .map_or("", String::as_str)
                .split_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect();
            numbers.len() > 1 && numbers.last() == Some(&number)
        };
        self.alive().into_iter().find(is_it)
    }

    /// Nothing of a task is alive within [`DEADLINE`], nothing else within [`REST`], and what only waits to be reaped is.
    #[track_caller]
    pub fn assert_dead(&self) {
        let start = Instant::now();
        loop {
            // Read before the look: what has died while the suite itself stood still was not late.
            let after = start.elapsed();
            let left = self.alive();
            if left.is_empty() {
                return self.reap();
            }
            let late = |pid: &i32| after > REST || (after > DEADLINE && self.is_of_task(*pid));
            let late: Vec<String> = left.into_iter().filter(late).map(proc::describe).collect();
            assert!(late.is_empty(), "alive after {after:?}: {}", late.join(", "));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// No directory of a task, and no mount of one.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.place.task_dirs(), Vec::<std::path::PathBuf>::new(), "control groups are left");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        // A task's root is named after it; `taskman-e2e` is another suite's.
        let left: Vec<&str> =
            mounts.lines().filter(|line| line.contains(" tmpfs taskman-") && !line.contains("-e2e")).collect();
        assert_eq!(left, Vec::<&str>::new(), "mounts are left");
        let entries = fs::read_dir(taskman::place::RUN_DIR).expect("the run directory");
        let names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names, ["uids"], "the run directory holds more than the locks of uids");
    }

    /// Whether the command itself was executed: only then its variable is in a process. Each such process must be confined.
    #[track_caller]
    pub fn payload_runs(&self, nonce: &str) -> bool {
        let marked = format!("NONCE={nonce}");
        let carries = |pid: &i32| sys::contains(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(), &marked);
        let running: Vec<i32> = self.alive().into_iter().filter(carries).collect();
        running.iter().for_each(|pid| self.assert_confined(*pid));
        !running.is_empty()
    }

    #[track_caller]
    fn assert_confined(&self, pid: i32) {
        let Some(status) = proc::status_of(pid) else { return };
        let own = std::process::id() as i32;
        let names = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        assert!(names.iter().all(|name| status[*name].bytes().all(|digit| digit == b'0')), "capabilities: {status:?}");
        assert_eq!((&*status["NoNewPrivs"], &*status["Seccomp"]), ("1", "2"), "{status:?}");
        assert!(proc::has_uid(pid, &self.uids), "{status:?}");
        for kind in ["pid", "mnt", "ipc", "uts", "net", "cgroup"] {
            assert_ne!(proc::ns_of(pid, kind), proc::ns_of(own, kind), "the host's {kind} namespace: {status:?}");
        }
        for (controllers, path) in proc::cgroup_of(pid) {
            let matters =
                controllers.is_empty() || controllers.split(',').any(|name| place::CONTROLLERS.contains(&name));
            assert!(!matters || path.contains("/taskman-"), "{controllers}: in {path}");
        }
    }

    /// After a trial that failed: kills what the suite has started, so that the next one has a fair chance.
    pub fn clear_away(&self) {
        let deadline = Instant::now() + DEADLINE;
        while !self.alive().is_empty() && Instant::now() < deadline {
            for pid in self.alive() {
                kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.reap();
    }

    /// Reaps those that fell to the suite and would keep a task's uid in use; the suite's own children are root's.
    pub fn reap(&self) {
        let children = proc::children_of(std::process::id() as i32).into_iter();
        for orphan in children.filter(|child| child.state == 'Z' && proc::has_uid(child.pid, &self.uids)) {
            waitpid(Pid::from_raw(orphan.pid), Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)).ok();
        }
    }
}

/// Kills a process of the suite's.
#[track_caller]
pub fn sigkill(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or_else(|e| panic!("kill {pid}: {e}"));
}
