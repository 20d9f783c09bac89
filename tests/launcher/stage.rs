//! The three processes of a case: the test, the launcher it forks, and the server that the launcher forks.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getppid, pipe};
use taskman::Launcher;
use taskman::config::{Config, Overrides};
use taskman::containment::HealthView;
use taskman::launch::service;
use taskman::sys::clone::{Side, split};
use taskman::sys::pidfd::PidFd;
use taskman::task::id::TaskId;
use taskman::task::report::Verdict;
use taskman::task::request::TaskRequest;
use taskman::wire::{self, Ended, Event, PacketError, Request, Sender, Started};

use crate::played::PLAYED;

/// A case by its name.
pub type Case = (&'static str, fn());

/// Where the launcher's standard error is, in the state directory.
pub const LOG: &str = "log";

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came of a case.
pub struct Played {
    /// The launcher's exit code.
    pub code: i32,
    /// Pids of tasks that the server wrote down with [`Client::note`].
    pub noted: Vec<i32>,
    /// What the launcher and its children said on standard error.
    pub log: String,
}

impl Played {
    /// Every task that was noted is gone.
    pub fn assert_all_dead(&self) {
        assert!(!self.noted.is_empty(), "no task was noted");
        for pid in &self.noted {
            assert!(!lives(*pid), "{pid} lives");
        }
    }
}

/// Whether a process is there, and not only waits to be reaped by whoever has inherited it.
pub fn lives(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}

/// Plays `server` against a launcher that is ready for tasks. What the server asserts counts, unless the launcher had to kill
/// it.
pub fn play(server: impl FnOnce(&mut Client)) -> Played {
    let ready = |client: &mut Client| {
        client.health(|health| health.can_accept);
        server(client);
    };
    play_with(|_| {}, ready)
}

/// Plays `server` from the very beginning, against a launcher whose auditor is played too, in a state directory that `prepare`
/// has seen.
pub fn play_audited(prepare: impl FnOnce(&Path), server: impl FnOnce(&mut Client)) -> Played {
    let prepare = |directory: &Path| {
        std::fs::write(directory.join(PLAYED), "").unwrap();
        prepare(directory);
    };
    play_with(prepare, server)
}

/// The same of an auditor that is not played.
pub fn play_with(prepare: impl FnOnce(&Path), server: impl FnOnce(&mut Client)) -> Played {
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    for (name, mode) in [("ca.crt", 0o644), ("server.crt", 0o644), ("server.key", 0o600)] {
        std::fs::write(directory.path().join(name), name).unwrap();
        std::fs::set_permissions(directory.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let text = format!(
        "state_dir = {0:?}\n[tls]\ncerts = {0:?}\n[quota]\nrunning = 4\nrunning_per_user = 4\n[stop]\nshutdown = \"3s\"\n\
         [audit]\ncleanup_failures = 2\n[profiles.default]\nbind_ro = [\"/usr/share\"]\n",
        directory.path()
    );
    let mut config = Config::parse(&text, &Overrides::default()).unwrap();
    // As on a host with few descriptors: the others wait.
    config.quota.starting = 2;
    let (heard, say) = pipe().unwrap();
    let log = directory.path().join(LOG);
    let launcher = match split().unwrap() {
        Side::Child(_) => {
            drop(heard);
            // For reading too: a pipe of that name waits for no reader.
            let log = File::options().read(true).append(true).create(true).open(&log).unwrap();
            nix::unistd::dup2_stderr(log).unwrap();
            std::process::exit(launch(&config, File::from(say), server));
        }
        Side::Parent(pid, _) => pid,
    };
    drop(say);
    let mut said = String::new();
    File::from(heard).read_to_string(&mut said).unwrap();
    let code = match waitpid(Pid::from_raw(launcher), None).unwrap() {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        other => panic!("the launcher ended by {other:?}"),
    };
    // A pipe of that name to which nobody writes any more, or somebody still does, is not waited for.
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&log).unwrap();
    let mut log = Vec::new();
    let _ = file.read_to_end(&mut log);
    let log = String::from_utf8_lossy(&log).into_owned();
    eprint!("{log}");
    let noted = said.lines().filter_map(|line| line.strip_prefix("pid ")?.parse().ok()).collect();
    if let Some(why) = said.split_once("failed ").map(|(_, why)| why) {
        panic!("the server's part: {why}");
    }
    Played { code, noted, log }
}

fn launch(config: &Config, say: File, server: impl FnOnce(&mut Client)) -> i32 {
    nix::unistd::chdir(&config.state_dir).unwrap();
    service::block_signals().unwrap();
    let launcher = Launcher::open().unwrap();
    let (here, there) = wire::pair().unwrap();
    match split().unwrap() {
        Side::Child(_) => {
            drop(here);
            let mut client =
                Client { socket: Some(there), say, directory: config.state_dir.clone(), waiting: Vec::new() };
            let result = catch_unwind(AssertUnwindSafe(|| server(&mut client)));
            if let Err(why) = result {
                let text = why.downcast_ref::<String>().cloned();
                let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                write!(client.say, "failed {}", text.unwrap_or_default()).unwrap();
            }
            std::process::exit(0)
        }
        Side::Parent(pid, pidfd) => {
            drop((there, say));
            let sender = Sender { pid, uid: 0 };
            let server = service::Server { process: PidFd::from(pidfd.unwrap()), sender };
            let program = File::open("/proc/self/exe").unwrap().into();
            i32::from(service::serve(&launcher, config, here, server, program, None))
        }
    }
}

/// The server's end.
pub struct Client {
    pub socket: Option<OwnedFd>,
    say: File,
    /// Where the TLS files are, and the state.
    pub directory: std::path::PathBuf,
    waiting: Vec<(Event, Vec<OwnedFd>)>,
}

impl Client {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().unwrap().as_fd()
    }

    /// Sends, and waits for room if need be.
    pub fn send(&self, request: &Request) {
        loop {
            match wire::send(self.fd(), request, &[]) {
                Err(PacketError::WouldBlock) => {
                    poll(&mut [PollFd::new(self.fd(), PollFlags::POLLOUT)], PollTimeout::try_from(PATIENCE).unwrap())
                        .unwrap();
                }
                sent => return sent.unwrap(),
            }
        }
    }

    /// Starts a task and returns its id.
    pub fn start(&self, command: &[&str], change: impl FnOnce(&mut TaskRequest)) -> TaskId {
        let (program, args) = command.split_first().expect("a command");
        let mut request = TaskRequest { owner: "alice".into(), ..TaskRequest::new(program, args.iter().copied()) };
        change(&mut request);
        let task = request.task;
        self.send(&Request::Start(Box::new(request)));
        task
    }

    /// Starts a task that runs until it is ended, and returns its id and pid once it does.
    pub fn start_sleeper(&mut self, script: &str) -> (TaskId, i32) {
        let task = self.start(&["sh", "-c", &format!("{script}; echo ready; while :; do sleep 600; done")], |_| {});
        let (started, outputs) = self.started(task);
        let mut ready = [0; 6];
        read_exact(&outputs[0], &mut ready);
        // Nobody reads any more, and the task does not write.
        self.note(started.process_id);
        (task, started.process_id)
    }

    /// Writes a pid down for the test to look at.
    pub fn note(&mut self, pid: i32) {
        writeln!(self.say, "pid {pid}").unwrap();
    }

    /// The first event that `pick` takes; the others wait their turn.
    pub fn wait_for<T>(&mut self, mut pick: impl FnMut(&Event) -> Option<T>) -> (T, Vec<OwnedFd>) {
        if let Some(at) = self.waiting.iter().position(|(event, _)| pick(event).is_some()) {
            let (event, fds) = self.waiting.remove(at);
            return (pick(&event).unwrap(), fds);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing came; waiting: {:?}", self.waiting);
            poll(&mut [PollFd::new(self.fd(), PollFlags::POLLIN)], PollTimeout::try_from(left).unwrap()).unwrap();
            match wire::receive::<Event>(self.fd()) {
                Ok(Some(packet)) => match pick(&packet.message) {
                    Some(picked) => return (picked, packet.fds),
                    // Twice a second, and nobody asks for them later.
                    None if matches!(packet.message, Event::Scan(_)) => {}
                    None => self.waiting.push((packet.message, packet.fds)),
                },
                Err(PacketError::WouldBlock) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn started(&mut self, task: TaskId) -> (Started, Vec<OwnedFd>) {
        self.wait_for(|event| match event {
            Event::Started(started) if started.task == task => Some(started.clone()),
            Event::StartFailed { task: failed, error } if *failed == task => panic!("not started: {error}"),
            _ => None,
        })
    }

    /// The first news of the worker's health that is like this.
    pub fn health(&mut self, like: impl Fn(&HealthView) -> bool) -> HealthView {
        self.wait_for(|event| match event {
            Event::Health(health) if like(health) => Some((**health).clone()),
            _ => None,
        })
        .0
    }

    /// Why a task was not started.
    pub fn refusal(&mut self, task: TaskId) -> taskman::StartError {
        self.wait_for(|event| match event {
            Event::StartFailed { task: failed, error } if *failed == task => Some(error.clone()),
            Event::Started(started) if started.task == task => panic!("it was started"),
            _ => None,
        })
        .0
    }

    /// The end of a task, which must be proven.
    pub fn ended(&mut self, task: TaskId) -> Ended {
        let (ended, _) = self.wait_for(|event| match event {
            Event::Ended(ended) if ended.task == task => Some((**ended).clone()),
            _ => None,
        });
        assert_eq!(ended.containment.verdict, Verdict::Proven, "{:?}", ended.containment);
        ended
    }

    /// The answer to a signal.
    pub fn signal(&mut self, seq: u64, task: TaskId, number: i32) -> Option<taskman::SysError> {
        self.send(&Request::Signal { seq, task, number });
        self.signalled(seq)
    }

    /// The next TLS files.
    pub fn tls_files(&mut self) -> Vec<OwnedFd> {
        self.wait_for(|event| (*event == Event::TlsFiles).then_some(())).1
    }

    /// The answer to a signal that was asked for.
    pub fn signalled(&mut self, seq: u64) -> Option<taskman::SysError> {
        self.wait_for(|event| match event {
            Event::Signalled { seq: of, error } if *of == seq => Some(error.clone()),
            _ => None,
        })
        .0
    }

    /// Whether a task was started.
    pub fn start_result(&mut self, task: TaskId) -> Result<(), taskman::StartError> {
        self.wait_for(|event| match event {
            Event::Started(started) if started.task == task => Some(Ok(())),
            Event::StartFailed { task: failed, error } if *failed == task => Some(Err(error.clone())),
            _ => None,
        })
        .0
    }

    /// Takes what has come without waiting; counts the answers to signals, and keeps the rest.
    pub fn drain_answers(&mut self) -> u64 {
        let mut answers = 0;
        loop {
            match wire::receive::<Event>(self.fd()) {
                Ok(Some(packet)) if matches!(packet.message, Event::Signalled { .. }) => answers += 1,
                Ok(Some(packet)) => self.waiting.push((packet.message, packet.fds)),
                Err(PacketError::WouldBlock) => return answers,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a signal to the launcher.
    pub fn tell_launcher(&self, signal: Signal) {
        kill(getppid(), signal).unwrap();
    }

    /// Has the launcher stand still while `act` lasts: what it is sent meanwhile comes in one piece, however slow this process is.
    pub fn while_it_stands(&mut self, act: impl FnOnce(&mut Self)) {
        self.tell_launcher(Signal::SIGSTOP);
        let status = format!("/proc/{}/status", getppid());
        while !std::fs::read_to_string(&status).unwrap().contains("T (stopped)") {
            poll(&mut [], 1u8).unwrap();
        }
        act(self);
        self.tell_launcher(Signal::SIGCONT);
    }

    /// An orderly end: everything was recorded.
    pub fn leave(&mut self) {
        self.tell_launcher(Signal::SIGTERM);
        self.wait_for(|event| (*event == Event::Drain).then_some(()));
        self.send(&Request::Goodbye);
    }
}

/// Everything up to the end of the pipe, which does not block on this side.
pub fn read_all(pipe: &OwnedFd) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::try_from(PATIENCE).unwrap()).unwrap();
        match nix::unistd::read(pipe, &mut piece) {
            Ok(0) => return String::from_utf8(text).unwrap(),
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(errno) => panic!("read: {errno}, after {:?}", String::from_utf8_lossy(&text)),
        }
    }
}

fn read_exact(pipe: &OwnedFd, buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::try_from(PATIENCE).unwrap()).unwrap();
        filled += nix::unistd::read(pipe, &mut buffer[filled..]).unwrap();
        assert!(filled > 0, "the task wrote nothing");
    }
}
