//! Runs the real `taskman run`, with every wait bounded.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::ended::Ended;
use super::host::HostDir;
use super::proc::Process;
use super::{GUARD, pace, wait_until};

/// The program under test.
pub const TASKMAN: &str = env!("CARGO_BIN_EXE_taskman");

enum Input {
    Null,
    Bytes(Vec<u8>),
    Open,
}

/// One `taskman run`, being described.
pub struct Run {
    options: Vec<OsString>,
    command: Vec<OsString>,
    env: Vec<(String, String)>,
    stdin: Input,
    guard: Duration,
}

impl Run {
    /// `taskman run … -- words`.
    pub fn command<S: AsRef<OsStr>>(words: &[S]) -> Self {
        Self {
            options: Vec::new(),
            command: words.iter().map(|word| word.as_ref().to_owned()).collect(),
            env: Vec::new(),
            stdin: Input::Null,
            guard: GUARD,
        }
    }

    /// `taskman run … -- sh -c script`.
    pub fn sh(script: &str) -> Self {
        Self::command(&["sh", "-c", script])
    }

    /// A task that prints each line it is sent, and ends at the end of its input.
    pub fn echo() -> Self {
        Self::command(&["cat"]).open_stdin()
    }

    /// Options of `taskman run`, before the `--`.
    pub fn with<S: AsRef<OsStr>>(mut self, options: &[S]) -> Self {
        self.options.extend(options.iter().map(|option| option.as_ref().to_owned()));
        self
    }

    /// A variable of taskman's own environment.
    pub fn caller_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// What taskman reads on its standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Input::Bytes(bytes.into());
        self
    }

    /// Leaves standard input open; see [`Started::send`].
    pub fn open_stdin(mut self) -> Self {
        self.stdin = Input::Open;
        self
    }

    /// For the few tests that compile or boot a virtual machine.
    pub fn guard(mut self, guard: Duration) -> Self {
        self.guard = guard;
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.start().end()
    }

    /// Starts it.
    #[track_caller]
    pub fn start(self) -> Started {
        let dir = HostDir::new();
        let mut command = Command::new(TASKMAN);
        command.arg("run").arg("--report").arg(dir.path("report.json"));
        command.args(&self.options).arg("--").args(&self.command);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(if matches!(self.stdin, Input::Null) { Stdio::null() } else { Stdio::piped() });
        let mut started = Started::spawn(command, dir, self.guard);
        if let Input::Bytes(bytes) = self.stdin {
            let mut pipe = started.child.stdin.take().unwrap();
            // A task that does not read its input closes the pipe: then the rest is of no interest.
            std::thread::spawn(move || pipe.write_all(&bytes).ok());
        } else {
            started.take_stdin();
        }
        started
    }
}

/// A running `taskman`.
pub struct Started {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    ended: Receiver<()>,
    seen: Vec<u8>,
    taken: usize,
    seen_errors: Vec<u8>,
    taken_errors: usize,
    dir: HostDir,
    deadline: Instant,
    started: Instant,
    signalled: bool,
}

impl Started {
    /// Starts any command with both outputs read; `dir` may hold a `report.json` at the end.
    #[track_caller]
    pub fn spawn(mut command: Command, dir: HostDir, guard: Duration) -> Self {
        let started = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdout = chunks(child.stdout.take().unwrap());
        let stderr = chunks(child.stderr.take().unwrap());
        let pid = Pid::from_raw(child.id() as i32);
        let (sender, ended) = channel();
        // The end is only noticed here; reaping stays with this object, so that `pid` cannot come to mean another process.
        std::thread::spawn(move || {
            waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).ok();
            sender.send(()).ok();
        });
        let deadline = started + pace::time(guard);
        Self {
            child,
            stdin: None,
            stdout,
            stderr,
            ended,
            seen: Vec::new(),
            taken: 0,
            seen_errors: Vec::new(),
            taken_errors: 0,
            dir,
            deadline,
            started,
            signalled: false,
        }
    }

    /// Takes hold of a standard input that was piped; see [`Started::send`].
    pub fn take_stdin(&mut self) {
        self.stdin = self.child.stdin.take();
    }

    /// The launcher's pid.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends bytes to the task's standard input.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        let pipe = self.stdin.as_mut().expect("standard input is open");
        pipe.write_all(bytes).and_then(|()| pipe.flush()).expect("write to taskman's standard input");
    }

    /// Stops reading the task's output, as `| head -1` does.
    pub fn close_stdout(&mut self) {
        self.stdout = channel().1;
    }

    /// The task's next line of output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        loop {
            if let Some(length) = self.seen[self.taken..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&self.seen[self.taken..self.taken + length]).into_owned();
                self.taken += length + 1;
                return line;
            }
            match self.stdout.recv_timeout(self.left()) {
                Ok(chunk) => self.seen.extend(chunk),
                Err(e) => {
                    let stderr: Vec<u8> = self.stderr.try_iter().flatten().collect();
                    panic!(
                        "no further line ({e}); stdout so far {:?}, stderr {:?}",
                        String::from_utf8_lossy(&self.seen),
                        String::from_utf8_lossy(&stderr)
                    );
                }
            }
        }
    }

    /// The next line of standard error.
    #[track_caller]
    pub fn error_line(&mut self) -> String {
        loop {
            let rest = &self.seen_errors[self.taken_errors..];
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                self.taken_errors += length + 1;
                return String::from_utf8_lossy(&self.seen_errors[self.taken_errors - length - 1..][..length])
                    .into_owned();
            }
            match self.stderr.recv_timeout(self.left()) {
                Ok(chunk) => self.seen_errors.extend(chunk),
                Err(e) => {
                    panic!("no further line ({e}); stderr so far {:?}", String::from_utf8_lossy(&self.seen_errors))
                }
            }
        }
    }

    /// Whether it ends within this time; how, does not matter.
    pub fn ends_within(&self, time: Duration) -> bool {
        self.ended.recv_timeout(time).is_ok()
    }

    /// Sends a line to a task that echoes it, and waits for it: then the payload surely runs.
    #[track_caller]
    pub fn ready(&mut self) -> Process {
        self.send(b"ready\n");
        assert_eq!(self.line(), "ready");
        self.payload()
    }

    /// Sends a signal to the launcher. What ends the task then is the signal: its input stays open.
    pub fn signal(&mut self, signal: Signal) {
        self.signalled = true;
        kill(Pid::from_raw(self.pid()), signal).expect("signal taskman");
    }

    /// Sandbox-init, found as the launcher's only child.
    #[track_caller]
    pub fn init(&self) -> Process {
        wait_until("the launcher has a child", || Process::children_of(self.pid()).into_iter().next())
    }

    /// The payload, found as init's first child.
    #[track_caller]
    pub fn payload(&self) -> Process {
        let init = self.init().pid;
        wait_until("init has a child", || Process::children_of(init).into_iter().min_by_key(|p| p.inner_pid()))
    }

    /// Waits for the end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        if !self.signalled {
            self.stdin = None;
        }
        // A closed channel: `ends_within` has taken the news.
        if self.ended.recv_timeout(self.left()) == Err(RecvTimeoutError::Timeout) {
            let tree = Process::tree(self.pid());
            self.child.kill().ok();
            panic!("it did not end in time and was killed; its processes then:\n{tree}");
        }
        let elapsed = self.started.elapsed();
        let status = self.child.wait().expect("reap taskman");
        let mut stdout = std::mem::take(&mut self.seen);
        stdout.extend(self.drain(&self.stdout));
        let mut stderr = std::mem::take(&mut self.seen_errors);
        stderr.extend(self.drain(&self.stderr));
        let report = std::fs::read(self.dir.path("report.json")).ok().filter(|report| !report.is_empty());
        let report = report.map(|bytes| serde_json::from_slice(&bytes).expect("the report is JSON"));
        Ended { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned(), report, elapsed }
    }

    #[track_caller]
    fn drain(&self, stream: &Receiver<Vec<u8>>) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match stream.recv_timeout(pace::time(Duration::from_secs(10))) {
                Ok(chunk) => all.extend(chunk),
                Err(RecvTimeoutError::Disconnected) => return all,
                Err(RecvTimeoutError::Timeout) => panic!("it has ended, but something still holds its output"),
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // After `end` both calls do nothing; after a failed assertion they leave no task behind.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn chunks(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
