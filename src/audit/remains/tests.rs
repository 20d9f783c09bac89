//! Plants what could be left, on the real kernel, each beside something alive or foreign that must stay. Needs root.

// Tests start plain processes to have something to find.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::*;
use crate::audit::recover::sweep;
use crate::cgroup::{Controller, Layout};
use crate::containment::Swept;
use crate::place::{GroupName, UidRange};
use crate::task::id::TaskId;

/// An instance, a range of uids and directories that are this test's alone.
struct Stage {
    setup: Setup,
    run_dir: tempfile::TempDir,
    files: tempfile::TempDir,
    groups: Vec<PathBuf>,
}

impl Stage {
    /// `number` makes the range its own in this process, and the process's number among those that test beside it.
    fn new(number: u32) -> Self {
        let (run_dir, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let setup = Setup {
            state_dir: files.path().join("state"),
            instance: format!("clean-{:08x}", TaskId::random().entropy() as u32),
            uid_range: UidRange { first: 1_950_000_000 + std::process::id() % 100_000 * 200 + 15 * number, count: 10 },
            launcher: None,
            events: false,
            scan_ms: 0,
            zombie_ms: 0,
        };
        Self { setup, run_dir, files, groups: Vec::new() }
    }

    fn uid(&self, number: u32) -> u32 {
        self.setup.uid_range.first + number
    }

    fn view(&self) -> View<'_> {
        let roots = [self.files.path(), Path::new("/dev/shm"), Path::new(file::QUEUES)];
        let roots = roots.iter().map(PathBuf::from).collect();
        let (run_dir, bounds) = (self.run_dir.path(), Bounds::default());
        View { setup: &self.setup, run_dir, processes: true, roots, bounds, reaped_within: REAPED_WITHIN }
    }

    fn left(&self) -> Vec<(LeftoverKind, String)> {
        self.view().confirmed().unwrap().iter().map(|thing| (thing.leftover().kind, thing.leftover().name)).collect()
    }

    /// Sweeps; what was swept, each of which must be gone.
    fn recovered(&self) -> Vec<(LeftoverKind, String)> {
        let gone = |Swept { leftover, error }: Swept| match error {
            None => (leftover.kind, leftover.name),
            Some(error) => panic!("{leftover:?}: {error}"),
        };
        sweep(&self.view()).unwrap().into_iter().map(gone).collect()
    }

    /// Bases of this test's own, below which no other launcher sweeps; version 2 first.
    fn bases(&mut self) -> Vec<PathBuf> {
        let layout = Layout::detect().expect("needs root and control groups");
        let v1 = [Controller::Memory, Controller::Pids].into_iter().filter(|c| layout.is_v1(*c));
        let bases = [layout.base()].into_iter().chain(v1.map(|c| layout.hierarchy(c).unwrap()));
        let bases: Vec<_> = bases.map(|base| base.dir.join(format!("tmtest-{}", self.setup.instance))).collect();
        for base in &bases {
            fs::create_dir(base).unwrap();
            self.groups.push(base.clone());
        }
        bases
    }

    fn group(&mut self, base: &Path, instance: &str, task: TaskId) -> PathBuf {
        let path = base.join(GroupName { instance: instance.to_owned(), task }.to_string());
        fs::create_dir(&path).unwrap();
        self.groups.push(path.clone());
        path
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for group in self.groups.iter().rev() {
            let removed = fs::remove_dir(group);
            assert!(!group.exists() || std::thread::panicking(), "{}: {removed:?}", group.display());
        }
    }
}

/// A process that waits; ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn of(uid: u32) -> Self {
        Self(Command::new("sleep").arg("60").uid(uid).gid(uid).current_dir("/").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn owned(path: &Path, uid: u32) {
    fs::write(path, "x").unwrap();
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
}

#[test]
fn a_host_without_remains_is_clean() {
    let stage = Stage::new(0);
    assert_eq!(stage.left(), []);
    assert_eq!(stage.recovered(), []);
}

#[test]
fn a_process_of_a_uid_that_nobody_leases_is_killed_and_one_that_is_leased_stays() {
    let stage = Stage::new(1);
    let (stray, mut leased) = (Sleeper::of(stage.uid(0)), Sleeper::of(stage.uid(1)));
    let mut outside = Sleeper::of(stage.uid(10));
    let _lease = Leases::take(stage.uid(1)).unwrap().unwrap();
    let expected = [(LeftoverKind::Process, stray.pid()), (LeftoverKind::Uid, stage.uid(0).to_string())];
    assert_eq!(stage.left(), expected);
    // Its parent, this test, must reap it for its uid to be free.
    let reaper = std::thread::spawn(move || {
        let mut stray = stray;
        std::os::unix::process::ExitStatusExt::signal(&stray.0.wait().unwrap())
    });
    assert_eq!(stage.recovered(), expected);
    assert_eq!(reaper.join().unwrap(), Some(libc::SIGKILL));
    assert!(leased.lives() && outside.lives());
    assert_eq!(stage.left(), []);
}

#[test]
fn one_that_forks_faster_than_it_is_found_does_not_outrun_the_sweep() {
    let stage = Stage::new(8);
    let uid = stage.uid(0);
    // Each forks and exits; it ends by itself, but long after this test.
    let churn = "my $end = time + 600; while (time < $end) { exit if fork; select undef, undef, undef, 0.005 }";
    // Its dead are many. In a PID namespace of their own they are reaped at once, whatever the host's first process does.
    let init = "$SIG{CHLD} = 'IGNORE'; if (!fork) { exec @ARGV } sleep 600";
    let mut reaper = Command::new("unshare");
    reaper.args(["--pid", "--fork", "--kill-child", "perl", "-e", init, "setpriv", "--clear-groups"]);
    reaper.args([format!("--reuid={uid}"), format!("--regid={uid}")]).args(["perl", "-e", churn]).current_dir("/");
    let _reaper = Sleeper(reaper.spawn().unwrap());
    while !crate::sys::user::has_processes(uid).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(stage.left().contains(&(LeftoverKind::Uid, uid.to_string())));
    let swept = sweep(&stage.view()).unwrap();
    let over = Instant::now();
    while crate::sys::user::has_processes(uid).unwrap() {
        assert!(over.elapsed() < Duration::from_secs(100), "it goes on: {swept:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_dead_process_that_nobody_reaps_is_told_and_its_uid_is_not_free() {
    let stage = Stage::new(2);
    let stray = Sleeper::of(stage.uid(0));
    // It is not reaped before it is dropped, however long that is waited for.
    let impatient = || View { reaped_within: Duration::from_secs(1), ..stage.view() };
    let swept = sweep(&impatient()).unwrap();
    let told: Vec<_> = swept.iter().map(|s| (s.leftover.kind, s.error.is_some())).collect();
    assert_eq!(told, [(LeftoverKind::Process, true), (LeftoverKind::Uid, true)], "{swept:?}");
    let left = impatient().confirmed().unwrap();
    assert!(left[0].leftover().detail.contains("not reaped by"), "{:?}", left[0].leftover());
    drop(stray);
    assert_eq!(stage.left(), []);
}

#[test]
fn groups_of_a_dead_launcher_go_with_what_is_in_them_and_those_of_others_stay() {
    let mut stage = Stage::new(3);
    let bases = stage.bases();
    let instance = stage.setup.instance.clone();
    let (dead, alive, foreign, halved) = (TaskId::random(), TaskId::random(), TaskId::random(), TaskId::random());
    let dead: Vec<_> = bases.iter().map(|base| stage.group(base, &instance, dead)).collect();
    let alive: Vec<_> = bases.iter().map(|base| stage.group(base, &instance, alive)).collect();
    let foreign: Vec<_> = bases.iter().map(|base| stage.group(base, "clean-other", foreign)).collect();
    let halves: Vec<_> = bases.iter().skip(1).map(|base| stage.group(base, &instance, halved)).collect();
    let held = fs::File::open(&alive[0]).unwrap();
    held.lock().unwrap();
    let (inside, mut living) = (Sleeper::of(0), Sleeper::of(0));
    fs::write(dead[0].join("cgroup.procs"), inside.pid()).unwrap();
    fs::write(alive[0].join("cgroup.procs"), living.pid()).unwrap();

    let cgroups = |found: Vec<(LeftoverKind, String)>| {
        let cgroups = found.into_iter().filter(|(kind, _)| *kind == LeftoverKind::Cgroup);
        cgroups.map(|(_, name)| PathBuf::from(name)).collect::<BTreeSet<_>>()
    };
    let expected: BTreeSet<_> = dead[..1].iter().chain(&halves).cloned().collect();
    let left = stage.left();
    assert!(left.contains(&(LeftoverKind::Process, inside.pid())), "{left:?}");
    assert_eq!(cgroups(left), expected);
    let reaper = std::thread::spawn(move || drop({ inside }.0.wait()));
    assert_eq!(cgroups(stage.recovered()), expected);
    reaper.join().unwrap();
    assert!(dead.iter().chain(&halves).all(|path| !path.exists()));
    assert!(living.lives() && alive.iter().chain(&foreign).all(|path| path.exists()));
    assert_eq!(stage.left(), []);
    drop(living);
}

#[test]
fn ipc_objects_of_a_free_uid_are_removed_and_those_of_a_leased_one_stay() {
    let stage = Stage::new(4);
    let made = |uid: u32| {
        let made = Command::new("ipcmk").args(["-M", "4096", "-S", "1", "-Q"]).uid(uid).gid(uid).output().unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_stray, kept) = (made(stage.uid(0)), made(stage.uid(1)));
    let _lease = Leases::take(stage.uid(1)).unwrap().unwrap();
    let left = stage.left();
    let kinds: Vec<_> = left.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [LeftoverKind::Uid, LeftoverKind::Ipc, LeftoverKind::Ipc, LeftoverKind::Ipc], "{left:?}");
    assert_eq!(stage.recovered(), left);
    assert_eq!(stage.left(), []);
    let removed = Command::new("ipcrm").args(["-m", &kept[0], "-q", &kept[1], "-s", &kept[2]]).status().unwrap();
    assert!(removed.success(), "those of the leased uid were there");
}

#[test]
fn files_of_a_free_uid_are_removed_and_no_link_is_followed() {
    let stage = Stage::new(5);
    let (mine, other) = (stage.uid(0), stage.uid(1));
    let _lease = Leases::take(other).unwrap().unwrap();
    let tree = stage.files.path();
    let shm = Path::new("/dev/shm").join(&stage.setup.instance);
    owned(&shm, mine);
    // A directory of the task's with a file in it, a link out of it, and somebody else's file, which keeps it.
    let dir = tree.join("of \u{1b}[31mtask");
    fs::create_dir(&dir).unwrap();
    owned(&dir.join("file"), mine);
    let canary = tree.join("canary");
    owned(&canary, 0);
    std::os::unix::fs::symlink(&canary, dir.join("link")).unwrap();
    for path in [dir.join("link"), dir.clone()] {
        std::os::unix::fs::lchown(path, Some(mine), Some(mine)).unwrap();
    }
    owned(&tree.join("leased"), other);
    let (kept, root) = (tree.join("kept"), tree.join("kept/of root"));
    fs::create_dir(&kept).unwrap();
    owned(&root, 0);
    std::os::unix::fs::lchown(&kept, Some(mine), Some(mine)).unwrap();

    let swept = sweep(&stage.view()).unwrap();
    let stays: Vec<_> = swept.iter().filter_map(|s| s.error.as_ref().map(|e| (&*s.leftover.name, e))).collect();
    assert_eq!(stays.len(), 1, "{swept:?}");
    assert!(stays[0].0.ends_with("/kept") && stays[0].1.contains("ENOTEMPTY"), "{stays:?}");
    let told: Vec<_> = swept.iter().map(|s| s.leftover.name.clone()).collect();
    assert!(told.iter().all(|name| !name.contains('\u{1b}')), "{told:?}");
    // The five, and the uid, which is not free while something of it is in /dev/shm.
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(!shm.exists() && !dir.exists());
    assert!(canary.exists() && root.exists() && tree.join("leased").exists());
}

#[test]
fn mounts_and_strays_of_the_run_directory_are_taken_away_and_others_stay() {
    let stage = Stage::new(6);
    let (mounted, elsewhere) = (stage.run_dir.path().join("mounted"), stage.files.path().join("mounted"));
    let mount = |at: &Path| {
        fs::create_dir(at).unwrap();
        assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(at).status().unwrap().success());
    };
    mount(&mounted);
    mount(&elsewhere);
    fs::write(stage.run_dir.path().join("uids"), "").unwrap();
    let name = mounted.display().to_string();
    let expected = [(LeftoverKind::Mount, name.clone()), (LeftoverKind::Directory, name)];
    assert_eq!(stage.left(), expected);
    assert_eq!(stage.recovered(), expected);
    assert!(stage.run_dir.path().join("uids").exists() && !mounted.exists());
    assert!(Command::new("umount").arg(&elsewhere).status().unwrap().success(), "it was still mounted");
}

#[test]
fn a_file_system_below_a_root_is_not_entered() {
    let stage = Stage::new(7);
    let point = stage.files.path().join("mounted");
    fs::create_dir(&point).unwrap();
    assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&point).status().unwrap().success());
    owned(&point.join("file"), stage.uid(0));
    let left = stage.left();
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    assert_eq!(left, []);
}

/// A chain of directories that is longer than any path, made as anyone can make it; and removed, which takes as long.
struct Deep<'a>(&'a Path);

impl<'a> Deep<'a> {
    fn make(top: &'a Path, levels: usize, uid: u32) -> Self {
        let script =
            "my ($top, $n) = @ARGV; chdir $top or die; for (1..$n) { mkdir 'd' x 250 or die; chdir 'd' x 250 or die }";
        let mut perl = Command::new("perl");
        perl.args(["-e", script]).arg(top).arg(levels.to_string()).uid(uid).gid(uid);
        assert!(perl.status().unwrap().success());
        Self(top)
    }
}

impl Drop for Deep<'_> {
    fn drop(&mut self) {
        let removed = Command::new("rm").arg("-rf").arg(self.0).status().unwrap();
        assert!(removed.success() || std::thread::panicking());
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_looked_through() {
    let stage = Stage::new(9);
    let (top, account) = (stage.files.path().join("deep"), stage.uid(10));
    for dir in [stage.files.path(), &top] {
        fs::create_dir_all(dir).unwrap();
        std::os::unix::fs::lchown(dir, Some(account), Some(account)).unwrap();
    }
    let _deep = Deep::make(&top, 100, account);
    assert_eq!(stage.left(), [], "nothing there is a task's");
    // At its very end, and beside it half way: both are found, and can be removed.
    let leave =
        "my ($top, $uid) = @ARGV; chdir $top or die; for (1..100) { chdir 'd' x 250 or die; leave() if $_ % 50 == 0 }
        sub leave { open my $f, '>', 'left' or die; chown $uid, $uid, 'left' or die }";
    let mut perl = Command::new("perl");
    perl.args(["-e", leave]).arg(&top).arg(stage.uid(0).to_string());
    assert!(perl.status().unwrap().success());
    let left = stage.left();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left.iter().all(|(kind, name)| *kind == LeftoverKind::File && name.len() < 2048 && name.ends_with("/left"))
    );
    assert_eq!(stage.recovered(), left);
    assert_eq!(stage.left(), []);
}

#[test]
fn what_one_account_has_too_much_of_hides_nobody_elses() {
    let stage = Stage::new(10);
    let (account, tree) = (stage.uid(10), stage.files.path());
    let (many, task) = (tree.join("many"), tree.join("of task"));
    fs::create_dir(&many).unwrap();
    for number in 0..50 {
        fs::create_dir(many.join(number.to_string())).unwrap();
    }
    assert!(Command::new("chown").arg("-R").arg(account.to_string()).arg(&many).status().unwrap().success());
    fs::create_dir(&task).unwrap();
    owned(&task.join("file"), stage.uid(0));
    let view = View { bounds: Bounds { of_one: 20, ..Bounds::default() }, ..stage.view() };
    let left: Vec<_> = view.confirmed().unwrap().iter().map(Thing::leftover).collect();
    let told: Vec<_> = left.iter().map(|thing| (thing.kind, thing.name.as_str())).collect();
    let expected = [(LeftoverKind::File, task.join("file")), (LeftoverKind::Unseen, many)];
    assert_eq!(told, expected.each_ref().map(|(kind, path)| (*kind, path.to_str().unwrap())));
    assert!(left[1].detail.contains("more than 20 files"), "{left:?}");
    // Of a root that has too much as a whole, the rest was not seen; that is no file.
    let view = View { bounds: Bounds { entries: 10, ..Bounds::default() }, ..stage.view() };
    let left = view.confirmed().unwrap();
    assert!(left.iter().any(|thing| thing.key() == (LeftoverKind::Unseen, shown(tree))), "{left:?}");
}

#[test]
fn groups_that_an_account_makes_where_it_may_are_nobodys() {
    let mut stage = Stage::new(11);
    let bases = stage.bases();
    let (instance, account) = (stage.setup.instance.clone(), stage.uid(10));
    for base in &bases {
        let delegated = base.join("delegated");
        fs::create_dir(&delegated).unwrap();
        stage.groups.push(delegated.clone());
        let squat = stage.group(&delegated, &instance, TaskId::random());
        for path in [&squat, &delegated] {
            std::os::unix::fs::lchown(path, Some(account), Some(account)).unwrap();
        }
    }
    assert_eq!(stage.left(), []);
    // Of root's making, in a group of root's, it is one.
    let dead = stage.group(&bases[0], &instance, TaskId::random());
    assert_eq!(stage.left(), [(LeftoverKind::Cgroup, dead.display().to_string())]);
    stage.recovered();
}
