//! A20 and L08: keys and state are nobody else's from the first moment on, and what a client says stays out of the logs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use rcgen::{DistinguishedName, DnType, DnValue};
use taskman::proto::task_manager as pb;
use tonic::Code;

use crate::support::rpc::{connect, connect_as, ended, odd, on, sh, start};
use crate::support::server::TASKMAN_SERVER;
use crate::support::{GUARD, HostDir, Server, Started, host};

/// Every file and directory below, with its mode.
fn modes(root: &Path) -> BTreeMap<PathBuf, (bool, u32)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        found.insert(path.clone(), (meta.is_dir(), meta.mode() & 0o7777));
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Whether others may read a file of the state directory: certificates, for they are shown to everyone anyway.
fn is_public(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.ends_with(".crt") || name.ends_with(".crt.new") || name.starts_with("crl.pem") || name.starts_with(".crl.pem")
}

/// Starts a server without any umask, so that a file gets the mode that it is created with.
fn start_dev(state: &Path) -> Started {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", TASKMAN_SERVER, "--dev", "--server-address", "localhost:0"]);
    command.arg("--state-dir").arg(state);
    let mut server = Started::spawn(command, HostDir::new(), 2 * GUARD);
    while !server.error_line().contains("listening on") {}
    server
}

fn stop(mut server: Started) {
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().status.code(), Some(0));
}

#[test]
fn a20_keys_and_state_are_private_from_their_creation() {
    let dir = HostDir::new();
    let state = dir.path("state");
    // The directories are there beforehand, so that they can be watched before the first file is made.
    for (path, mode) in [(state.clone(), 0o711), (state.join("certs"), 0o700), (state.join("server"), 0o700)] {
        fs::DirBuilder::new().mode(mode).create(path).unwrap();
    }
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).unwrap();
    let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVED_TO;
    let watches: Vec<_> =
        ["certs", "server"].map(|name| (inotify.add_watch(&state.join(name), flags).unwrap(), name)).into();
    stop(start_dev(&state));
    let (mut created, mut changed) = (Vec::new(), Vec::new());
    while let Ok(events) = inotify.read_events() {
        for event in events {
            let place = watches.iter().find(|(watch, _)| *watch == event.wd).unwrap().1;
            let Some(name) = event.name else { continue };
            let path = Path::new(place).join(name);
            match event.mask.contains(AddWatchFlags::IN_ATTRIB) {
                // A last link that goes away is a change of attributes too.
                true if state.join(&path).exists() || path.to_str().unwrap().contains(".key") => changed.push(path),
                true => {}
                false => created.push(path),
            }
        }
    }
    let seen = |name: &str| created.iter().any(|path| path.ends_with(name));
    for name in ["ca.key", "server.key", "admin.key", "client001.key", ".ca.key.new", "tasks.db", "audit.log", "output"]
    {
        assert!(seen(name), "{name} was not watched: {created:?}");
    }
    // No mode was ever changed, except to open a certificate: so what is private now always was.
    changed.retain(|path| !is_public(path));
    assert!(changed.is_empty(), "{changed:?}: the mode of a file was changed after its creation");
    check(&state);
}

#[track_caller]
fn check(state: &Path) {
    for (path, (is_directory, mode)) in modes(state) {
        let wanted = match is_directory {
            true if path == *state => 0o711,
            true => 0o700,
            false if is_public(&path) => 0o644,
            false => 0o600,
        };
        assert_eq!(mode, wanted, "{} is {mode:o}", path.display());
    }
}

#[test]
fn a20_no_task_reads_the_servers_keys_or_state() {
    let dir = HostDir::new();
    let fresh = dir.path("fresh");
    stop(start_dev(&fresh));
    check(&fresh);
    // Even where an operator shows the whole state directory to tasks.
    let server = Server::configured(&format!("[profiles.default]\nbind_ro = [{:?}]\n", std::env::temp_dir()));
    server.ended(&server.task(&["--", "echo", "well"]));
    check(&server.state());
    let (plain, bound) = (server.state(), host::bind(&server.state(), "/opt/state"));
    let private: Vec<_> = modes(&plain).into_iter().filter(|(path, (is_dir, _))| !is_dir && !is_public(path)).collect();
    assert!(private.len() >= 6, "{private:?}");
    for (path, _) in private {
        let inside = format!("/opt/state/{}", path.strip_prefix(&plain).unwrap().display());
        let task =
            server.task(&["--bind-ro", &bound, "--", "sh", "-c", &format!("cat {inside} {}; echo $?", path.display())]);
        let output = server.text("client001", &["stream", &task]);
        let lines: Vec<_> = output.lines().collect();
        assert!(lines.len() == 3 && lines[0].ends_with("Permission denied") && lines[2] == "1", "{output}");
        assert!(lines[1].ends_with("No such file or directory"), "{output}");
        let uid = "--reuid=1899000007";
        let outside =
            Command::new("setpriv").args([uid, "--regid=1899000007", "--clear-groups", "cat"]).arg(&path).output();
        assert!(!outside.unwrap().status.success(), "{} is read by a task's uid", path.display());
    }
}

#[test]
fn l08_what_a_task_is_given_is_in_no_log() {
    let mut server = Server::with(&["--log-level", "trace"]);
    let (env, arg, name, token) = ("nonce-env-7c1e", "nonce-arg-a90b", "NONCE_NAME_55D2", "nonce-token-3f");
    on(async {
        let mut client = connect(&server, "client001").await;
        let mut good = sh(&format!("sleep 0.2; : {arg}"));
        good.env = [(name.to_owned(), env.to_owned())].into();
        good.client_token = token.into();
        let id = start(&mut client, good.clone()).await.unwrap();
        ended(&mut client, &id).await;
        // And in requests that are refused, at every step that looks at them.
        let fault: [fn(&mut pb::StartTaskRequest); 7] = [
            |request| request.command = "/no/such".into(),
            |request| drop(request.env.insert("NONCE_NAME_55D2=nonce-env-7c1e".into(), String::new())),
            |request| drop(request.env.insert("A".into(), "nonce-env-7c1e\0".into())),
            |request| drop(request.env.insert("TASKMAN_TASK_ID".into(), "nonce-env-7c1e".into())),
            |request| request.args.push("nonce-arg-a90b\0".into()),
            |request| request.args.push("nonce-arg-a90b".repeat(1 << 17)),
            |request| drop(request.env.insert("B".into(), "nonce-env-7c1e".repeat(1 << 17))),
        ];
        for (at, change) in fault.into_iter().enumerate() {
            let mut request = pb::StartTaskRequest { client_token: String::new(), ..good.clone() };
            change(&mut request);
            assert_eq!(start(&mut client, request).await.expect_err(&at.to_string()).code(), Code::InvalidArgument);
        }
        // The same token, another request.
        good.args.push("x".into());
        assert_eq!(start(&mut client, good).await.unwrap_err().code(), Code::AlreadyExists);
    });
    let log = server.stop().stderr;
    assert!(log.contains("task ended"), "the log is there: {log}");
    let audit = server.audit();
    assert!(audit.len() >= 9, "{audit:#?}");
    for nonce in [env, arg, name, token] {
        assert!(!log.contains(nonce), "{nonce} is in the server's log: {log}");
        assert!(!audit.iter().any(|line| line.contains(nonce)), "{nonce} is in the audit log: {audit:#?}");
    }
    for (path, (is_directory, _)) in modes(&server.state()) {
        // A socket holds nothing.
        if is_directory || path.ends_with("health.sock") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let holds = |nonce: &str| bytes.windows(nonce.len()).any(|window| window == nonce.as_bytes());
        for nonce in [env, name] {
            assert!(!holds(nonce), "{nonce} is in {}", path.display());
        }
        // A record has its task's arguments and token; nothing else does.
        let is_record = path.file_name().unwrap().to_str().unwrap().starts_with("tasks.db");
        assert!(is_record || !(holds(arg) || holds(token)), "an argument is in {}", path.display());
    }
}

#[test]
fn l08_what_a_client_says_forges_no_line() {
    let mut server = Server::with(&["--log-level", "trace"]);
    let forged = "x\n{\"time\":\"forged\"}\r\n\u{1b}[2J\u{9b}31m\u{2028}\u{202e}forged";
    let mut requests = 0;
    on(async {
        let mut client = connect(&server, "client001").await;
        let with = |change: &dyn Fn(&mut pb::StartTaskRequest)| {
            let mut request = sh("true");
            change(&mut request);
            request
        };
        for request in [
            with(&|request| request.command = forged.into()),
            with(&|request| drop(request.labels.insert("name".into(), forged.into()))),
            with(&|request| drop(request.labels.insert(forged.into(), "value".into()))),
            with(&|request| request.client_token = forged.into()),
            with(&|request| request.profile = forged.into()),
            with(&|request| request.hostname = forged.into()),
            with(&|request| request.working_dir = format!("/{forged}")),
            with(&|request| request.bind_ro = vec![format!("/{forged}")]),
            with(&|request| drop(request.env.insert(format!("{forged}="), "x".into()))),
        ] {
            let status = start(&mut client, request).await.expect_err("refused");
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            requests += 1;
        }
        // Arguments may hold anything; they are the program's.
        let id = start(&mut client, with(&|request| request.args.push(forged.into()))).await.unwrap();
        ended(&mut client, &id).await;
        let bad = |task_id: String| pb::SignalTaskRequest { task_id, signal: forged.into() };
        assert_eq!(client.signal_task(bad(id)).await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(client.signal_task(bad(forged.into())).await.unwrap_err().code(), Code::InvalidArgument);
        requests += 4;
        for name in ["a\nb", "\u{1b}[2Jadmin", "admin\0", "admin\r", ""] {
            let named = odd(&server.certs(), |params| {
                params.distinguished_name = DistinguishedName::new();
                params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String(name.into()));
            });
            let mut nobody = connect_as(&server, named).await.unwrap();
            let status = nobody.list_tasks(pb::ListTasksRequest::default()).await.unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated, "{name:?}: {status}");
            requests += 1;
        }
    });
    let log = server.stop().stderr;
    let plain = |line: &str| line.chars().all(|c| !c.is_control() && c != '\u{2028}' && c != '\u{202e}');
    assert!(log.lines().all(|line| plain(line) && !line.starts_with("{\"time\":\"forged")), "{log}");
    let audit = server.audit();
    assert_eq!(audit.len(), requests, "one line for each request: {audit:#?}");
    for line in audit {
        let record: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert!(record["time"] != "forged" && line.is_ascii() && plain(&line), "{line}");
    }
}
