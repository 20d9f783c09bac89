//! Each case runs in a process of its own, with control groups, uids, a mount namespace and a ledger of its own: so cases run
//! side by side, and one that waits holds nothing up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use libtest_mimic::{Completion, Failed, Trial};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::case::Case;
use super::record::{Outcome, Record};
use super::{Bench, payload};
use crate::support::{self, mutation};

/// Names the case to its process, and the file for its record.
const CASE: &str = "TASKMAN_ADV_CASE";
const RECORD: &str = "TASKMAN_ADV_RECORD";

/// Cases that run with nothing of the suite beside them, and why.
const ALONE: [(&str, &str); 15] = [
    ("C02", HIERARCHY),
    ("C03", HIERARCHY),
    ("C06", "its observer must be as quick as the start that it watches, and so wants a CPU"),
    ("O05", "the kernel collects what it left whenever any process closes a socket"),
    ("R09", COUNTER),
    ("R20", COUNTER),
    ("R22", COUNTER),
    ("R23", COUNTER),
    ("R25", COUNTER),
    ("R26", COUNTER),
    ("R27", COUNTER),
    ("R28", COUNTER),
    ("R30", COUNTER),
    ("W09", COUNTER),
    ("R12", "it measures shares of CPU time"),
];

const COUNTER: &str = "it reads a counter of the whole host";
const HIERARCHY: &str = "it makes a cgroup hierarchy, which every process of the host then has";

/// Cases that run side by side: more than there are CPUs, because most wait most of the time.
pub const LANES: usize = 3;

/// The suite as a whole: what is made once for all cases, and what came of each.
pub struct Suite {
    scratch: PathBuf,
    /// Whether an arm with mutants is asked for.
    mutants: bool,
    /// What the cases' processes need not make again, as variables.
    made: OnceLock<Result<Vec<(&'static str, PathBuf)>, String>>,
    beside: RwLock<()>,
    records: Mutex<Vec<Record>>,
}

impl Suite {
    pub fn new(mutants: bool) -> Self {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("adversarial-{}", std::process::id()));
        Self { scratch, mutants, made: OnceLock::new(), beside: RwLock::default(), records: Mutex::default() }
    }

    /// Compiles payloads and mutants.
    fn make(&self) -> Result<Vec<(&'static str, PathBuf)>, String> {
        // One that was interrupted, under the same pid, has left its own.
        let _ = fs::remove_dir_all(&self.scratch);
        fs::create_dir_all(&self.scratch).map_err(|e| format!("mkdir {}: {e}", self.scratch.display()))?;
        let mut made = Vec::new();
        if std::env::var_os(payload::COMPILED).is_none() {
            let payloads = self.scratch.join("payloads");
            payload::compile_all(&payloads)?;
            made.push((payload::COMPILED, payloads));
        }
        if self.mutants {
            mutation::build("taskman-server")?;
            let mutant = mutation::build("taskman")?;
            made.push((mutation::BUILT, mutant.parent().ok_or("the mutant has no directory")?.to_owned()));
        }
        Ok(made)
    }

    /// The case as a test.
    pub fn trial(&'static self, case: Case) -> Trial {
        Trial::ignorable_test(case.name(), move || self.run(&case).map_err(Failed::from))
    }

    fn run(&self, case: &Case) -> Result<Completion, String> {
        let id = case.id;
        let made = self.made.get_or_init(|| self.make()).clone()?;
        let (_beside, _alone);
        if ALONE.iter().any(|(alone, _)| *alone == id) {
            _alone = self.beside.write().unwrap_or_else(PoisonError::into_inner);
        } else {
            _beside = self.beside.read().unwrap_or_else(PoisonError::into_inner);
        }
        let file = self.scratch.join(format!("{id}.json"));
        let program = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
        let mut command = Command::new(program);
        let ran = command.env(CASE, id).env(RECORD, &file).envs(made).output().map_err(|e| format!("start: {e}"))?;
        // In one piece, so that cases do not talk in between.
        print!("{}", String::from_utf8_lossy(&ran.stdout));
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let record = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        let record = record.filter(|_| ran.status.success()).unwrap_or_else(|| {
            let why = format!("its process ended without a record, {}: {said}", ran.status);
            Record { outcome: Outcome::Failed(why), ..case.record() }
        });
        let completion = match &record.outcome {
            Outcome::Held => Ok(Completion::Completed),
            Outcome::Skipped(why) => Ok(Completion::ignored_with(format!("SKIP: {why}"))),
            Outcome::Failed(why) => Err(format!("{why}\n{said}")),
        };
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        completion
    }

    /// What came of each case, by id.
    pub fn close(&self) -> Vec<Record> {
        let _ = fs::remove_dir_all(&self.scratch);
        let mut records = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        records.sort_by(|one, other| one.id.cmp(&other.id));
        records
    }
}

/// The case that this process is for, if it is for one.
pub fn asked_for() -> Option<String> {
    std::env::var(CASE).ok()
}

/// A mount namespace without what other tests mount: neither what they do meanwhile nor what they have done, which goes away with
/// their directories, is of this case's ledger.
fn own_mounts() -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let propagate = |how| {
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | how, None::<&str>).map_err(|e| format!("mount /: {e}"))
    };
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| format!("unshare: {e}"))?;
    propagate(MsFlags::MS_PRIVATE)?;
    // A task meets mounts that are shared where this host's are, as systemd makes them.
    if mounts.lines().any(|line| line.split(' ').nth(4) == Some("/") && line.contains(" shared:")) {
        propagate(MsFlags::MS_SHARED)?;
    }
    let scratch = std::env::temp_dir();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    for point in points.filter(|point| point.starts_with(&scratch) && *point != scratch) {
        // One that has gone in between is as well.
        let _ = umount2(point, MntFlags::MNT_DETACH);
    }
    Ok(())
}

/// Runs one case and hands its record over.
pub fn run(case: &Case) -> Result<ExitCode, String> {
    own_mounts()?;
    let bench = Bench::open()?;
    // The async runtime of the service's clients keeps two descriptors for as long as this process lives; its threads end.
    support::rpc::on(async {});
    support::wait_until("the runtime's threads have ended", || {
        (fs::read_dir("/proc/self/task").ok()?.count() == 1).then_some(())
    });
    let mut record = case.run(&bench);
    let left = bench.close();
    if !left.is_empty() && !matches!(record.outcome, Outcome::Failed(_)) {
        record.outcome = Outcome::Failed(format!("after the case: {}", left.join("\n")));
    }
    if let Outcome::Failed(why) = &record.outcome {
        println!("    {} FAILED: {why}", case.id);
    }
    let file = std::env::var_os(RECORD).ok_or_else(|| format!("{RECORD} is not set"))?;
    let text = serde_json::to_vec(&record).map_err(|e| e.to_string())?;
    fs::write(&file, text).map_err(|e| format!("write {}: {e}", Path::new(&file).display()))?;
    Ok(ExitCode::SUCCESS)
}
