//! Who taskman is, and whether the numbers it gives to tasks belong to anyone.

use caps::Capability;

use super::facts::{Facts, Identity};
use super::{Finding, container};
use crate::place::UidRange;

/// What taskman says when it is not root, in the doctor and at every start.
pub const NOT_ROOT: &str = "root: not root; only root can make namespaces, groups and a uid for a task that nothing else has; fix: sudo taskman …";

/// The account, and its group, that may have the server's uid (`deploy/systemd/taskman.sysusers`).
const SERVER_ACCOUNT: &str = "taskman";

/// Capabilities that a start, a stop and a restart use: found by taking each away. CAP_SYS_RESOURCE,
/// CAP_SYS_NICE and CAP_FOWNER are not among them.
pub const CAPABILITIES: [(&str, Capability, &str); 10] = [
    ("CAP_CHOWN", Capability::CAP_CHOWN, "hand the task its pipes"),
    ("CAP_DAC_OVERRIDE", Capability::CAP_DAC_OVERRIDE, "enter directories that are not root's"),
    ("CAP_KILL", Capability::CAP_KILL, "signal the task when it is to stop"),
    ("CAP_SETGID", Capability::CAP_SETGID, "become the task's group"),
    ("CAP_SETUID", Capability::CAP_SETUID, "become the task's user"),
    ("CAP_SETPCAP", Capability::CAP_SETPCAP, "drop what is left for good"),
    ("CAP_NET_ADMIN", Capability::CAP_NET_ADMIN, "bring the task's loopback up"),
    ("CAP_SYS_ADMIN", Capability::CAP_SYS_ADMIN, "make namespaces, mounts and groups"),
    ("CAP_SYS_TIME", Capability::CAP_SYS_TIME, "hide the host's uptime"),
    ("CAP_MKNOD", Capability::CAP_MKNOD, "make the task's devices"),
];

pub(super) fn judge(facts: &Facts, uids: UidRange) -> Vec<Finding> {
    let identity = &facts.identity;
    vec![
        root(identity),
        capabilities(identity),
        mapped(identity, uids),
        allocated(identity, uids),
        unused(&facts.strangers, uids),
    ]
}

pub(super) fn root(identity: &Identity) -> Finding {
    let why = "only root can make namespaces, groups and a uid for a task that nothing else has";
    match identity.euid {
        0 => Finding::ok("root", "root", why),
        _ => Finding::ok("root", "not root", why).missing("sudo taskman …"),
    }
}

pub(super) fn capabilities(identity: &Identity) -> Finding {
    let lacking =
        CAPABILITIES.iter().filter(|(_, capability, _)| !identity.effective_capabilities.contains(capability));
    let lacking: Vec<_> = lacking.collect();
    let why = "setting a sandbox up takes them; the task itself gets none";
    if lacking.is_empty() {
        return Finding::ok("capabilities", format!("all {} that are needed", CAPABILITIES.len()), why);
    }
    let named: Vec<_> = lacking.iter().map(|(name, _, what)| format!("{name} (to {what})")).collect();
    let names: Vec<_> = lacking.iter().map(|(name, ..)| *name).collect();
    let fix = match identity.in_container {
        true => container::add_capabilities(&names),
        false => "run as root, with all that root has".to_owned(),
    };
    Finding::ok("capabilities", format!("without {}", named.join(", ")), why).missing(fix)
}

/// In a user namespace, root may have no such uids to give.
pub(super) fn mapped(identity: &Identity, uids: UidRange) -> Finding {
    let why = "a task runs under a uid of the range, which must exist in this user namespace";
    let last = u64::from(uids.first) + u64::from(uids.count) - 1;
    let covers = |line: &str| {
        let mut numbers = line.split_whitespace().filter_map(|n| n.parse::<u64>().ok());
        let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        Some(first <= u64::from(uids.first) && last < first + count)
    };
    match identity.uid_map.lines().any(|line| covers(line) == Some(true)) {
        true => Finding::ok("uid map", format!("{}:{} can be used here", uids.first, uids.count), why),
        false => Finding::ok("uid map", format!("{}:{} is not mapped here", uids.first, uids.count), why)
            .missing("run outside the user namespace, or give --uid-range FIRST:COUNT from /proc/self/uid_map"),
    }
}

/// No account and no subordinate range may overlap the tasks' uids.
pub(super) fn allocated(identity: &Identity, uids: UidRange) -> Finding {
    let why = "a task whose uid is somebody's could touch what is theirs";
    let taken = taken(identity, uids);
    match taken.is_empty() {
        true => Finding::ok("uid range", format!("{}:{} belongs to no account", uids.first, uids.count), why),
        false => Finding::ok("uid range", format!("{}:{} overlaps {}", uids.first, uids.count, taken.join(", ")), why)
            .missing("give --uid-range FIRST:COUNT, or TASKMAN_UID_RANGE, that no account has"),
    }
}

/// Nobody may have the server's uid but an account that is there for it: it gives the uid a name, and keeps others from it.
pub(super) fn servers(identity: &Identity, uid: u32) -> Finding {
    let why = "whoever has the server's uid could read and change what is the server's";
    let its_own = ["/etc/passwd", "/etc/group"].map(|file| format!("{SERVER_ACCOUNT} of {file}"));
    let mut taken = taken(identity, UidRange { first: uid, count: 1 });
    taken.retain(|name| !its_own.contains(name));
    match taken.is_empty() {
        true => Finding::ok("server uid", format!("{uid} belongs to no account, or to {SERVER_ACCOUNT}"), why),
        false => Finding::ok("server uid", format!("{uid} belongs to {}", taken.join(", ")), why)
            .missing(format!("set server_uid to one that no account but {SERVER_ACCOUNT} has")),
    }
}

/// `NAME of FILE` for each that has one of these.
fn taken(identity: &Identity, uids: UidRange) -> Vec<String> {
    let (first, end) = (u64::from(uids.first), u64::from(uids.first) + u64::from(uids.count));
    // passwd and group hold single numbers in the third field, subuid and subgid a first number and a count.
    let files = [
        ("/etc/passwd", &identity.passwd, false),
        ("/etc/group", &identity.group, false),
        ("/etc/subuid", &identity.subuid, true),
        ("/etc/subgid", &identity.subgid, true),
    ];
    let taken = files.into_iter().flat_map(|(file, text, range)| {
        text.lines().filter_map(move |line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let (second, third) = (fields.next()?, fields.next()?.trim().parse::<u64>().ok()?);
            let (from, count) = if range { (second.trim().parse::<u64>().ok()?, third) } else { (third, 1) };
            (from < end && first < from.saturating_add(count)).then(|| format!("{name} of {file}"))
        })
    });
    taken.collect()
}

fn unused(strangers: &[(u32, u32)], uids: UidRange) -> Finding {
    let why = "a uid that runs something else is passed over, so fewer are left for tasks";
    if strangers.is_empty() {
        return Finding::ok("uid use", "no process outside a task has a uid of the range", why);
    }
    let named: Vec<_> = strangers.iter().take(5).map(|(pid, uid)| format!("process {pid} has uid {uid}")).collect();
    let finding = Finding::ok("uid use", named.join(", "), why);
    match strangers.len() as u64 >= u64::from(uids.count) {
        true => finding.missing("end these processes, or give another --uid-range"),
        false => finding.reduced("end these processes, or give another --uid-range"),
    }
}
