//! Pages of the host's files are locked while they are read, and a task's reads wait for its io limit: whoever needs such a page waits
//! with it, root too.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::harness::answers::{EVERYWHERE, ended_well, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, Launch, broken};
use crate::support::pace;
use crate::support::throttled::Throttled;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "R29",
        tier: 1,
        what: "drops pages of a host file, and has so much of it read under a small io limit that others wait for it",
        defence: &["io-floor", "seccomp"],
        control: root_waits_for_a_throttled_reader,
        attack: nobody_waits_for_long,
    }]
}

/// As much of the memory as a task can have locked and still live.
const MIB: u64 = 24;
const MEMORY: &str = "32M";
/// The least io limit of so much memory.
const FLOOR: &str = "8M";
/// What a task asks for that wants others to wait.
const LOW: (&str, u64) = ("64K", 64 << 10);
/// The promise, and a second for the disk.
const LONGEST: Duration = Duration::from_secs(4 + 1);

/// A file on the disk behind the suite's directory, in view of every task.
struct Shared(PathBuf);

impl Shared {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let shared = Self(bench.probe_dir().join("shared"));
        let fail = |e: std::io::Error| broken(format!("shared file: {e}"));
        fs::write(&shared.0, vec![b's'; (MIB << 20) as usize]).map_err(fail)?;
        // On the disk, or its pages could not be dropped.
        shared.open()?.sync_all().map_err(fail)?;
        Ok(shared)
    }

    fn open(&self) -> Result<File, Fail> {
        File::open(&self.0).map_err(|e| broken(format!("{}: {e}", self.0.display())))
    }

    /// Drops it from the page cache.
    fn drop_pages(&self) -> Result<(), Fail> {
        let dropped = posix_fadvise(&self.open()?, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        dropped.map_err(|e| broken(format!("fadvise: {e}")))
    }

    /// Reads all of it; how much of that came from the disk.
    fn read(&self) -> Result<u64, Fail> {
        let counted = || {
            let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
            io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()).unwrap_or(0u64)
        };
        let before = counted();
        fs::read(&self.0).map_err(|e| broken(format!("{}: {e}", self.0.display())))?;
        Ok(counted() - before)
    }

    /// The longest wait of readers outside for a page of it, `limit` if some still wait then; and how many those are. They go on.
    fn longest_wait(&self, limit: Duration) -> Result<(Duration, usize), Fail> {
        let (done, waits) = mpsc::channel();
        for part in 0..MIB {
            let (file, done) = (self.open()?, done.clone());
            std::thread::spawn(move || {
                let begun = Instant::now();
                // One page, and nothing ahead of it: what others do not have queued is read for itself.
                let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
                let _ = file.read_at(&mut [0], part << 20);
                let _ = done.send(begun.elapsed());
            });
        }
        let (end, mut longest) = (Instant::now() + limit, Duration::ZERO);
        for read in 0..MIB as usize {
            match waits.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(waited) => longest = longest.max(waited),
                Err(_) => return Ok((limit, MIB as usize - read)),
            }
        }
        Ok((longest, 0))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The probe, which finds the file under this name.
fn probe<'b>(launch: Launch<'b>, what: &str, path: &str) -> Launch<'b> {
    launch.probe("r_pages", &[what, path, &MIB.to_string()])
}

const INSIDE: &str = "/probe/shared";
const DROPS: [&str; 2] = ["dontneed", "dontneed-high"];
/// Ways to open a file for reads past the page cache, each with its refusal.
const DIRECT: [(&str, &str); 4] =
    [("direct", "EINVAL"), ("direct-at", "EINVAL"), ("direct-at2", "ENOSYS"), ("direct-later", "EINVAL")];
const AHEAD: [&str; 3] = ["willneed", "readahead", "map-willneed"];

fn root_waits_for_a_throttled_reader(bench: &Bench) -> Control {
    let look = || -> Result<Option<String>, Fail> {
        let shared = Shared::make(bench)?;
        let path = shared.0.display().to_string();
        shared.read()?;
        watch(bench, None, probe(bench.direct(), "drop", &path), |_| Ok(()))?
            .0
            .all(&EVERYWHERE, &DROPS.map(|n| (n, "ok")))?;
        let read = shared.read()?;
        if read < MIB << 19 {
            return Ok(Some(format!("pages of the suite's directory are not dropped: {read} bytes were read again")));
        }
        shared.drop_pages()?;
        let Some(slow) = Throttled::make(bench.probe_dir(), LOW.1) else {
            return Ok(Some(
                "no cgroup here limits what is read from the disk behind the suite's directory".to_owned(),
            ));
        };
        let wrap = slow.wrap();
        let launch = bench.direct().wrapped(&wrap.each_ref().map(String::as_str));
        let mut run = probe(launch, "queue", &path).with_stdin().spawn()?;
        run.wait_line("state ready")?;
        let (waited, waiting) = shared.longest_wait(Duration::from_secs(2))?;
        slow.lift();
        drop(run.stdin());
        run.finish()?;
        require!(waiting > 0, "nobody waits for a reader of {} a second for longer than {waited:?}", LOW.0);
        Ok(None)
    };
    match look() {
        Ok(None) => Control::Works,
        Ok(Some(why)) => Control::Cannot(why),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn nobody_waits_for_long(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let shared = Shared::make(bench)?;
    takes_no_advice(bench, arm, &shared)?;
    // Below the floor no task starts; one that does shows what it is for.
    let low = limited(bench, arm, LOW.0).command("/bin/true", [""; 0]).finish()?;
    let refused = low.code() == 125 && low.err.contains(&format!("--io-read-bps: must be at least {FLOOR}"));
    require!(refused || low.code() == 0, "ended with {}: {}", low.code(), low.err);
    let rate = if refused { FLOOR } else { LOW.0 };
    let promised = 0..=pace::time(LONGEST).as_millis();
    arm.in_time(&format!("others read what a task at {rate}/s has queued"), promised, || {
        waited(bench, arm, &shared, rate)
    })?;
    ensure!(refused, "an io limit of {} with {MEMORY} of memory is granted", LOW.0);
    Ok(())
}

fn limited<'b>(bench: &'b Bench, arm: Arm, rate: &str) -> Launch<'b> {
    bench.task(arm).opt("--memory", MEMORY).opt("--pids", "32").opt("--io-read-bps", rate)
}

/// What others have read stays, and what is to be read ahead is not.
fn takes_no_advice(bench: &Bench, arm: Arm, shared: &Shared) -> Result<(), Fail> {
    shared.read()?;
    let (answers, _) = watch(bench, Some(arm), probe(bench.task(arm), "drop", INSIDE), |_| Ok(()))?;
    answers.all(&EVERYWHERE, &DROPS.map(|name| (name, "ok")))?;
    let again = shared.read()?;
    ensure!(again < MIB << 19, "pages were dropped: {again} bytes were read again");
    shared.drop_pages()?;
    let (answers, _) = watch(bench, Some(arm), probe(bench.task(arm), "ahead", INSIDE), |_| Ok(()))?;
    answers.all(&["main"], &AHEAD.map(|name| (name, "ok")))?;
    let first = shared.read()?;
    ensure!(first >= MIB << 19, "pages were read ahead: only {first} bytes were left to read");
    let (answers, _) = watch(bench, Some(arm), probe(bench.task(arm), "direct", INSIDE), |_| Ok(()))?;
    answers.all(&EVERYWHERE, &DIRECT)
}

/// How long others wait at worst while all of a task's processes read, in milliseconds.
fn waited(bench: &Bench, arm: Arm, shared: &Shared, rate: &str) -> Result<u128, Fail> {
    shared.drop_pages()?;
    let mut run = probe(limited(bench, arm, rate), "queue", INSIDE).with_stdin().spawn()?;
    run.wait_line("state ready")?;
    let canary = bench.canary_beside(arm)?;
    let last = format!("skip={}", (MIB << 20) / 4096 - 1);
    let mut other =
        bench.task(arm).command("/bin/dd", [&format!("if={INSIDE}"), "bs=4096", "count=1", &last]).spawn()?;
    let limit = pace::time(LONGEST) + Duration::from_secs(1);
    let (mut longest, waiting) = shared.longest_wait(limit)?;
    let others_end = other.pump(limit.saturating_sub(other.started.elapsed()), |other| other.ended.is_some())?;
    if waiting > 0 || !others_end {
        longest = limit;
        // The limit is taken back with the task, and then nobody waits any more.
        run.stop_twice()?;
        run.finish()?;
        other.finish()?;
        return Ok(longest.as_millis());
    }
    let other = other.finish()?;
    ended_well(&other)?;
    canary.ends_well()?;
    bench.note(format!(
        "{MIB} MiB queued at {rate}/s: others waited {longest:?} at most, another task took {:?}",
        other.took
    ));
    longest = longest.max(other.took);
    drop(run.stdin());
    ended_well(&run.finish()?)?;
    Ok(longest.as_millis())
}
