//! Memory: the group's limit holds, takes the whole task down, and swap is no way round it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::place::own_groups;
use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "R02",
            tier: 1,
            what: "anonymous memory bomb",
            defence: &["memory,swap", "oom-group"],
            control: |bench| takes_it_all(bench).into(),
            attack: bomb_takes_its_group_down,
        },
        Case {
            id: "R03",
            tier: 1,
            what: "a child runs out of memory, its parent goes on and prints success",
            defence: &["oom-group"],
            control: |bench| parent_goes_on(bench).into(),
            attack: parent_does_not_go_on,
        },
        Case {
            id: "R07",
            tier: 1,
            what: "takes more than its limit while the host has swap",
            defence: &["swap"],
            control: swap_lets_it_live,
            attack: swap_is_no_way_round,
        },
    ]
}

const LIMIT: u64 = 48 << 20;

/// What the processes of this suite's uids hold in memory, as the host counts it.
fn resident(bench: &Bench) -> u64 {
    let rss = |pid| {
        let status = proc::status_of(pid)?;
        let anonymous = status.get("RssAnon")?.split(' ').next()?.parse::<u64>().ok()?;
        Some(anonymous * 1024)
    };
    proc::of_uid_range(&bench.uid_range()).into_iter().filter_map(rss).sum()
}

fn takes_it_all(bench: &Bench) -> Result<(), Fail> {
    let done = bench.direct().probe("r_memory", &["self", "256"]).finish()?;
    require!(done.code() == 0 && done.out.contains("took 256"), "exit {}: {}", done.code(), done.out);
    Ok(())
}

fn bomb_takes_its_group_down(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let limit = LIMIT.to_string();
    // Of a bystander that nothing ends, a moment is enough to see.
    let life = arm.limit(Duration::from_secs(20), Duration::from_secs(3));
    let group = format!("group{}", pace::term(life).as_secs());
    let mut run = bench.task(arm).opt("--memory", &limit).probe("r_memory", &[&group, "512"]).spawn()?;
    let mut most = 0;
    while run.ended.is_none() {
        most = most.max(resident(bench));
        run.pump(Duration::from_millis(2), |run| run.ended.is_some())?;
    }
    let done = run.finish()?;
    let peak = done.field("/usage/memory_peak_bytes")?.as_u64().unwrap_or(u64::MAX);
    bench.note(format!(
        "limit {limit}: the group's own peak {peak}, the host saw at most {most}, over after {:?}",
        done.took
    ));
    ensure!(most <= LIMIT, "the host saw {most} bytes in memory with a limit of {LIMIT}");
    ensure!(peak <= LIMIT, "the group's peak is {peak} with a limit of {LIMIT}");
    ensure!(!done.out.contains("bystander lived on"), "the bystander in the same task lived on");
    ensure!(done.reason()? == "oom" && done.code() == 137, "reason {}, exit {}", done.reason()?, done.code());
    ensure!(done.took < pace::time(Duration::from_secs(10)), "the group was not taken down at once: {:?}", done.took);
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    let mut bomb = bench.task(arm).opt("--memory", &limit).probe("r_memory", &["self", "512"]).spawn()?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    bomb.pump(pace::time(Duration::from_secs(5)), |run| run.ended.is_some())?;
    let done = bomb.finish()?;
    ensure!(done.reason()? == "oom" && done.code() == 137, "main itself: {}, exit {}", done.reason()?, done.code());
    // Files in memory are memory: a disk limit above the memory limit is no way round it.
    for dir in ["/task", "/tmp", "/dev/shm"] {
        let task = bench.task(arm).opt("--memory", &limit).opt("--disk", "512M");
        let done = task.probe("r_disk", &["bytes", dir, "128", "leave"]).finish()?;
        ensure!(done.reason()? == "oom" && done.code() == 137, "{dir}: {}, exit {}", done.reason()?, done.code());
    }
    Ok(())
}

/// A memory group of the suite's own with this limit, for control arms.
struct Limited(PathBuf);

impl Limited {
    fn new(bytes: u64) -> Result<Self, Fail> {
        let own = own_groups();
        let base = own.iter().find(|(c, _)| c.split(',').any(|c| c == "memory"));
        let (base, file) = match base {
            Some((_, dir)) => (dir, "memory.limit_in_bytes"),
            None => {
                // As taskman does; on a group that may not, the limit below says so.
                let _ = fs::write(own[0].1.join("cgroup.subtree_control"), "+memory");
                (&own[0].1, "memory.max")
            }
        };
        let dir = base.join("limited");
        fs::create_dir_all(&dir).map_err(|e| broken(format!("mkdir {}: {e}", dir.display())))?;
        fs::write(dir.join(file), bytes.to_string()).map_err(|e| broken(format!("{file}: {e}")))?;
        Ok(Self(dir))
    }

    /// Puts what follows on the command line into this group.
    fn wrap(&self) -> [String; 4] {
        let procs = self.0.join("cgroup.procs");
        ["sh".into(), "-c".into(), r#"echo 0 > "$0" && exec "$@""#.into(), procs.display().to_string()]
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The kernel alone kills one process, and the rest goes on: this is what the case is about.
fn parent_goes_on(bench: &Bench) -> Result<(), Fail> {
    let group = Limited::new(LIMIT)?;
    let wrap = group.wrap();
    let wrap: Vec<&str> = wrap.iter().map(String::as_str).collect();
    let done = bench.direct().wrapped(&wrap).probe("r_memory", &["child1", "256"]).finish()?;
    require!(done.code() == 0 && done.out.contains("signal 9"), "exit {}: {}", done.code(), done.out);
    require!(done.out.contains("success"), "the parent did not go on: {}", done.out);
    Ok(())
}

fn parent_does_not_go_on(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let task = bench.task(arm).opt("--memory", LIMIT.to_string());
    let manner = if arm == Arm::Contained { "child20" } else { "child2" };
    let run = task.probe("r_memory", &[manner, "256"]).spawn()?;
    let canary = bench.canary_beside(arm)?;
    let done = run.finish()?;
    canary.ends_well()?;
    ensure!(!done.out.contains("success"), "the parent went on and printed success");
    ensure!(done.reason()? == "oom", "reason {}", done.reason()?);
    ensure!(done.field("/outcome/status")? != "exited_ok" && done.code() == 137, "exit {}", done.code());
    ensure!(done.took < pace::time(Duration::from_secs(10)), "taken down only after {:?}", done.took);
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    Ok(())
}

/// Swap of the suite's own, for as long as the case runs.
struct Swap(PathBuf);

impl Swap {
    fn on(bench: &Bench) -> Result<Self, String> {
        let file = bench.work_dir().join("swap");
        let path = file.display().to_string();
        let swap = Self(file);
        let script = r#"fallocate -l 128M "$0" && chmod 600 "$0" && mkswap "$0" && swapon "$0""#;
        let output = Command::new("sh").args(["-c", script, &path]).output().map_err(|e| e.to_string())?;
        if output.status.success() { Ok(swap) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).output();
        let _ = fs::remove_file(&self.0);
    }
}

fn swap_lets_it_live(bench: &Bench) -> Control {
    let _swap = match Swap::on(bench) {
        Ok(swap) => swap,
        Err(why) => return Control::Cannot(format!("swap cannot be switched on here: {why}")),
    };
    let live = || -> Result<(), Fail> {
        let group = Limited::new(LIMIT)?;
        let wrap = group.wrap();
        let wrap: Vec<&str> = wrap.iter().map(String::as_str).collect();
        let done = bench.direct().wrapped(&wrap).probe("r_memory", &["self", "96"]).finish()?;
        require!(done.code() == 0 && done.out.contains("took 96"), "exit {}: {}", done.code(), done.out);
        Ok(())
    };
    live().into()
}

fn swap_is_no_way_round(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let _swap = Swap::on(bench).map_err(broken)?;
    let task = bench.task(arm).opt("--memory", LIMIT.to_string());
    let mut run = task.probe("r_memory", &["self", "96"]).spawn()?;
    let mut swapped = 0;
    while run.ended.is_none() {
        for pid in proc::of_uid_range(&bench.uid_range()) {
            let field = proc::status_of(pid).and_then(|s| s.get("VmSwap").cloned()).unwrap_or_default();
            swapped = swapped.max(field.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0));
        }
        run.pump(Duration::from_millis(1), |run| run.ended.is_some())?;
    }
    let done = run.finish()?;
    ensure!(!done.out.contains("took 96"), "it took 96 MiB with a limit of 48, {swapped} KiB of it in swap");
    ensure!(swapped == 0, "{swapped} KiB of it were in swap");
    ensure!(done.reason()? == "oom" && done.code() == 137, "reason {}, exit {}", done.reason()?, done.code());
    if arm == Arm::Contained { bench.canary() } else { Ok(()) }
}
