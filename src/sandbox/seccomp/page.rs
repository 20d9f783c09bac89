//! The policy as a page, so that the page cannot say something else than the code.

use std::fmt::Write as _;

use super::table::{INIT_TABLE, PAYLOAD};
use super::{Row, Rule};

const HEAD: &str = "\
# System calls in a task

This page is generated from `src/sandbox/seccomp/table.rs`; `tests/seccomp_docs.rs` fails when they differ
(regenerate with `UPDATE_DOCS=1 cargo test --test seccomp_docs`).

The filter is on before the payload's first instruction, in every thread and child, and cannot be taken off.
It is the same in every build profile and on every host.

- A number that is not on this page answers ENOSYS. That includes every x32 number (bit 30 set).
- A call of another architecture (32-bit `int 0x80`, for one) kills the process with SIGSYS: its numbers mean other calls.
- *allowed* means that the kernel decides as it would without a filter; *EPERM* and *ENOSYS* are the caller's errno;
  *returns 0* means success without effect. A condition that does not hold is EPERM, or the errno named with it.
- Conditions look at the bits that the kernel reads: an `int` argument counts with its low 32 bits, whatever the upper
  32 hold.
";

const TAIL: &str = "
## What a program may miss

- **A word with process 1.** A queued signal (`sigqueue`, `tgkill`) to it is EPERM, as for any user who is not root on a usual host; `kill`
  answers 0, and init ignores it. `renice -u` is EPERM: init has the task's uid.
- **Requests of interfaces and file systems.** Of a network interface a program may ask for name, flags, addresses, metric and size; bridges, VLANs, bonds,
  ethtool and whatever sets something are EPERM. So are btrfs' own; `cp` copies where it cannot share blocks.
- **A filter of its own.** `seccomp` and `prctl(PR_SET_SECCOMP)` answer EINVAL, as on a kernel without filters, unless the task has the profile
  `filters`. Tried on Debian 12, in the profile `default`:

| program | what it does |
|---|---|
| file 5.44, ssh 9.2 | work: Debian builds them without a filter |
| man-db 2.11 | works: it goes on without its filter |
| tor 0.4.9 | works with `Sandbox 0`, its default; with `Sandbox 1` it says that it failed to load and ends. In the profile `filters` it starts |
| strace 6.1 `--seccomp-bpf` | fails as strace without it does: there is no ptrace |
| sshd 9.2 | works as the task's uid, on a port above 1023: it goes on without its filter |
| Chromium | not tried: it needs namespaces too, so `--no-sandbox` |
";

/// `docs/seccomp.md`.
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    for group in PAYLOAD {
        section(&mut page, group.title, group.why, group.rows);
    }
    let why = "sandbox-init (PID 1 of the task) puts a filter of its own on itself once the payload is started. \
               Everything that is not listed here kills it, and with it the task.";
    section(&mut page, "Sandbox-init", why, INIT_TABLE);
    page.push_str(TAIL);
    page
}

fn section(page: &mut String, title: &str, why: &str, rows: &[Row]) {
    // Writing to a String cannot fail.
    let _ = write!(page, "\n## {title}\n\n{why}\n\n| calls | rule | why |\n|---|---|---|\n");
    for alike in rows.chunk_by(|a, b| a.rule == b.rule && a.why == b.why) {
        let names: Vec<String> = alike.iter().map(|row| format!("`{}` {}", row.name, row.nr)).collect();
        let _ = writeln!(page, "| {} | {} | {} |", names.join(", "), rule(alike[0].rule), alike[0].why);
    }
}

fn rule(rule: Rule) -> String {
    match rule {
        Rule::Allow => "allowed".into(),
        Rule::AllowIf(condition) => format!("allowed if: {}{}", condition.text, otherwise(condition.otherwise)),
        Rule::Refuse => "EPERM".into(),
        Rule::NoSys => "ENOSYS".into(),
        Rule::Pretend => "returns 0".into(),
    }
}

fn otherwise(errno: i32) -> &'static str {
    match errno {
        0 => "; returns 0 otherwise",
        libc::EPERM => "",
        libc::EINVAL => "; EINVAL otherwise",
        libc::ENOSYS => "; ENOSYS otherwise",
        libc::ENOPROTOOPT => "; ENOPROTOOPT otherwise",
        libc::EOPNOTSUPP => "; EOPNOTSUPP otherwise",
        _ => "; an errno without a name here otherwise",
    }
}
