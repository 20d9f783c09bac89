//! A process that the kernel cannot kill for a while: the stop ends in time all the same, and says what it could not do.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};
use crate::support::Server;
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "R15",
        tier: 1,
        what: "cannot be killed (frozen by root in a freezer of version 1) when it is stopped",
        defence: &["end-deadline"],
        control: freezing_defies_killing,
        attack: stop_ends_in_time,
    }]
}

const GRACE: Duration = Duration::from_millis(200);
/// What was killed has five seconds to vanish; a busy machine may take one more to say that it did not. One that stalls is
/// waited for, and asked again.
const LATEST: Duration = Duration::from_millis(200 + 5_000 + 1_000);
const LIMIT: Duration = Duration::from_secs(11);

/// A process that the kernel does not run, not even to die. Dropped, it is let go, and the freezer is removed.
struct Frozen {
    group: PathBuf,
    pid: i32,
}

impl Frozen {
    /// Nothing where there is no freezer of version 1; that of version 2 lets go of what is killed.
    fn put(pid: i32) -> Result<Option<Self>, Fail> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let of_freezer = |line: &&str| line.split_once(" - cgroup ").is_some_and(|(_, end)| end.ends_with("freezer"));
        let Some(point) = mounts.lines().find(of_freezer).and_then(|line| line.split(' ').nth(4)) else {
            return Ok(None);
        };
        let frozen = Self { group: PathBuf::from(point).join(format!("adv-{}", std::process::id())), pid };
        let write = |file: &str, text: &str| {
            let path = frozen.group.join(file);
            fs::write(&path, text).map_err(|e| broken(format!("write {text} to {}: {e}", path.display())))
        };
        fs::create_dir(&frozen.group).map_err(|e| broken(format!("mkdir {}: {e}", frozen.group.display())))?;
        write("cgroup.procs", &pid.to_string())?;
        write("freezer.state", "FROZEN")?;
        let deadline = Instant::now() + pace::time(Duration::from_secs(2));
        while fs::read_to_string(frozen.group.join("freezer.state")).unwrap_or_default().trim() != "FROZEN" {
            require!(Instant::now() < deadline, "the freezer does not freeze");
            nix::poll::poll(&mut [], 1u8).ok();
        }
        Ok(Some(frozen))
    }

    /// Whether it is there, and has not even begun to die.
    fn lives(&self) -> bool {
        proc::stat_of(self.pid).is_some_and(|stat| stat.state != 'Z' && stat.flags & 4 == 0)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join("freezer.state"), "THAWED");
        let deadline = Instant::now() + pace::time(Duration::from_secs(2));
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            nix::poll::poll(&mut [], 1u8).ok();
        }
    }
}

fn freezing_defies_killing(bench: &Bench) -> Control {
    let look = || -> Result<Option<bool>, Fail> {
        let mut run = bench.direct().probe("contain_sigterm_ignore", &["30"]).spawn()?;
        run.wait_line("ready")?;
        let Some(frozen) = Frozen::put(run.pid)? else { return Ok(None) };
        run.signal(Signal::SIGKILL)?;
        run.pump(Duration::from_millis(300), |run| run.ended.is_some())?;
        let defied = frozen.lives();
        drop(frozen);
        require!(
            run.pump(pace::time(Duration::from_secs(5)), |run| run.ended.is_some())?,
            "it did not die when it was let go"
        );
        Ok(Some(defied))
    };
    match look() {
        Ok(Some(true)) => Control::Works,
        Ok(Some(false)) => Control::Broken("what was frozen died of SIGKILL".to_owned()),
        Ok(None) => {
            Control::Cannot("no freezer of version 1 is mounted, and none of version 2 defies SIGKILL".to_owned())
        }
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn stop_ends_in_time(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let promised = 0..=pace::time(LATEST).as_millis();
    arm.in_time("taskman run, stopped with a grace of 200 ms: over", promised.clone(), || run_goes_on(bench, arm))?;
    if arm == Arm::Contained {
        arm.in_time("a task of the service, stopped with a grace of 200 ms: final", promised, || {
            daemon_goes_on(bench)
        })?;
    }
    Ok(())
}

/// From the stop to the end of `taskman run`, in milliseconds.
fn run_goes_on(bench: &Bench, arm: Arm) -> Result<u128, Fail> {
    let first = bench.uid_range().start;
    let task = || bench.task(arm).with_uids(first..first + 1);
    let mut run =
        task().opt("--grace", format!("{}ms", GRACE.as_millis())).probe("contain_sigterm_ignore", &["30"]).spawn()?;
    run.wait_line("ready")?;
    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
    let frozen = Frozen::put(payload)?.ok_or_else(|| broken("no freezer"))?;
    let asked = Instant::now();
    run.signal(Signal::SIGTERM)?;
    let canary = bench.canary_beside(arm)?;
    let done = run.final_within(arm.limit(LIMIT, LATEST).saturating_sub(asked.elapsed()))?;
    canary.ends_well()?;
    let took = done.ended - asked;
    ensure!(frozen.lives(), "what could not be killed was killed: the case tests nothing");
    ensure!(done.reason()? == "stopped" && done.code() == 125, "{}, exit {}", done.reason()?, done.code());
    ensure!(done.verdict()? == "violated", "verdict {}", done.verdict()?);
    let detail = done.field("/outcome/detail")?.as_str().unwrap_or("").to_owned();
    ensure!(detail.contains("containment is not proven"), "the detail is {detail:?}");
    let checks = done.field("/containment/checks")?.to_string();
    for fact in ["populated 1", "has live processes"] {
        ensure!(checks.contains(fact), "no check says {fact:?}: {checks}");
    }
    // Its uid is not given to another while it lives; the canaries show that all others are.
    let next = task().command("/bin/true", [""; 0]).finish()?;
    ensure!(next.code() == 125 && next.err.contains("lease a uid"), "its uid was given away: exit {}", next.code());
    drop(frozen);
    bench.nothing_within(Duration::from_secs(5))?;
    let next = task().command("/bin/true", [""; 0]).finish()?;
    ensure!(next.code() == 0 && next.verdict()? == "proven", "its uid is lost: exit {}, {}", next.code(), next.err);
    let dirs = bench.place.task_dirs();
    ensure!(dirs.is_empty(), "{} directories left, such as {}", dirs.len(), dirs[0].display());
    bench.note(format!(
        "taskman run was over {} ms after the stop, grace 200, while the process lived on",
        took.as_millis()
    ));
    Ok(took.as_millis())
}

/// The service: the stop is answered, the task becomes final after so many milliseconds, and nobody else waits.
fn daemon_goes_on(bench: &Bench) -> Result<u128, Fail> {
    let uids = bench.uid_range();
    let server = Server::configured(&format!("uid_range = \"{}:{}\"", uids.start, uids.end - uids.start));
    let other = server.task(&["--", "sh", "-c", "while :; do sleep 0.05; echo on; done"]);
    let stuck = server.task(&["--", "sleep", "60"]);
    bench.tried(2);
    let pid = server.status(&stuck)["process_id"].as_i64().unwrap_or(0) as i32;
    let frozen = Frozen::put(pid)?.ok_or_else(|| broken("no freezer"))?;
    let timed = |words: &[&str]| {
        let start = Instant::now();
        let ended = server.taskman("client001", words);
        (ended, start.elapsed())
    };
    let asked = Instant::now();
    let (stopped, answered) = timed(&["stop", &stuck, "--grace", "200ms"]);
    let mut slowest = Duration::ZERO;
    let last = loop {
        let (status, took) = timed(&["get-status", &stuck, "--output", "json"]);
        slowest = slowest.max(took);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let is_final = status["outcome"]["reason"].is_string();
        if is_final || asked.elapsed() > pace::time(LIMIT) {
            break status;
        }
        nix::poll::poll(&mut [], 50u8).ok();
    };
    let final_after = asked.elapsed();
    let running = server.status(&other)["status"].clone();
    ensure!(frozen.lives(), "what could not be killed was killed: the case tests nothing");
    drop(frozen);
    bench.note(format!(
        "the service answered the stop after {} ms, made the task final after {}, and answered others in at most {}",
        answered.as_millis(),
        final_after.as_millis(),
        slowest.as_millis()
    ));
    ensure!(stopped.status.code() == Some(0), "the stop failed: {stopped:?}");
    ensure!(final_after <= pace::time(LIMIT), "not final {final_after:?} after the stop: {last:#}");
    ensure!(last["outcome"]["reason"] == "stopped", "ended as {last:#}");
    ensure!(last["containment"]["verdict"] == "violated", "verdict {}", last["containment"]["verdict"]);
    ensure!(
        answered < LIMIT && slowest < pace::time(Duration::from_secs(5)),
        "answers took {answered:?} and {slowest:?}"
    );
    ensure!(running == "JOB_STATUS_STARTED", "the other task is {running}");
    drop(server);
    // What the server could not remove, the next start sweeps.
    bench.nothing_within(Duration::from_secs(5))?;
    bench.canary()?;
    Ok(final_after.as_millis())
}
