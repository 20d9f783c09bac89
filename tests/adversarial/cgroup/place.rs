//! Placement: inside the group from the first instruction, refused where a controller is missing, gone afterwards.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::place::{CONTROLLERS, own_groups};
use crate::harness::{Arm, Bench, Case, Control, Fail, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "C06",
            tier: 1,
            what: "forks and allocates from its very first instruction",
            defence: &["v1-join", "clone-into-cgroup", "memory,swap", "pids"],
            control: |bench| unlimited_without(bench).into(),
            attack: never_outside,
        },
        Case {
            id: "C07",
            tier: 1,
            what: "a needed controller is missing",
            defence: &["strict-host"],
            control: controllers_can_be_hidden,
            attack: start_is_refused,
        },
        Case {
            id: "C08",
            tier: 1,
            what: "hundreds of tasks end with dying members in their groups",
            defence: &["kill,pid-namespace"],
            control: |bench| members_stay(bench).into(),
            attack: no_directory_stays,
        },
    ]
}

const CHILDREN: &str = "24";
const PIDS: u64 = 16;
const MEMORY: u64 = 10 << 20;

/// Directly, all of its children exist at once, outside any task's group.
fn unlimited_without(bench: &Bench) -> Result<(), Fail> {
    // What is left of them is swept, not waited for.
    let mut run = bench.direct().probe("c_first", &[CHILDREN, "1", "3000000"]).spawn()?;
    let nonce = run.nonce.clone();
    let many = || proc::with_nonce(&nonce).len() as u64 > PIDS;
    require!(run.wait_until(Duration::from_secs(2), many)?, "never more than {PIDS} processes");
    Ok(())
}

/// Hierarchies in which a process that lives is not in a group of a task. The kernel shows one that is being forked in the root
/// of all groups until it has put it into its parent's: that moment is over at the second look.
fn outside(pid: i32) -> Vec<String> {
    let seen = look_outside(pid);
    if !seen.iter().any(|line| line.ends_with(":/")) {
        return seen;
    }
    std::thread::sleep(Duration::from_millis(2));
    look_outside(pid)
}

fn look_outside(pid: i32) -> Vec<String> {
    let wanted: Vec<String> = own_groups().into_iter().map(|(controllers, _)| controllers).collect();
    let seen: Vec<_> = proc::cgroup_of(pid)
        .into_iter()
        .filter(|(c, path)| wanted.contains(c) && !path.contains("/taskman-"))
        .collect();
    // Read after the groups: the flag never goes away again, so a process without it was not exiting before either.
    // An exiting process has left its v1 groups already.
    match proc::stat_of(pid) {
        Some(stat) if stat.flags & 4 == 0 => seen.into_iter().map(|(c, path)| format!("{c}:{path}")).collect(),
        _ => Vec::new(),
    }
}

fn never_outside(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(1_000, 20);
    let uids = bench.uid_range();
    let (mut samples, mut looked, mut most_pids, mut most_memory) = (0u64, 0u64, 0u64, 0u64);
    for trial in 0..trials {
        let task = bench.task(arm).opt("--pids", PIDS.to_string()).opt("--memory", MEMORY.to_string());
        let mut run = task.probe("c_first", &[CHILDREN, "1", "4000"]).spawn()?;
        while run.ended.is_none() {
            samples += 1;
            for pid in proc::of_uid_range(&uids) {
                looked += 1;
                let out = outside(pid);
                ensure!(out.is_empty(), "trial {trial}: {} is outside: {}", proc::describe(pid), out.join(" "));
            }
            run.pump(Duration::from_millis(1), |run| run.ended.is_some())?;
        }
        let done = run.finish()?;
        let number = |pointer| done.field(pointer).map(|v| v.as_u64().unwrap_or(u64::MAX));
        let (pids, memory) = (number("/usage/pids_peak")?, number("/usage/memory_peak_bytes")?);
        (most_pids, most_memory) = (most_pids.max(pids), most_memory.max(memory));
        // Init is not charged to the payload: the group holds one more.
        ensure!(pids <= PIDS + 1, "trial {trial}: {pids} processes with a limit of {PIDS}");
        ensure!(memory <= MEMORY, "trial {trial}: {memory} bytes with a limit of {MEMORY}");
        if arm == Arm::Contained && trial % 100 == 0 {
            bench.canary()?;
        }
    }
    bench.note(format!(
        "{trials} trials, {samples} samples of {looked} processes: 0 outside; at most {most_pids} of {PIDS} processes and \
         {most_memory} of {MEMORY} bytes"
    ));
    Ok(())
}

/// Mount points of the v1 controllers taskman needs, by controller.
fn v1_mounts() -> Vec<(String, String)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = |controller: &str| {
        let line = mounts.lines().find(|l| {
            l.split_once(" - cgroup ")
                .is_some_and(|(_, tail)| tail.rsplit(' ').next().unwrap_or("").split(',').any(|o| o == controller))
        })?;
        Some((controller.to_owned(), line.split(' ').nth(4)?.to_owned()))
    };
    CONTROLLERS.into_iter().filter_map(point).collect()
}

const HIDE: &str = r#"umount "$0" && exec "$@""#;

/// In a mount namespace of its own a hierarchy can be unmounted, and the probe runs there.
fn controllers_can_be_hidden(bench: &Bench) -> Control {
    let Some((_, point)) = v1_mounts().into_iter().next() else {
        return Control::Cannot(
            "this host has no v1 controllers to take away; without those of v2: limits_without_delegated_controllers_nothing_starts of tests/vm".to_owned(),
        );
    };
    let run = bench.direct().wrapped(&["unshare", "-m", "sh", "-c", HIDE, &point]).sh("echo ran").finish();
    run.and_then(|done| {
        require!(done.out == "ran\n", "{:?} {}", done.out, done.err);
        Ok(())
    })
    .into()
}

fn start_is_refused(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for (controller, point) in v1_mounts() {
        let wrap = ["unshare", "-m", "sh", "-c", HIDE, &point];
        let done = bench.task(arm).wrapped(&wrap).sh("echo ran").finish()?;
        ensure!(done.out.is_empty(), "without {controller} the command ran all the same");
        ensure!(done.code() == 125, "without {controller}: exit {}", done.code());
        ensure!(done.report.is_none(), "without {controller}: a report, although nothing ran");
        ensure!(done.err.contains(&controller), "without {controller} the message does not name it: {}", done.err);
        ensure!(done.err.contains("fix: mount "), "without {controller} the message names no fix: {}", done.err);
        ensure!(bench.survivors().is_empty(), "something runs: {}", bench.survivors().join(", "));

        // The operator's explicit choice runs, and its record says what is missing.
        let done = bench.task(arm).wrapped(&wrap).flag("--no-strict").sh("echo ran").finish()?;
        ensure!(
            done.code() == 0 && done.out == "ran\n",
            "--no-strict without {controller}: exit {}: {}",
            done.code(),
            done.err
        );
        let reduced = done.field("/reduced")?.to_string();
        ensure!(reduced.contains(&controller), "--no-strict without {controller}: reduced is {reduced}");
        if arm == Arm::Contained {
            bench.canary()?;
        }
        bench.note(format!("without {controller}: refused with 125; --no-strict says reduced: {reduced}"));
    }
    Ok(())
}

/// Directly, members outlive the main process.
fn members_stay(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().probe("c_members", &["24"]).spawn()?;
    require!(run.pump(pace::time(Duration::from_secs(10)), |run| run.ended.is_some())?, "main did not end");
    let left = proc::with_nonce(&run.nonce).len();
    require!(left > 0, "no member outlived the main process");
    Ok(())
}

fn dying(bench: &Bench) -> u64 {
    let stat = fs::read_to_string(bench.place.v2().join("cgroup.stat")).unwrap_or_default();
    let line = stat.lines().find_map(|l| l.strip_prefix("nr_dying_descendants "));
    line.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn no_directory_stays(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(300, 2);
    let before = dying(bench);
    let mut left = 0;
    let limit = arm.limit(Duration::from_secs(10), Duration::from_secs(3));
    for trial in 0..trials {
        let done = bench.task(arm).probe("c_members", &["24"]).spawn()?.final_within(limit)?;
        let dirs = bench.place.task_dirs();
        ensure!(dirs.is_empty(), "trial {trial}: {} is still there", dirs[0].display());
        let alive = bench.survivors();
        ensure!(alive.is_empty(), "trial {trial}: alive: {}", alive.join(", "));
        ensure!(done.verdict()? == "proven", "trial {trial}: verdict {}", done.verdict()?);
        left += usize::from(done.field("/outcome/detail")?.to_string().contains("left "));
        if arm == Arm::Contained && trial % 100 == 0 {
            bench.canary()?;
        }
    }
    // The kernel frees a removed group when its last page is; a few may be on their way, not one per task.
    let deadline = Instant::now() + pace::time(Duration::from_secs(10));
    while dying(bench) > before + 20 && Instant::now() < deadline {
        nix::poll::poll(&mut [], 20u8).ok();
    }
    let after = dying(bench);
    bench.note(format!(
        "{trials} tasks, {left} of them with members left: 0 directories; dying groups {before} -> {after}"
    ));
    ensure!(after <= before + 20, "{after} dying groups after {trials} tasks, {before} before");
    require!(left > trials / 2, "only {left} of {trials} tasks had members left: the case tested too little");
    Ok(())
}
