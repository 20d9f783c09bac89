//! Accounts of the host that have nothing to do with taskman: whatever they make, where they may, neither quarantines the worker
//! nor keeps the auditor from seeing what is a task's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{findings, health, serve_as};
use crate::harness::{Arm, Bench, Case, Fail, Run, broken};
use crate::support::Server;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "U20",
            tier: 1,
            what: "an account makes trees of any depth, width, name and kind where everyone may write",
            defence: &["level-walk,unseen-apart"],
            control: |bench| no_path_leads_there(bench).into(),
            attack: trees_tell_nothing,
        },
        Case {
            id: "U21",
            tier: 1,
            what: "an account makes groups with a live task's name, deep and many, in a cgroup that is its own",
            defence: &["own-groups"],
            control: |bench| names_are_free(bench).into(),
            attack: groups_tell_nothing,
        },
    ]
}

/// Where everyone may write.
const PLACES: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// A chain longer than any path, many names, names that are no text, links round and out, a queue, a closed directory.
const TREE: &str = r#"
    my ($top, $n) = @ARGV; chdir $top or die; mkdir $n or die; chdir $n or die;
    for (1..1000) { open my $f, '>', "f$_" or die }
    open my $f, '>', "a\n\xff\xfe\e[2J" or die; symlink '.', 'loop'; symlink '/', 'out'; symlink 'x' x 4000, 'far';
    mkdir 'closed' or die; mkdir 'closed/x' or die; chmod 0, 'closed'; system 'mkfifo', 'queue';
    for (1..30) { mkdir 'd' x 250 or die; chdir 'd' x 250 or die }
    print "made\n""#;

/// The trees of one case; gone with it.
struct Trees(Vec<PathBuf>);

impl Trees {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let mut trees = Self(Vec::new());
        for place in PLACES {
            let name = format!("{}-tree", bench.nonce());
            trees.0.push(Path::new(place).join(&name));
            let made = bench.direct().with_uid(account(bench)).command("perl", ["-e", TREE, place, &name]).finish()?;
            require!(made.out == "made\n", "no tree in {place}: {}", made.err);
        }
        Ok(trees)
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        Command::new("rm").arg("-rf").args(&self.0).status().unwrap();
    }
}

/// No task has it.
fn account(bench: &Bench) -> u32 {
    bench.uid_range().end + 1
}

fn no_path_leads_there(bench: &Bench) -> Result<(), Fail> {
    let trees = Trees::make(bench)?;
    let found = Command::new("find").arg(&trees.0[0]).args(["-printf", "%p\n"]).output().unwrap().stdout;
    let longest = found.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
    require!(longest > 4096, "the longest path has {longest} letters");
    Ok(())
}

/// What a full audit says: its exit code, and everything that it lists.
fn audit(server: &Server) -> (Option<i32>, Value) {
    let ended = server.taskman("admin", &["audit", "run", "--output", "json"]);
    (ended.status.code(), serde_json::from_slice(&ended.stdout).unwrap_or_default())
}

/// Nothing was found, nothing is left, and a quarantine can be lifted.
fn is_unmoved(server: &Server) -> Result<(), Fail> {
    let (code, audited) = audit(server);
    ensure!(code == Some(0), "an audit says {audited}");
    ensure!(health(server)["status"] == "healthy", "health says {}", health(server));
    ensure!(findings(server).is_empty(), "found: {:?}", findings(server));
    server.text("admin", &["health", "--quarantine", "--reason", "a drill"]);
    let lifted = server.taskman("admin", &["health", "--unquarantine", "--reason", "drill over"]);
    ensure!(lifted.status.code() == Some(0), "not lifted: {lifted:?}");
    Ok(())
}

fn trees_tell_nothing(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let server = serve_as(bench, arm, "events = true");
    let trees = Trees::make(bench)?;
    is_unmoved(&server)?;
    bench.canary()?;
    // At the end of the chain a file of a task's: it is seen, and so it is a finding.
    let uid = bench.uid_range().start.to_string();
    let plant = "chdir shift; for (1..30) { chdir 'd' x 250 or die } my $u = shift; open my $f, '>', 'left' or die; chown $u, $u, 'left'";
    let planted = Command::new("perl").args(["-e", plant]).arg(&trees.0[0]).arg(&uid).status().unwrap();
    require!(planted.success(), "nothing was planted");
    let (code, audited) = audit(&server);
    let seen = audited["leftovers"].as_array().is_some_and(|left| left.iter().any(|thing| thing["kind"] == "file"));
    ensure!(code == Some(1) && seen, "a file of a task's uid was not seen: {audited}");
    let swept = server.taskman("admin", &["health", "--recover"]);
    ensure!(swept.status.code() == Some(0), "not swept: {swept:?}");
    bench.note("3 trees of 1,040 entries, 30 levels of 250 letters: nothing is told of them, a task's file at the end of one is");
    Ok(())
}

/// A group that is an account's own, as systemd delegates one; what is in it goes with the case.
struct Delegated(PathBuf);

impl Delegated {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let dir = bench.place.v2().join("delegated");
        fs::create_dir(&dir).map_err(|e| broken(format!("mkdir {}: {e}", dir.display())))?;
        let uid = Some(account(bench));
        for name in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            chown(dir.join(name), uid, uid).map_err(|e| broken(format!("chown {name}: {e}")))?;
        }
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(|e| broken(format!("chmod: {e}")))?;
        Ok(Self(dir))
    }

    /// Groups below it, and in each named one a process of the account's, the first of a PID namespace.
    fn squat(&self, bench: &Bench, names: &[String]) -> Result<Vec<Run>, Fail> {
        let make = "my $top = shift; for (@ARGV) { mkdir \"$top/$_\" or die \"$_: $!\" } chdir $top or die;
            for (1..20) { mkdir 'd' x 250 or die \"$!\"; chdir 'd' x 250 or die } print \"made\\n\"";
        let (top, uid) = (self.0.to_str().unwrap(), account(bench));
        let words = ["-e", make, top].into_iter().chain(names.iter().map(String::as_str));
        let made = bench.direct().with_uid(uid).command("perl", words).finish()?;
        require!(made.out == "made\n", "no groups: {}", made.err);
        let mut runs = Vec::new();
        for name in names {
            // As root, who moves it there for the account: a user's session is in its own tree already.
            let script = "echo $$ > \"$1/cgroup.procs\" && exec setpriv --reuid $2 --regid $2 --clear-groups \
                          unshare --user --map-root-user --pid --fork sh -c 'echo ready; exec sleep 60'";
            let group = self.0.join(name);
            let words = ["-c", script, "sh", group.to_str().unwrap(), &uid.to_string()].map(str::to_owned);
            let mut run = bench.direct().command("/bin/sh", words).spawn()?;
            run.wait_line("ready")?;
            runs.push(run);
        }
        Ok(runs)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let empty = || fs::read_to_string(self.0.join("cgroup.events")).is_ok_and(|text| text.contains("populated 0"));
        crate::support::wait_until("the account's processes are gone", || empty().then_some(()));
        let remove = ["-depth", "-type", "d", "-delete"];
        Command::new("find").arg(&self.0).args(remove).stderr(std::process::Stdio::null()).status().unwrap();
    }
}

fn names_are_free(bench: &Bench) -> Result<(), Fail> {
    let delegated = Delegated::make(bench)?;
    let name = "taskman-srv-0.00000000-0000-4000-8000-000000000000".to_owned();
    delegated.squat(bench, &[name]).map(drop)
}

fn groups_tell_nothing(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let server = serve_as(bench, arm, "events = true\nscan = \"1s\"");
    let task = server.task(&["--", "sleep", "1000"]);
    let instance = fs::read_to_string(server.state().join("instance")).unwrap();
    let delegated = Delegated::make(bench)?;
    let name = |id: &str| format!("taskman-{}.{id}", instance.trim());
    let dead = "00000000-0000-4000-8000-000000000000";
    let _squatters = delegated.squat(bench, &[name(&task), name(dead)])?;
    is_unmoved(&server)?;
    bench.canary()?;
    ensure!(server.status(&task)["status"] == "JOB_STATUS_STARTED", "the task was ended: {}", server.status(&task));
    bench.note("2 groups of the instance's name, of a live and of no task, each with a process; 20 more levels: nothing is told");
    Ok(())
}
