//! The caller's terminal: a task that could type into it would be its user.

use crate::harness::answers::{Answers, EVERYWHERE};
use crate::harness::{Arm, Bench, Case, Control, Fail};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "K20",
        tier: 1,
        what: "types into the terminal that taskman was started from (TIOCSTI, also with upper bits set)",
        defence: &["seccomp", "seccomp,session"],
        control: |bench| match typed(bench, None) {
            Ok((_, 0)) => Control::Cannot("this kernel refuses TIOCSTI (dev.tty.legacy_tiocsti)".to_owned()),
            Ok((answers, _)) => answers.works(&EVERYWHERE, &WORKS.map(|name| (name, "ok"))),
            Err(fail) => Control::Broken(fail.to_string()),
        },
        attack: |bench, arm| {
            let (answers, bytes) = typed(bench, Some(arm))?;
            if arm == Arm::Contained {
                bench.canary()?;
            }
            ensure!(bytes == 0, "{bytes} bytes were typed into the caller's terminal");
            answers.all(&EVERYWHERE, &REFUSED)
        },
    }]
}

const WORKS: [&str; 6] = ["open-dev-tty", "sti-dev-tty", "sti-1", "sti-high-1", "sti-own", "sti-own-high"];

const REFUSED: [(&str, &str); 13] = [
    // A session of its own has no controlling terminal.
    ("open-dev-tty", "ENXIO"),
    ("sti-dev-tty", "EPERM"),
    ("sti-0", "EPERM"),
    ("sti-high-0", "EPERM"),
    ("sti-1", "EPERM"),
    ("sti-high-1", "EPERM"),
    ("sti-2", "EPERM"),
    ("sti-high-2", "EPERM"),
    ("openpty", "ok"),
    ("sti-own", "EPERM"),
    ("sti-own-high", "EPERM"),
    ("tioclinux", "EPERM"),
    ("winsize", "ok"),
];

/// Runs the probe on a terminal; what it said, and how many bytes nobody has typed wait there at the end.
fn typed(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, u64), Fail> {
    let host = bench.payload("k_tty").display().to_string();
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let done = launch.wrapped(&[&host, "host"]).probe("k_tty", &[]).finish()?;
    require!(done.code() == 0, "the terminal's side ended with {}: {}", done.code(), done.err);
    let answers = Answers::parse(&done.out);
    let bytes = answers.get("main", "typed").and_then(|text| u64::from_str_radix(text, 16).ok());
    require!(bytes.is_some(), "the terminal's side did not count: {}", done.out);
    Ok((answers, bytes.unwrap_or(0)))
}
