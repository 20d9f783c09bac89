//! What a service manager is told, as systemd is: by a played one that hears every datagram and who has sent it.

use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::support::supervisor::{Stopped, nonce, send};
use crate::support::{GUARD, HostDir, Process, Server, Started, wait_until};

#[path = "../faults/page.rs"]
mod page;

/// The played manager.
struct Manager {
    socket: UnixDatagram,
    /// For NOTIFY_SOCKET.
    address: String,
    /// What was heard so far, with its sender.
    heard: Vec<(String, i32)>,
    _dir: HostDir,
}

impl Manager {
    fn new() -> Self {
        let dir = HostDir::new();
        let path = dir.path("notify");
        Self::at(UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned(), dir)
    }

    /// At an address without a file.
    fn hidden() -> Self {
        let name = nonce();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::at(UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"), HostDir::new())
    }

    fn at(socket: UnixDatagram, address: String, dir: HostDir) -> Self {
        setsockopt(&socket, sockopt::PassCred, &true).unwrap();
        Self { socket, address, heard: Vec::new(), _dir: dir }
    }

    /// A server of this manager, not started yet.
    fn server(&self, options: &[&str]) -> Server {
        Server::prepare(options).env("NOTIFY_SOCKET", &self.address)
    }

    /// The same, that must say each `watchdog` that it lives.
    fn watched(&self, watchdog: Duration) -> Server {
        let mut server = self.server(&[]).env("WATCHDOG_USEC", &watchdog.as_micros().to_string());
        server.launch();
        server
    }

    /// The next datagram, if one comes in time.
    fn hear(&mut self, time: Duration) -> Option<String> {
        let time = PollTimeout::try_from(time).unwrap();
        poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], time).unwrap();
        let mut buffer = [0; 8192];
        let received = taskman::sys::socket::receive(self.socket.as_fd(), &mut buffer).ok()?;
        let text = String::from_utf8(buffer[..received.bytes].to_vec()).expect("text");
        self.heard.push((text.clone(), received.sender.expect("a sender").pid));
        Some(text)
    }

    /// Waits for a datagram with this in it.
    #[track_caller]
    fn wait_for(&mut self, part: &str) -> String {
        let deadline = Instant::now() + GUARD;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.hear(left) {
                Some(text) if text.contains(part) => return text,
                Some(_) => {}
                None => panic!("no {part:?} within {GUARD:?}: {:?}", self.heard),
            }
        }
    }

    /// What comes within this time, all of it.
    fn collect(&mut self, time: Duration) -> Vec<String> {
        let deadline = Instant::now() + time;
        std::iter::from_fn(|| self.hear(deadline.saturating_duration_since(Instant::now()))).collect()
    }

    fn has_heard(&self, part: &str) -> bool {
        self.heard.iter().any(|(text, _)| text.contains(part))
    }

    /// How often life was signed within this time.
    fn signs(&mut self, time: Duration) -> usize {
        self.collect(time).iter().filter(|text| *text == "WATCHDOG=1").count()
    }
}

#[test]
fn ready_is_told_by_the_main_process_once_a_client_can_start_a_task() {
    for mut manager in [Manager::new(), Manager::hidden()] {
        let mut server = manager.server(&[]);
        // So that its port is known before it says so.
        server.launch();
        assert_eq!(server.stop().status.code(), Some(0));
        manager.collect(Duration::ZERO);
        manager.heard.clear();
        let process = Started::spawn(server.command_line(), HostDir::new(), GUARD);
        assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=serving");
        let task = server.task(&["--", "true"]);
        assert_eq!(server.ended(&task)["outcome"]["reason"], "exit");
        assert_eq!(manager.heard[0].0, "STATUS=starting");
        assert!(manager.heard.iter().all(|(_, sender)| *sender == process.pid()), "{:?}", manager.heard);
        assert!(!manager.has_heard("WATCHDOG"), "nobody waits for it: {:?}", manager.heard);
        send(Process { pid: process.pid() }, Signal::SIGTERM);
        assert_eq!(process.end().status.code(), Some(0));
    }
}

#[test]
fn neither_server_nor_auditor_alone_make_it_ready() {
    // The server's last step before it listens, and the auditor's last before it says that it watches.
    for point in ["server.reconciled", "auditor.scanned"] {
        let (mut manager, page) = (Manager::new(), page::Page::new());
        let mut server = manager.server(&[]).mutated("TASKMAN_FAULT", page.path.to_str().unwrap());
        page.clear();
        server.launch();
        server.stop();
        manager.collect(Duration::ZERO);
        manager.heard.clear();
        page.arm(point);
        let process = Started::spawn(server.command_line(), HostDir::new(), GUARD);
        page.wait_standing();
        manager.collect(Duration::from_secs(2));
        assert!(!manager.has_heard("READY=1"), "{point}: {:?}", manager.heard);
        page.release();
        manager.wait_for("READY=1");
        send(Process { pid: process.pid() }, Signal::SIGTERM);
        assert_eq!(process.end().status.code(), Some(0));
    }
}

#[test]
fn a_server_that_cannot_serve_is_never_ready() {
    let mut manager = Manager::new();
    let certs = HostDir::new();
    for name in ["ca.crt", "server.crt"] {
        certs.file(name, "no certificate", 0o644);
    }
    certs.file("server.key", "no key", 0o600);
    let server = manager.server(&["--certs", certs.root().to_str().unwrap()]);
    let process = Started::spawn(server.command_line(), HostDir::new(), GUARD);
    let ended = process.end();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    manager.collect(Duration::ZERO);
    assert!(!manager.has_heard("READY=1"), "{:?}", manager.heard);
    let last = &manager.heard.last().expect("a word").0;
    assert!(last.starts_with("STOPPING=1\nSTATUS=the server is lost"), "{last}");
}

#[test]
fn signs_of_life_come_in_time_and_stop_with_the_server() {
    let mut manager = Manager::new();
    let watchdog = Duration::from_secs(4);
    let server = manager.watched(watchdog);
    manager.wait_for("READY=1");
    for _ in 0..3 {
        let before = Instant::now();
        manager.wait_for("WATCHDOG=1");
        assert!(before.elapsed() < watchdog, "it came after {:?}", before.elapsed());
    }
    let stopped = Stopped::new(server.half());
    manager.collect(Duration::ZERO);
    // One may be under way.
    assert!(manager.signs(2 * watchdog) <= 1, "{:?}", manager.heard);
    drop(stopped);
    manager.wait_for("WATCHDOG=1");
}

#[test]
fn signs_of_life_go_on_over_a_lost_auditor_and_stop_where_none_takes_its_place() {
    let mut manager = Manager::new();
    let server = manager.watched(Duration::from_secs(4));
    manager.wait_for("WATCHDOG=1");
    let next = |of: Process| {
        let another = || server.try_auditor().filter(|auditor| *auditor != of);
        wait_until("there is another auditor", another)
    };
    let mut auditor = server.auditor();
    send(auditor, Signal::SIGKILL);
    auditor = next(auditor);
    let began = Instant::now();
    manager.wait_for("WATCHDOG=1");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // Each loss beyond the third makes the pause before the next one longer: 1, 2, 4 and 8 seconds.
    for _ in 0..4 {
        send(auditor, Signal::SIGKILL);
        auditor = next(auditor);
    }
    send(auditor, Signal::SIGKILL);
    wait_until("the last one is gone", || server.try_auditor().is_none().then_some(()));
    // The launcher has heard of it.
    manager.collect(Duration::from_millis(500));
    assert_eq!(manager.signs(Duration::from_secs(6)), 0, "{:?}", manager.heard);
    assert!(manager.has_heard("taking no tasks: this worker is quarantined (auditor_lost)"), "{:?}", manager.heard);
    next(auditor);
    manager.wait_for("WATCHDOG=1");
}

#[test]
fn a_watchdog_of_another_process_is_not_fed() {
    let mut manager = Manager::new();
    let mut server = manager.server(&[]).env("WATCHDOG_USEC", "100000").env("WATCHDOG_PID", "1");
    server.launch();
    manager.wait_for("READY=1");
    assert_eq!(manager.signs(Duration::from_secs(1)), 0);
}

#[test]
fn what_is_going_on_is_told_from_the_start_to_the_end() {
    let mut manager = Manager::new();
    let mut server = manager.server(&[]);
    server.launch();
    manager.wait_for("READY=1");
    server.signal(Signal::SIGHUP);
    assert_eq!(manager.wait_for("RELOADING=1"), "RELOADING=1\nSTATUS=reading certificates anew");
    assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=serving");
    server.text("admin", &["health", "--quarantine", "--reason", "a drill"]);
    let status = manager.wait_for("quarantined (manual)");
    assert!(
        status.starts_with("STATUS=taking no tasks: this worker is quarantined (manual): a drill; see "),
        "{status}"
    );
    server.text("admin", &["health", "--unquarantine", "--reason", "it is over"]);
    assert_eq!(manager.wait_for("STATUS=serving"), "STATUS=serving");
    let launcher = server.launcher().pid;
    assert_eq!(server.stop().status.code(), Some(0));
    let last: Vec<String> = manager.collect(Duration::from_millis(100));
    assert_eq!(
        last,
        ["STOPPING=1\nSTATUS=draining: tasks are given 10s to end", "STATUS=drained: every end is recorded"]
    );
    assert!(manager.heard.iter().all(|(_, sender)| *sender == launcher), "{:?}", manager.heard);
}

#[test]
fn reloaded_is_told_only_when_the_server_has_seen_to_it() {
    let mut manager = Manager::new();
    let mut server = manager.server(&[]);
    server.launch();
    manager.wait_for("READY=1");
    let stopped = Stopped::new(server.half());
    server.signal(Signal::SIGHUP);
    manager.wait_for("RELOADING=1");
    assert_eq!(manager.collect(Duration::from_secs(1)), [""; 0]);
    drop(stopped);
    manager.wait_for("READY=1");
}

#[test]
fn nobody_but_the_launcher_learns_the_managers_address() {
    let mut manager = Manager::new();
    let server = manager.watched(Duration::from_secs(60));
    manager.wait_for("READY=1");
    let task = server.task(&["--", "sh", "-c", "cat /proc/self/environ /proc/1/environ; env; sleep 1000"]);
    let status = server.status(&task);
    let payload = Process { pid: i32::try_from(status["process_id"].as_i64().unwrap()).unwrap() };
    for (who, process) in [
        ("launcher", server.launcher()),
        ("server", server.half()),
        ("auditor", server.auditor()),
        ("payload", payload),
    ] {
        let environment = process.read("environ");
        for secret in [manager.address.as_str(), "60000000"] {
            assert!(!environment.contains(secret), "{who}: {environment:?}");
        }
        let held = process.descriptors();
        assert!(who == "launcher" || !held.contains(&manager.address), "{who}: {held:?}");
    }
    assert!(!String::from_utf8_lossy(&server.output(&task)).contains("NOTIFY"), "the task was told");
    server.text("client001", &["stop", &task, "--grace", "0s"]);
}
