//! File locks: the kernel charges them to nobody, so the launcher counts them.

use std::time::Duration;

use super::meminfo;
use crate::harness::answers::{Answers, EVERYWHERE, ended_well, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "R31",
        tier: 1,
        what: "takes a million file locks, which no memory limit counts, or some that name nobody who has them",
        defence: &["file-locks", "seccomp"],
        control: held_outside,
        attack: the_holder_is_killed,
    }]
}

/// Locks that name the process that has them.
const GIVEN: [(&str, &str); 3] = [("posix", "ok"), ("flock", "ok"), ("fork", "ok")];
/// Others.
const REFUSED: [(&str, &str); 7] = [
    ("ofd", "EINVAL"),
    ("ofd-wait", "EINVAL"),
    ("ofd-ask", "EINVAL"),
    ("ofd-high", "EINVAL"),
    ("files", "EPERM"),
    ("files-vfork", "EPERM"),
    ("files-high", "EPERM"),
];
/// Of each of two processes: 195 MB in all, and for how many seconds they are held if nobody minds.
const FLOOD: [&str; 3] = ["500000", "2", "8"];
/// The same, once as they come, and once behind others that name nobody who lives.
const MANNERS: [&str; 2] = ["plain", "hidden"];
/// A second of two CPUs makes up to 120 MB.
const MOST: u64 = 150 << 20;

fn held_outside(bench: &Bench) -> Control {
    let look = || -> Result<Control, Fail> {
        let before = meminfo("SUnreclaim");
        let mut during = 0;
        let launch = bench.direct().probe("r_locks", &["150000", "2", "8", "plain"]);
        let (answers, _) = watch(bench, None, launch, |_| {
            during = meminfo("SUnreclaim");
            Ok(())
        })?;
        require!(during > before + (30 << 20), "SUnreclaim grew by only {} bytes", during.saturating_sub(before));
        let wanted: Vec<_> = GIVEN.iter().chain(&REFUSED).map(|(name, _)| (*name, "ok")).collect();
        Ok(answers.works(&EVERYWHERE, &wanted))
    };
    look().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn the_holder_is_killed(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // One that holds as many as programs do is let alone.
    let mut bystander = bench.task(arm).probe("r_locks", &["20", "1", "60", "plain"]).with_stdin().spawn()?;
    bystander.wait_line("state ready")?;
    for manner in MANNERS {
        is_killed(bench, arm, manner)?;
    }
    if arm == Arm::Contained {
        bench.canary()?;
    }
    drop(bystander.stdin());
    ended_well(&bystander.finish()?)
}

fn is_killed(bench: &Bench, arm: Arm, manner: &str) -> Result<(), Fail> {
    let before = meminfo("SUnreclaim");
    let mut most = before;
    let mut run =
        bench.task(arm).opt("--cpus", "2").probe("r_locks", &[&FLOOD[..], &[manner]].concat()).with_stdin().spawn()?;
    while run.ended.is_none() {
        most = most.max(meminfo("SUnreclaim"));
        run.pump(Duration::from_millis(5), |run| run.ended.is_some())?;
    }
    let done = run.finish()?;
    let answers = Answers::parse(&done.out);
    answers.all(&EVERYWHERE, &GIVEN)?;
    answers.all(&EVERYWHERE, &REFUSED)?;
    let detail = done.field("/outcome/detail")?.as_str().unwrap_or("").to_owned();
    let grown = most.saturating_sub(before);
    bench.note(format!("{manner}: over after {:?}, SUnreclaim grew by {} MiB: {detail}", done.took, grown >> 20));
    ensure!(done.reason()? == "oom" && done.code() == 137, "{} {}: {detail}", done.reason()?, done.code());
    ensure!(detail.contains("file locks, which no memory limit counts"), "{detail}");
    ensure!(done.verdict()? == "proven", "verdict {}", done.verdict()?);
    ensure!(done.took < pace::time(Duration::from_secs(7)), "killed only after {:?}", done.took);
    ensure!(grown < MOST, "SUnreclaim grew by {grown} bytes");
    Ok(())
}
