//! `taskman get-status`: the source design's table, exact outcomes, and nobody else's tasks.

use serde_json::Value;

use crate::support::Server;
use crate::support::ended::CHECKS;

#[test]
fn the_table_is_the_source_designs() {
    let server = Server::start();
    let task = server.task(&["--", "true"]);
    server.ended(&task);
    let text = server.text("client001", &["get-status", &task]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[3]), (7, ""), "{text}");
    let columns = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let titles = ["TASK ID", "START TIME", "PID", "STATUS", "EXIT CODE", "SIGNAL", "SOURCE", "END TIME"];
    assert_eq!(columns(lines[0]), titles);
    assert_eq!(columns(lines[1]), titles.map(|title| "-".repeat(title.len())));
    let row = columns(lines[2]);
    assert_eq!(row[0], task);
    assert!(row[2].parse::<i32>().is_ok_and(|pid| pid > 0), "{text}");
    assert_eq!(row[3..7], ["JOB_STATUS_EXITED_OK", "0", "-", "-"]);
    for time in [&row[1], &row[7]] {
        assert!(humantime::parse_rfc3339(&format!("{}Z", time.replace(' ', "T"))).is_ok(), "{time}");
    }
    // Below the table that it always was: what this program is for.
    let titles = ["REASON", "WALL", "CPU", "MEMORY", "PIDS", "OUTPUT", "CONTAINMENT", "DETAIL"];
    assert_eq!(columns(lines[4]), titles);
    let row = columns(lines[6]);
    assert_eq!((row[0].as_str(), &row[6..]), ("exit", &["proven".to_owned(), "exited with code 0".to_owned()][..]));
    assert!(row[1].ends_with('s') && row[3].ends_with(['K', 'M']), "{text}");
}

#[test]
fn a_running_task_has_no_end_and_an_ended_one_says_exactly_how() {
    let server = Server::start();
    let task = server.task(&["--", "sleep", "1000"]);
    let status = server.status(&task);
    assert_eq!(status["status"], "JOB_STATUS_STARTED");
    for absent in ["outcome", "ended_at", "usage", "containment"] {
        assert_eq!(status[absent], Value::Null, "{absent}");
    }
    assert_eq!((&status["owner"], &status["command"]), (&"client001".into(), &"sleep".into()));
    server.text("client001", &["stop", &task]);
    let status = server.ended(&task);
    assert_eq!(status["status"], "JOB_STATUS_SIGNALED");
    assert_eq!((&status["outcome"]["signal"], &status["outcome"]["reason"]), (&"SIGTERM".into(), &"stopped".into()));
    assert_eq!(status["termination_source"], "user");
    assert_eq!(status["containment"]["verdict"], "proven", "{status:#}");
    assert_eq!(status["containment"]["checks"].as_array().unwrap().len(), CHECKS.len());
    let text = server.text("client001", &["get-status", &task]);
    assert!(text.contains("JOB_STATUS_SIGNALED  -          SIGTERM  user"), "{text}");

    let failed = server.task(&["--", "sh", "-c", "exit 5"]);
    let status = server.ended(&failed);
    assert_eq!((&status["status"], &status["outcome"]["exit_code"]), (&"JOB_STATUS_EXITED_ERROR".into(), &5.into()));
}

#[test]
fn the_beginning_of_an_id_names_a_task() {
    let server = Server::start();
    let task = server.task(&["--", "echo", "hello"]);
    server.ended(&task);
    let (short, upper) = (&task[..8], task[..13].to_uppercase());
    assert_eq!(server.text("client001", &["stream", short]), "hello\n");
    for verb in [&["get-status", &*upper][..], &["stop", short], &["wait", short]] {
        assert!(server.text("client001", verb).contains(&task), "{verb:?}");
    }
    assert!(server.text("admin", &["get-status", short]).contains(&task), "an administrator sees everyone's");
    // Of another's it says no more than of an id that never was.
    let other = server.task_of("admin", &["--", "true"]);
    let unknown = if other.starts_with("0000") { "1111" } else { "0000" };
    for prefix in [&other[..8], unknown] {
        server.taskman("client001", &["get-status", prefix]).assert_refused(125, &["taskman: error: task not found"]);
    }
}

#[test]
fn the_task_of_another_is_not_found_with_the_same_words_as_one_that_never_was() {
    let server = Server::start();
    let task = server.task_of("admin", &["--", "true"]);
    let unknown = "00000000-0000-4000-8000-000000000000";
    for verb in [&["get-status"][..], &["stop"], &["stream"], &["wait"]] {
        let answer = |id: &str| {
            let words: Vec<_> = verb.iter().copied().chain([id]).collect();
            let ended = server.taskman("client001", &words);
            ended.assert_refused(125, &["taskman: error: "]);
            ended.stderr.replace(id, "ID")
        };
        assert_eq!(answer(&task), answer(unknown), "{verb:?}");
    }
    assert!(server.text("admin", &["get-status", &server.task(&["--", "true"])]).contains("JOB_STATUS_"));
}

#[test]
fn what_is_no_task_id_is_refused_before_anything_is_asked() {
    let server = Server::start();
    server
        .taskman("client001", &["get-status", "../x"])
        .assert_refused(125, &["is neither a task id nor its beginning", "taskman list"]);
}
