//! The binary whose defences can be switched off, and the clean-up after it has done its worst.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::bench::Bench;
use super::{ledger, proc, sys};
use crate::support::mutation;
use crate::support::pace;

/// Builds taskman with the `mutation` feature.
pub fn build() -> Result<PathBuf, String> {
    mutation::build("taskman")
}

/// Ends and removes what an arm left, and only that: processes of this suite's groups, uids or nonce (by pidfd),
/// its group directories, and IPC objects and files of its uids.
pub fn sweep(bench: &Bench) {
    let deadline = Instant::now() + pace::time(Duration::from_secs(5));
    loop {
        // At once for what is still in a task's group: a fork churn outruns any walk over pids.
        for dir in bench.place.task_dirs() {
            let _ = fs::write(dir.join("cgroup.kill"), "1");
        }
        let ours = bench.ours();
        for pid in &ours {
            // Named again after the pidfd is held: the number may have been reused in between.
            if let Ok(fd) = sys::pidfd_open(*pid)
                && bench.is_ours(*pid)
            {
                let _ = sys::pidfd_kill(&fd, libc::SIGKILL);
            }
        }
        reap();
        if ours.is_empty() || Instant::now() > deadline {
            break;
        }
        nix::poll::poll(&mut [], 1u8).ok();
    }
    for dir in bench.place.task_dirs() {
        let _ = fs::remove_dir(dir);
    }
    for (kind, id) in ledger::sysv_objects(&bench.uid_range()) {
        let _ = Command::new("ipcrm").args([kind, &id]).output();
    }
    ledger::remove_queues(&ledger::message_queues(&bench.uid_range()));
    for path in ledger::files_of(&bench.uid_range()) {
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
}

/// Reaps dead orphans that became the suite's children; never a child that a `Run` still waits for.
pub fn reap() {
    for stat in proc::children_of(std::process::id() as i32) {
        let adopted = !super::run::is_live(stat.pid);
        if stat.state == 'Z' && adopted {
            let _ = waitpid(Pid::from_raw(stat.pid), Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL));
        }
    }
}
