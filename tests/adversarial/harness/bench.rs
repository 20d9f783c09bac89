//! What every case works with: the binaries, a private uid range, private control groups, payloads, a canary.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::case::{Arm, Fail, breach, broken};
use super::done::cut;
use super::launch::Launch;
use super::place::Place;
use super::run::Run;
use super::{mutant, payload, proc};
use crate::support::pace;

/// Every defence is on, and `taskman run` parks its sandbox before it takes it.
pub const WARM: &str = "cold-start";

/// Whether the tasks of contained arms run in sandboxes that stood ready (`TASKMAN_ADV_MODE=warm`). The switch for that is one of
/// the mutation build's, and the mutation arms are left out.
pub fn warm() -> bool {
    std::env::var("TASKMAN_ADV_MODE").is_ok_and(|mode| mode == "warm")
}

/// A harmless task that is under way; none in a mutation arm.
#[must_use]
pub struct Canary(Option<Run>);

impl Canary {
    /// Waits for its end, which must be a good one.
    pub fn ends_well(self) -> Result<(), Fail> {
        let Some(run) = self.0 else { return Ok(()) };
        let done = run.finish()?;
        if done.code() == 0 && done.reason()? == "exit" && done.verdict()? == "proven" {
            return Ok(());
        }
        let report = done.report.map(|r| r.to_string()).unwrap_or_default();
        Err(broken(format!("the canary did not end well: {:?}, {}, {report}", done.status, cut(&done.err))))
    }
}

/// One per case, which has a process of its own; everything it hands out carries its nonce.
pub struct Bench {
    pub place: Place,
    work: PathBuf,
    probes: PathBuf,
    nonce: String,
    count: AtomicUsize,
    tasks: AtomicUsize,
    canaries: AtomicUsize,
    mutant: OnceLock<Result<PathBuf, String>>,
    notes: Mutex<Vec<String>>,
}

/// Where cases have their work directories. Not in the tree: a control arm's probe has a uid of its own, and a tree in root's home
/// lets none but root pass. Not in a temporary directory: the ledger and the auditor search these for what tasks left.
const WORK: &str = "/var/cache/taskman-adversarial";

impl Bench {
    /// Enters the private control groups and makes the work directory.
    pub fn open() -> Result<Self, String> {
        let pid = std::process::id();
        let work = Path::new(WORK).join(pid.to_string());
        let probes = work.join("probe");
        // A case that was interrupted, under the same pid, has left its own.
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&probes).map_err(|e| format!("mkdir {}: {e}", probes.display()))?;
        for dir in [&work, &probes] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(|e| format!("chmod: {e}"))?;
        }
        let seed = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(|e| format!("uuid: {e}"))?;
        let nonce = format!("adv{}", seed.trim().replace('-', ""));
        // What a killed probe leaves behind becomes the suite's child, so that the suite can see and reap it.
        nix::sys::prctl::set_child_subreaper(true).map_err(|e| format!("subreaper: {e}"))?;
        let place = Place::enter()?;
        let [count, tasks, canaries] = [0; 3].map(AtomicUsize::new);
        let (mutant, notes) = (OnceLock::new(), Mutex::default());
        Ok(Self { place, work, probes, nonce, count, tasks, canaries, mutant, notes })
    }

    /// Leaves the groups and removes the work directory; returns what could not be removed.
    pub fn close(&self) -> Vec<String> {
        let mut left = self.place.leave();
        if let Err(e) = fs::remove_dir_all(&self.work) {
            left.push(format!("remove {}: {e}", self.work.display()));
        }
        // Refused while another case has its own there.
        let _ = fs::remove_dir(WORK);
        left
    }

    /// `taskman run` of this arm's binary.
    pub fn task(&self, arm: Arm) -> Launch<'_> {
        let mutant = || Some(self.mutant().unwrap_or_else(|_| PathBuf::from("/nonexistent/mutant")));
        match arm {
            Arm::Contained if warm() => Launch::new(self, mutant(), Some(WARM)),
            Arm::Contained => Launch::new(self, Some(self.taskman().to_owned()), None),
            Arm::Mutant(names) => Launch::new(self, mutant(), Some(names)),
        }
    }

    /// The same probe without taskman: the control arm.
    pub fn direct(&self) -> Launch<'_> {
        Launch::new(self, None, None)
    }

    /// The shipped binary.
    pub fn taskman(&self) -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_taskman"))
    }

    /// The binary whose defences can be switched off; built at first use.
    pub fn mutant(&self) -> Result<PathBuf, String> {
        self.mutant.get_or_init(mutant::build).clone()
    }

    /// A harmless task: must start, end well, and be proven. Every contained arm runs one during its attack.
    pub fn canary(&self) -> Result<(), Fail> {
        self.canary_beside(Arm::Contained)?.ends_well()
    }

    /// The same where a clock runs that must not count the canary's own time: it is under way when this returns.
    pub fn canary_beside(&self, arm: Arm) -> Result<Canary, Fail> {
        if arm != Arm::Contained {
            return Ok(Canary(None));
        }
        self.canaries.fetch_add(1, Relaxed);
        self.task(Arm::Contained).command("/bin/true", [] as [&str; 0]).spawn().map(|run| Canary(Some(run)))
    }

    pub(super) fn canaries(&self) -> usize {
        self.canaries.load(Relaxed)
    }

    /// The host path of a compiled payload; a payload that does not compile ends the suite.
    #[track_caller]
    pub fn payload(&self, name: &str) -> PathBuf {
        payload::compile(&self.probes, name).unwrap_or_else(|e| panic!("{e}"))
    }

    /// World-readable; `/probe` inside every task.
    pub fn probe_dir(&self) -> &Path {
        &self.probes
    }

    /// For reports and other scratch files of the host's side.
    pub fn work_dir(&self) -> &Path {
        &self.work
    }

    /// Uids that belong to this suite run alone, also when two suites run on one host, and of which no other test has any: the
    /// auditor of its server would find ours.
    pub fn uid_range(&self) -> Range<u32> {
        // One beyond it is planted, too, and is nobody's.
        let first = 1_940_000_000 + std::process::id() % 9_000 * 1024;
        first..first + 512
    }

    /// In everything this suite run starts.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    pub(super) fn fresh_nonce(&self) -> String {
        format!("{}-{}", self.nonce, self.count.fetch_add(1, Relaxed))
    }

    /// Every process that this suite run has started and that is not the suite: by group, by uid, by nonce.
    pub fn ours(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        proc::pids().into_iter().filter(|pid| *pid != own && self.is_ours(*pid)).collect()
    }

    /// Whether this suite run has started a process.
    pub fn is_ours(&self, pid: i32) -> bool {
        let is_suspect = !proc::is_kernel_thread(pid);
        is_suspect
            && (self.place.holds(pid) || proc::has_uid(pid, &self.uid_range()) || proc::carries(pid, &self.nonce))
    }

    /// The same as people read it, after the dead that fell to the suite have been reaped.
    pub fn survivors(&self) -> Vec<String> {
        mutant::reap();
        self.ours().into_iter().map(proc::describe).collect()
    }

    /// Waits until nothing that the suite started is left; a breach when something is there after `limit`.
    pub fn nothing_within(&self, limit: Duration) -> Result<Duration, Fail> {
        let (start, limit) = (Instant::now(), pace::time(limit));
        loop {
            // Read before the look: what has died while the suite itself stood still was not late.
            let late = start.elapsed() > limit;
            let left = self.survivors();
            if left.is_empty() {
                return Ok(start.elapsed());
            }
            if late {
                return Err(breach(format!("{} alive after {limit:?}: {}", left.len(), cut(&left.join(", ")))));
            }
            nix::poll::poll(&mut [], 1u8).ok();
        }
    }

    /// Counts a task of the shipped program; those that a server starts are counted by the case.
    pub fn tried(&self, tasks: usize) {
        self.tasks.fetch_add(tasks, Relaxed);
    }

    /// Tasks of the shipped program so far, canaries too.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.load(Relaxed)
    }

    /// What a case measured: trials, delays, how many failed. It stands in the report as the case's evidence.
    pub fn note(&self, text: impl std::fmt::Display) {
        println!("      {text}");
        self.notes.lock().unwrap().push(text.to_string());
    }

    /// The notes since they were taken last.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap())
    }
}
