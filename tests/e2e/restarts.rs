//! Starting again: with what ran, with what a crash left behind, and with state that is not what it was.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::Value;

use crate::support::supervisor::{Tmpfs, nonce, send};
use crate::support::{GUARD, HostDir, Process, Run, Server, Started, wait_until};

fn ids(tasks: &[Value]) -> Vec<&str> {
    tasks.iter().map(|task| task["task_id"].as_str().unwrap()).collect()
}

#[test]
fn s06_after_a_crash_and_after_an_orderly_stop_everything_is_as_it_was_and_nothing_runs_twice() {
    let mut server = Server::start();
    let nonce = nonce();
    let ok = server.task(&["--label", "a=b", "--split-output", "--", "sh", "-c", "echo ran; echo twice >&2"]);
    let failed = server.task_of("admin", &["--", "sh", "-c", "echo ran; exit 7"]);
    server.ended(&ok);
    server.ended(&failed);
    let running = server.marked(&nonce, &[], "echo ran; seq 20000");
    let before = server.list();
    let outputs: Vec<_> = ids(&before).iter().map(|task| server.output(task)).collect();
    for crash in [true, false] {
        if crash {
            server.kill();
        } else {
            assert_eq!(server.stop().status.code(), Some(0));
        }
        server.restart();
        let after = server.list();
        assert_eq!(ids(&after), [&*ok, &*failed, &*running]);
        assert_eq!(after[..2], before[..2], "what had ended");
        for field in ["owner", "command", "args", "started_at", "limits", "labels", "process_id"] {
            assert_eq!(after[2][field], before[2][field], "{field}");
        }
        assert_eq!(after[2]["outcome"]["reason"], "server_lost", "also after the second restart");
        for (task, output) in ids(&after).iter().zip(&outputs) {
            assert!(server.output(task) == *output, "output of {task}");
        }
        let tail = server.text("client001", &["stream", &running, "--offset", "4"]);
        assert!(tail.starts_with("1\n2\n3\n"), "offsets mean the same: {:?}", &tail[..20]);
        assert_eq!(server.text("client001", &["stream", &ok, "--stderr", "--offset", "2"]), "ice\n");
        let traces = server.traces(&nonce);
        assert_eq!(traces.processes().len(), 0, "something was run again");
    }
}

#[test]
fn s07_a_start_after_a_crash_sweeps_its_own_and_touches_nobody_else() {
    let mut server = Server::start();
    let neighbour = Server::start();
    let mut alone = Run::echo().start();
    let payload = alone.ready();
    let (ours, other) = (nonce(), nonce());
    server.marked(&ours, &[], "true");
    let theirs = neighbour.marked(&other, &[], "true");
    let (traces, their_traces) = (server.traces(&ours), neighbour.traces(&other));
    let (groups, living) = (their_traces.groups(), their_traces.processes());
    assert_eq!(living.len(), 3, "init, shell and sleep");
    let reserved = traces.reserve();
    // Its last look would sweep them before the next start can.
    let auditor = server.auditor();
    send(auditor, Signal::SIGSTOP);
    send(server.launcher(), Signal::SIGKILL);
    send(auditor, Signal::SIGKILL);
    server.end();
    traces.assert_dead_within(Duration::from_secs(2));
    let locks: Vec<_> = reserved.into_iter().map(|lock| lock.join().unwrap()).collect();
    assert!(!traces.groups().is_empty(), "nothing was left to sweep");
    drop(locks);
    server.restart();
    assert_eq!(traces.groups().len(), 0);
    assert_eq!((their_traces.groups(), their_traces.processes()), (groups, living));
    assert_eq!(neighbour.status(&theirs)["status"], "JOB_STATUS_STARTED");
    assert!(!Process { pid: payload.pid }.status("State").starts_with('Z'));
    alone.send(b"on\n");
    assert_eq!(alone.line(), "on");
    alone.end().ok();
}

/// The same probe without the sweep. Every other test that starts a task sweeps too, so one of several tries has to tell.
#[test]
fn s07_without_the_sweep_groups_of_the_dead_stay() {
    let mut server = Server::without("sweep");
    let nonce = nonce();
    let stays = |server: &mut Server| {
        server.marked(&nonce, &[], "true");
        let traces = server.traces(&nonce);
        server.kill();
        traces.assert_dead_within(Duration::from_secs(2));
        server.restart();
        !traces.groups().is_empty()
    };
    assert!((0..10).any(|_| stays(&mut server)), "something else sweeps them every time");
    // The next one takes what is left.
    Run::command(&["true"]).end().ok();
}

fn database(server: &Server) -> PathBuf {
    server.state().join("server/tasks.db")
}

/// A server with three ended tasks, one after the other.
fn with_three() -> (Server, Vec<String>) {
    let server = Server::start();
    let one = |n| {
        let task = server.task(&["--", "sh", "-c", &format!("echo {n}; exit {n}")]);
        server.ended(&task);
        task
    };
    let tasks = (1..=3).map(one).collect();
    (server, tasks)
}

#[track_caller]
fn works(server: &Server) {
    let task = server.task(&["--", "echo", "works"]);
    assert_eq!(server.ended(&task)["outcome"]["reason"], "exit");
    assert_eq!(server.output(&task), b"works\n");
}

#[test]
fn s08_a_database_that_is_none_is_kept_aside_and_output_with_it() {
    let (mut server, tasks) = with_three();
    server.stop();
    fs::write(database(&server), "not a database ".repeat(1000)).unwrap();
    server.restart();
    assert_eq!(server.list().len(), 0);
    works(&server);
    let log = server.stop().stderr;
    assert!(log.contains("is damaged") && log.contains("tasks.db.damaged-"), "{log}");
    let names = fs::read_dir(server.state().join("server")).unwrap().map(|e| e.unwrap().file_name());
    let kept = names.filter_map(|name| name.into_string().ok()).find(|name| name.starts_with("tasks.db.damaged-"));
    let kept = fs::read(server.state().join("server").join(kept.expect("the damaged file"))).unwrap();
    assert!(kept.starts_with(b"not a database"));
    for task in tasks {
        assert!(server.state().join("server/output").join(task).is_dir(), "output without its record was removed");
    }
}

#[test]
fn s08_a_damaged_row_is_set_aside_and_the_others_stay() {
    let (mut server, tasks) = with_three();
    let before = server.list();
    server.stop();
    let rows = Connection::open(database(&server)).unwrap();
    assert_eq!(rows.execute("UPDATE tasks SET record = replace(record, '1', '2') WHERE id = ?1", [&tasks[1]]), Ok(1));
    drop(rows);
    server.restart();
    assert_eq!(server.list(), [before[0].clone(), before[2].clone()]);
    server.taskman("client001", &["get-status", &tasks[1]]).assert_refused(125, &["not found"]);
    assert_eq!(server.output(&tasks[2]), b"3\n");
    works(&server);
    let log = server.stop().stderr;
    assert!(log.contains("set aside") && log.contains(&tasks[1]), "{log}");
    let rows = Connection::open(database(&server)).unwrap();
    let kept: String = rows.query_row("SELECT id FROM damaged", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, tasks[1]);
}

#[test]
fn s08_a_database_of_a_newer_taskman_is_refused_and_left_as_it_is() {
    let (mut server, tasks) = with_three();
    server.stop();
    let version = |number: u32| {
        let rows = Connection::open(database(&server)).unwrap();
        let old: u32 = rows.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        rows.pragma_update(None, "user_version", number).unwrap();
        old
    };
    let old = version(99);
    let bytes = fs::read(database(&server)).unwrap();
    let refused = Started::spawn(server.command_line(), HostDir::new(), GUARD).end();
    refused.assert_refused(1, &["schema version 99", "newer taskman"]);
    assert!(fs::read(database(&server)).unwrap() == bytes, "it was changed");
    version(old);
    server.restart();
    assert_eq!(ids(&server.list()), tasks);
}

#[test]
fn s08_of_a_torn_log_everything_before_the_tear_is_there() {
    let (mut server, tasks) = with_three();
    // Killed, so that what was written last stands in the log alone.
    send(server.half(), Signal::SIGKILL);
    server.end();
    let log = server.state().join("server/tasks.db-wal");
    let whole = fs::metadata(&log).unwrap().len();
    assert!(whole > 8192, "nothing to tear: {whole} bytes");
    let mut torn = fs::OpenOptions::new().write(true).open(&log).unwrap();
    torn.set_len(whole - 1000).unwrap();
    std::io::Seek::seek(&mut torn, std::io::SeekFrom::End(-500)).unwrap();
    torn.write_all(&[0x5a; 700]).unwrap();
    drop(torn);
    server.restart();
    let listed = server.list();
    assert_eq!(ids(&listed), tasks);
    for (task, code) in listed[..2].iter().zip([1, 2]) {
        assert_eq!((&task["outcome"]["reason"], &task["outcome"]["exit_code"]), (&"exit".into(), &code.into()));
    }
    // Its end was the last thing written: that it is not known any more is told, and not made up.
    let third = &listed[2]["outcome"];
    assert!(third["exit_code"] == 3 || third["reason"] == "server_lost", "{third:#}");
    works(&server);
}

#[test]
fn s08_a_full_disk_refuses_new_tasks_and_loses_no_end() {
    let mut server = Server::prepare(&[]);
    fs::create_dir(server.state()).unwrap();
    let disk = Tmpfs::mount(&server.state(), "size=16M,mode=0711");
    let _config = disk_config(&mut server);
    server.launch();
    let old = server.task(&["--", "echo", "old"]);
    server.ended(&old);
    let nonce = nonce();
    let running = server.marked(&nonce, &[], "true");
    let filler = disk.fill(0);
    let refused = wait_until("the disk is full", || {
        let ended = server.taskman("client001", &["start", "--", "true"]);
        (ended.status.code() != Some(0)).then_some(ended)
    });
    refused.assert_refused(125, &["full", "room"]);
    // What is known can be read, and what runs can be stopped: its end waits for room.
    assert_eq!(server.output(&old), b"old\n");
    server.text("client001", &["stop", &running, "--grace", "0s"]);
    server.traces(&nonce).assert_dead_within(Duration::from_secs(2));
    fs::remove_file(filler).unwrap();
    let ended = server.ended(&running);
    assert_eq!((&ended["outcome"]["reason"], &ended["containment"]["verdict"]), (&"stopped".into(), &"proven".into()));
    works(&server);
    // And a crash on a full disk, at the very end of its room.
    let known = server.list();
    let lost = server.marked(&nonce, &[], "true");
    let filler = disk.fill(0);
    send(server.half(), Signal::SIGKILL);
    server.end();
    let refused = Started::spawn(server.command_line(), HostDir::new(), GUARD).end();
    refused.assert_refused(1, &["full"]);
    fs::remove_file(filler).unwrap();
    server.restart();
    assert_eq!(server.status(&lost)["outcome"]["reason"], "server_lost");
    assert_eq!(server.list()[..known.len()], known);
    works(&server);
    server.stop();
}

/// Output leaves little free on a small disk.
fn disk_config(server: &mut Server) -> HostDir {
    let dir = HostDir::new();
    let text = "[output]\nreserve = \"64K\"\nstored_per_task = \"1M\"\n[warm]\nslots = 0\n";
    let config = dir.file("config.toml", text, 0o644);
    server.options = vec!["--config".into(), config.to_str().unwrap().into()];
    dir
}
