//! A release `taskman-server` of the benchmark's own: a fresh state, high ceilings, a free port.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use taskman::client::{Client, Credentials};

use crate::Failure;

/// So high that no ceiling is met: what is measured is the service, not its refusals.
const CONFIG: &str = r#"
[connections]
total = 8192
per_address = 4096
per_user = 4096
[quota]
running = 20000
running_per_user = 20000
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
    said: Vec<String>,
}

impl Server {
    /// Starts `program` with its state below `parent`.
    pub fn start(program: &Path, parent: &Path) -> Result<Self, Failure> {
        Self::start_with(program, parent, "")
    }

    /// The same, with more configuration.
    pub fn start_with(program: &Path, parent: &Path, more: &str) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("servicebench.").tempdir_in(parent)?;
        // The server has a uid of its own and must be able to pass.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let config = dir.path().join("config.toml");
        fs::write(&config, format!("{more}{CONFIG}"))?;
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
        Ok(Self { process, dir, address: format!("localhost:{port}"), said })
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

    /// What it warned of before it listened: ceilings that the host made it lower.
    pub fn warnings(&self) -> String {
        let lines: Vec<&str> = self.said.iter().filter_map(|line| line.strip_prefix("taskman-server: ")).collect();
        lines.join("; ")
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

    /// The auditor that watches it now.
    pub fn auditor(&self) -> Result<u32, Failure> {
        let launcher = self.process.id();
        let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"))?;
        let is_auditor = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(b"auditor")
        };
        let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.find(is_auditor).ok_or_else(|| "the server has no auditor".into())
    }

    /// Resident now and at most, of launcher and server together, in MiB. What they share is counted twice.
    pub fn memory(&self) -> Memory {
        let of =
            |field: &str| self.pids().iter().filter_map(|pid| status_kib(*pid, field)).sum::<u64>() as f64 / 1024.0;
        Memory { now: of("VmRSS:"), peak: of("VmHWM:") }
    }

    /// Anonymous memory of launcher, server and auditor together, in KiB: what each task adds to.
    pub fn anonymous_kib(&self) -> Result<u64, Failure> {
        let pids = self.pids().into_iter().chain([self.auditor()?]);
        Ok(pids.filter_map(|pid| status_kib(pid, "RssAnon:")).sum())
    }

    /// Ends it in good order, with whatever runs, and says how long that took.
    pub fn shutdown(mut self) -> Result<Duration, Failure> {
        let began = Instant::now();
        self.end()?;
        Ok(began.elapsed())
    }

    fn end(&mut self) -> Result<(), Failure> {
        let pid = nix::unistd::Pid::from_raw(self.process.id() as i32);
        // One that has been waited for has no process to signal.
        if self.process.try_wait()?.is_none() {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
            self.process.wait()?;
        }
        Ok(())
    }

    /// Processor time of launcher and server so far, in seconds.
    pub fn cpu(&self) -> f64 {
        self.pids().iter().map(|pid| processor_seconds(*pid)[0]).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An orderly end leaves nothing on the host.
        let _ = self.end();
    }
}

/// Resident memory in MiB.
#[derive(Clone, Copy)]
pub struct Memory {
    pub now: f64,
    pub peak: f64,
}

/// The first word of a field of a process's status.
pub fn status_field(pid: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// A field of it that is a size.
pub fn status_kib(pid: u32, field: &str) -> Option<u64> {
    status_field(pid, field)?.parse().ok()
}

/// Processor time so far in seconds: of a process with its threads, and of the children that it has waited for.
pub fn processor_seconds(pid: u32) -> [f64; 2] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
    // utime, stime, cutime and cstime are the 14th field and the next; two stand before the bracket, and USER_HZ is 100.
    [(ticks(11) + ticks(12)) / 100.0, (ticks(13) + ticks(14)) / 100.0]
}

/// A client on one thread of its own, as `taskman` is.
pub fn alone<T: Send>(work: impl Future<Output = Result<T, Failure>> + Send) -> Result<T, Failure> {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work);
    std::thread::scope(|scope| scope.spawn(run).join()).map_err(|_| "the client failed")?
}
