//! What a container lacks is named by the doctor with the option that gives it, and a start is refused in the same words.

use taskman::doctor::{AUDITOR_CAPABILITY, CAPABILITIES};

use crate::container::{Container, Runtime};
use crate::findings::{Examination, words};
use crate::support::Ended;

const BOTH: &str = "taskman doctor --output json; exec taskman run -- echo ran >&2";

/// The doctor's examination, and that the start after it was refused.
#[track_caller]
fn refused(ended: &Ended) -> Examination {
    let examination = Examination::of(ended);
    assert!(!examination.starts(), "{ended:?}");
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("taskman: error: ") && !ended.stderr.contains("ran\n"), "{ended:?}");
    examination
}

#[test]
fn each_capability_taken_away_is_named_with_its_option_and_refused() {
    for runtime in Runtime::BOTH {
        for (name, _, what) in CAPABILITIES {
            let ended = Container::new(runtime).without(name).run(BOTH);
            let examination = refused(&ended);
            let finding = examination.finding("capabilities");
            assert_eq!(finding["seen"], format!("without {name} (to {what})"), "{runtime:?}");
            let option = format!("--cap-add={}", name.trim_start_matches("CAP_"));
            assert!(finding["fix"].as_str().unwrap().contains(&option), "{finding:#}");
            for part in words(finding) {
                assert!(ended.stderr.contains(part), "{runtime:?} without {name}: {part:?} is not in {}", ended.stderr);
            }
        }
    }
}

#[test]
fn without_the_auditors_capability_tasks_run_and_the_doctor_names_it() {
    for runtime in Runtime::BOTH {
        let (name, _) = AUDITOR_CAPABILITY;
        let ended = Container::new(runtime).without(name).run(BOTH);
        assert_eq!(ended.status.code(), Some(0), "{runtime:?}: {ended:?}");
        let examination = Examination::of(&ended);
        let finding = examination.finding("auditor");
        assert_eq!((&finding["status"], &finding["blocks"]), (&"reduced".into(), &false.into()));
        assert!(finding["seen"].as_str().unwrap().contains(name), "{finding:#}");
        assert!(finding["fix"].as_str().unwrap().contains("--cap-add=SYS_PTRACE"), "{finding:#}");
    }
}

#[test]
fn control_groups_that_cannot_be_written_are_named_and_refused() {
    for runtime in Runtime::BOTH {
        // Each alone in its container: with two processes in the group, version 2 has another reason to refuse.
        let examined = Container::new(runtime).bare().run("exec taskman doctor --output json");
        assert_eq!(examined.status.code(), Some(1), "{runtime:?}: {examined:?}");
        let examination = Examination::of(&examined);
        let groups = |name: &str| ["cgroups", "cgroup access"].contains(&name);
        let blocking = examination.blocking();
        let finding = blocking.iter().find(|finding| groups(finding["name"].as_str().unwrap()));
        let finding = finding.unwrap_or_else(|| panic!("{runtime:?}: {examined:?}"));
        assert!(finding["fix"].as_str().unwrap().contains("deploy/containers/entrypoint"), "{finding:#}");
        let refused = Container::new(runtime).bare().run("exec taskman run -- echo ran");
        refused.assert_refused(125, &words(finding));
    }
}

/// Version 2 alone has the rule; in a hybrid layout nothing stands in the way.
#[test]
fn a_group_with_other_processes_in_it_is_named_and_refused() {
    for runtime in Runtime::BOTH {
        let container = Container::new(runtime).bare().with(|config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            let groups = mounts.iter_mut().find(|mount| mount["type"] == "cgroup").unwrap();
            groups["options"].as_array_mut().unwrap().retain(|option| option != "ro");
        });
        if container.hierarchies.is_hybrid() {
            continue;
        }
        // The shell stays, and with it the container's first process.
        let ended = container.run("taskman doctor --output json; taskman run -- echo ran >&2; exit $?");
        let examination = refused(&ended);
        let finding = examination.finding("cgroups");
        assert!(finding["seen"].as_str().unwrap().contains("1 other process"), "{runtime:?}: {finding:#}");
        assert!(finding["fix"].as_str().unwrap().contains("deploy/containers/entrypoint"), "{finding:#}");
        assert!(ended.stderr.contains("deploy/containers/entrypoint"), "{runtime:?}: {ended:?}");
    }
}

#[test]
fn calls_that_a_runtimes_own_filter_takes_are_named_and_the_start_fails_where_it_needs_them() {
    for runtime in Runtime::BOTH {
        // Docker's own, with CAP_SYS_ADMIN, lets everything else through that a start needs.
        let container = Container::new(runtime).with(|config| {
            for row in config["linux"]["seccomp"]["syscalls"].as_array_mut().unwrap() {
                row["names"].as_array_mut().unwrap().retain(|name| name != "pivot_root" && name != "keyctl");
            }
            let rows = config["linux"]["seccomp"]["syscalls"].as_array_mut().unwrap();
            rows.retain(|row| !row["names"].as_array().unwrap().is_empty());
        });
        let ended = container.run(BOTH);
        let examination = refused(&ended);
        let finding = examination.finding("system calls");
        assert_eq!(finding["seen"], "refused: pivot_root (EPERM), keyctl (EPERM)", "{runtime:?}");
        let fix = finding["fix"].as_str().unwrap();
        assert!(fix.contains("--security-opt seccomp=deploy/containers/seccomp.json"), "{fix}");
        assert_eq!(examination.blocking().len(), 1, "{runtime:?}: {ended:?}");
        for part in ["step session: keyctl session keyring: EPERM", "taskman doctor"] {
            assert!(ended.stderr.contains(part), "{runtime:?}: {ended:?}");
        }
    }
}

#[test]
fn a_user_namespace_is_named_and_refused() {
    // As rootless containers and mapped users have it; the map is the widest there is, so that nothing else is in the way.
    for runtime in Runtime::BOTH {
        let container = Container::new(runtime).with(|config| {
            config["linux"]["namespaces"].as_array_mut().unwrap().push(serde_json::json!({"type": "user"}));
            for map in ["uidMappings", "gidMappings"] {
                config["linux"][map] = serde_json::json!([{"containerID": 0, "hostID": 0, "size": u32::MAX}]);
            }
        });
        let ended = container.run(BOTH);
        let examination = refused(&ended);
        let finding = examination.finding("user namespace");
        assert_eq!(
            (&finding["status"], &finding["blocks"]),
            (&"missing".into(), &true.into()),
            "{runtime:?}: {ended:?}"
        );
        for part in words(finding) {
            assert!(ended.stderr.contains(part), "{runtime:?}: {part:?} is not in {}", ended.stderr);
        }
    }
}
