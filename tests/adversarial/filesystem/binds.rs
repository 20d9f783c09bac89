//! What the caller binds in: the path that was written is what is bound, whatever symlinks lie on the way.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::ensure;
use crate::harness::answers::ended_well;
use crate::harness::{Arm, Bench, Case, Control, Fail, broken};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "F08",
        tier: 1,
        what: "symlinks in the source and target of --bind-ro and in --workdir lead nowhere else",
        defence: &["bind-symlinks"],
        control: |bench| {
            symlinks(bench).map_or_else(
                |f| Control::Broken(f.to_string()),
                |tree| {
                    // What the same paths mean to a program that follows symlinks.
                    let followed = fs::create_dir(tree.0.join("open/out/made")).is_ok();
                    if followed && tree.0.join("secret/made").is_dir() {
                        Control::Works
                    } else {
                        Control::Broken("no symlink".into())
                    }
                },
            )
        },
        attack: symlink_attack,
    }]
}

/// `open/out` is a symlink to `secret`, `link` one to `open`. Removed when dropped.
struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn symlinks(bench: &Bench) -> Result<Tree, Fail> {
    let tree = Tree(bench.work_dir().join("symlinks"));
    let at = |name: &str| tree.0.join(name);
    let make = || {
        fs::create_dir_all(at("open"))?;
        fs::create_dir_all(at("secret"))?;
        fs::write(at("secret/word"), "secret")?;
        symlink(at("secret"), at("open/out"))?;
        symlink(at("secret/word"), at("open/word"))?;
        symlink(at("open"), at("link"))
    };
    make().map_err(|e| broken(format!("symlinks: {e}")))?;
    Ok(tree)
}

fn symlink_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let tree = symlinks(bench)?;
    let open = tree.0.join("open").display().to_string();
    let bound = |from: &str, to: &str| format!("{}/{from}:{to}", tree.0.display());
    let refused = |options: &[String]| -> Result<(), Fail> {
        let mut launch = bench.task(arm).opt("--bind-ro", format!("{open}:/open"));
        for option in options {
            launch = launch.opt("--bind-ro", option);
        }
        let done = launch.sh("ls -R /open /there /open/out 2>&1; cat /there /there/word 2>&1").finish()?;
        ensure!(done.code() == 125 && done.report.is_none(), "{options:?} ended with {}: {}", done.code(), done.out);
        ensure!(done.err.contains("ELOOP"), "{options:?}: {}", done.err);
        Ok(())
    };
    refused(&[bound("link", "/there")])?;
    refused(&[bound("open/out", "/there")])?;
    refused(&[bound("open/out/word", "/there")])?;
    refused(&[bound("open/word", "/there")])?;
    refused(&[bound("open", "/open/out/made")])?;
    refused(&[bound("open", "/open/out")])?;
    let workdir = bench.task(arm).opt("--bind-ro", format!("{open}:/open")).opt("--workdir", "/open/out");
    let workdir = workdir.command("/bin/pwd", ["-P"]).finish()?;
    ensure!(workdir.code() == 125, "--workdir through a symlink of the host ended with {}", workdir.code());
    let left: Vec<_> =
        fs::read_dir(tree.0.join("secret")).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
    ensure!(left == ["word"], "the host's directory now holds {left:?}");
    if arm == Arm::Contained {
        bench.canary()?;
        // The same symlink seen from inside leads into the task's own root, where there is nothing.
        let inside =
            bench.task(arm).opt("--bind-ro", format!("{open}:/open")).sh("test ! -e /open/out/word").finish()?;
        ended_well(&inside)?;
    }
    Ok(())
}
