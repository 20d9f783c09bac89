//! The inside view, read from outside: the host's `/proc` decides, not what a payload says of itself.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::support::host::host_text;
use crate::support::run::TASKMAN;
use crate::support::{Ended, GUARD, HostDir, Process, Run, Started};

/// Starts `cat`, looks at it, ends it.
#[track_caller]
pub fn look(run: Run, with: impl FnOnce(Process, Process)) -> Ended {
    let mut task = run.start();
    let payload = task.ready();
    with(task.init(), payload);
    let ended = task.end();
    ended.ok();
    ended
}

#[test]
fn the_environment_is_the_documented_one_and_nothing_inherited() {
    let run = Run::echo().caller_env("E2E_SECRET", "not for the task").with(&["--env", "GIVEN=a=b c"]);
    let mut environ = None;
    let ended = look(run, |init, payload| {
        environ = Some(payload.environ());
        assert_eq!(init.read("environ"), "", "init holds an environment");
    });
    let wanted = [
        ("GIVEN", "a=b c"),
        ("HOME", "/task"),
        ("LANG", "C.UTF-8"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
        ("TASKMAN_TASK_ID", ended.report()["task_id"].as_str().unwrap()),
        ("TERM", "dumb"),
        ("USER", "task"),
    ];
    assert_eq!(environ.unwrap(), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
}

#[test]
fn init_is_pid_1_and_the_payload_pid_2_in_a_namespace_of_their_own() {
    look(Run::echo(), |init, payload| {
        assert_eq!(init.status("NSpid").split_whitespace().nth(1), Some("1"));
        assert_eq!(payload.status("NSpid").split_whitespace().nth(1), Some("2"));
        assert_eq!(init.read("comm"), "taskman-init\n");
        assert_eq!(init.read("cmdline"), "taskman-init\0");
        assert_eq!(payload.link("exe"), fs::canonicalize("/bin/cat").unwrap().to_str().unwrap());
        assert_eq!((init.status("Threads"), payload.status("Threads")), ("1".into(), "1".into()));
        assert_eq!(Process::of_uid(payload.uid()).len(), 2, "init and the payload, nobody else");
    });
}

/// The processor share is handed out in slices per processor: elsewhere init could be out of them, and not reap.
#[test]
fn init_has_the_payloads_processors_and_goes_before_it() {
    look(Run::echo().with(&["--cpus", "1"]), |init, payload| {
        let processors = payload.status("Cpus_allowed_list");
        assert!(processors.parse::<u32>().is_ok(), "one processor, not {processors}");
        assert_eq!(init.status("Cpus_allowed_list"), processors);
        let nice =
            |process: Process| process.read("stat").rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
        assert_eq!((nice(init), nice(payload)), ("-10".to_owned(), "0".to_owned()));
    });
}

#[test]
fn every_namespace_but_the_user_one_is_the_tasks_own() {
    look(Run::echo(), |init, payload| {
        for kind in ["pid", "mnt", "ipc", "uts", "net", "cgroup", "time"] {
            let name = format!("ns/{kind}");
            assert_ne!(payload.link(&name), Process::own().link(&name), "{kind} is the host's");
            // Before Linux 6.3 whoever makes a time namespace stays outside it.
            assert!(payload.link(&name) == init.link(&name) || kind == "time", "{kind}");
        }
    });
}

#[test]
fn only_standard_streams_are_open_and_they_are_three_pipes() {
    look(Run::echo(), |_, payload| {
        assert_eq!(payload.list("fd"), ["0", "1", "2"]);
        let pipes: BTreeSet<_> = ["fd/0", "fd/1", "fd/2"].map(|fd| payload.link(fd)).into();
        assert!(pipes.iter().all(|pipe| pipe.starts_with("pipe:[")), "{pipes:?}");
        assert_eq!(pipes.len(), 3);
        let own: BTreeSet<_> = Process::own()
            .list("fd")
            .iter()
            .filter_map(|fd| Process::own().path("fd").join(fd).read_link().ok())
            .collect();
        assert!(pipes.iter().all(|pipe| !own.contains(std::path::Path::new(pipe))), "a pipe of the caller's is inside");
    });
}

#[test]
fn no_privilege_is_left_in_payload_or_init() {
    look(Run::echo(), |init, payload| {
        for process in [init, payload] {
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(process.status(set), "0000000000000000", "{set} of {process:?}");
            }
            assert_eq!(process.status("NoNewPrivs"), "1");
            assert_eq!(process.status("Seccomp"), "2");
            assert_eq!(process.status("Groups"), "");
        }
    });
}

#[test]
fn securebits_are_set_and_locked() {
    // The one thing the kernel tells nobody else. 0xef: noroot, no_setuid_fixup, no_cap_ambient_raise, each locked, and
    // keep_caps off and locked.
    let ended = Run::command(&["perl", "-e", "printf qq(%#x\\n), syscall(157, 27, 0, 0, 0, 0)"]).end();
    assert_eq!(ended.ok(), "0xef\n");
}

#[test]
fn user_and_group_are_one_number_of_the_pool() {
    look(Run::echo(), |init, payload| {
        let uid = payload.uid();
        assert!((1_900_000_000..1_900_065_536).contains(&uid), "{uid}");
        for process in [init, payload] {
            assert_eq!(process.status("Uid").split_whitespace().collect::<Vec<_>>(), vec![uid.to_string(); 4]);
            assert_eq!(process.status("Gid").split_whitespace().collect::<Vec<_>>(), vec![uid.to_string(); 4]);
        }
    });
    let ended = Run::sh("id -un; id -gn; id -u | grep -c '^19000'; echo ~; getent passwd task | cut -d: -f1,6").end();
    assert_eq!(ended.ok(), "task\ntask\n1\n/task\ntask:/task\n");
}

#[test]
fn init_cannot_be_read_by_the_task() {
    look(Run::echo(), |init, payload| {
        // A process that is not dumpable belongs to root in /proc, whatever its uid.
        assert_eq!(fs::metadata(init.path("fd")).unwrap().uid(), 0);
        assert_eq!(fs::metadata(payload.path("fd")).unwrap().uid(), payload.uid());
    });
    let ended = Run::sh("cat /proc/1/environ; cat /proc/1/maps; ls /proc/1/fd; cat /proc/1/exe; echo done").end();
    assert_eq!(ended.ok(), "done\n");
    assert_eq!(ended.stderr.matches("ermission denied").count(), 4, "{}", ended.stderr);
}

#[test]
fn signals_start_out_as_a_shell_would_give_them() {
    look(Run::echo(), |_, payload| {
        for field in ["SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"] {
            assert_eq!(payload.status(field), "0000000000000000", "{field}");
        }
        assert_eq!(payload.status("Umask"), "0022");
    });
}

#[test]
fn the_task_sits_in_its_own_group_of_every_hierarchy() {
    let mut lines = String::new();
    let ended = look(Run::echo(), |init, payload| {
        lines = payload.read("cgroup");
        assert_eq!(lines, init.read("cgroup"));
    });
    let id = ended.report()["task_id"].as_str().unwrap();
    let mut names = BTreeSet::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap(), parts.next().unwrap());
        let limiting = ["", "cpu", "cpu,cpuacct", "memory", "pids", "blkio"].contains(&controllers);
        let name = path.rsplit('/').next().unwrap();
        if limiting {
            assert!(name.starts_with("taskman-") && name.ends_with(&format!(".{id}")), "{line}");
            names.insert(name.to_owned());
        }
    }
    assert_eq!(names.len(), 1, "one name everywhere: {lines}");
}

#[test]
fn the_host_name_is_the_tasks_own() {
    look(Run::echo(), |_, payload| {
        assert_eq!(host_text(&["nsenter", "-u", "-t", &payload.pid.to_string(), "hostname"]), "taskman\n");
        assert_eq!(payload.read("root/etc/hostname"), "taskman\n");
    });
    assert_ne!(host_text(&["hostname"]), "taskman\n", "the host's own name changed");
}

#[test]
fn the_network_is_a_loopback_that_is_up() {
    look(Run::echo(), |_, payload| {
        let devices = payload.read("net/dev");
        let names: Vec<_> = devices.lines().skip(2).map(|line| line.split(':').next().unwrap().trim()).collect();
        assert_eq!(names, ["lo"]);
        assert_eq!(payload.read("net/route").lines().count(), 1, "a route: {}", payload.read("net/route"));
        let link = host_text(&["nsenter", "-n", "-t", &payload.pid.to_string(), "ip", "-o", "addr"]);
        assert!(link.contains("inet 127.0.0.1/8"), "{link}");
    });
}

#[test]
fn the_task_dies_before_the_launcher_when_the_host_runs_out_of_memory() {
    look(Run::echo(), |init, payload| {
        assert_eq!((init.read("oom_score_adj"), payload.read("oom_score_adj")), ("1000\n".into(), "1000\n".into()));
    });
    assert_ne!(Process::own().read("oom_score_adj"), "1000\n", "the launcher would go as early");
}

#[test]
fn the_task_leads_a_session_without_a_terminal() {
    look(Run::echo(), |_, payload| {
        let stat = payload.read("stat");
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let (group, session, terminal) = (fields[2], fields[3], fields[4]);
        let own = Process::own().read("stat");
        assert_ne!(Some(session), own.rsplit(") ").next().unwrap().split(' ').nth(3), "the caller's session");
        assert_eq!((group, terminal), (payload.pid.to_string().as_str(), "0"));
    });
}

#[test]
fn the_callers_groups_are_not_the_tasks() {
    let mut command = Command::new("setpriv");
    command.args(["--groups=4,27", "--", TASKMAN, "run", "--", "grep", "^Groups:", "/proc/self/status"]);
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert_eq!((ended.status.code(), ended.text().trim_end()), (Some(0), "Groups:"), "{ended:?}");
}

/// Where root lacks CAP_SYS_RESOURCE the kernel would let it.
#[test]
fn a_task_cannot_take_back_that_it_goes_first_when_memory_runs_out() {
    let ended = Run::sh("echo 0 2>/dev/null >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj").end();
    assert_eq!(ended.text(), "1000\n", "{ended:?}");
}
