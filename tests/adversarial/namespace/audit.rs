//! The user that the host's audit log names for a task is no choice of the task's.

use std::fs;

use crate::ensure;
use crate::harness::answers::watch;
use crate::harness::{Arm, Bench, Case, Control, Fail, Launch, broken, proc};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "N13",
        tier: 2,
        what: "sets its login uid, which the host's audit log names, to another user's",
        defence: &["login-uid,read-only"],
        control: unset_can_be_set,
        attack: the_tasks_own_stays,
    }]
}

const USER: &str = "1000";
const UNSET: &str = "4294967295";

fn login_uid(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/loginuid")).ok().map(|text| text.trim().to_owned())
}

fn unset_can_be_set(bench: &Bench) -> Control {
    match login_uid(std::process::id() as i32).as_deref() {
        None => return Control::Cannot("no /proc/self/loginuid: this kernel does no auditing".to_owned()),
        Some(UNSET) => {}
        Some(uid) => return Control::Cannot(format!("the suite's own login uid is set already, to {uid}")),
    }
    match name_oneself(bench, None, bench.direct().with_uid(bench.uid_range().start)) {
        Ok((_, said, seen)) if said == "ok" && seen.as_deref() == Some(USER) => Control::Works,
        Ok((_, said, seen)) => Control::Broken(format!("it says {said}, the host reads {seen:?}")),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

/// The probe's uid, what it says of its attempt, and what the host then reads as its login uid.
fn name_oneself(bench: &Bench, arm: Option<Arm>, launch: Launch<'_>) -> Result<(u32, String, Option<String>), Fail> {
    let mut seen = (None, None);
    let (answers, _) = watch(bench, arm, launch.probe("r_login", &[USER]), |run| {
        let pid = if arm.is_some() { run.payload().ok_or_else(|| broken("no payload"))? } else { run.pid };
        seen = (proc::uid_of(pid), login_uid(pid));
        Ok(())
    })?;
    let said = answers.get("main", "loginuid").ok_or_else(|| broken("the probe said nothing"))?;
    Ok((seen.0.ok_or_else(|| broken("no uid"))?, said.to_owned(), seen.1))
}

fn the_tasks_own_stays(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for profile in ["default", "judge"] {
        let (uid, said, seen) = name_oneself(bench, Some(arm), bench.task(arm).opt("--profile", profile))?;
        ensure!(seen == Some(uid.to_string()), "{profile}: the host reads {seen:?} as the login uid of uid {uid}");
        ensure!(said == "EROFS", "{profile}: setting it gave {said}");
    }
    Ok(())
}
