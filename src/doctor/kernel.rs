//! The kernel's part: calls, namespaces and filters, without any of which there is no sandbox.

use caps::Capability;
use nix::errno::Errno;

use super::facts::Facts;
use super::{Finding, Status, container};

/// Actions that the filter takes.
const NEEDED_ACTIONS: [&str; 3] = ["allow", "errno", "kill_process"];
/// Calls that answer EPERM to a process without CAP_SYS_ADMIN before they look at anything else.
const NEED_SYS_ADMIN: [&str; 8] =
    ["open_tree", "move_mount", "mount_setattr", "pivot_root", "mount", "umount2", "sethostname", "setdomainname"];

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![version(facts), calls(facts)];
    findings.extend(facts.namespaces.iter().map(|(name, exists, max)| namespace(name, *exists, *max)));
    findings.push(seccomp(facts.seccomp_actions.as_deref()));
    findings
}

fn version(facts: &Facts) -> Finding {
    let release = facts.release.trim();
    let why = "5.14 is the first with cgroup.kill, which ends a fork bomb in one step, and has clone3 into a cgroup, mount_setattr, close_range and pidfds";
    let finding = Finding::ok("kernel", release, why);
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 14) {
        true => finding,
        false => finding.missing("boot a kernel of 5.14 or later"),
    }
}

fn calls(facts: &Facts) -> Finding {
    let why = "a task is created inside its group and namespaces by these calls; a filter of an outer sandbox or container often takes them away";
    // Without the capability that they need, that is what is missing, and is said.
    let explained = |errno: Errno, name: &str| {
        let has_sys_admin = facts.identity.effective_capabilities.contains(&Capability::CAP_SYS_ADMIN);
        errno == Errno::EPERM && !has_sys_admin && NEED_SYS_ADMIN.contains(&name)
    };
    let refused: Vec<_> = facts.refused_calls.iter().filter(|(name, errno)| !explained(*errno, name)).collect();
    if refused.is_empty() {
        return Finding::ok("system calls", "all that a start needs are let through", why);
    }
    let refused: Vec<_> = refused.into_iter().map(|(name, errno)| format!("{name} ({errno:?})")).collect();
    let fix = match facts.surroundings.is_container() {
        true => container::SECCOMP,
        false => "run taskman outside the sandbox or service whose filter takes them away",
    };
    Finding::ok("system calls", format!("refused: {}", refused.join(", ")), why).missing(fix)
}

fn namespace(name: &str, exists: bool, max: Option<u64>) -> Finding {
    let why = match name {
        "pid" => "the task sees and signals its own processes only, and they end with its init",
        "mnt" => "the task has a root of its own and changes no mount of the host",
        "ipc" => "shared memory and queues of the host stay the host's",
        "uts" => "the task sees its own host name",
        "net" => "the task reaches nothing but its own loopback",
        "cgroup" => "the task does not learn where it is placed",
        _ => "the task does not learn the host's uptime",
    };
    let seen = match (exists, max) {
        (false, _) => "not in this kernel".to_owned(),
        (true, Some(max)) => format!("at most {max}"),
        (true, None) => "there".to_owned(),
    };
    let finding = Finding::ok(format!("namespace {name}"), seen, why);
    match (exists, max) {
        (false, _) => {
            let option = match name {
                "mnt" => "CONFIG_NAMESPACES".to_owned(),
                "cgroup" => "CONFIG_CGROUPS".to_owned(),
                _ => format!("CONFIG_{}_NS", name.to_uppercase()),
            };
            finding.missing(format!("boot a kernel with {option}=y"))
        }
        (true, Some(0)) => finding.missing(format!("sysctl -w user.max_{name}_namespaces=65536")),
        // Every task needs one of each; so few are gone soon.
        (true, Some(max)) if max < 64 => Finding { status: Status::Reduced, ..finding }
            .reduced(format!("sysctl -w user.max_{name}_namespaces=65536")),
        _ => finding,
    }
}

fn seccomp(actions: Option<&str>) -> Finding {
    let why = "the filter leaves the task the system calls that programs need, and no others to attack the kernel with";
    let fix = "boot a kernel with CONFIG_SECCOMP_FILTER=y";
    let Some(actions) = actions else {
        return Finding::ok("seccomp", "the kernel has no filters", why).missing(fix);
    };
    let lacking: Vec<_> = NEEDED_ACTIONS.into_iter().filter(|a| !actions.split_whitespace().any(|b| *a == b)).collect();
    match lacking.is_empty() {
        true => Finding::ok("seccomp", format!("filters with {}", actions.trim()), why),
        false => Finding::ok("seccomp", format!("filters without {}", lacking.join(", ")), why).missing(fix),
    }
}
