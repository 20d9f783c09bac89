//! A read past the page cache cannot be interrupted: under a small io limit it would outlive every other limit. The filter refuses it,
//! and the limit is taken back with the kill.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "R21",
        tier: 1,
        what: "is in one long read, past the page cache if it may, under a small io limit when its time is over",
        defence: &["seccomp,lift-throttles"],
        control: reads_past_the_cache,
        attack: killed_readers_end_at_once,
    }]
}

const MIB: u64 = 60;
const MEMORY: &str = "12M";
/// At this rate, the least with so much memory, the read takes twenty seconds; that of a mutant has to be waited for, and takes five.
fn rate(arm: Arm) -> &'static str {
    if arm == Arm::Contained { "3M" } else { "12M" }
}

const LATE: Duration = Duration::from_secs(2);

/// Of the tasks.
fn timeout(arm: Arm) -> Duration {
    pace::term(arm.limit(Duration::from_secs(4), Duration::from_secs(1)))
}

/// A file on the disk behind the suite's directory, in view of every task.
struct Large(PathBuf);

impl Large {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let path = bench.probe_dir().join("large");
        let large = Self(path);
        let fail = |e: std::io::Error| broken(format!("large file: {e}"));
        fs::write(&large.0, vec![b'd'; (MIB << 20) as usize]).map_err(fail)?;
        // On the disk alone, or there would be nothing to read from it.
        let file = fs::File::open(&large.0).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        let dropped = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        dropped.map_err(|e| broken(format!("fadvise: {e}")))?;
        Ok(large)
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Bytes that a process has had read from a disk, as the host counts them.
fn from_disk(pid: i32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()).unwrap_or(0)
}

fn reads_past_the_cache(bench: &Bench) -> Control {
    let look = || -> Result<(Run, u64, String), Fail> {
        let large = Large::make(bench)?;
        let path = large.0.display().to_string();
        let mut run = bench.direct().probe("r_direct", &[&path, &MIB.to_string()]).with_stdin().spawn()?;
        run.pump(pace::time(Duration::from_secs(20)), |run| run.out.text().contains("read ") || run.ended.is_some())?;
        let (bytes, said) = (from_disk(run.pid), run.out.text());
        Ok((run, bytes, said))
    };
    match look() {
        Ok((_, bytes, said)) if said.ends_with(&format!("read {}\n", MIB << 20)) && bytes >= MIB << 20 => {
            Control::Works
        }
        Ok((_, bytes, said)) => Control::Cannot(format!(
            "no disk behind the suite's directory reads past the cache: {said:?}, {bytes} bytes"
        )),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn killed_readers_end_at_once(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let _large = Large::make(bench)?;
    let promised = 0..=pace::time(LATE).as_millis();
    arm.in_time("beyond its timeout: over", promised, || killed_reader_ends(bench, arm)).map(drop)
}

/// From its timeout to its end, in milliseconds.
fn killed_reader_ends(bench: &Bench, arm: Arm) -> Result<u128, Fail> {
    let (rate, timeout) = (rate(arm), timeout(arm));
    let task = bench
        .task(arm)
        .opt("--memory", MEMORY)
        .opt("--io-read-bps", rate)
        .opt("--timeout", format!("{}s", timeout.as_secs()));
    let mut run = task.probe("r_direct", &["/probe/large", &MIB.to_string()]).with_stdin().spawn()?;
    run.wait_line("reading")?;
    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
    let asleep = || proc::stat_of(payload).is_some_and(|stat| stat.state == 'D');
    require!(run.wait_until(Duration::from_secs(3), asleep)?, "the read is over");
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let late = pace::time(arm.limit(Duration::from_secs(5), LATE));
    let left = (run.started + timeout + late).saturating_duration_since(std::time::Instant::now());
    let done = run.final_within(left)?;
    let seen = format!("{}, exit {}, {}, after {:?}", done.reason()?, done.code(), done.verdict()?, done.took);
    ensure!(done.reason()? == "wall_time" && done.code() == 124 && done.verdict()? == "proven", "{seen}");
    bench.note(format!("{MIB} MiB at {rate}/s with a timeout of {timeout:?}: over after {:?}", done.took));
    Ok(done.took.saturating_sub(timeout).as_millis())
}
