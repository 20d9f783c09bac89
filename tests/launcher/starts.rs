//! What a start brings: output to read, the true outcome, or the reason why there is none.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use taskman::StartError;
use taskman::task::id::TaskId;
use taskman::task::outcome::Reason;
use taskman::wire::Request;

use crate::stage::{Case, play, read_all};

pub fn cases() -> Vec<Case> {
    vec![
        ("combined_output_is_one_pipe_in_true_order", combined_output_is_one_pipe_in_true_order),
        ("split_output_is_two_pipes", split_output_is_two_pipes),
        ("a_command_that_does_not_exist_leaves_nothing", a_command_that_does_not_exist_leaves_nothing),
        ("limits_are_enforced_for_many_tasks_at_once", limits_are_enforced_for_many_tasks_at_once),
        ("starts_beyond_those_in_the_making_wait_for_their_turn", starts_wait_for_their_turn),
        ("a_task_that_runs_has_three_descriptors_of_the_launchers", a_running_task_has_three_descriptors),
        ("more_than_is_allowed_is_refused", more_than_is_allowed_is_refused),
        ("the_pid_is_the_main_processes", the_pid_is_the_main_processes),
        ("neither_init_nor_payload_holds_the_launchers_descriptors", no_descriptors_leak),
        ("the_tls_files_come_first_and_again_when_they_change", tls_files_come_and_come_again),
    ]
}

fn combined_output_is_one_pipe_in_true_order() {
    let played = play(|client| {
        // Standard input is empty: cat ends.
        let script = "cat; for i in 1 2 3; do echo out; echo err >&2; done; exit 3";
        let task = client.start(&["sh", "-c", script], |_| {});
        let (_, outputs) = client.started(task);
        assert_eq!(outputs.len(), 1);
        assert_eq!(read_all(&outputs[0]), "out\nerr\n".repeat(3));
        let outcome = client.ended(task).outcome;
        assert_eq!((outcome.status.code(), outcome.reason), (Some(3), Reason::Exit));
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn split_output_is_two_pipes() {
    let played = play(|client| {
        let task = client.start(&["sh", "-c", "echo out; echo err >&2"], |request| request.split_output = true);
        let (_, outputs) = client.started(task);
        let texts: Vec<_> = outputs.iter().map(read_all).collect();
        assert_eq!(texts, ["out\n", "err\n"]);
        client.ended(task);
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn a_command_that_does_not_exist_leaves_nothing() {
    let played = play(|client| {
        let task = client.start(&["no-such-command"], |_| {});
        assert!(matches!(client.refusal(task), StartError::Exec { not_found: true, .. }));
        // Nothing of it is left: its id is free again.
        client.start(&["true"], |request| request.task = task);
        client.started(task);
        assert_eq!(client.ended(task).outcome.status.code(), Some(0));
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn limits_are_enforced_for_many_tasks_at_once() {
    let played = play(|client| {
        let wall = client.start(&["sleep", "60"], |r| r.limits.timeout = Duration::from_millis(400));
        let cpu =
            client.start(&["sh", "-c", "while :; do :; done"], |r| r.limits.cpu_time = Duration::from_millis(300));
        let hog = "x = bytearray(256 << 20)";
        let oom = client.start(&["python3", "-c", hog], |r| r.limits.memory_bytes = 64 << 20);
        let output = client.start(&["sleep", "60"], |_| {});
        let (_, _pipes) = client.started(output);
        client.send(&Request::OutputLimit { task: output });
        for (task, reason) in
            [(wall, Reason::WallTime), (cpu, Reason::CpuTime), (oom, Reason::Oom), (output, Reason::OutputLimit)]
        {
            let ended = client.ended(task);
            assert_eq!(ended.outcome.reason, reason, "{ended:?}");
        }
        client.leave();
    });
    assert_eq!(played.code, 0);
}

/// Two are started at once here; see the stage.
fn starts_wait_for_their_turn() {
    let played = play(|client| {
        for _ in 0..3 {
            let tasks = [(); 4].map(|()| client.start(&["true"], |_| {}));
            for task in tasks {
                client.started(task);
            }
            for task in tasks {
                assert_eq!(client.ended(task).outcome.status.code(), Some(0));
            }
        }
        client.leave();
    });
    assert_eq!(played.code, 0);
}

/// What `Config::fit` reckons with.
fn a_running_task_has_three_descriptors() {
    let played = play(|client| {
        let launcher = std::os::unix::process::parent_id();
        let open = || std::fs::read_dir(format!("/proc/{launcher}/fd")).unwrap().count();
        let before = open();
        // For a task that is shown paths of the host no sandbox is kept ready, which would have descriptors too.
        let start = |_| client.start(&["sleep", "600"], |request| request.bind_ro = vec!["/usr/share:/shown".into()]);
        let tasks: Vec<_> = (0..3).map(start).collect();
        for task in &tasks {
            drop(client.started(*task));
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while open() != before + 3 * tasks.len() {
            assert!(Instant::now() < deadline, "{} for {} tasks", open() - before, tasks.len());
            std::thread::sleep(Duration::from_millis(10));
        }
        // A signal takes none for longer than it takes.
        assert_eq!(client.signal(1, tasks[0], Signal::SIGCONT as i32), None);
        assert_eq!(open(), before + 3 * tasks.len());
        for task in tasks {
            client.send(&Request::Stop { task, grace_ms: 0 });
            client.ended(task);
        }
        assert_eq!(open(), before);
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn more_than_is_allowed_is_refused() {
    let played = play(|client| {
        let field = |error: StartError| match error {
            StartError::Spec(error) => error.field.into_owned(),
            other => panic!("{other}"),
        };
        let task = client.start(&["true"], |request| request.limits.memory_bytes <<= 1);
        assert_eq!(field(client.refusal(task)), "memory");
        let task = client.start(&["true"], |request| request.bind_ro = vec!["/etc".into()]);
        assert_eq!(field(client.refusal(task)), "bind_ro");
        let task = client.start(&["true"], |request| request.profile = "other".into());
        assert_eq!(field(client.refusal(task)), "profile");
        let (taken, _) = client.start_sleeper("true");
        client.start(&["true"], |request| request.task = taken);
        assert_eq!(field(client.refusal(taken)), "task");
        // Four may run: one runs, and the fifth is refused while its three fellows are not.
        let more: Vec<TaskId> = (0..4).map(|_| client.start(&["sleep", "600"], |_| {})).collect();
        for task in &more[..3] {
            client.started(*task);
        }
        assert!(client.refusal(more[3]).to_string().contains("quota.running"));
        client.tell_launcher(Signal::SIGTERM);
        for task in more[..3].iter().chain([&taken]) {
            client.ended(*task);
        }
        client.send(&Request::Goodbye);
    });
    assert_eq!(played.code, 0);
    played.assert_all_dead();
}

fn the_pid_is_the_main_processes() {
    let played = play(|client| {
        let (task, pid) = client.start_sleeper("true");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let inside = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
        assert_eq!(inside.split_whitespace().collect::<Vec<_>>(), [pid.to_string().as_str(), "2"]);
        client.send(&Request::Stop { task, grace_ms: 0 });
        client.ended(task);
        // However soon it is gone.
        for _ in 0..5 {
            let task = client.start(&["true"], |_| {});
            assert!(client.started(task).0.process_id > 1);
            client.ended(task);
        }
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn no_descriptors_leak() {
    let played = play(|client| {
        let (first, _) = client.start_sleeper("true");
        let (second, pid) = client.start_sleeper("true");
        let links = |pid: i32| {
            let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let links = entries.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string());
            let mut links: Vec<String> = links.map(|link| link.split(':').next().unwrap().to_owned()).collect();
            links.sort();
            links
        };
        assert_eq!(links(pid), ["pipe", "pipe", "pipe"]);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let init: i32 = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap();
        assert!(links(init).iter().all(|link| link == "pipe"), "{:?}", links(init));
        assert!(links(init).len() <= 2, "{:?}", links(init));
        for task in [first, second] {
            client.send(&Request::Stop { task, grace_ms: 0 });
            client.ended(task);
        }
        client.leave();
    });
    assert_eq!(played.code, 0);
}

fn tls_files_come_and_come_again() {
    let played = play(|client| {
        let texts = |files: Vec<_>| files.iter().map(read_all).collect::<Vec<_>>();
        assert_eq!(texts(client.tls_files()), ["ca.crt", "server.crt", "server.key"]);
        let new = client.directory.join("new");
        std::fs::write(&new, "another").unwrap();
        let began = Instant::now();
        std::fs::rename(&new, client.directory.join("server.crt")).unwrap();
        assert_eq!(texts(client.tls_files()), ["ca.crt", "another", "server.key"]);
        assert!(began.elapsed() < Duration::from_secs(5));
        std::fs::write(client.directory.join("crl.pem"), "list").unwrap();
        assert_eq!(texts(client.tls_files()).len(), 4);
        client.tell_launcher(Signal::SIGHUP);
        assert_eq!(texts(client.tls_files()).len(), 4);
        client.leave();
    });
    assert_eq!(played.code, 0);
}
