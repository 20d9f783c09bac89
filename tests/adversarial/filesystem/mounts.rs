//! Mounts and what outlives a process: nothing of the task reaches the host, and nothing new of the host the task.

use std::fs;
use std::process::Command;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::ledger;
use crate::harness::view::{self, Bait};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "F14",
            tier: 1,
            what: "mounts, remounts, moves and unmounts by the old and the new interface",
            defence: &["seccomp,caps,uid"],
            control: |bench| {
                let launch = bench.direct().probe("f_mount", &["private"]);
                watch(bench, None, launch, |_| Ok(())).map_or_else(
                    |fail| Control::Broken(fail.to_string()),
                    |(answers, _)| answers.works(&["main"], &CALLS.map(|name| (name, here(name)))),
                )
            },
            attack: |bench, arm| {
                let mut before = Vec::new();
                watch(bench, Some(arm), bench.task(arm).probe("k_victim", &[]), |run| {
                    before = task_mounts(run.payload())?;
                    Ok(())
                })?;
                let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("f_mount", &[]), |run| {
                    let after = task_mounts(run.payload())?;
                    let points =
                        |mounts: &[view::Mount]| mounts.iter().map(|m| m.point.clone()).collect::<Vec<_>>().join(" ");
                    ensure!(before == after, "the mounts were changed to {}, from {}", points(&after), points(&before));
                    Ok(())
                })?;
                answers.all(&EVERYWHERE, &CALLS.map(|name| (name, "EPERM")))?;
                answers.all(&EVERYWHERE, &[("umount-proc", "EPERM"), ("umount-usr", "EPERM")])
            },
        },
        Case {
            id: "F15",
            tier: 1,
            what: "on a host with a shared root: no mount of the task appears there, no new one of the host here",
            defence: &["private-mounts"],
            control: shared_control,
            attack: shared_attack,
        },
        Case {
            id: "F18",
            tier: 1,
            what: "opens a file of the host by its inode number, past every mount",
            defence: &["seccomp", "seccomp,caps,uid"],
            control: |bench| match by_handle(bench, None) {
                Ok((answers, true)) => answers.works(&EVERYWHERE, &HANDLES.map(|(name, _)| (name, "ok"))),
                Ok((answers, false)) if answers.get("main", "open-by-handle") != Some("ok") => {
                    Control::Cannot(format!("this file system has no such handles: {answers:?}"))
                }
                Ok((answers, false)) => Control::Broken(format!("opened, but not read: {answers:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (answers, read) = by_handle(bench, Some(arm))?;
                ensure!(!read, "the host's file was read by its handle");
                answers.all(&EVERYWHERE, &HANDLES)
            },
        },
        Case {
            id: "F23",
            tier: 1,
            what: "leaves files, sockets, System V and POSIX objects behind",
            defence: &["ipc-namespace"],
            control: leave_control,
            attack: leave_attack,
        },
    ]
}

const CALLS: [&str; 17] = [
    "mount-tmpfs",
    "mount-proc",
    "mount-bind",
    "remount-rw",
    "make-shared",
    "move",
    "open-tree",
    "mount-setattr",
    "move-mount",
    "umount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "listmount",
    "statmount",
    "open-tree-attr",
];

/// What a call gives without taskman: some are younger than the oldest kernel on which taskman runs.
fn here(call: &str) -> &'static str {
    let since = match call {
        "listmount" | "statmount" => (6, 8),
        "open-tree-attr" => (6, 15),
        _ => return "ok",
    };
    if proc::linux() >= since { "ok" } else { "ENOSYS" }
}

/// Point, options and kind of each mount; ids and device numbers differ from task to task.
fn task_mounts(payload: Option<i32>) -> Result<Vec<view::Mount>, Fail> {
    let mounts = view::mounts_of(payload.ok_or_else(|| broken("no payload"))?);
    require!(mounts.len() > 5, "only {} mounts", mounts.len());
    Ok(mounts)
}

/// A mount namespace in which everything is shared, as on a host that systemd has started; private first, so that it shares
/// nothing with this host, which may be such a one.
const SHARED: [&str; 9] =
    ["unshare", "-m", "--propagation", "private", "--", "sh", "-c", "mount --make-rshared / && exec \"$@\"", "sh"];

fn mount_in(pid: i32, directory: &str) -> Result<(), Fail> {
    let target = format!("--target={pid}");
    let mount = Command::new("nsenter").args([&target, "--mount", "mount", "-t", "tmpfs", "late", directory]).output();
    let mount = mount.map_err(|e| broken(format!("nsenter: {e}")))?;
    require!(mount.status.success(), "mount {directory}: {}", String::from_utf8_lossy(&mount.stderr));
    Ok(())
}

/// A directory that is bound into the task, with a place below it to mount on.
fn late_place(bench: &Bench) -> Result<String, Fail> {
    let place = bench.probe_dir().join("late");
    fs::create_dir_all(&place).map_err(|e| broken(format!("mkdir: {e}")))?;
    Ok(place.display().to_string())
}

/// Without taskman: a mount namespace that is unshared with shared propagation does see what is mounted later.
fn shared_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let place = late_place(bench)?;
        let mut outer = bench.direct().wrapped(&SHARED).probe("k_victim", &[]).with_stdin().spawn()?;
        outer.wait_line("state ready")?;
        let enter = format!("--mount=/proc/{}/ns/mnt", outer.pid);
        let wrap = ["nsenter", &enter, "unshare", "-m", "--propagation", "unchanged", "--"];
        let mut seen = false;
        watch(bench, None, bench.direct().wrapped(&wrap).probe("k_victim", &[]), |inner| {
            mount_in(outer.pid, &place)?;
            seen = view::mounts_of(inner.pid).iter().any(|mount| mount.point == place);
            Ok(())
        })?;
        Ok(if seen { Control::Works } else { Control::Broken("shared mounts do not propagate".to_owned()) })
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn shared_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let place = late_place(bench)?;
    let host = |pid: i32| fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    // Holds the shared namespace, before and after.
    let mut holder = bench.direct().wrapped(&SHARED).probe("k_victim", &[]).with_stdin().spawn()?;
    holder.wait_line("state ready")?;
    let shared = view::mounts_of(holder.pid);
    require!(shared.iter().all(|mount| mount.propagation.contains("shared:")), "not all is shared: {shared:?}");
    let before = host(holder.pid);
    let enter = format!("--mount=/proc/{}/ns/mnt", holder.pid);
    watch(bench, Some(arm), bench.task(arm).wrapped(&["nsenter", &enter]).probe("k_victim", &[]), |run| {
        let during = host(holder.pid);
        ensure!(during == before, "the task's mounts are on the host: {}", new_lines(&before, &during));
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        require!(proc::ns_of(run.pid, "mnt") == proc::ns_of(holder.pid, "mnt"), "taskman is in another namespace");
        let inside = host(payload);
        mount_in(holder.pid, &place)?;
        fs::write(format!("/proc/{}/root{place}/marker", holder.pid), "x")
            .map_err(|e| broken(format!("marker: {e}")))?;
        let later = host(payload);
        ensure!(inside == later, "a later mount of the host appears in the task: {}", new_lines(&inside, &later));
        ensure!(!view::inside(payload, "/probe/late/marker").exists(), "a later mount of the host is visible inside");
        let shared: Vec<_> = view::mounts_of(payload).into_iter().filter(|m| !m.propagation.is_empty()).collect();
        ensure!(shared.is_empty(), "mounts of the task propagate: {shared:?}");
        let target = format!("--target={}", holder.pid);
        let gone = Command::new("nsenter").args([&target, "--mount", "umount", &place]).status();
        require!(gone.is_ok_and(|status| status.success()), "umount {place}");
        Ok(())
    })?;
    let after = host(holder.pid);
    ensure!(after == before, "the host's mounts differ after the task: {}", new_lines(&before, &after));
    Ok(())
}

fn new_lines(before: &str, after: &str) -> String {
    after.lines().filter(|line| !before.lines().any(|known| known == *line)).collect::<Vec<_>>().join("; ")
}

const HANDLES: [(&str, &str); 2] = [("name-to-handle", "EPERM"), ("open-by-handle", "EPERM")];

fn by_handle(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, bool), Fail> {
    // Beside the bound directory, not below it: on the same file system, out of reach by path.
    let mut bait = Bait::lay(bench, bench.work_dir().join("bait"))?;
    let inode = bait.inode().to_string();
    let launch = match arm {
        Some(arm) => bench.task(arm).probe("f_handle", &["/probe", &inode]),
        None => bench.direct().probe("f_handle", &[&bench.probe_dir().display().to_string(), &inode]),
    };
    let (answers, _) = watch(bench, arm, launch, |_| Ok(()))?;
    let opened = answers.get("main", "open-by-handle") == Some("ok");
    let touched = bait.was_touched(arm.is_none() && opened)?;
    Ok((answers, touched))
}

const KINDS: [&str; 9] =
    ["file-/tmp", "file-/dev/shm", "file-/task", "socket-path", "socket-abstract", "shm", "sem", "msg", "mq"];

/// What the host has of `name` and of the suite's uids: a list of places.
fn left_of(bench: &Bench, name: &str) -> Vec<String> {
    let uids = bench.uid_range();
    let mut left: Vec<String> = ledger::files_of(&uids).iter().map(|path| path.display().to_string()).collect();
    left.extend(ledger::sysv_objects(&uids).into_iter().map(|(kind, id)| format!("ipc {kind} {id}")));
    left.extend(ledger::message_queues(&uids));
    for table in ["/proc/net/unix", "/proc/self/mountinfo"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        left.extend(text.lines().filter(|line| line.contains(name)).map(|line| format!("{table}: {line}")));
    }
    left
}

/// Takes away what the probe has left where nothing contained it.
fn clean(bench: &Bench, name: &str) {
    let _ = bench.direct().probe("f_leave", &[name, "clean"]).finish();
}

fn leave_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let name = format!("{}-left", bench.nonce());
        let (mut during, mut after) = (Vec::new(), Vec::new());
        let launch = bench.direct().with_uid(bench.uid_range().start).probe("f_leave", &[&name]);
        let result = watch(bench, None, launch, |_| {
            during = left_of(bench, &name);
            Ok(())
        });
        if result.is_ok() {
            after = left_of(bench, &name);
        }
        clean(bench, &name);
        result?;
        require!(during.len() >= 9, "the probe made only {during:?}");
        require!(after.len() >= 6, "the probe left only {after:?}");
        Ok(Control::Works)
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn leave_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let name = format!("{}-left", bench.nonce());
    let mut seen = Vec::new();
    let result = watch(bench, Some(arm), bench.task(arm).probe("f_leave", &[&name]), |_| {
        seen = left_of(bench, &name);
        Ok(())
    });
    let after = left_of(bench, &name);
    clean(bench, &name);
    let (answers, _) = result?;
    ensure!(seen.is_empty(), "seen on the host while the task ran: {seen:?}");
    ensure!(after.is_empty(), "left on the host: {after:?}");
    let made: Vec<(&str, &str)> = KINDS.iter().map(|kind| (*kind, "ok")).collect();
    // Inside all of it can be made; /var/tmp is not there.
    answers.all(&["main"], &made).map_err(|fail| broken(fail.to_string()))?;
    answers.all(&["main"], &[("file-/var/tmp", "ENOENT")])
}
