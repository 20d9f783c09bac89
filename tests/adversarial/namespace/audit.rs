//! The user that the host's audit log names for a task is no choice of the task's, and it is told nobody's.

use std::fs;

use crate::ensure;
use crate::harness::answers::watch;
use crate::harness::{Arm, Bench, Case, Control, Fail, Launch, broken};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "N13",
        tier: 2,
        what: "sets its login uid, which the host's audit log names, to another user's; reads who logged in, and how many have",
        defence: &["read-only", "login-uid"],
        control: unset_can_be_set,
        attack: nobodys_stays,
    }]
}

const USER: &str = "1000";
const UNSET: &str = "4294967295";

/// The caller has logged in, as an operator has.
const LOGGED_IN: [&str; 4] = ["bash", "-c", "echo 1001 > /proc/self/loginuid; exec \"$@\"", "logged-in"];

fn login_uid(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/loginuid")).ok().map(|text| text.trim().to_owned())
}

/// How many have logged in to this host, where the process has.
fn session(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/sessionid")).ok().map(|text| text.trim().to_owned())
}

fn unset_can_be_set(bench: &Bench) -> Control {
    match login_uid(std::process::id() as i32).as_deref() {
        None => return Control::Cannot("no /proc/self/loginuid: this kernel does no auditing".to_owned()),
        Some(UNSET) => {}
        Some(uid) => return Control::Cannot(format!("the suite's own login uid is set already, to {uid}")),
    }
    match name_oneself(bench, None, bench.direct().with_uid(bench.uid_range().start)) {
        Ok((said, seen, session)) if said == "ok" && seen.as_deref() == Some(USER) => match session.as_deref() {
            None | Some(UNSET) => Control::Broken("a login has no session".to_owned()),
            Some(_) => Control::Works,
        },
        Ok((said, seen, _)) => Control::Broken(format!("it says {said}, the host reads {seen:?}")),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

/// What the probe says of its attempt, and what the host then reads as its login uid and its session.
fn name_oneself(
    bench: &Bench,
    arm: Option<Arm>,
    launch: Launch<'_>,
) -> Result<(String, Option<String>, Option<String>), Fail> {
    let mut seen = (None, None);
    let (answers, _) = watch(bench, arm, launch.probe("r_login", &[USER]), |run| {
        let pid = if arm.is_some() { run.payload().ok_or_else(|| broken("no payload"))? } else { run.pid };
        seen = (login_uid(pid), session(pid));
        Ok(())
    })?;
    let said = answers.get("main", "loginuid").ok_or_else(|| broken("the probe said nothing"))?;
    Ok((said.to_owned(), seen.0, seen.1))
}

fn nobodys_stays(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for profile in ["default", "judge"] {
        let callers: [&[&str]; 2] = [&[], &LOGGED_IN];
        for caller in callers {
            let launch = bench.task(arm).opt("--profile", profile).wrapped(caller);
            let (said, seen, session) = name_oneself(bench, Some(arm), launch)?;
            ensure!(seen.as_deref() == Some(UNSET), "{profile}: the host reads {seen:?} as the task's login uid");
            ensure!(session.as_deref() == Some(UNSET), "{profile}: the host reads {session:?} as the task's session");
            ensure!(said == "EROFS", "{profile}: setting it gave {said}");
        }
    }
    Ok(())
}
