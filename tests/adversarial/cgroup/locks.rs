//! A lock says who lives. So nobody but root can take one: neither from a launcher, nor from the sweep after its death.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::harness::{Arm, Bench, Case, Fail, Run};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "C20",
        tier: 1,
        what: "an account of the host waits for the locks of a task's groups while its launcher is killed",
        defence: &["private-groups"],
        control: |bench| any_directory_can_be_held(bench).into(),
        attack: |bench, arm| {
            no_group_can_be_opened_as_it_is_made(bench, arm)?;
            no_group_can_be_held(bench, arm)
        },
    }]
}

/// Who lists the tree without pause, before a task starts and while it does. A group that was made for all and then closed was open to it
/// by the fourth start.
fn lister(bench: &Bench, names: &str) -> Result<Run, Fail> {
    let uid = bench.uid_range().end + 1;
    let dir = bench.place.v2().to_string_lossy().into_owned();
    let mut run = bench.direct().with_uid(uid).probe("c_list", &[&dir, names]).spawn()?;
    run.wait_line("lists ok")?;
    Ok(run)
}

fn no_group_can_be_opened_as_it_is_made(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut lister = lister(bench, "taskman-")?;
    let starts = arm.trials(300, 3);
    for _ in 0..starts {
        let task = bench.task(arm).sh("exit 0").finish()?;
        require!(task.code() == 0, "a task ended with {}: {}", task.code(), task.err);
    }
    lister.pump(Duration::ZERO, |_| false)?;
    let seen = lister.out.text();
    ensure!(!seen.contains("opened"), "an account of the host opened a group while it was made: {seen}");
    bench.note(format!("{starts} starts beside an account that lists the tree: it opened no group"));
    Ok(())
}

/// Whether this account got as far as to wait for the lock of `dir`.
fn wait_for(bench: &Bench, dir: &Path) -> Result<(Run, bool), Fail> {
    // Nobody's: no task has it, and no account.
    let uid = bench.uid_range().end + 1;
    let mut run = bench.direct().with_uid(uid).probe("c_hold", &[&dir.to_string_lossy()]).spawn()?;
    run.wait_line("open")?;
    let opened = run.out.text().contains("main open ok");
    Ok((run, opened))
}

fn has_it(run: &mut Run) -> Result<bool, Fail> {
    run.pump(pace::time(Duration::from_secs(10)), |run| run.out.text().contains("flock ok"))
}

fn any_directory_can_be_held(bench: &Bench) -> Result<(), Fail> {
    let dir = bench.place.v2().join("held");
    fs::create_dir(&dir).and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))).unwrap();
    let held = wait_for(bench, &dir).and_then(|(mut run, _)| has_it(&mut run));
    fs::remove_dir(&dir).unwrap();
    require!(held?, "a directory that anyone may open was not locked");
    let mut lister = lister(bench, "held")?;
    fs::create_dir(&dir).unwrap();
    let opened = lister.pump(pace::time(Duration::from_secs(10)), |run| run.out.text().contains("opened held"));
    fs::remove_dir(&dir).unwrap();
    require!(opened?, "a directory that anyone may open was not seen as it was made");
    Ok(())
}

fn no_group_can_be_held(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut task = bench.task(arm).probe("contain_sigterm_ignore", &["30"]).spawn()?;
    task.wait_line("ready")?;
    let dirs: Vec<PathBuf> = bench.place.task_dirs();
    require!(!dirs.is_empty(), "the task has no group");
    let mut holders = Vec::new();
    for dir in &dirs {
        holders.push((dir, wait_for(bench, dir)?));
    }
    if arm == Arm::Contained {
        bench.canary()?;
    }
    task.signal(Signal::SIGKILL)?;
    drop(task);
    for (_, (run, opened)) in &mut holders {
        if *opened {
            require!(has_it(run)?, "the lock of a dead launcher's group is not free: {}", run.out.text());
        }
    }
    let next = bench.task(arm).sh("exit 0").finish()?;
    require!(next.code() == 0, "the sweeping run ended with {}: {}", next.code(), next.err);
    let left = bench.place.task_dirs();
    let opened: Vec<_> = holders.iter().filter(|(_, (_, opened))| *opened).map(|(dir, _)| dir.display()).collect();
    let (opened, tried) = (format!("{opened:?}"), holders.len());
    drop(holders);
    if !left.is_empty() {
        // For the ledger: what was held is swept now.
        bench.task(arm).sh("exit 0").finish()?;
    }
    ensure!(left.is_empty(), "{left:?} of a dead launcher stay, for {opened} are held by an account of the host");
    ensure!(opened == "[]", "an account of the host can open {opened}");
    bench.note(format!("{tried} directories of a task tried: none opened, all swept after the launcher's death"));
    Ok(())
}
