//! A01 and A17: what is not yours does not exist, and what widens a sandbox is not yours to ask for.

use std::collections::BTreeMap;
use std::time::Instant;

use taskman::proto::task_manager as pb;
use tonic::{Code, Status};

use crate::support::rpc::{Tasks, connect, on, read, seen, sh, spoken, start, whole};
use crate::support::{HostDir, Server};

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";
/// The calls that name a task.
const VERBS: [&str; 5] = ["get-status", "stream", "wait", "signal", "stop"];

/// Does `verb` to a task, in a way that leaves it as it is if it can be helped.
async fn ask(tasks: &mut Tasks, verb: &str, task: &str) -> Result<(), Status> {
    let task_id = task.to_owned();
    match verb {
        "get-status" => tasks.get_task_status(pb::TaskStatusRequest { task_id }).await.map(drop),
        "stream" => read(tasks, pb::StreamTaskOutputRequest { follow: Some(false), ..whole(task) }).await.map(drop),
        "wait" => {
            let timeout = Some(prost_types::Duration { seconds: 0, nanos: 1 });
            tasks.wait_task(pb::WaitTaskRequest { task_id, timeout }).await.map(drop)
        }
        // The shell has a trap for it.
        "signal" => tasks.signal_task(pb::SignalTaskRequest { task_id, signal: "USR1".into() }).await.map(drop),
        "stop" => tasks.stop_task(pb::StopTaskRequest { task_id, grace: None }).await.map(drop),
        other => panic!("{other}"),
    }
}

/// A task that outlives everything but a stop.
fn lasting() -> pb::StartTaskRequest {
    sh("trap : USR1; echo ready; while :; do sleep 0.05; done")
}

async fn listed(tasks: &mut Tasks, owner: &str, all_owners: bool) -> Result<Vec<String>, Status> {
    let request = pb::ListTasksRequest { owner: owner.into(), all_owners, ..Default::default() };
    Ok(tasks.list_tasks(request).await?.into_inner().tasks.into_iter().map(|task| task.owner).collect())
}

#[test]
fn a01_every_cell_of_the_table_is_as_it_is_written() {
    let server = Server::start();
    server.text("admin", &["certs", "issue", "client002", "--certs", server.certs().to_str().unwrap()]);
    on(async {
        let mut users = BTreeMap::new();
        let mut tasks = BTreeMap::new();
        for user in ["admin", "client001", "client002"] {
            let mut client = connect(&server, user).await;
            let task = start(&mut client, lasting()).await.unwrap();
            spoken(&mut client, &task).await;
            tasks.insert(user, task);
            users.insert(user, client);
        }
        for verb in VERBS {
            for (caller, owner, allowed) in [
                ("admin", "admin", true),
                ("admin", "client001", true),
                ("client001", "client001", true),
                ("client001", "client002", false),
                ("client001", "admin", false),
                ("client002", "client001", false),
            ] {
                let answer = ask(users.get_mut(caller).unwrap(), verb, &tasks[owner]).await;
                let cell = format!("{caller} does {verb} to a task of {owner}");
                match allowed {
                    true => answer.unwrap_or_else(|status| panic!("{cell}: {status}")),
                    false => assert_eq!(answer.expect_err(&cell).code(), Code::NotFound, "{cell}"),
                }
            }
        }
        for (caller, owner, all, wanted) in [
            ("admin", "", false, Ok(vec!["admin"])),
            ("admin", "admin", false, Ok(vec!["admin"])),
            ("admin", "client002", false, Ok(vec!["client002"])),
            ("admin", "", true, Ok(vec!["client002", "client001", "admin"])),
            ("client001", "", false, Ok(vec!["client001"])),
            ("client001", "client001", false, Ok(vec!["client001"])),
            ("client001", "client002", false, Err(Code::PermissionDenied)),
            ("client001", "nobody", false, Err(Code::PermissionDenied)),
            ("client001", "", true, Err(Code::PermissionDenied)),
            ("client001", "client001", true, Err(Code::PermissionDenied)),
        ] {
            let seen = listed(users.get_mut(caller).unwrap(), owner, all).await.map_err(|status| status.code());
            let wanted = wanted.map(|owners: Vec<&str>| owners.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(seen, wanted, "{caller} lists {owner:?}, all: {all}");
        }
        let theirs = ask(users.get_mut("client002").unwrap(), "get-status", &tasks["client002"]).await;
        assert!(theirs.is_ok(), "nobody but its owner and the administrator reached it");
    });
}

/// What client001 is told about a task of another and about one that never was, by each verb.
async fn told(server: &Server) -> Vec<(&'static str, Option<String>, Option<String>)> {
    let (mut admin, mut mallory) = (connect(server, "admin").await, connect(server, "client001").await);
    let running = start(&mut admin, lasting()).await.unwrap();
    let mut answers = Vec::new();
    for verb in VERBS {
        let foreign = ask(&mut mallory, verb, &running).await.err().map(|status| seen(&status));
        let unknown = ask(&mut mallory, verb, UNKNOWN).await.err().map(|status| seen(&status));
        answers.push((verb, foreign, unknown));
    }
    answers
}

#[test]
fn a01_another_owners_task_is_answered_like_an_unknown_one_to_the_byte() {
    let server = Server::start();
    on(async {
        for (verb, foreign, unknown) in told(&server).await {
            assert!(unknown.as_ref().is_some_and(|text| text.starts_with("NotFound")), "{verb}: {unknown:?}");
            assert_eq!(foreign, unknown, "{verb}");
        }
        let (mut admin, mut mallory) = (connect(&server, "admin").await, connect(&server, "client001").await);
        let ended = start(&mut admin, sh("echo secret")).await.unwrap();
        crate::support::rpc::ended(&mut admin, &ended).await;
        // A bad argument beside the foreign id must not be noticed first, or the id is known to exist.
        let bad = |task_id: &str| pb::SignalTaskRequest { task_id: task_id.into(), signal: "NOPE".into() };
        let of_foreign = seen(&mallory.signal_task(bad(&ended)).await.unwrap_err());
        assert_eq!(of_foreign, seen(&mallory.signal_task(bad(UNKNOWN)).await.unwrap_err()));
        // In turns, so that the load of the machine is the same for both.
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..200 {
            for (id, times) in [ended.as_str(), UNKNOWN].into_iter().zip(&mut times) {
                let begun = Instant::now();
                ask(&mut mallory, "get-status", id).await.unwrap_err();
                times.push(begun.elapsed());
            }
        }
        let [foreign, unknown] = times.map(|mut times| {
            times.sort();
            times[50]
        });
        println!("a foreign id takes {foreign:?}, an unknown one {unknown:?}");
        assert!(foreign < 3 * unknown && unknown < 3 * foreign, "{foreign:?} and {unknown:?} are told apart");
    });
}

#[test]
fn a01_without_the_ownership_check_the_same_probe_tells_them_apart() {
    let server = Server::without("ownership");
    on(async {
        for (verb, foreign, unknown) in told(&server).await {
            assert_eq!(foreign, None, "{verb} is done to another's task once the defence is off");
            assert!(unknown.is_some(), "{verb}");
        }
    });
}

#[test]
fn a17_what_the_profile_does_not_grant_is_refused_to_users_and_administrators() {
    let (shown, other) = (HostDir::new(), HostDir::new());
    let root = shown.root().display().to_string();
    let config = format!(
        "[profiles.default]\nbind_ro = [{root:?}]\n[profiles.tools]\nusers = [\"client002\"]\nmemory = \"64M\"\n"
    );
    let server = Server::configured(&config);
    server.text("admin", &["certs", "issue", "client002", "--certs", server.certs().to_str().unwrap()]);
    let with = |change: &dyn Fn(&mut pb::StartTaskRequest)| {
        let mut request = sh("true");
        change(&mut request);
        request
    };
    let bind = |text: String| with(&|request| request.bind_ro = vec![text.clone()]);
    let limit = |change: &dyn Fn(&mut pb::Limits)| {
        let mut limits = pb::Limits::default();
        change(&mut limits);
        with(&|request| request.limits = Some(limits))
    };
    let seconds = |seconds: i64| Some(prost_types::Duration { seconds, nanos: 0 });
    let escape = format!("{root}/../{}", other.root().file_name().unwrap().to_str().unwrap());
    let refusals = vec![
        ("bind_ro", bind("/".into())),
        ("bind_ro", bind("/root:/x".into())),
        ("bind_ro", bind("/proc:/x".into())),
        ("bind_ro", bind("/dev/mem:/x".into())),
        ("bind_ro", bind(server.certs().display().to_string())),
        ("bind_ro", bind(other.root().display().to_string())),
        ("bind_ro", bind(escape)),
        ("bind_ro", bind(format!("{root}x:/x"))),
        ("bind_ro", bind(format!("{root}:/proc"))),
        ("profile", with(&|request| request.profile = "no-such".into())),
        ("profile", with(&|request| request.profile = "../default".into())),
        ("memory", limit(&|l| l.memory_bytes = 513 << 20)),
        ("cpus", limit(&|l| l.cpus = 1.01)),
        ("cpus", limit(&|l| l.cpus = f64::NAN)),
        ("cpus", limit(&|l| l.cpus = f64::INFINITY)),
        ("cpus", limit(&|l| l.cpus = -1.0)),
        ("cpu_time", limit(&|l| l.cpu_time = seconds(601))),
        ("cpu_time", limit(&|l| l.cpu_time = seconds(-1))),
        ("pids", limit(&|l| l.pids = 129)),
        ("pids", limit(&|l| l.pids = u64::MAX)),
        ("io_read_bps", limit(&|l| l.io_read_bps = 257 << 20)),
        ("io_write_bps", limit(&|l| l.io_write_bps = 257 << 20)),
        // So little that others would wait for files that the task reads.
        ("io_read_bps", limit(&|l| l.io_read_bps = 1)),
        ("io_write_bps", limit(&|l| l.io_write_bps = (128 << 20) - 1)),
        ("output_limit", limit(&|l| l.output_bytes = 65 << 20)),
        ("nofile", limit(&|l| l.nofile = 1025)),
        ("fsize", limit(&|l| l.fsize_bytes = 257 << 20)),
        ("disk", limit(&|l| l.disk_bytes = 257 << 20)),
        ("inodes", limit(&|l| l.inodes = 16385)),
        ("timeout", with(&|request| request.timeout = seconds(601))),
        ("timeout", with(&|request| request.timeout = seconds(i64::MAX))),
        ("workdir", with(&|request| request.working_dir = "/proc/self/fd".into())),
        ("hostname", with(&|request| request.hostname = "a b".into())),
        ("env", with(&|request| drop(request.env.insert("TASKMAN_TASK_ID".into(), "x".into())))),
    ];
    on(async {
        for user in ["client001", "admin"] {
            let mut client = connect(&server, user).await;
            for (field, request) in &refusals {
                let status = start(&mut client, request.clone()).await.expect_err(field);
                let shown = format!("{user}, {field}: {status:?}");
                assert_eq!(status.code(), Code::InvalidArgument, "{shown}");
                assert!(status.message().starts_with(&format!("{field}: ")), "{shown}");
            }
            assert_eq!(listed(&mut client, "", false).await.unwrap(), [""; 0], "none of them is a task");
            start(&mut client, bind(format!("{root}:/x"))).await.expect("what is granted");
            // A profile that exists but is another's is told like one that does not.
            for (profile, granted) in [("judge", user == "admin"), ("tools", user == "admin")] {
                let answer = start(&mut client, with(&|request| request.profile = profile.into())).await;
                let wanted = format!("profile: {profile:?} does not exist or is not granted to you");
                assert_eq!(answer.is_ok(), granted, "{user} {profile}: {answer:?}");
                assert!(granted || answer.unwrap_err().message().starts_with(&wanted));
            }
        }
        let mut client = connect(&server, "client002").await;
        start(&mut client, with(&|request| request.profile = "tools".into())).await.expect("granted by name");
        let mut above = limit(&|l| l.memory_bytes = 65 << 20);
        above.profile = "tools".into();
        assert_eq!(start(&mut client, above).await.unwrap_err().code(), Code::InvalidArgument, "its own ceiling");
    });
}
