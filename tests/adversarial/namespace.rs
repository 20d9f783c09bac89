//! Namespaces and credentials: a task cannot make, enter or see another namespace, nor become anyone else.

mod audit;
mod inherited;
mod neighbours;
mod obedience;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::answers::{EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, proc, view};
use crate::{ensure, require};

const KINDS: [&str; 8] = ["user", "mnt", "pid", "ipc", "uts", "net", "cgroup", "time"];
/// Leaves a namespace of the host inheritable, as a careless caller would.
const LEAKY: [&str; 4] = ["bash", "-c", "exec 20</proc/self/ns/uts \"$@\"", "leaky"];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            id: "N01",
            tier: 1,
            what: "makes a user namespace, and others through it, by unshare and clone",
            defence: &["seccomp"],
            control: |bench| make_control(bench, "clone-user"),
            attack: |bench, arm| make_attack(bench, arm, &["unshare-", "clone-"], "EPERM"),
        },
        Case {
            id: "N02",
            tier: 1,
            what: "makes namespaces by clone3, whose arguments no filter can read; threads still start",
            defence: &["seccomp"],
            control: |bench| make_control(bench, "clone3-user"),
            attack: |bench, arm| make_attack(bench, arm, &["clone3-"], "ENOSYS"),
        },
        Case {
            id: "N03",
            tier: 1,
            what: "enters namespaces by path, by pidfd and by an inherited descriptor",
            defence: &["close-fds,seccomp,caps,uid", "dumpable"],
            control: setns_control,
            attack: setns_attack,
        },
        Case {
            id: "N06",
            tier: 1,
            what: "raises its ids, groups, capabilities and securebits",
            defence: &["caps", "no-new-privs,seccomp", "groups", "uid,caps"],
            control: credentials_control,
            attack: credentials_attack,
        },
        Case {
            id: "N07",
            tier: 1,
            what: "executes planted setuid-root and file-capability programs",
            defence: &["no-new-privs,no-suid,seccomp", "no-suid"],
            control: planted_control,
            attack: planted_attack,
        },
        Case {
            id: "N08",
            tier: 1,
            what: "the host's name is not visible, and cannot be changed",
            defence: &["uts-namespace"],
            control: |_| match hostname() {
                Ok(name) if name != "taskman" => Control::Works,
                Ok(name) => Control::Cannot(format!("this host itself is called {name:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: hostname_attack,
        },
    ];
    cases.extend(neighbours::cases());
    cases.extend(inherited::cases());
    cases.extend(audit::cases());
    cases.extend(obedience::cases());
    cases
}

/// Every namespace of every process of the task is its init's; the user namespace is the suite's own.
fn same_namespaces(run: &Run) -> Result<(), Fail> {
    let init = run.init().ok_or_else(|| broken("no init"))?;
    let members = run.members();
    require!(members.len() >= 2, "{} members", members.len());
    for kind in KINDS {
        let wanted = match kind {
            "user" => proc::ns_of(std::process::id() as i32, kind),
            // Before Linux 6.3 whoever makes one stays outside it, and all its children are in it.
            "time" => proc::ns_of(init, "time_for_children"),
            _ => proc::ns_of(init, kind),
        };
        for pid in members.iter().filter(|pid| kind != "time" || **pid != init) {
            let got = proc::ns_of(*pid, kind);
            // A process that ended between the two reads has no namespace any more.
            ensure!(got == wanted || got.is_none(), "{} is in {kind} namespace {got:?}", proc::describe(*pid));
        }
    }
    Ok(())
}

fn make_control(bench: &Bench, call: &str) -> Control {
    // Unprivileged, as the task is: here everyone may make a user namespace.
    match watch(bench, None, bench.direct().with_uid(bench.uid_range().start).probe("n_userns", &[]), |_| Ok(())) {
        Ok((answers, _)) if answers.get("main", call) == Some("ENOSPC") => {
            Control::Cannot("user.max_user_namespaces is 0".to_owned())
        }
        Ok((answers, _)) => answers.works(&EVERYWHERE, &[(call, "ok"), ("clone3-plain", "ok")]),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn make_attack(bench: &Bench, arm: Arm, prefixes: &[&str], errno: &str) -> Result<(), Fail> {
    let mut seen = Ok(());
    let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("n_userns", &[]), |run| {
        seen = same_namespaces(run);
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        let threads = fs::read_dir(format!("/proc/{payload}/task")).map_or(0, Iterator::count);
        require!(threads == 2, "the payload has {threads} threads: libc's fallback for clone3 does not work");
        Ok(())
    })?;
    seen?;
    for prefix in prefixes {
        let tried = answers.with_prefix(prefix);
        require!(tried.len() >= 42, "only {} tries of {prefix}", tried.len());
        for (name, result) in tried {
            ensure!(result == errno, "{name}: {result}, not {errno}");
        }
    }
    Ok(())
}

/// Whether a pidfd gives out the namespaces of its process.
fn has_pidfd_ioctls() -> bool {
    proc::linux() >= (6, 11)
}

fn setns_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let mut target = bench.direct().probe("k_victim", &[]).with_stdin().spawn()?;
        target.wait_line("ready")?;
        let pid = target.pid.to_string();
        let launch = bench.direct().wrapped(&LEAKY).probe("n_setns", &[&pid]);
        let (answers, _) = watch(bench, None, launch, |_| Ok(()))?;
        let wanted = [
            ("pidfd-net", if has_pidfd_ioctls() { "ok" } else { "ENOTTY" }),
            ("open-target-net", "ok"),
            ("setns-self-uts", "ok"),
            ("setns-pidfd", "ok"),
            ("setns-inherited", "ok"),
        ];
        Ok(answers.works(&EVERYWHERE, &wanted))
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn setns_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let launch = bench.task(arm).wrapped(&LEAKY).probe("n_setns", &["1"]);
    let (answers, _) = watch(bench, Some(arm), launch, |run| {
        same_namespaces(run)?;
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        for pid in run.members() {
            for (fd, target) in view::fds_of(pid) {
                ensure!(!target.starts_with("uts:["), "{} holds {fd} = {target}", proc::describe(pid));
            }
        }
        ensure!(
            proc::ns_of(payload, "uts") != proc::ns_of(std::process::id() as i32, "uts"),
            "the payload is in the host's uts namespace"
        );
        Ok(())
    })?;
    let mut wanted = vec![("setns-pidfd".to_owned(), "EPERM"), ("setns-inherited".to_owned(), "EPERM")];
    wanted.push(("pid-parent".to_owned(), "EPERM"));
    // The walk from one mount namespace to the next came with 6.12.
    let refused = if proc::linux() >= (6, 12) { "EPERM" } else { "ENOTTY" };
    wanted.extend(["mnt-next", "mnt-previous"].map(|name| (name.to_owned(), refused)));
    let refused = if has_pidfd_ioctls() { "EACCES" } else { "ENOTTY" };
    wanted.extend(["pidfd-net", "pidfd-mnt"].map(|name| (name.to_owned(), refused)));
    for kind in KINDS {
        wanted.push((format!("open-target-{kind}"), "EACCES"));
        wanted.push((format!("setns-self-{kind}"), "EPERM"));
    }
    let wanted: Vec<(&str, &str)> = wanted.iter().map(|(name, errno)| (name.as_str(), *errno)).collect();
    answers.all(&EVERYWHERE, &wanted)
}

const RAISES: [&str; 8] = ["setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "capset"];

fn credentials_control(bench: &Bench) -> Control {
    let wanted: Vec<_> =
        RAISES.iter().chain(&["ambient", "keepcaps", "securebits"]).map(|name| (*name, "ok")).collect();
    match watch(bench, None, bench.direct().probe("n_caps", &[]), |_| Ok(())) {
        Ok((answers, _)) => answers.works(&EVERYWHERE, &wanted),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn credentials_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let mut uid = 0;
    // The caller is in groups, as an administrator is.
    let launch = bench.task(arm).wrapped(&["setpriv", "--groups", "4,24"]).probe("n_caps", &[]);
    let (answers, _) = watch(bench, Some(arm), launch, |run| {
        let members = run.members();
        require!(members.len() == 2, "{} members", members.len());
        for pid in members {
            let status = proc::status_of(pid).ok_or_else(|| broken("a member is gone"))?;
            let who = proc::describe(pid);
            let field = |name: &str| status.get(name).map(String::as_str).unwrap_or("");
            let ids: Vec<&str> = field("Uid").split_whitespace().chain(field("Gid").split_whitespace()).collect();
            uid = ids[0].parse().unwrap_or(0);
            ensure!(bench.uid_range().contains(&uid), "{who}: uid {uid} is not of the pool");
            ensure!(ids.len() == 8 && ids.iter().all(|id| *id == ids[0]), "{who}: ids {ids:?}");
            ensure!(field("Groups").is_empty(), "{who}: groups {:?}", field("Groups"));
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                ensure!(field(set) == "0000000000000000", "{who}: {set} {}", field(set));
            }
            ensure!(field("NoNewPrivs") == "1", "{who}: NoNewPrivs {}", field("NoNewPrivs"));
            ensure!(field("Seccomp") == "2", "{who}: Seccomp {}", field("Seccomp"));
        }
        Ok(())
    })?;
    let mut wanted: Vec<_> = RAISES.iter().map(|name| (*name, "EPERM")).collect();
    wanted.extend([("ambient", "EPERM"), ("keepcaps", "EPERM"), ("securebits", "EPERM")]);
    let uid = format!("{uid:x}");
    // noroot, no_setuid_fixup and no_cap_ambient_raise with their locks, and the lock of keep_caps.
    wanted.extend([("no-new-privs-off", "EINVAL"), ("securebits-are", "ef"), ("fsuid", uid.as_str())]);
    answers.all(&EVERYWHERE, &wanted)
}

/// Two copies of the probe in the bound directory: setuid root, and with capabilities of its own.
fn plant(bench: &Bench) -> Result<(), Fail> {
    let probe = bench.payload("n_suid");
    for name in ["planted-setuid", "planted-filecap"] {
        let path = bench.probe_dir().join(name);
        fs::copy(&probe, &path).map_err(|e| broken(format!("plant {name}: {e}")))?;
        let mode = if name == "planted-setuid" { 0o6755 } else { 0o755 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(|e| broken(format!("chmod: {e}")))?;
    }
    let file = bench.probe_dir().join("planted-filecap");
    let set = Command::new("setcap").arg("cap_chown,cap_net_admin+ep").arg(file).output();
    let set = set.map_err(|e| broken(format!("setcap: {e}")))?;
    require!(set.status.success(), "setcap: {}", String::from_utf8_lossy(&set.stderr));
    Ok(())
}

/// Effective uid and effective capabilities as the host sees them.
fn power_of(pid: i32) -> Option<(u32, String)> {
    let status = proc::status_of(pid)?;
    Some((status.get("Uid")?.split_whitespace().nth(1)?.parse().ok()?, status.get("CapEff")?.clone()))
}

fn planted_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        plant(bench)?;
        for (name, works) in [("planted-setuid", "root"), ("planted-filecap", "0000000000001001")] {
            let launch = bench.direct().with_uid(bench.uid_range().start);
            let mut power = None;
            watch(bench, None, launch.command(bench.probe_dir().join(name), [bench.nonce()]), |run| {
                power = power_of(run.pid);
                Ok(())
            })?;
            let raised =
                power.as_ref().is_some_and(|(uid, caps)| if works == "root" { *uid == 0 } else { caps == works });
            if !raised {
                return Ok(Control::Cannot(format!("{name} gains nothing here (mounted nosuid?): {power:?}")));
            }
        }
        Ok(Control::Works)
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn planted_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    plant(bench)?;
    for name in ["planted-setuid", "planted-filecap"] {
        let launch = bench.task(arm).command(format!("/probe/{name}"), [bench.nonce()]);
        watch(bench, Some(arm), launch, |run| {
            let payload = run.payload().ok_or_else(|| broken("no payload"))?;
            let (uid, caps) = power_of(payload).ok_or_else(|| broken("the payload is gone"))?;
            ensure!(bench.uid_range().contains(&uid), "{name}: effective uid {uid}");
            ensure!(caps == "0000000000000000", "{name}: effective capabilities {caps}");
            for mount in view::mounts_of(payload) {
                ensure!(mount.has("nosuid"), "{} is mounted without nosuid", mount.point);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn hostname() -> Result<String, Fail> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| broken(format!("hostname: {e}")))?;
    Ok(text.trim().to_owned())
}

fn hostname_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let before = hostname()?;
    let script = "uname -n; cat /etc/hostname /etc/hosts /proc/sys/kernel/hostname 2>/dev/null; hostname stolen; \
                  echo main state ready; read end; true";
    let (_, done) = watch(bench, Some(arm), bench.task(arm).sh(script), |run| {
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        ensure!(
            proc::ns_of(payload, "uts") != proc::ns_of(std::process::id() as i32, "uts"),
            "the payload is in the host's uts namespace"
        );
        Ok(())
    })?;
    let after = hostname()?;
    ensure!(before == after, "the host's name was changed from {before} to {after}");
    ensure!(done.out.starts_with("taskman\n"), "uname says {:?}", done.out.lines().next());
    ensure!(!done.out.split_whitespace().any(|word| word == before), "the host's name {before} is visible");
    Ok(())
}
