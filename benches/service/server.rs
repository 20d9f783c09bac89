//! A release `taskman-server` of the benchmark's own: a fresh state, high ceilings, a free port.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use taskman::client::{Client, Credentials};

use crate::Failure;

/// So high that no ceiling is met: what is measured is the service, not its refusals.
const CONFIG: &str = r#"
[connections]
total = 8192
per_address = 4096
[quota]
running = 4000
running_per_user = 4000
stored_output_per_user = "64G"
requests_per_second = 1000000
burst = 1000000
streams_per_user = 8192
[output]
stored_per_task = "4G"
[profiles.default]
cpus = 2.0
output_limit = "4G"
"#;

/// It runs until this is dropped.
pub struct Server {
    process: Child,
    dir: tempfile::TempDir,
    address: String,
}

impl Server {
    /// Starts `program` with its state below `parent`.
    pub fn start(program: &Path, parent: &Path) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("servicebench.").tempdir_in(parent)?;
        // The server has a uid of its own and must be able to pass.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let config = dir.path().join("config.toml");
        fs::write(&config, CONFIG)?;
        let mut command = Command::new(program);
        command.args(["--dev", "--log-level", "warn", "--server-address", "localhost:0", "--config"]).arg(config);
        command.arg("--state-dir").arg(dir.path().join("state"));
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(process.stderr.take().ok_or("no standard error")?).lines();
        let mut said = Vec::new();
        let port = loop {
            let Some(line) = lines.next().transpose()? else {
                process.wait()?;
                return Err(format!("the server did not start: {}", said.join("\n")).into());
            };
            if let Some((_, port)) = line.split_once("listening on ").and_then(|(_, at)| at.rsplit_once(':')) {
                break port.trim().to_owned();
            }
            said.push(line);
        };
        // Whoever does not read what it says holds it up sooner or later.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Ok(Self { process, dir, address: format!("localhost:{port}") })
    }

    /// A connection of its own, as client001.
    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.address, &self.credentials()?).await?)
    }

    /// To connect often without reading the files each time.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        Ok(Credentials::from_dir(&self.certs(), "client001")?)
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The certificates that it made.
    pub fn certs(&self) -> PathBuf {
        self.dir.path().join("state/certs")
    }

    /// The launcher, and the server that it split off.
    fn pids(&self) -> Vec<u32> {
        let launcher = self.process.id();
        let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
        // Children are named in the order of their birth: the first is the server, the others are tasks.
        std::iter::once(launcher).chain(children.split(' ').next().and_then(|pid| pid.parse().ok())).collect()
    }

    /// Resident now and at most, of launcher and server together, in MiB. What they share is counted twice.
    pub fn memory(&self) -> Memory {
        let of = |field: &str| {
            let sum = |pid: &u32| {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
                line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
            };
            self.pids().iter().map(sum).sum::<u64>() as f64 / 1024.0
        };
        Memory { now: of("VmRSS:"), peak: of("VmHWM:") }
    }

    /// Processor time of launcher and server so far, in seconds.
    pub fn cpu(&self) -> f64 {
        self.pids().iter().map(|pid| process_cpu(&pid.to_string())).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An orderly end leaves nothing on the host.
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

/// Resident memory in MiB.
#[derive(Clone, Copy)]
pub struct Memory {
    pub now: f64,
    pub peak: f64,
}

/// Processor time of a process (or `self`) so far, in seconds, its threads included.
pub fn process_cpu(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime are the 14th and 15th field; two stand before the bracket, and USER_HZ is 100.
    (ticks(11) + ticks(12)) / 100.0
}
