//! Ways out: joining another group, mounting the file system afresh, the release agent.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::place::own_groups;
use crate::harness::{Arm, Bench, Case, Control, Fail, Launch, Run, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "C01",
            tier: 1,
            what: "writes itself into every cgroup.procs and tasks it can name or see",
            defence: &["read-only,uid,caps,seccomp"],
            control: |bench| joins_another_group(bench).into(),
            attack: stays_in_its_group,
        },
        Case {
            id: "C02",
            tier: 1,
            what: "mounts cgroup and cgroup2",
            defence: &["seccomp,uid,caps"],
            control: |bench| mounts_work(bench).into(),
            attack: mounts_are_refused,
        },
        Case {
            id: "C03",
            tier: 1,
            what: "makes the kernel run a release agent on the host",
            defence: &["seccomp,uid,caps,cgroup-namespace"],
            control: agent_runs,
            attack: agent_never_runs,
        },
    ]
}

/// The v2 mount point of the host, and a group below it that is not the task's: the suite makes one.
pub(super) fn other_group(bench: &Bench) -> Result<PathBuf, Fail> {
    let dir = bench.place.v2().join("other");
    fs::create_dir_all(&dir).map_err(|e| broken(format!("mkdir {}: {e}", dir.display())))?;
    Ok(dir)
}

fn joins_another_group(bench: &Bench) -> Result<(), Fail> {
    let other = other_group(bench)?;
    let file = other.join("cgroup.procs");
    let mut run = bench.direct().with_stdin().probe("c_join", &[&file.to_string_lossy()]).spawn()?;
    run.wait_line("ready")?;
    let before = proc::cgroup_of(run.pid);
    go(&mut run)?;
    let after = proc::cgroup_of(run.pid);
    run.signal(Signal::SIGKILL)?;
    run.finish()?;
    let _ = fs::remove_dir(other);
    require!(before != after, "the probe could not leave its group");
    Ok(())
}

/// Lets a payload that waits for a line begin, and waits until it is done.
fn go(run: &mut Run) -> Result<(), Fail> {
    use std::io::Write;
    let mut stdin = run.stdin().ok_or_else(|| broken("no stdin"))?;
    stdin.write_all(b"go\n").map_err(|e| broken(format!("stdin: {e}")))?;
    run.wait_line("done")
}

fn stays_in_its_group(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let other = other_group(bench)?;
    let result = try_to_leave(bench, arm, &other);
    // A mutant may have put itself in there; it is killed first, by the run's own end.
    let _ = fs::write(other.join("cgroup.kill"), "1");
    let deadline = Instant::now() + pace::time(Duration::from_secs(2));
    while fs::remove_dir(&other).is_err() && Instant::now() < deadline {
        nix::poll::poll(&mut [], 1u8).ok();
    }
    result
}

fn try_to_leave(bench: &Bench, arm: Arm, other: &std::path::Path) -> Result<(), Fail> {
    // The host's own /sys is refused from the start.
    let asked = format!("{}:/groups", other.display());
    let done = bench.task(Arm::Contained).opt("--bind-ro", &asked).sh("exit 0").finish()?;
    ensure!(done.code() == 125 && done.report.is_none(), "--bind-ro {asked} was taken: exit {}", done.code());
    // The worst case that an operator can make all the same: the host's v2 tree, mounted elsewhere, is bound into the task.
    let tree = bench.work_dir().join("tree");
    let _ = fs::create_dir(&tree);
    let result = try_each(bench, arm, other, &tree.display().to_string());
    let _ = fs::remove_dir(&tree);
    result
}

/// A task that sees the suite's part of the v2 tree, and of it alone: a mutant is not to join the groups of others.
pub(super) fn with_groups<'b>(bench: &'b Bench, arm: Arm, tree: &str) -> Launch<'b> {
    let own = proc::cgroup_of(std::process::id() as i32).into_iter().find(|(c, _)| c.is_empty()).unwrap_or_default().1;
    let wrap = ["unshare", "-m", "sh", "-c", r#"mount -t cgroup2 none "$0" && exec "$@""#, tree];
    bench.task(arm).wrapped(&wrap).opt("--bind-ro", format!("{tree}{own}:/groups"))
}

fn try_each(bench: &Bench, arm: Arm, other: &std::path::Path, tree: &str) -> Result<(), Fail> {
    let mut paths = vec!["/groups/other/cgroup.procs".to_owned(), "/groups/cgroup.procs".to_owned()];
    for (_, dir) in own_groups() {
        paths.extend(["cgroup.procs", "tasks"].map(|file| dir.join(file).display().to_string()));
    }
    paths.push(format!("/proc/1/root{}/cgroup.procs", other.display()));
    paths.push(format!("/proc/self/root{}/cgroup.procs", other.display()));
    let args: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut run = with_groups(bench, arm, tree).with_stdin().probe("c_join", &args).spawn()?;
    run.wait_line("ready")?;
    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
    let before = proc::cgroup_of(payload);
    go(&mut run)?;
    let after = proc::cgroup_of(payload);
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let said = run.out.text();
    let told = |path: &str| said.lines().find(|l| l.ends_with(path)).unwrap_or("").split(' ').next().unwrap_or("");
    run.stop_twice()?;
    let moved: Vec<_> = after.iter().filter(|place| !before.contains(place)).collect();
    ensure!(moved.is_empty() && before.len() == after.len(), "left its group; now in {moved:?}");
    ensure!(before.iter().any(|(c, path)| c.is_empty() && path.contains("/taskman-")), "was never in one: {before:?}");
    let (bound, named) = (told(&paths[0]), told(&paths[2]));
    // The kernel asks for the file's mode before it asks whether the mount is read-only.
    ensure!(bound == "EACCES", "a bound group's cgroup.procs gave {bound:?}, not EACCES");
    ensure!(named == "ENOENT", "{} gave {named:?}, not ENOENT", paths[2]);
    ensure!(!said.contains("OK "), "a write went through: {said}");
    bench.note(format!("{} files tried, membership unchanged", said.lines().filter(|l| l.contains('/')).count()));
    run.finish().map(drop)
}

fn mounts_work(bench: &Bench) -> Result<(), Fail> {
    // In a mount namespace of its own: the host's table stays as it is.
    let probe = bench.direct().wrapped(&["unshare", "-m"]).with_stdin().probe("c_mount", &["/mnt"]);
    let mut run = probe.spawn()?;
    run.wait_line("ready")?;
    go(&mut run)?;
    let mounted = fs::read_to_string(format!("/proc/{}/mountinfo", run.pid)).unwrap_or_default();
    let said = run.out.text();
    run.signal(Signal::SIGKILL)?;
    run.finish()?;
    require!(mounted.contains(" /mnt rw"), "no cgroup file system was mounted: {said}");
    require!(said.contains("cgroup2 OK") && said.contains("fsopen OK"), "{said}");
    Ok(())
}

fn mounts_are_refused(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut run = bench.task(arm).with_stdin().probe("c_mount", &["/tmp"]).spawn()?;
    run.wait_line("ready")?;
    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
    let mounts = || fs::read_to_string(format!("/proc/{payload}/mountinfo")).unwrap_or_default();
    let before = mounts();
    go(&mut run)?;
    let after = mounts();
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let said = run.out.text();
    run.stop_twice()?;
    run.finish()?;
    require!(before.lines().count() > 3, "the task's mount table could not be read");
    let new: Vec<&str> = after.lines().filter(|l| !before.contains(l)).collect();
    ensure!(before == after, "the task's mount table changed: {}", new.join(", "));
    for call in ["cgroup2", "cgroup", "named", "fsopen", "open_tree"] {
        ensure!(said.lines().any(|l| l == format!("{call} EPERM")), "{call} did not give EPERM: {said}");
    }
    Ok(())
}

/// A program on the host that leaves a mark when the kernel runs it.
struct Agent {
    program: PathBuf,
    mark: PathBuf,
}

impl Agent {
    fn plant(bench: &Bench) -> Result<Self, Fail> {
        let (program, mark) = (bench.work_dir().join("agent"), bench.work_dir().join("agent-ran"));
        let script = format!("#!/bin/sh\necho \"$1\" >> {}\n", mark.display());
        fs::write(&program, script).map_err(|e| broken(format!("write agent: {e}")))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(|e| broken(format!("chmod: {e}")))?;
        Ok(Self { program, mark })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.program);
        let _ = fs::remove_file(&self.mark);
    }
}

/// Runs the attack; says whether the kernel ran the agent within half a second, and what the payload said.
fn release(bench: &Bench, launch: Launch<'_>, at: &str) -> Result<(bool, String), Fail> {
    let agent = Agent::plant(bench)?;
    let name = format!("adv{}", std::process::id());
    let program = agent.program.display().to_string();
    let mut run = launch.probe("c_release", &[at, &program, &name]).spawn()?;
    run.wait_until(Duration::from_millis(500), || agent.mark.exists())?;
    let ran = agent.mark.exists();
    run.pump(pace::time(Duration::from_secs(2)), |run| run.ended.is_some())?;
    let said = run.out.text();
    drop(run);
    forget_hierarchy(&name)?;
    Ok((ran, said))
}

/// A hierarchy outlives its last mount while a removed group is being freed; mounted and unmounted once more, it goes.
fn forget_hierarchy(name: &str) -> Result<(), Fail> {
    let listed = || proc::cgroup_of(std::process::id() as i32).iter().any(|(c, _)| *c == format!("name={name}"));
    let script = r#"mount -t cgroup -o "none,name=$0" none /mnt && { rmdir /mnt/empty; umount /mnt; }"#;
    let deadline = Instant::now() + pace::time(Duration::from_secs(5));
    while listed() {
        require!(Instant::now() < deadline, "the hierarchy {name} does not go away");
        let _ = Command::new("unshare").args(["-m", "sh", "-c", script, name]).output();
        nix::poll::poll(&mut [], 50u8).ok();
    }
    Ok(())
}

fn agent_runs(bench: &Bench) -> Control {
    match release(bench, bench.direct().wrapped(&["unshare", "-m"]), "/mnt") {
        Ok((true, _)) => Control::Works,
        Ok((false, said)) => {
            Control::Cannot(format!("the kernel did not run the release agent; the probe said {said:?}"))
        }
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn agent_never_runs(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (ran, said) = release(bench, bench.task(arm), "/tmp")?;
    ensure!(!ran, "the kernel ran the agent on the host; the payload said {said:?}");
    ensure!(said == "mount EPERM\n", "the mount gave {said:?}");
    if arm == Arm::Contained { bench.canary() } else { Ok(()) }
}
