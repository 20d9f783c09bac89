//! Settings of the host that a sandbox leans on, or that people expect it to.
//!
//! Most are told for the record: the task is held by its namespaces, uid, filter and mounts, whatever these say.

use super::Finding;
use super::facts::{Facts, SYSCTLS};

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    SYSCTLS.into_iter().filter_map(|name| Some(setting(name, facts.sysctls.get(name)?))).collect()
}

fn setting(name: &str, value: &str) -> Finding {
    let (why, reduced, better) = match name {
        "kernel.core_pattern" => (
            "a handler behind a pipe or socket is started on the host, outside the sandbox, for what crashes inside; taskman forbids cores, but a handler is one more program that reads hostile data as root",
            value.starts_with(['|', '@']),
            "core",
        ),
        "fs.suid_dumpable" => (
            "1 makes processes that changed their uid readable to that uid; init undoes it for itself, but later than the kernel would",
            value == "1",
            "0",
        ),
        "fs.protected_symlinks" => (
            "root writes the --report file; in a directory that others can write to, this keeps it from following their links. Tasks cannot reach one",
            value == "0",
            "1",
        ),
        "fs.protected_regular" | "fs.protected_fifos" => (
            "root writes the --report file; in a directory that others can write to, this keeps it from opening theirs. Tasks cannot reach one",
            value == "0",
            "1",
        ),
        "fs.protected_hardlinks" => {
            ("tasks have no writable directory on the host's disks: nothing depends on it", false, "1")
        }
        "user.max_user_namespaces" => {
            ("tasks cannot make user namespaces, the filter refuses: nothing depends on it", false, "")
        }
        "kernel.unprivileged_bpf_disabled" => {
            ("tasks cannot call bpf, the filter refuses: nothing depends on it", false, "1")
        }
        "net.core.tstamp_allow_data" => (
            "1 lets a task have copies of what it sends put back into its sockets, in memory that is charged to nobody: about 160 KB per socket, beside its memory limit",
            value == "1",
            "0",
        ),
        "kernel.pid_max" => (
            "all tasks together share this many process ids with the host; a server's 1,000 tasks of 128 processes can use up fewer than 131072, and then nothing on the host can fork",
            value.parse().is_ok_and(|n: u64| n < 131_072),
            "4194304",
        ),
        _ => ("", false, ""),
    };
    let finding = Finding::ok(name, value, why);
    if reduced { finding.reduced(format!("sysctl -w {name}={better}")) } else { finding }
}
