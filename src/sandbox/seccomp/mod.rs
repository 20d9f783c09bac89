//! The system calls a task may make: a table in code, compiled to a filter, printed as a page.
//!
//! Reading the policy must not need reading a program, so it is data ([`table`]): call, rule, why. What is not
//! in the table does not exist for the payload: unknown numbers, which includes every x32 number, answer ENOSYS, so
//! that a probe for a newer call falls back instead of dying. A foreign architecture is killed: its numbers mean
//! other calls.
//!
//! Nothing here depends on the build profile or on the host: the same filter everywhere, or the tests prove nothing.
//!
//! | file | why it exists |
//! |---|---|
//! | [`table`] | the policy: every call of x86_64 Linux, once |
//! | [`condition`] | what of a call's arguments a rule looks at |
//! | [`init`] | calls that could reach process 1 |
//! | [`ioctl`] | the requests of ioctl(2) |
//! | [`options`] | the socket options that a task may set and ask for |
//! | [`compile`] | from rows to a classic BPF search tree |
//! | [`page`] | from rows to `docs/seccomp.md` |

pub mod compile;
pub mod condition;
pub mod init;
pub mod ioctl;
pub mod options;
pub mod page;
pub mod table;

#[cfg(test)]
pub(crate) mod machine;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod reach_tests;
#[cfg(test)]
mod tests;

use condition::Condition;

/// What happens to one system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The kernel decides, as without a filter.
    Allow,
    /// The kernel decides when the condition holds; else the condition's own answer, mostly EPERM.
    AllowIf(&'static Condition),
    /// EPERM: known, and not for a task.
    Refuse,
    /// ENOSYS: the caller has a fallback for kernels without the call, and takes it.
    NoSys,
    /// Returns 0 and does nothing.
    Pretend,
}

/// One system call and its rule.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The x86_64 number.
    pub nr: u32,
    /// The name, as the kernel's table has it.
    pub name: &'static str,
    /// What happens.
    pub rule: Rule,
    /// Why, where the group's reason does not say it all.
    pub why: &'static str,
}

/// Calls that stand together because one reason decides about them.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// A heading.
    pub title: &'static str,
    /// The reason.
    pub why: &'static str,
    /// The calls.
    pub rows: &'static [Row],
}

/// The payload's filter; `own_filters`: with the right to add filters to it.
pub fn payload(own_filters: bool) -> Vec<libc::sock_filter> {
    let granted = |row: &Row| match libc::c_long::from(row.nr) {
        libc::SYS_seccomp => Row { rule: Rule::AllowIf(&condition::SECCOMP_FILTERS), ..*row },
        libc::SYS_prctl => Row { rule: Rule::AllowIf(&condition::PRCTL_FILTERS), ..*row },
        _ => *row,
    };
    let rows: Vec<Row> = table::rows().map(|row| if own_filters { granted(row) } else { *row }).collect();
    compile::compile(&rows)
}

/// The payload's filter where socket options are no concern: for a mutant.
pub fn any_socket_option() -> Vec<libc::sock_filter> {
    let allowed = |row: &Row| match libc::c_long::from(row.nr) {
        libc::SYS_setsockopt => Row { rule: Rule::Allow, ..*row },
        _ => *row,
    };
    compile::compile(&table::rows().map(allowed).collect::<Vec<_>>())
}
