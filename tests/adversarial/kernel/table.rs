//! The page of system calls against the kernel: what docs/seccomp.md says is refused, is, with that errno, and what it
//! says has no effect answers so even where the kernel would fail.

use std::fs;
use std::path::Path;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken};
use crate::require;

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "K13",
        tier: 1,
        what: "every system call that docs/seccomp.md refuses, and every number it does not name",
        defence: &["seccomp"],
        control: |bench| match page().and_then(|page| Ok((call_all(bench, None, &page)?, page))) {
            // Without the filter, and without privilege, many reach the kernel's own code and answer otherwise.
            Ok((answers, page)) => {
                let same = page.iter().filter(|(nr, errno)| answers.get("main", nr) == Some(errno)).count();
                bench.note(format_args!(
                    "{} numbers; {same} give that errno outside too, to a user without privilege",
                    page.len()
                ));
                if same * 4 < page.len() * 3 { Control::Works } else { Control::Broken(format!("{answers:?}")) }
            }
            Err(fail) => Control::Broken(fail.to_string()),
        },
        attack: |bench, arm| {
            let mut page = page()?;
            // Numbers that no kernel of today has, up to the first ones that x86 could give out next.
            let known: Vec<String> = all_numbers()?;
            page.extend(
                (335..600)
                    .map(|nr| nr.to_string())
                    .filter(|nr| !known.contains(nr))
                    .map(|nr| (nr, "ENOSYS".to_owned())),
            );
            let wanted: Vec<(&str, &str)> = page.iter().map(|(nr, errno)| (nr.as_str(), errno.as_str())).collect();
            call_all(bench, Some(arm), &page)?.all(&EVERYWHERE, &wanted)
        },
    }]
}

/// The rows of the payload's part of the page: the calls' cell and the rule's.
fn rows() -> Result<Vec<(String, String)>, Fail> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/seccomp.md");
    let text = fs::read_to_string(&path).map_err(|e| broken(format!("{}: {e}", path.display())))?;
    let payload = text.split("## Sandbox-init").next().unwrap_or("");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        Some((format!("`{}", cells.next()?), cells.next()?.to_owned()))
    };
    let rows: Vec<_> = payload.lines().filter_map(row).collect();
    require!(rows.len() > 20, "docs/seccomp.md has only {} rows", rows.len());
    Ok(rows)
}

/// `` `mount` 165, `umount2` 166 ``: the numbers.
fn numbers(cell: &str) -> impl Iterator<Item = String> {
    cell.split(", ")
        .filter_map(|call| call.rsplit(' ').next())
        .map(str::to_owned)
        .filter(|nr| nr.parse::<u32>().is_ok())
}

fn all_numbers() -> Result<Vec<String>, Fail> {
    Ok(rows()?.iter().flat_map(|(calls, _)| numbers(calls)).collect())
}

/// Number and answer of each call whose answer is the filter's, whatever its arguments.
fn page() -> Result<Vec<(String, String)>, Fail> {
    let answer = |rule: &str| match rule {
        "EPERM" | "ENOSYS" => Some(rule.to_owned()),
        "returns 0" => Some("ok".to_owned()),
        _ => None,
    };
    let mut pairs = Vec::new();
    for (calls, rule) in rows()? {
        pairs.extend(answer(&rule).into_iter().flat_map(|answer| numbers(&calls).map(move |nr| (nr, answer.clone()))));
    }
    require!(pairs.len() > 60, "docs/seccomp.md refuses only {} calls", pairs.len());
    Ok(pairs)
}

fn call_all(bench: &Bench, arm: Option<Arm>, page: &[(String, String)]) -> Result<Answers, Fail> {
    let args: Vec<&str> = page.iter().map(|(nr, _)| nr.as_str()).collect();
    // Never as root outside: some of these calls do something even without arguments.
    let launch = arm.map_or_else(|| bench.direct().with_uid(bench.uid_range().start), |arm| bench.task(arm));
    Ok(watch(bench, arm, launch.probe("k_table", &args), |_| Ok(()))?.0)
}
