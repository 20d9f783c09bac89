//! A true `taskman-server` of the test's own, on a free port, and the true `taskman` as its client.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::port::Port;
use super::run::{Started, TASKMAN};
use super::{Ended, GUARD, HostDir, mutation};

/// The program under test.
pub const TASKMAN_SERVER: &str = env!("CARGO_BIN_EXE_taskman-server");

/// Whether a start was refused because the auditor of a busy host was late with its word, and another takes its place.
pub fn unwatched(refusal: &str) -> bool {
    refusal.contains("the auditor ") && refusal.contains("try again")
}

const COLD: &str = "[warm]\nslots = 0\n";

/// A server in development mode: it makes its own certificates, of `admin` and `client001`.
pub struct Server {
    pub(super) process: Option<Started>,
    pub(super) dir: HostDir,
    kept: Vec<HostDir>,
    program: PathBuf,
    env: Vec<(String, String)>,
    /// Options of its command line; they may be changed before a restart.
    pub options: Vec<String>,
    /// A command that executes what follows it, such as `prlimit`.
    pub under: Vec<String>,
    /// Where it listens.
    pub address: String,
    port: Port,
    /// Where it answers with metrics, if it does.
    pub metrics: Option<String>,
}

impl Server {
    /// With the default configuration, but for sandboxes that stand ready.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With further options.
    #[track_caller]
    pub fn with(options: &[&str]) -> Self {
        let mut server = Self::prepare(options);
        server.launch();
        server
    }

    /// With a configuration file of this text. Nothing stands ready unless it says so: tests count what there is.
    #[track_caller]
    pub fn configured(text: &str) -> Self {
        let dir = HostDir::new();
        let cold = if text.contains("[warm]") { "" } else { COLD };
        let config = dir.file("config.toml", format!("{text}\n{cold}"), 0o644);
        Self::with(&["--config", config.to_str().unwrap()]).keeping(dir)
    }

    /// The binary that has `defence` switched off.
    #[track_caller]
    pub fn without(defence: &str) -> Self {
        let mut server = Self::prepare(&[]).mutated("TASKMAN_MUTATION", defence);
        server.launch();
        server
    }

    /// The binary with the `mutation` feature, and a variable that it reads.
    #[track_caller]
    pub fn mutated(mut self, name: &str, value: &str) -> Self {
        static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        self.program = BUILT.get_or_init(|| mutation::build("taskman-server")).clone().expect("the mutation build");
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Not started yet.
    pub fn prepare(options: &[&str]) -> Self {
        let port = Port::lease();
        Self {
            process: None,
            dir: HostDir::new(),
            kept: Vec::new(),
            program: TASKMAN_SERVER.into(),
            env: Vec::new(),
            options: options.iter().map(ToString::to_string).collect(),
            under: Vec::new(),
            // The certificate is for the name.
            address: format!("localhost:{}", port.number),
            port,
            metrics: None,
        }
    }

    /// With a directory that lives as long as the server, for a restart reads it again.
    pub fn keeping(mut self, dir: HostDir) -> Self {
        self.kept.push(dir);
        self
    }

    /// Its command line.
    pub fn command_line(&self) -> Command {
        let program = self.program.to_str().expect("a plain path");
        let cold = self.dir.file("cold.toml", COLD, 0o644);
        let configured = self.options.iter().any(|option| option == "--config");
        let mut words = self.under.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().expect("a word"));
        command
            .args(words)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .args(["--dev", "--server-address", &self.address, "--state-dir"])
            .arg(self.dir.path("state"));
        if !configured {
            command.arg("--config").arg(cold);
        }
        command.args(&self.options).stdin(Stdio::null());
        command
    }

    /// Starts it, and waits until it listens.
    #[track_caller]
    pub fn launch(&mut self) {
        let command = self.command_line();
        // A guard for the whole test, not for one step of it.
        let mut process = Started::spawn(command, HostDir::new(), 5 * GUARD);
        loop {
            let line = process.error_line();
            if let Some((_, rest)) = line.split_once("metrics at http://") {
                self.metrics = rest.split_once('/').map(|(address, _)| address.to_owned());
            }
            if line.contains("listening on ") {
                break;
            }
        }
        self.process = Some(process);
    }

    /// The directory with everyone's certificates.
    pub fn certs(&self) -> PathBuf {
        self.dir.path("state/certs")
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.dir.path("state")
    }

    /// The audit log, line by line.
    pub fn audit(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.state().join("server/audit.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Sends a signal to the launcher, which is the service's main process.
    #[track_caller]
    pub fn signal(&mut self, signal: Signal) {
        self.process.as_mut().expect("the server runs").signal(signal);
    }

    /// An orderly end.
    #[track_caller]
    pub fn stop(&mut self) -> Ended {
        let mut process = self.process.take().expect("the server runs");
        process.signal(Signal::SIGTERM);
        process.end()
    }

    /// The end that no program sees coming.
    #[track_caller]
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server runs");
        process.signal(Signal::SIGKILL);
        process.end();
    }

    /// Starts it again, with the same state, at the same address.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "it still runs");
        self.launch();
    }

    /// `taskman words…` as this user, who reaches the server through the environment.
    pub fn command(&self, user: &str, words: &[&str]) -> Command {
        let mut command = Command::new(TASKMAN);
        command.args(words).stdin(Stdio::null());
        command.env("TASKMAN_USER_ID", user).env("TASKMAN_SERVER_ADDRESS", &self.address);
        command.env("TASKMAN_CERTS", self.certs());
        command
    }

    /// The same, running.
    #[track_caller]
    pub fn begin(&self, user: &str, words: &[&str]) -> Started {
        Started::spawn(self.command(user, words), HostDir::new(), GUARD)
    }

    /// The same, to its end; again, if it wanted a task and no auditor watched.
    #[track_caller]
    pub fn taskman(&self, user: &str, words: &[&str]) -> Ended {
        super::wait_until("an auditor watches", || {
            let ended = self.begin(user, words).end();
            (!unwatched(&ended.stderr)).then_some(ended)
        })
    }

    /// The same, for its standard output; it must succeed.
    #[track_caller]
    pub fn text(&self, user: &str, words: &[&str]) -> String {
        let ended = self.taskman(user, words);
        assert_eq!(ended.status.code(), Some(0), "{words:?}: {ended:?}");
        ended.text()
    }

    /// Starts a task of client001 and gives its id.
    #[track_caller]
    pub fn task(&self, words: &[&str]) -> String {
        self.task_of("client001", words)
    }

    /// Starts a task: options of `start`, `--`, and the command.
    #[track_caller]
    pub fn task_of(&self, user: &str, words: &[&str]) -> String {
        let words: Vec<_> = ["start", "--output", "json"].iter().chain(words).copied().collect();
        self.taskman(user, &words).json(0)["task_id"].as_str().expect("task_id").to_owned()
    }

    /// A task's status.
    #[track_caller]
    pub fn status(&self, task: &str) -> Value {
        serde_json::from_str(&self.text("admin", &["get-status", task, "--output", "json"])).expect("JSON")
    }

    /// A task's status after its end.
    #[track_caller]
    pub fn ended(&self, task: &str) -> Value {
        let ended = self.taskman("admin", &["wait", task, "--output", "json"]);
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An orderly end leaves nothing on the host; a server that does not make one is killed with its process.
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::SIGTERM);
            process.ends_within(super::pace::time(Duration::from_secs(20)));
        }
    }
}
