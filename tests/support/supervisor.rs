//! The three processes of a server one by one, and what is left of its tasks on the host.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use taskman::client::{Client, ClientError, Credentials, StartTaskRequest};
use tonic::Code;

use super::host::host_text;
use super::server::unwatched;
use super::{Ended, Process, Server, pace, wait_until};

/// The uid of the network-facing process, unless configured otherwise.
pub const SERVER_UID: u32 = 1_899_999_999;

impl Server {
    /// The privileged process.
    pub fn launcher(&self) -> Process {
        Process { pid: self.process.as_ref().expect("the server runs").pid() }
    }

    /// The network-facing process.
    #[track_caller]
    pub fn half(&self) -> Process {
        let launcher = self.launcher().pid;
        // A child that a start has just made may be gone by now.
        let is_server = |process: &Process| {
            let status = fs::read_to_string(process.path("status")).unwrap_or_default();
            status.contains(&format!("\nUid:\t{SERVER_UID}\t"))
        };
        let half = Process::children_of(launcher).into_iter().find(is_server);
        half.unwrap_or_else(|| panic!("no server below {}", Process::tree(launcher)))
    }

    /// The auditor's process, if there is one just now.
    pub fn try_auditor(&self) -> Option<Process> {
        let is_auditor = |process: &Process| {
            fs::read(process.path("cmdline")).is_ok_and(|line| line == b"taskman-server\0auditor\0")
        };
        Process::children_of(self.launcher().pid).into_iter().find(is_auditor)
    }

    /// The auditor's process.
    #[track_caller]
    pub fn auditor(&self) -> Process {
        wait_until("there is an auditor", || self.try_auditor())
    }

    /// Waits for the end that something else brings about.
    #[track_caller]
    pub fn end(&mut self) -> Ended {
        self.process.take().expect("the server runs").end()
    }

    /// Whether it ends within this time.
    pub fn ends_within(&self, time: Duration) -> bool {
        self.process.as_ref().expect("the server runs").ends_within(time)
    }

    /// The next line of its log.
    #[track_caller]
    pub fn log_line(&mut self) -> String {
        self.process.as_mut().expect("the server runs").error_line()
    }

    /// What its tasks leave on the host: those that carry `nonce`, and those of this very server.
    pub fn traces(&self, nonce: &str) -> Traces {
        let instance = fs::read_to_string(self.state().join("instance")).expect("its name");
        Traces { nonce: nonce.to_owned(), instance: format!("taskman-{}.", instance.trim()) }
    }

    /// Every task, as an administrator sees it, oldest first.
    #[track_caller]
    pub fn list(&self) -> Vec<Value> {
        let text = self.text("admin", &["list", "--all", "--limit", "100000", "--output", "json"]);
        let listed: Value = serde_json::from_str(&text).expect("JSON");
        let mut tasks = listed["tasks"].as_array().expect("tasks").clone();
        tasks.reverse();
        tasks
    }

    /// What is stored of a task's output.
    #[track_caller]
    pub fn output(&self, task: &str) -> Vec<u8> {
        let ended = self.taskman("admin", &["stream", task, "--no-follow"]);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        ended.stdout
    }

    /// As a program is told it: starts `true`, which must be refused, not only because no auditor watched, and gives the code
    /// and the text.
    #[track_caller]
    pub fn refused_start(&self) -> (Code, String) {
        wait_until("an auditor watches", || {
            let refused = self.try_start().expect_err("it was started");
            (!unwatched(&refused.1)).then_some(refused)
        })
    }

    /// The same, which may go well.
    #[track_caller]
    pub fn try_start(&self) -> Result<(), (Code, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let limits = taskman::client::Limits { nofile: 64, ..Default::default() };
        let request = StartTaskRequest { command: "true".into(), limits: Some(limits), ..Default::default() };
        match runtime.block_on(async { self.client("client001").await?.start(request).await }) {
            Ok(_) => Ok(()),
            Err(ClientError::Status { code, message, .. }) => Err((code, message)),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// A connection of this user's, as a program makes it.
    pub async fn client(&self, user: &str) -> Result<Client, ClientError> {
        Client::connect(&self.address, &Credentials::from_dir(&self.certs(), user)?).await
    }

    /// Starts a task that carries `nonce`, of client001, and waits until it has printed `ready`. Its sleep is there by then, so
    /// that a test may count.
    #[track_caller]
    pub fn marked(&self, nonce: &str, options: &[&str], script: &str) -> String {
        let script = format!("{script}\nsleep 1000 & echo ready; while :; do wait; sleep 1000 & done");
        let nonce = format!("NONCE={nonce}");
        let words: Vec<_> =
            ["--env", &nonce].iter().chain(options).chain(&["--", "sh", "-c", &script]).copied().collect();
        let task = self.task(&words);
        let mut reader = self.begin("client001", &["stream", &task]);
        while reader.line() != "ready" {}
        task
    }
}

/// What one launcher's tasks leave on the host while they live, and must not leave afterwards.
pub struct Traces {
    nonce: String,
    instance: String,
}

impl Traces {
    /// Processes that carry the nonce, or are in a group of the instance; those that only wait to be reaped do not count.
    pub fn processes(&self) -> BTreeSet<i32> {
        let nonce = format!("NONCE={}", self.nonce);
        let is_ours = |process: &Process| {
            let read = |name: &str| fs::read(process.path(name)).unwrap_or_default();
            let holds = |bytes: Vec<u8>, text: &str| String::from_utf8_lossy(&bytes).contains(text);
            let status = String::from_utf8_lossy(&read("status")).into_owned();
            let dead = !status.contains("State:") || status.contains("State:\tZ") || status.contains("State:\tX");
            !dead && (holds(read("environ"), &nonce) || holds(read("cgroup"), &self.instance))
        };
        Process::all().into_iter().filter(is_ours).map(|process| process.pid).collect()
    }

    /// Directories of the instance's control groups, in every hierarchy.
    pub fn groups(&self) -> BTreeSet<PathBuf> {
        let name = format!("{}*", self.instance);
        // A group of another test may go while find looks at it.
        let found = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &name]).output().expect("find");
        String::from_utf8_lossy(&found.stdout).lines().map(PathBuf::from).collect()
    }

    /// Waits in line for the locks that the launcher has on its groups, and has them once it is dead: as long as the answer
    /// is kept, no sweep of another test takes what this launcher leaves.
    pub fn reserve(&self) -> Vec<JoinHandle<fs::File>> {
        let wait = |path: PathBuf| {
            let file = fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            std::thread::spawn(move || {
                file.lock().expect("flock");
                file
            })
        };
        self.groups().into_iter().map(wait).collect()
    }

    /// Nothing runs any more, within `time` from now.
    #[track_caller]
    pub fn assert_dead_within(&self, time: Duration) {
        let deadline = Instant::now() + pace::time(time);
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            let trees = left.iter().map(|pid| Process::tree(*pid)).collect::<String>();
            assert!(Instant::now() < deadline, "alive after {time:?}:\n{trees}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Neither processes nor groups nor mounts are left.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        self.assert_dead_within(Duration::from_secs(2));
        assert_eq!(self.groups(), BTreeSet::new());
        assert!(!Process::own().read("mountinfo").contains(&self.instance));
    }
}

/// A small file system of the test's own.
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts it at a directory that the test has made.
    #[track_caller]
    pub fn mount(at: &Path, options: &str) -> Self {
        host_text(&["mount", "-t", "tmpfs", "-o", options, "taskman-e2e", at.to_str().unwrap()]);
        Self(at.to_owned())
    }

    /// Uses up all but `rest` KiB of it, until the answer is removed.
    #[track_caller]
    pub fn fill(&self, rest: u64) -> PathBuf {
        let stat = nix::sys::statvfs::statvfs(&self.0).unwrap();
        let free = stat.blocks_available() * stat.fragment_size();
        let filler = self.0.join("filler");
        host_text(&["fallocate", "-l", &free.saturating_sub(rest << 10).to_string(), filler.to_str().unwrap()]);
        filler
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a server that a failed test left may still be ending.
        Command::new("umount").arg("-l").arg(&self.0).output().ok();
    }
}

/// Sends a signal to one process.
#[track_caller]
pub fn send(process: Process, signal: Signal) {
    kill(Pid::from_raw(process.pid), signal).unwrap_or_else(|e| panic!("{signal} to {}: {e}", process.pid));
}

/// A process that stands still until this is dropped, also by a test that fails.
pub struct Stopped(Process);

impl Stopped {
    #[track_caller]
    pub fn new(process: Process) -> Self {
        send(process, Signal::SIGSTOP);
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.0.pid), Signal::SIGCONT).ok();
    }
}

/// A word that stands nowhere else on the host.
pub fn nonce() -> String {
    uuid::Uuid::new_v4().to_string()
}
