//! Read-only means read-only: what is bound in cannot be changed, however its modes invite it, nor asked for more than it holds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::ensure;
use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "F32",
            tier: 2,
            what: "asks the host's file system for extents, labels and attributes, and leaves a key in it",
            defence: &["seccomp"],
            control: |bench| match ioctls(bench, None) {
                Ok(answers) => {
                    for (name, _) in IOCTLS {
                        if let Some(errno @ ("ENOTTY" | "EOPNOTSUPP")) = answers.get("main", name) {
                            bench.note(format_args!("SKIP {name}: {errno} on this file system outside too"));
                        }
                    }
                    answers.works(&EVERYWHERE, &[("fiemap", "ok"), ("fiemap-high", "ok"), ("flags", "ok")])
                }
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let answers = ioctls(bench, Some(arm))?;
                answers.all(&EVERYWHERE, &IOCTLS)?;
                answers.all(&EVERYWHERE, &[("flags", "ok")])
            },
        },
        Case {
            id: "F33",
            tier: 1,
            what: "changes bound files and directories that anyone may write to, also on a mount below the bound one",
            defence: &["read-only"],
            control: |bench| match writes(bench, None) {
                Ok(tries) if tries.iter().all(|(_, changed)| !changed.is_empty()) => {
                    let wanted = WRITES.map(|(name, _)| (name, "ok"));
                    let mut controls = tries.iter().map(|(answers, _)| answers.works(&["main"], &wanted));
                    controls.find(|control| !matches!(control, Control::Works)).unwrap_or(Control::Works)
                }
                Ok(tries) => Control::Broken(format!("nothing was changed outside either: {tries:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                for (answers, changed) in writes(bench, Some(arm))? {
                    ensure!(changed.is_empty(), "the host's directory was changed: {changed}");
                    answers.all(&["main"], &WRITES)?;
                }
                Ok(())
            },
        },
    ]
}

const IOCTLS: [(&str, &str); 7] = [
    ("fiemap", "EPERM"),
    ("fiemap-high", "EPERM"),
    ("uuid", "EPERM"),
    ("label", "EPERM"),
    ("attributes", "EPERM"),
    ("add-key", "EPERM"),
    ("freeze", "EPERM"),
];

fn ioctls(bench: &Bench, arm: Option<Arm>) -> Result<Answers, Fail> {
    let own = bench.payload("f_ioctl").display().to_string();
    let launch = match arm {
        Some(arm) => bench.task(arm).probe("f_ioctl", &["/probe/f_ioctl"]),
        None => bench.direct().with_uid(bench.uid_range().start).probe("f_ioctl", &[&own]),
    };
    Ok(watch(bench, arm, launch, |_| Ok(()))?.0)
}

const WRITES: [(&str, &str); 13] = [
    ("write", "EROFS"),
    ("truncate", "EROFS"),
    ("create", "EROFS"),
    ("mkdir", "EROFS"),
    ("symlink", "EROFS"),
    ("mkfifo", "EROFS"),
    ("rename", "EROFS"),
    ("rename-back", "EROFS"),
    ("link", "EROFS"),
    ("unlink", "EROFS"),
    ("reopen", "EROFS"),
    ("tmpfile", "EROFS"),
    ("utimes", "EROFS"),
];

/// Names and contents of a directory, as one text.
fn contents(dir: &Path) -> String {
    let mut lines: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| {
            let text = entry.file_type().is_ok_and(|kind| kind.is_file()).then(|| fs::read_to_string(entry.path()));
            format!("{} {:?}", entry.file_name().to_string_lossy(), text.and_then(Result::ok))
        })
        .collect();
    lines.sort();
    lines.join("; ")
}

/// For a bound directory and for a mount below it: the probe's answers, and what the host sees changed (or nothing).
fn writes(bench: &Bench, arm: Option<Arm>) -> Result<Vec<(Answers, String)>, Fail> {
    let base = bench.probe_dir().join("writable");
    let result = ["open", "open/below"].iter().map(|name| {
        let _ = fs::remove_dir_all(&base);
        let below = base.join("open/below");
        let make = || {
            fs::create_dir_all(&below)?;
            for dir in [&base.join("open"), &below] {
                fs::write(dir.join("file"), "text")?;
                fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
                fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o666))?;
            }
            Ok(())
        };
        make().map_err(|e: std::io::Error| broken(format!("writable: {e}")))?;
        // In a mount namespace of the test's own, where a second mount covers the directory below: a bind that is made
        // read-only without its submounts would leave that one writable.
        let script = "mount -t tmpfs -o mode=777 late \"$0\" && cp /dev/null \"$0/file\" && chmod 666 \"$0/file\" && exec \"$@\"";
        let below = below.display().to_string();
        let wrap = ["unshare", "-m", "sh", "-c", script, &below];
        let uid = bench.uid_range().start.to_string();
        let drop = ["setpriv", "--reuid", &uid, "--regid", &uid, "--clear-groups"];
        let launch = match arm {
            Some(arm) => bench.task(arm).wrapped(&wrap).probe("f_write", &[&format!("/probe/writable/{name}")]),
            None => bench
                .direct()
                .wrapped(&[&wrap[..], &drop[..]].concat())
                .probe("f_write", &[&base.join(name).display().to_string()]),
        };
        let mut changed = String::new();
        let (answers, _) = watch(bench, arm, launch, |run| {
            // As taskman itself sees it, in its own mount namespace.
            let there = format!("/proc/{}/root{}", run.pid, base.join(name).display());
            let now = contents(Path::new(&there));
            let before = if *name == "open" { "below None; file Some(\"text\")" } else { "file Some(\"\")" };
            if now != before {
                changed = now;
            }
            Ok(())
        })?;
        Ok((answers, changed))
    });
    let result = result.collect();
    let _ = fs::remove_dir_all(&base);
    result
}
