//! Counts and sizes: processes, threads, disk, inodes, descriptors, output.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;

use crate::harness::{Arm, Bench, Case, Fail, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "R01",
            tier: 1,
            what: "fork bomb and thread bomb",
            defence: &["pids"],
            control: |bench| bomb_goes_off(bench).into(),
            attack: bomb_is_bounded,
        },
        Case {
            id: "R08",
            tier: 1,
            what: "fills /task, /tmp and /dev/shm with bytes and with inodes",
            defence: &["disk"],
            control: |bench| host_takes_it(bench).into(),
            attack: disk_is_bounded,
        },
        Case {
            id: "R09",
            tier: 1,
            what: "opens descriptors until none are left",
            defence: &["nofile"],
            control: |bench| many_descriptors(bench).into(),
            attack: descriptors_are_bounded,
        },
        Case {
            id: "R10",
            tier: 1,
            what: "10 GiB of output; 1 GiB without a newline; a reader that does not read",
            defence: &["output-limit"],
            control: |bench| flood_arrives(bench).into(),
            attack: flood_is_bounded,
        },
    ]
}

/// What a bomb says of itself: `made N refused N other N`.
fn told(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with("made "))?;
    line.split(' ').skip_while(|w| *w != word).nth(1)?.parse().ok()
}

fn bomb_goes_off(bench: &Bench) -> Result<(), Fail> {
    for kind in ["fork", "thread"] {
        let life = pace::time(Duration::from_secs(5)).as_secs().to_string();
        let mut run = bench.direct().probe("r_fork", &[kind, "150", &life]).spawn()?;
        run.wait_line("made ")?;
        let made = told(&run.out.text(), "made");
        require!(made.is_some_and(|n| n >= 150), "{kind}: {}", run.out.text());
        // The rest of the bomb holds the pipes: it is swept, not waited for.
    }
    Ok(())
}

const PIDS: u64 = 48;

fn bomb_is_bounded(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let latest = pace::time(Duration::from_secs(1)).as_millis();
    for kind in ["fork", "thread"] {
        arm.in_time(&format!("{kind}: over"), 0..=latest, || bomb_ends(bench, arm, kind))?;
    }
    Ok(())
}

/// From the stop of a bomb to its end, in milliseconds.
fn bomb_ends(bench: &Bench, arm: Arm, kind: &str) -> Result<u128, Fail> {
    let task = bench.task(arm).opt("--pids", PIDS.to_string()).opt("--grace", "20s");
    let life = pace::time(Duration::from_secs(30)).as_secs().to_string();
    let mut run = task.probe("r_fork", &[kind, "150", &life]).spawn()?;
    run.wait_line("made ")?;
    let dir = run.group_of("pids").ok_or_else(|| broken("no group"))?;
    let threads = || -> usize {
        let count = |pid| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |d| d.count());
        proc::of_uid_range(&bench.uid_range()).into_iter().map(count).sum()
    };
    let seen = threads() as u64;
    let events = fs::read_to_string(dir.join("pids.events")).unwrap_or_default();
    let max = fs::read_to_string(dir.join("pids.max")).unwrap_or_default();
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let text = run.out.text();
    let asked = Instant::now();
    run.stop_twice()?;
    let over = run.pump(pace::time(Duration::from_secs(10)), |run| run.ended.is_some())?;
    // Init is not charged to the payload: the group holds one more.
    ensure!(seen <= PIDS + 1, "{kind}: the host sees {seen} tasks with a limit of {PIDS}");
    ensure!(over, "{kind}: not over 10 s after the stop");
    let done = run.finish()?;
    let alive = bench.survivors();
    ensure!(alive.is_empty(), "{kind}: alive after the stop: {}", alive.join(", "));
    ensure!(max.trim() == (PIDS + 1).to_string(), "{kind}: pids.max is {max:?}");
    ensure!(events.trim() != "max 0" && !events.is_empty(), "{kind}: pids.events says {events:?}");
    ensure!(
        told(&text, "refused").is_some_and(|n| n > 0) && told(&text, "other") == Some(0),
        "{kind}: not EAGAIN: {text}"
    );
    let peak = done.field("/usage/pids_peak")?.as_u64().unwrap_or(u64::MAX);
    ensure!(peak <= PIDS + 1, "{kind}: a peak of {peak} with a limit of {PIDS}");
    ensure!(done.reason()? == "stopped" && done.verdict()? == "proven", "{} {}", done.reason()?, done.verdict()?);
    let took = done.ended - asked;
    bench.note(format!("{kind}: {seen} of {PIDS} tasks, peak {peak}, refused with EAGAIN, stopped in {took:?}"));
    Ok(took.as_millis())
}

const DISK_MIB: u64 = 16;
const INODES: u64 = 256;

fn host_takes_it(bench: &Bench) -> Result<(), Fail> {
    let dir = bench.work_dir().join("fill");
    for (kind, count) in [("bytes", "32"), ("inodes", "512")] {
        fs::create_dir_all(&dir).map_err(|e| broken(format!("mkdir: {e}")))?;
        let done = bench.direct().probe("r_disk", &[kind, &dir.to_string_lossy(), count, "leave"]).finish();
        let _ = fs::remove_dir_all(&dir);
        let out = done?.out;
        require!(out == format!("filled {count} OK\n"), "{kind}: {out}");
    }
    Ok(())
}

fn disk_is_bounded(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for dir in ["/task", "/tmp", "/dev/shm"] {
        for (kind, bound) in [("bytes", "48"), ("inodes", "1024")] {
            let task = bench.task(arm).opt("--disk", format!("{DISK_MIB}M")).opt("--inodes", INODES.to_string());
            let mut run = task.opt("--grace", "1ms").probe("r_disk", &[kind, dir, bound]).spawn()?;
            run.wait_line("filled ")?;
            let said = run.out.text();
            let payload = run.payload().ok_or_else(|| broken("no payload"))?;
            // The host looks through the payload's own root.
            let at = format!("/proc/{payload}/root{dir}");
            let stat = statvfs(at.as_str()).map_err(|e| broken(format!("statvfs {at}: {e}")))?;
            let bytes = (stat.blocks() - stat.blocks_free()) * stat.fragment_size();
            let inodes = stat.files() - stat.files_free();
            if arm == Arm::Contained {
                bench.canary()?;
            }
            run.signal(Signal::SIGTERM)?;
            let done = run.finish()?;
            ensure!(bytes <= DISK_MIB << 20, "{dir}: {bytes} bytes with a limit of {DISK_MIB} MiB");
            // The directory itself is not charged to the payload.
            ensure!(inodes <= INODES + 1, "{dir}: {inodes} inodes with a limit of {INODES}");
            ensure!(said.trim_end().ends_with("ENOSPC"), "{dir}, {kind}: {said:?} in place of ENOSPC");
            ensure!(
                done.reason()? == "stopped" && done.verdict()? == "proven",
                "{} {}",
                done.reason()?,
                done.verdict()?
            );
            bench.note(format!("{dir}, {kind}: {}; the host sees {bytes} bytes, {inodes} inodes", said.trim_end()));
        }
    }
    Ok(())
}

const NOFILE: usize = 64;

fn many_descriptors(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().probe("r_fds", &["500", "1"]).spawn()?;
    run.wait_line("opened ")?;
    require!(run.out.text() == "opened 500 OK\n", "{}", run.out.text());
    Ok(())
}

/// How many files the whole host has open.
fn file_nr() -> i64 {
    let text = fs::read_to_string("/proc/sys/fs/file-nr").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn descriptors_are_bounded(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    const PROCESSES: usize = 8;
    let before = file_nr();
    let task = bench.task(arm).opt("--nofile", NOFILE.to_string()).opt("--grace", "1ms");
    let mut run = task.probe("r_fds", &["500", &PROCESSES.to_string()]).spawn()?;
    let all = |run: &crate::harness::Run| run.out.text().lines().count() == PROCESSES;
    require!(run.pump(pace::time(Duration::from_secs(10)), all)?, "only {:?}; {}", run.out.text(), run.err.text());
    let count = |pid: i32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |d| d.count());
    let most = proc::of_uid_range(&bench.uid_range()).into_iter().map(count).max().unwrap_or(0);
    let grown = file_nr() - before;
    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
    let limits = fs::read_to_string(format!("/proc/{payload}/limits")).unwrap_or_default();
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap_or("").to_owned();
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let said = run.out.text();
    run.signal(Signal::SIGTERM)?;
    run.finish()?;
    let limit: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    ensure!(most <= NOFILE, "{most} descriptors open with a limit of {NOFILE}");
    ensure!(limit == [NOFILE.to_string(), NOFILE.to_string()], "the host reads {line:?}");
    let refused = said.lines().filter(|l| *l == format!("opened {} EMFILE", NOFILE - 3)).count();
    ensure!(refused == PROCESSES, "{refused} of {PROCESSES} processes had EMFILE after {}: {said}", NOFILE - 3);
    bench.note(format!("{PROCESSES} processes, {most} descriptors each at most; file-nr of the host grew by {grown}"));
    // Others on this host open files too, so a wide margin: without a bound it would be 500 each.
    ensure!(grown < (PROCESSES * NOFILE) as i64 + 2_000, "file-nr grew by {grown}");
    Ok(())
}

const OUTPUT: u64 = 4 << 20;

fn flood_arrives(bench: &Bench) -> Result<(), Fail> {
    let done = bench.direct().keep(1024).probe("r_flood", &["line", "64"]).finish()?;
    require!(done.out_total == 64 << 20, "{} bytes arrived", done.out_total);
    Ok(())
}

fn flood_is_bounded(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // Of a mutant without the limit a little more than the limit is enough to see.
    let sizes = if arm == Arm::Contained { ["10240", "1024"] } else { ["16", "16"] };
    for (kind, size) in [("lines", sizes[0]), ("line", sizes[1])] {
        let task = bench.task(arm).keep(1024).opt("--output-limit", OUTPUT.to_string()).opt("--timeout", "20s");
        let mut run = task.probe("r_flood", &[kind, size]).spawn()?;
        // Nobody reads for a while: the payload must wait, and taskman must not gather what it writes.
        std::thread::sleep(Duration::from_millis(300));
        let memory = |field: &str, pid| {
            let value = proc::status_of(pid).and_then(|s| s.get(field).cloned()).unwrap_or_default();
            value.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
        };
        // Memory of its own: what is mapped of the program's file, which is large without optimisation, grows with no output.
        let unread = memory("RssAnon", run.pid);
        if arm == Arm::Contained {
            bench.canary()?;
        }
        let mut peak = unread;
        while run.ended.is_none() {
            run.pump(Duration::from_millis(5), |run| run.ended.is_some())?;
            peak = peak.max(memory("RssAnon", run.pid));
        }
        let done = run.finish()?;
        let counted = done.field("/usage/output_bytes")?.as_u64().unwrap_or(0);
        bench.note(format!(
            "{kind}: {} bytes came of {size} MiB, limit {OUTPUT}; taskman held {unread} KiB unread, {peak} KiB at most; over \
             after {:?}",
            done.out_total, done.took
        ));
        ensure!(done.out_total <= OUTPUT, "{kind}: {} bytes came with a limit of {OUTPUT}", done.out_total);
        ensure!(done.out_total == OUTPUT, "{kind}: only {} of {OUTPUT} bytes came", done.out_total);
        ensure!(done.reason()? == "output_limit" && done.code() == 137, "{}, exit {}", done.reason()?, done.code());
        ensure!(counted >= OUTPUT, "{kind}: the report counts {counted} bytes");
        ensure!(unread > 0 && peak < 10 * 1024, "{kind}: taskman grew from {unread} to {peak} KiB");
        ensure!(done.took < pace::time(Duration::from_secs(5)), "{kind}: over only after {:?}", done.took);
        ensure!(done.verdict()? == "proven", "{kind}: verdict {}", done.verdict()?);
    }
    Ok(())
}
