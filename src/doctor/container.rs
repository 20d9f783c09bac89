//! What being in a container changes: who stands above taskman, what the kernel does not tell there, and the options with
//! which a container is started so that it can contain.
//!
//! What is asked for is what `deploy/containers/` gives and `tests/container/` takes away again, one by one.

use caps::{Capability, CapsHashSet};

use super::Finding;
use super::facts::{Facts, Surroundings};

/// The capability that only the auditor uses, for its looks from outside.
pub const AUDITOR_CAPABILITY: (&str, Capability) = ("CAP_SYS_PTRACE", Capability::CAP_SYS_PTRACE);

/// Profiles of AppArmor that runtimes put on a container by themselves, and that refuse every mount.
const NO_MOUNTS: [&str; 4] = ["docker-default", "containers-default", "cri-containerd.apparmor.d", "crio-default"];

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let surroundings = &facts.surroundings;
    vec![
        container(surroundings),
        user_namespace(&surroundings.foreign),
        security_module(&surroundings.confinement),
        auditor(surroundings, &facts.identity.effective_capabilities),
    ]
}

/// How capabilities are given to a container.
pub(super) fn add_capabilities(names: &[&str]) -> String {
    let short: Vec<_> = names.iter().map(|name| name.trim_start_matches("CAP_")).collect();
    let options: Vec<_> = short.iter().map(|name| format!("--cap-add={name}")).collect();
    format!(
        "start the container with {} (Docker, Podman), or securityContext.capabilities.add: [{}] (Kubernetes)",
        options.join(" "),
        short.join(", ")
    )
}

/// How a filter that lets a start through is given to one.
pub(super) const SECCOMP: &str = "start the container with --security-opt seccomp=deploy/containers/seccomp.json (Docker, Podman), or securityContext.seccompProfile: {type: Localhost, localhostProfile: taskman.json} (Kubernetes)";

/// How one gets control groups of its own that can be written to.
pub(super) const CGROUPS: &str = "begin the container with deploy/containers/entrypoint, and start it with --cgroupns=private (Docker, Podman; Kubernetes on version 2 does so by itself)";

fn container(surroundings: &Surroundings) -> Finding {
    let why = "whoever runs the container can stop, freeze and limit taskman with all its tasks, and the proof covers what can be seen from inside it";
    let signs = surroundings.signs.join(", ");
    match (signs.as_str(), surroundings.is_container()) {
        ("", false) => Finding::ok("container", "no", why),
        // Images of virtual machines are often made from those of containers.
        (signs, false) => {
            let seen = format!("no: {signs}, but pid, cgroup and user namespaces are the host's");
            Finding::ok("container", seen, why)
        }
        (signs, true) => {
            let separator = if signs.is_empty() { "" } else { ", " };
            let foreign = surroundings.foreign.join(", ");
            let seen = format!("yes: {signs}{separator}not the host's namespace: {foreign}");
            let fix = "nothing, if whoever runs the container is trusted as the host's root is; else run taskman on the host or in a virtual machine. docs/containers.md says what each option gives";
            Finding::ok("container", seen, why).reduced(fix)
        }
    }
}

/// Root of another user namespace is not enough, whatever capabilities it shows.
pub(super) fn user_namespace(foreign: &[&str]) -> Finding {
    let why = "the kernel lets only the host's own root make devices, and mount /proc where a runtime has covered parts of it";
    match foreign.contains(&"user") {
        false => Finding::ok("user namespace", "the host's", why),
        true => Finding::ok("user namespace", "not the host's: a rootless container, or one with mapped users", why)
            .missing("start the container as the host's root: sudo podman run; docker run --userns=host, and not rootless; hostUsers: true (Kubernetes)"),
    }
}

fn security_module(confinement: &str) -> Finding {
    let why = "a sandbox is made of mounts, and the profiles that runtimes put on containers refuse them all";
    let name = "security module";
    let profile = confinement.split_whitespace().next().unwrap_or_default();
    if confinement.ends_with("(enforce)") && NO_MOUNTS.contains(&profile) {
        let fix = "start the container with --security-opt apparmor=unconfined (Docker, Podman), or securityContext.appArmorProfile: {type: Unconfined} (Kubernetes)";
        return Finding::ok(name, format!("AppArmor: {confinement}"), why).missing(fix);
    }
    if confinement.contains(":container_t:") {
        let fix = "start the container with --security-opt label=disable (Docker, Podman), or securityContext.seLinuxOptions: {type: spc_t} (Kubernetes)";
        return Finding::ok(name, format!("SELinux: {confinement}"), why).missing(fix);
    }
    let seen = if confinement.is_empty() { "none confines taskman" } else { confinement };
    Finding::ok(name, seen, why)
}

/// The auditor of `taskman-server`; `taskman run` has none.
fn auditor(surroundings: &Surroundings, capabilities: &CapsHashSet) -> Finding {
    let why = "the auditor of taskman-server hears of an escape the moment it happens, and looks at tasks from outside; without, it sees by a scan every second what is there then";
    let (name, capability) = AUDITOR_CAPABILITY;
    let deaf = surroundings.foreign.iter().any(|name| ["pid", "user"].contains(name));
    let blind = !capabilities.contains(&capability);
    let seen = match (deaf, blind) {
        (false, false) => {
            return Finding::ok("auditor", "the kernel tells it of processes and of writes to groups", why);
        }
        (true, false) => "the kernel tells of processes in the host's own pid namespace only".to_owned(),
        (false, true) => format!("without {name} it cannot read the namespaces and the program of a task"),
        (true, true) => format!(
            "the kernel tells of processes in the host's own pid namespace only, and without {name} it cannot read the namespaces and the program of a task"
        ),
    };
    let fix = match blind {
        true if surroundings.is_container() => add_capabilities(&[name]),
        true => "run as root, with all that root has".to_owned(),
        false => "nothing, if a second is soon enough; else run taskman-server on the host".to_owned(),
    };
    Finding::ok("auditor", seen, why).reduced(fix)
}
