//! Things in the way of taskman's own hands: what root opens, chowns and deletes is what it made, whatever lies there.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::harness::answers::watch;
use crate::harness::{Arm, Bench, Case, Fail, broken, proc};
use crate::support::{Server, pace, wait_until};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "F07",
            tier: 1,
            what: "binds a false /proc over the true one, so that the launcher's own writes land elsewhere",
            // The place of /proc is no choice of the caller's: there is nothing to switch off.
            defence: &[],
            control: |bench| a_false_proc_swallows(bench).into(),
            attack: proc_is_the_sandboxs_own,
        },
        Case {
            id: "F09",
            tier: 1,
            what: "a symlink, a FIFO and a directory lie where the report is to be written",
            defence: &["planted-report"],
            control: |bench| a_shell_follows(bench).into(),
            attack: nothing_planted_is_opened,
        },
        Case {
            id: "F10",
            tier: 1,
            what: "symlinks and hard links lie in what the server chowns and deletes",
            // Directories are opened without following and changed by descriptor: one way, not a check beside it.
            defence: &[],
            control: |bench| a_careless_hand_leaves_the_tree(bench).into(),
            attack: hands_stay_in_the_tree,
        },
    ]
}

/// A directory of the case's own, with a canary in it; removed when dropped.
struct Yard(PathBuf);

impl Yard {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let yard = Self(bench.work_dir().join("yard"));
        let make = || {
            fs::create_dir_all(yard.at("canary"))?;
            fs::write(yard.at("canary/file"), "canary")
        };
        make().map_err(|e| broken(format!("yard: {e}")))?;
        Ok(yard)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Content, owners and modes of the canary and of the directory it sits in.
    fn canary(&self) -> String {
        let of = |name: &str| fs::metadata(self.at(name)).map(|m| (m.uid(), m.gid(), m.mode(), m.nlink())).ok();
        format!("{:?} {:?} {:?}", fs::read_to_string(self.at("canary/file")).ok(), of("canary/file"), of("canary"))
    }

    fn run(&self, script: &str) -> Result<(), Fail> {
        let done = Command::new("sh").args(["-c", script]).current_dir(&self.0).output();
        let done = done.map_err(|e| broken(format!("sh: {e}")))?;
        require!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where a false file lies over the true one, a write to it changes nothing.
fn a_false_proc_swallows(bench: &Bench) -> Result<(), Fail> {
    let yard = Yard::make(bench)?;
    let script =
        r#"own=/proc/$$/oom_score_adj; mount --bind "$0" $own && echo 1000 > $own; umount $own; cat $own "$0""#;
    let file = yard.at("canary/file").display().to_string();
    let done =
        bench.direct().wrapped(&["unshare", "-m", "bash", "-c", script, &file]).command("true", [""; 0]).finish()?;
    require!(done.out.ends_with("1000\n") && !done.out.starts_with("1000"), "{:?} {}", done.out, done.err);
    Ok(())
}

fn proc_is_the_sandboxs_own(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let yard = Yard::make(bench)?;
    symlink("/", yard.at("canary/proc")).map_err(|e| broken(format!("symlink: {e}")))?;
    let source = yard.at("canary").display().to_string();
    let targets = ["/proc", "/proc/", "/proc/self", "/proc/1/oom_score_adj", "//proc", "/./proc", "/task/../proc", "/"];
    for target in targets {
        let done = bench.task(arm).opt("--bind-ro", format!("{source}:{target}")).sh("echo ran").finish()?;
        let refused = done.code() == 125 && done.report.is_none() && done.out.is_empty();
        ensure!(refused, "a bind on {target} was taken: exit {}, {:?}", done.code(), done.out);
    }
    // A tree with a false proc of its own, somewhere else: the true values are the ones that hold.
    let launch = bench.task(arm).opt("--bind-ro", format!("{source}:/opt/tree")).probe("k_victim", &[]);
    watch(bench, Some(arm), launch, |run| {
        let members = run.members();
        require!(members.len() == 2, "{} members", members.len());
        for pid in members {
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            ensure!(
                read("oom_score_adj") == "1000\n",
                "{}: oom_score_adj {}",
                proc::describe(pid),
                read("oom_score_adj")
            );
            let login = read("loginuid");
            let unset = u32::MAX.to_string();
            ensure!(login.is_empty() || login.trim() == unset, "{}: loginuid {login}", proc::describe(pid));
            ensure!(uid_map_is_whole(&read("uid_map")), "{}: uid_map {}", proc::describe(pid), read("uid_map"));
        }
        Ok(())
    })?;
    bench.note(format!(
        "{} binds over /proc refused before anything ran; the host reads the true values",
        targets.len()
    ));
    Ok(())
}

/// A task is in the host's user namespace: the map is the kernel's own.
fn uid_map_is_whole(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A shell that is told to write there follows the one and waits for the other.
fn a_shell_follows(bench: &Bench) -> Result<(), Fail> {
    let yard = Yard::make(bench)?;
    let before = yard.canary();
    yard.run("ln -s canary/file link && echo x > link && mkfifo fifo && ! timeout 0.2 sh -c 'echo x > fifo'")?;
    require!(yard.canary() != before, "the canary was not written");
    Ok(())
}

fn nothing_planted_is_opened(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let yard = Yard::make(bench)?;
    let plant = || {
        symlink(yard.at("canary/file"), yard.at("link"))?;
        symlink(yard.at("canary/new"), yard.at("dangling"))?;
        mkfifo(&yard.at("fifo"), Mode::from_bits_truncate(0o666)).map_err(std::io::Error::from)?;
        fs::create_dir(yard.at("dir"))
    };
    plant().map_err(|e| broken(format!("plant: {e}")))?;
    let before = yard.canary();
    let expected = [("fifo", "ENXIO"), ("link", "ELOOP"), ("dangling", "ELOOP"), ("dir", "EISDIR")];
    for (name, errno) in expected {
        let mut run = bench.task(arm).reporting_to(yard.at(name)).sh("echo ran").spawn()?;
        let ended = run.pump(pace::time(Duration::from_secs(2)), |run| run.ended.is_some())?;
        ensure!(ended, "{name}: taskman waits for it");
        let done = run.finish()?;
        ensure!(done.code() == 125 && done.out.is_empty(), "{name}: exit {}, {:?}", done.code(), done.out);
        ensure!(done.err.contains(errno) && done.err.contains("--report"), "{name}: {}", done.err);
    }
    ensure!(yard.canary() == before, "the canary is now {}", yard.canary());
    ensure!(!yard.at("canary/new").exists(), "a file was made through a dangling symlink");
    bench.note("symlink, dangling symlink, FIFO and directory: each refused at once, before anything ran");
    if arm == Arm::Contained { bench.canary() } else { Ok(()) }
}

fn a_careless_hand_leaves_the_tree(bench: &Bench) -> Result<(), Fail> {
    let yard = Yard::make(bench)?;
    let before = yard.canary();
    yard.run("mkdir tree && ln -s ../canary tree/link && chown 1 tree/link")?;
    require!(yard.canary() != before, "chown did not follow the symlink");
    yard.run("find -L tree -delete 2>/dev/null; test ! -e canary/file")?;
    Ok(())
}

fn hands_stay_in_the_tree(bench: &Bench, _arm: Arm) -> Result<(), Fail> {
    let yard = Yard::make(bench)?;
    let before = yard.canary();
    chowned(&yard)?;
    ensure!(yard.canary() == before, "the server's start changed the canary: {}", yard.canary());
    let uids = bench.uid_range();
    let range = format!("{}:{}", uids.start, uids.end - uids.start);
    let config = yard.at("config.toml");
    fs::write(&config, format!("uid_range = \"{range}\"\n")).map_err(|e| broken(format!("config: {e}")))?;
    let server = Server::with(&["--config", config.to_str().unwrap_or(""), "--retain", "count=1"]);
    let task = server.task(&["--", "echo", "first"]);
    server.ended(&task);
    bench.canary()?;
    let output = server.state().join("server/output").join(&task);
    require!(output.is_dir(), "no output at {}", output.display());
    // Beside the state directory: a hard link does not leave its mount.
    let kept = server.state().with_file_name("kept");
    let plant = || {
        symlink(yard.at("canary"), output.join("link"))?;
        fs::write(&kept, "kept")?;
        fs::hard_link(&kept, output.join("hard"))
    };
    plant().map_err(|e| broken(format!("plant: {e}")))?;
    server.ended(&server.task(&["--", "echo", "second"]));
    bench.tried(2);
    wait_until("the first task is forgotten", || (!output.exists()).then_some(()));
    ensure!(fs::read(&kept).is_ok_and(|kept| kept == b"kept"), "a hard link's target was changed or deleted");
    drop(server);
    ensure!(yard.canary() == before, "what was deleted took the canary along: {}", yard.canary());
    bench.note("a symlink as the server's directory is refused; a symlink and a hard link go with an output, their targets do not");
    Ok(())
}

/// The directory that the launcher would hand to the server is a symlink to somebody else's.
fn chowned(yard: &Yard) -> Result<(), Fail> {
    let mut server = Server::prepare(&[]);
    let state = server.state();
    fs::create_dir_all(&state).map_err(|e| broken(format!("mkdir {}: {e}", state.display())))?;
    symlink(yard.at("canary"), state.join("server")).map_err(|e| broken(format!("symlink: {e}")))?;
    server.under = vec!["timeout".to_owned(), "10".to_owned()];
    let output = server.command_line().output().map_err(|e| broken(format!("taskman-server: {e}")))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && output.status.code() != Some(124), "it starts on a symlink: {said}");
    ensure!(said.contains("ELOOP") || said.contains("ENOTDIR"), "it is refused, but not for the symlink: {said}");
    ensure!(Path::new(&state).join("server").is_symlink(), "the symlink was replaced");
    Ok(())
}
