//! A start in the making: which binary, which options, which probe.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::bench::{Bench, WARM};
use super::case::Fail;
use super::done::Done;
use super::run::Run;

/// A start in the making: `bench.task(arm).opt("--memory", "64M").probe("bomb", &["7"]).spawn()?`.
pub struct Launch<'b> {
    bench: &'b Bench,
    taskman: Option<PathBuf>,
    mutation: Option<&'static str>,
    wrap: Vec<OsString>,
    options: Vec<OsString>,
    command: Vec<OsString>,
    nonce: String,
    uids: Range<u32>,
    uid: Option<u32>,
    stdin: bool,
    keep: usize,
    report: Option<PathBuf>,
}

impl<'b> Launch<'b> {
    pub(super) fn new(bench: &'b Bench, taskman: Option<PathBuf>, mutation: Option<&'static str>) -> Self {
        let (wrap, options, command) = (Vec::new(), Vec::new(), Vec::new());
        let nonce = bench.fresh_nonce();
        let (uids, uid, stdin, keep) = (bench.uid_range(), None, false, 1 << 20);
        Self { bench, taskman, mutation, wrap, options, command, nonce, uids, uid, stdin, keep, report: None }
    }

    /// A taskman option with its value.
    pub fn opt(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.options.extend([name.into(), value.as_ref().to_owned()]);
        self
    }

    /// A taskman option without a value.
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(name.into());
        self
    }

    /// Runs a compiled payload; under taskman it is `/probe/NAME`. The nonce is appended to its arguments.
    pub fn probe(self, name: &str, args: &[&str]) -> Self {
        let host = self.bench.payload(name);
        let path = if self.taskman.is_some() { OsString::from(format!("/probe/{name}")) } else { host.into() };
        let nonce = self.nonce.clone();
        self.command(path, args.iter().copied().chain([nonce.as_str()]))
    }

    /// Runs a shell script; `$0` is the nonce.
    pub fn sh(self, script: &str) -> Self {
        let nonce = self.nonce.clone();
        self.command("/bin/sh", ["-c", script, &nonce])
    }

    /// Runs any command.
    pub fn command<S: AsRef<OsStr>>(mut self, program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Self {
        self.command = vec![program.as_ref().to_owned()];
        self.command.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Puts a wrapper before the whole command line, such as `unshare -m`.
    pub fn wrapped(mut self, wrap: &[&str]) -> Self {
        self.wrap = wrap.iter().map(OsString::from).collect();
        self
    }

    /// Tasks only: the uids to choose from, of those that belong to this suite.
    pub fn with_uids(mut self, uids: Range<u32>) -> Self {
        self.uids = uids;
        self
    }

    /// Direct starts only: the uid and gid to run under.
    pub fn with_uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Gives the child a pipe as stdin (`run.stdin()`) in place of /dev/null.
    pub fn with_stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Tasks only: another file for the report, which the suite does not read.
    pub fn reporting_to(mut self, path: PathBuf) -> Self {
        self.report = Some(path);
        self
    }

    /// How many bytes of each stream are kept (all are counted).
    pub fn keep(mut self, bytes: usize) -> Self {
        self.keep = bytes;
        self
    }

    /// Starts it.
    pub fn spawn(self) -> Result<Run, Fail> {
        let report = self.bench.work_dir().join(format!("{}.json", self.nonce));
        let told = self.report.unwrap_or_else(|| report.clone());
        let mut line = self.wrap;
        if let Some(taskman) = &self.taskman {
            let range = self.uids;
            line.extend([taskman.into(), "run".into(), "--report".into(), told.into()]);
            line.extend(["--uid-range".into(), format!("{}:{}", range.start, range.end - range.start).into()]);
            line.extend(["--env".into(), format!("ADV_NONCE={}", self.nonce).into()]);
            let mut bind = self.bench.probe_dir().as_os_str().to_owned();
            bind.push(":/probe");
            line.extend(["--bind-ro".into(), bind]);
            line.extend(self.options);
            line.push("--".into());
        }
        line.extend(self.command);
        let mut command = Command::new(&line[0]);
        // A group of its own, so that a probe that signals its group does not reach the suite.
        command.args(&line[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.stdin(if self.stdin { Stdio::piped() } else { Stdio::null() });
        command.env_remove("TASKMAN_MUTATION").env("ADV_HOST_NONCE", &self.nonce);
        if self.taskman.is_none() {
            command.env("ADV_NONCE", &self.nonce);
        }
        if self.taskman.is_some() && self.mutation.is_none_or(|names| names == WARM) {
            self.bench.tried(1);
        }
        if let Some(names) = self.mutation {
            command.env("TASKMAN_MUTATION", names);
        }
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        Run::start(command, self.nonce, report, self.keep)
    }

    /// Starts it and waits for its end.
    pub fn finish(self) -> Result<Done, Fail> {
        self.spawn()?.finish()
    }
}
