//! The launcher waits for nobody: it goes on whoever holds a lock, a pipe or a socket that it uses, and while it does not, the
//! service says that it takes no tasks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::Signal;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::rpc::{channel, identity, on};
use crate::support::supervisor::{SERVER_UID, Stopped, nonce};
use crate::support::{HostDir, Process, Server, wait_until};

/// Waits for the lock of `path` as this user, and keeps it; where the user may not open it, it ends at once.
struct Holder {
    process: Child,
    path: PathBuf,
    uid: u32,
}

impl Holder {
    fn new(path: &Path, uid: u32) -> Self {
        let mut flock = Command::new("flock");
        flock.arg(path).args(["sleep", "1000"]).uid(uid).gid(uid).stderr(Stdio::null());
        // In a group of its own: it is killed with the program that it starts.
        Self { process: flock.process_group(0).spawn().unwrap(), path: path.to_owned(), uid }
    }

    /// What has come of it.
    fn state(&mut self) -> Option<&'static str> {
        if self.process.try_wait().unwrap().is_some() {
            return Some("may not open it");
        }
        let process = Process { pid: self.process.id() as i32 };
        // It starts its program when it has the lock, and waits for it then.
        let waits = || std::fs::read_to_string(process.path("syscall")).is_ok_and(|call| call.starts_with(FLOCK));
        match Process::children_of(process.pid).is_empty() {
            false => Some("has it"),
            true if waits() => Some("waits for it"),
            true => None,
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        self.process.wait().unwrap();
    }
}

/// flock(2) in `/proc/PID/syscall`.
const FLOCK: &str = "73 ";
/// The first uids of the server are held as a launcher holds them.
const FIRST_UID: u32 = 1_910_120_000;
const HELD_UIDS: u32 = 50;

/// An account and the server's own uid, at the lock of each of these.
fn hold(paths: &[PathBuf]) -> Vec<Holder> {
    let mut holders: Vec<Holder> =
        paths.iter().flat_map(|path| [65_534, SERVER_UID].map(|uid| Holder::new(path, uid))).collect();
    for holder in &mut holders {
        wait_until("the holder is at its lock", || holder.state());
    }
    holders
}

/// As other launchers of the host hold uids.
fn hold_uids() -> File {
    let locks = File::options().read(true).write(true).open("/run/taskman/uids").unwrap();
    for uid in FIRST_UID..FIRST_UID + HELD_UIDS {
        let lock = nix::libc::flock {
            l_type: nix::libc::F_WRLCK as i16,
            l_whence: nix::libc::SEEK_SET as i16,
            l_start: i64::from(uid),
            l_len: 1,
            l_pid: 0,
        };
        fcntl(&locks, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    }
    locks
}

#[test]
fn the_launcher_goes_on_whoever_holds_what_it_uses() {
    let server = Server::configured(&format!("uid_range = \"{FIRST_UID}:1000\"\nmetrics_address = \"localhost:0\"\n"));
    let nonce = nonce();
    let traces = server.traces(&nonce);
    let held_uids = hold_uids();
    // It asks for metrics and reads no answer.
    let mut metrics = TcpStream::connect(server.metrics.as_ref().unwrap()).unwrap();
    metrics.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let task = server.marked(&nonce, &["--timeout", "6s"], "trap '' TERM");
    let state = server.state();
    let groups: Vec<PathBuf> = traces.groups().into_iter().collect();
    assert!(!groups.is_empty());
    let bases: BTreeSet<PathBuf> = groups.iter().map(|group| group.parent().unwrap().to_owned()).collect();
    let private = ["", "instance", "containment.jsonl", "incidents", "health.sock"].map(|name| state.join(name));
    let private: Vec<PathBuf> =
        groups.into_iter().chain(["/run/taskman", "/run/taskman/uids"].map(PathBuf::from)).chain(private).collect();
    let public: Vec<PathBuf> = bases.into_iter().chain(["/run".into()]).collect();
    // Root's alone: an operator's command that is stopped while it writes.
    let journal = File::options().append(true).create(true).mode(0o600).open(state.join("containment.jsonl")).unwrap();
    journal.lock().unwrap();
    let mut of_private = hold(&private);
    for holder in &mut of_private {
        assert_eq!(holder.state(), Some("may not open it"), "{} by {}", holder.path.display(), holder.uid);
    }
    // Of what anyone may open one has the lock, and the other waits for it.
    let mut of_public = hold(&public);
    for path in &public {
        let states = of_public.iter_mut().filter(|holder| holder.path == *path).filter_map(Holder::state);
        assert_eq!(states.collect::<BTreeSet<_>>(), BTreeSet::from(["has it", "waits for it"]), "{}", path.display());
    }
    let mut of_server = hold(&[state.join("server")]);
    let states: Vec<_> = of_server.iter_mut().filter_map(Holder::state).collect();
    assert_eq!(states, ["may not open it", "waits for it"], "the server has the lock of its own directory");
    {
        // The server does not read what it is told, nor does it hand over what it is asked.
        let _stopped = Stopped::new(server.half());
        wait_until("the task is ended at its limit", || traces.processes().is_empty().then_some(()));
        wait_until("its groups are gone", || traces.groups().is_empty().then_some(()));
    }
    assert_eq!(server.ended(&task)["outcome"]["reason"], "wall_time");
    for _ in 0..5 {
        let next = server.task(&["--", "true"]);
        assert_eq!(server.ended(&next)["containment"]["verdict"], "proven");
    }
    assert_eq!(server.taskman("admin", &["health", "--output", "json"]).json(0)["status"], "healthy");
    drop((of_private, of_public, of_server, held_uids, metrics));
}

/// A logger that stalls: what it was not told is counted when it reads again.
#[test]
fn the_launcher_goes_on_when_nobody_reads_its_log() {
    let dir = HostDir::new();
    let logger = dir.path("logger");
    let mut server = Server::prepare(&[]);
    let piped = format!("exec \"$@\" 2> >(echo $BASHPID > {}; exec cat >&2)", logger.display());
    server.under = ["bash", "-c", &piped, "bash"].map(str::to_owned).to_vec();
    server.launch();
    let logger = wait_until("the logger has started", || std::fs::read_to_string(&logger).ok()?.trim().parse().ok());
    {
        let logger = Process { pid: logger };
        let _stopped = Stopped::new(logger);
        // One that waits in read(2) takes what comes before it stops.
        wait_until("the logger stands still", || logger.read("status").contains("T (stopped)").then_some(()));
        let mut options = File::options();
        let mut log =
            options.write(true).custom_flags(nix::libc::O_NONBLOCK).open(server.launcher().path("fd/2")).unwrap();
        while log.write(&[b'\n'; 4096]).is_ok() {}
        std::fs::remove_file(server.certs().join("server.crt")).unwrap();
        for _ in 0..5 {
            // It complains of the certificate that is gone.
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.launcher().pid), Signal::SIGHUP).unwrap();
            let next = server.task(&["--", "true"]);
            assert_eq!(server.ended(&next)["containment"]["verdict"], "proven");
        }
        assert_eq!(server.here(&["health", "--output", "json"]).json(0)["status"], "healthy");
    }
    let next = server.task(&["--", "true"]);
    assert_eq!(server.ended(&next)["containment"]["verdict"], "proven");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.launcher().pid), Signal::SIGHUP).unwrap();
    while !server.log_line().contains("lines were dropped: nobody read standard error") {}
}

/// The server process, taken over, takes the flag away that says not to wait: from its own open file, and no other.
#[test]
fn the_server_process_cannot_make_the_launchers_log_wait() {
    let mut server = Server::prepare(&[]);
    // With few open files there is something to say before there are two processes.
    server.under = ["prlimit", "--nofile=2000:2000"].map(str::to_owned).to_vec();
    server.launch();
    let (launcher, half) = (server.launcher(), server.half());
    let log = std::fs::read_link(launcher.path("fd/2")).unwrap();
    let unwaiting = |process: &Process| -> Vec<String> {
        let numbers = std::fs::read_dir(process.path("fd")).unwrap().map(|entry| entry.unwrap().file_name());
        let numbers = numbers.map(|number| number.into_string().unwrap());
        let is_log =
            |number: &String| std::fs::read_link(process.path(&format!("fd/{number}"))).ok() == Some(log.clone());
        // One that is closed meanwhile was none of these.
        let flags = |number: &String| {
            let info = std::fs::read_to_string(process.path(&format!("fdinfo/{number}"))).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or_default()
        };
        numbers.filter(|number| is_log(number) && flags(number) & nix::libc::O_NONBLOCK != 0).collect()
    };
    let shared = unwaiting(&half);
    assert!(!shared.is_empty(), "the server process has no log of its own");
    let take = "import ctypes, fcntl, os, sys
process = os.pidfd_open(int(sys.argv[1]))
for number in sys.argv[2:]:
    file = ctypes.CDLL(None).syscall(438, process, int(number), 0)
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_NONBLOCK)";
    let taken = Command::new("python3").args(["-c", take, &half.pid.to_string()]).args(&shared).status().unwrap();
    assert!(taken.success() && unwaiting(&half).is_empty());
    assert!(!unwaiting(&launcher).is_empty(), "the launcher would wait for whoever reads its log");
}

#[test]
fn a_launcher_that_stands_still_is_not_healthy() {
    let server = Server::of_uids(1_910_121_000);
    let serving = || {
        on(async {
            let channel = channel(&server, identity(&server.certs(), "client001"), 1 << 20).await.unwrap();
            HealthClient::new(channel).check(HealthCheckRequest::default()).await.unwrap().into_inner().status()
        })
    };
    assert_eq!(serving(), ServingStatus::Serving);
    let here = server.here(&["health", "--output", "json"]).json(0);
    assert!(here["status"] == "healthy" && here["heartbeat_age_ms"].is_u64(), "{here}");
    {
        let _stopped = Stopped::new(server.launcher());
        wait_until("gRPC health says no", || (serving() == ServingStatus::NotServing).then_some(()));
        let seen = server.taskman("admin", &["health", "--output", "json"]).json(1);
        assert!(seen["heartbeat_age_ms"].as_u64().unwrap() >= 5000 && seen["can_accept"] == false, "{seen}");
        assert!(seen["refusal"].as_str().unwrap().contains("last heard"), "{seen}");
        assert_eq!(seen["status"], "stalled", "{seen}");
        let here = server.here(&["health", "--output", "json"]).json(1);
        assert!(here["status"] == "stalled" && here["can_accept"] == false, "{here}");
        assert!(here["refusal"].as_str().unwrap().contains("has not answered"), "{here}");
        let (_, why) = server.try_start().unwrap_err();
        assert!(why.contains("last heard"), "{why}");
    }
    wait_until("it takes tasks again", || server.try_start().ok());
    wait_until("gRPC health says yes", || (serving() == ServingStatus::Serving).then_some(()));
}
