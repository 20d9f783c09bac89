//! Groups inside groups: a task makes none, and changes nothing of those it can see.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::escape::{other_group, with_groups};
use crate::ensure;
use crate::harness::answers::{Answers, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "C05",
        tier: 1,
        what: "makes a storm of groups, turns them to threads, lifts their bounds, and unshares their namespace",
        defence: &["read-only,uid,caps,seccomp", "seccomp,uid,caps"],
        control: |bench| match nest(bench, None) {
            Ok((answers, seen)) if seen.below.len() == 201 => answers.works(&["main"], &WORKS),
            Ok((_, seen)) => Control::Broken(format!("{} groups were made, not 201", seen.below.len())),
            Err(fail) => Control::Broken(fail.to_string()),
        },
        attack: |bench, arm| {
            let (answers, seen) = nest(bench, Some(arm))?;
            ensure!(seen.below.is_empty(), "the task made {} groups on the host", seen.below.len());
            ensure!(seen.kind == "domain", "the group the task could see is now {}", seen.kind);
            ensure!(seen.namespace_kept, "a process of the task has another cgroup namespace");
            answers.all(&["main"], &REFUSED)
        },
    }]
}

const WORKS: [(&str, &str); 5] =
    [("mkdir", "ok"), ("storm", "c8"), ("type", "ok"), ("descendants", "ok"), ("unshare-cgroup", "ok")];

/// The kernel asks for a directory's mount before its mode, and for a file's mode before its mount.
const REFUSED: [(&str, &str); 9] = [
    ("mkdir", "EROFS"),
    ("storm", "0"),
    ("type", "ENOENT"),
    ("threads", "ENOENT"),
    ("own-type", "EACCES"),
    ("descendants", "EACCES"),
    ("controllers", "EACCES"),
    ("kill", "EACCES"),
    ("unshare-cgroup", "EPERM"),
];

/// What the host sees of the group, and of the task's processes, while the probe waits.
struct Seen {
    below: BTreeSet<String>,
    kind: String,
    namespace_kept: bool,
}

fn nest(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, Seen), Fail> {
    let other = other_group(bench)?;
    let tree = bench.work_dir().join("tree");
    let _ = fs::create_dir(&tree);
    let result = try_in(bench, arm, &other, &tree.display().to_string());
    for group in below(&other) {
        let _ = fs::remove_dir(other.join(group));
    }
    let _ = fs::remove_dir(&other);
    let _ = fs::remove_dir(&tree);
    result
}

fn below(group: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn try_in(bench: &Bench, arm: Option<Arm>, other: &Path, tree: &str) -> Result<(Answers, Seen), Fail> {
    let launch = match arm {
        Some(arm) => with_groups(bench, arm, tree).probe("c_nest", &["/groups/other"]),
        None => bench.direct().probe("c_nest", &[&other.display().to_string()]),
    };
    let mut seen = None;
    let (answers, _) = watch(bench, arm, launch, |run| {
        let kind = fs::read_to_string(other.join("cgroup.type")).map_err(|e| broken(format!("cgroup.type: {e}")))?;
        let init = run.init().map(|init| proc::ns_of(init, "cgroup"));
        let namespace_kept = run.members().into_iter().all(|pid| Some(proc::ns_of(pid, "cgroup")) == init);
        seen = Some(Seen { below: below(other), kind: kind.trim().to_owned(), namespace_kept });
        Ok(())
    })?;
    Ok((answers, seen.ok_or_else(|| broken("nobody looked"))?))
}
