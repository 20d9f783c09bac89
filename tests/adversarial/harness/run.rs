//! One running probe, under taskman or directly, watched from outside without a thread and without sleeping.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::case::{Fail, breach, broken};
use super::done::{Done, cut};
use super::{proc, sys};
use crate::support::pace;

/// Pids of children that a [`Run`] still waits for; the reaper of adopted orphans leaves them alone.
static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Whether a [`Run`] still waits for this child.
pub fn is_live(pid: i32) -> bool {
    LIVE.lock().is_ok_and(|live| live.contains(&pid))
}

/// How long a probe may take before the suite calls itself broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// One output stream: its first bytes, how many came, and when it ended.
pub struct Stream {
    fd: Option<fs::File>,
    keep: usize,
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// How many bytes came in all.
    pub total: u64,
    /// When end of file was seen.
    pub eof: Option<Instant>,
}

impl Stream {
    fn new(fd: Option<OwnedFd>, keep: usize) -> Result<Self, Fail> {
        let fd = fd.ok_or_else(|| broken("no pipe"))?;
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|e| broken(format!("fcntl: {e}")))?;
        Ok(Self { fd: Some(fd.into()), keep, bytes: Vec::new(), total: 0, eof: None })
    }

    fn drain(&mut self) {
        let mut buffer = [0; 1 << 16];
        while let Some(fd) = &mut self.fd {
            match fd.read(&mut buffer) {
                Ok(0) => (self.fd, self.eof) = (None, Some(Instant::now())),
                Ok(n) => {
                    self.total += n as u64;
                    let room = self.keep.saturating_sub(self.bytes.len()).min(n);
                    self.bytes.extend_from_slice(&buffer[..room]);
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => (self.fd, self.eof) = (None, Some(Instant::now())),
            }
        }
    }

    /// Makes the pipe hold no more than a page, so that a reader that waits is felt at once.
    pub fn shrink(&self) -> Result<(), Fail> {
        let fd = self.fd.as_ref().ok_or_else(|| broken("the stream has ended"))?;
        let shrunk = fcntl(fd, FcntlArg::F_SETPIPE_SZ(4096));
        shrunk.map(drop).map_err(|e| broken(format!("F_SETPIPE_SZ: {e}")))
    }

    /// The kept bytes as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A running probe. Dropped while it runs, it is killed and reaped.
pub struct Run {
    child: Child,
    /// The pid of taskman, or of the probe itself in a direct start.
    pub pid: i32,
    pidfd: OwnedFd,
    pub out: Stream,
    pub err: Stream,
    /// What its processes carry in argv and environment.
    pub nonce: String,
    report: PathBuf,
    pub started: Instant,
    /// When the pidfd became readable.
    pub ended: Option<Instant>,
}

impl Run {
    /// Starts a command whose output is piped.
    pub(super) fn start(mut command: Command, nonce: String, report: PathBuf, keep: usize) -> Result<Self, Fail> {
        let started = Instant::now();
        let mut child = command.spawn().map_err(|e| broken(format!("start {:?}: {e}", command.get_program())))?;
        let pid = child.id() as i32;
        LIVE.lock().map_err(|_| broken("lock"))?.insert(pid);
        let pidfd = sys::pidfd_open(pid).map_err(|e| broken(format!("pidfd of {pid}: {e}")))?;
        let out = Stream::new(child.stdout.take().map(OwnedFd::from), keep)?;
        let err = Stream::new(child.stderr.take().map(OwnedFd::from), keep)?;
        Ok(Self { child, pid, pidfd, out, err, nonce, report, started, ended: None })
    }

    /// Reads output until `done` says so; false at the deadline, or when the child is dead and its pipes are closed. What is so at
    /// the deadline is seen, also by whoever comes too late to wait.
    pub fn pump(&mut self, timeout: Duration, mut done: impl FnMut(&Self) -> bool) -> Result<bool, Fail> {
        let deadline = Instant::now() + timeout;
        let mut last = false;
        loop {
            self.out.drain();
            self.err.drain();
            if done(self) {
                return Ok(true);
            }
            if last || (self.ended.is_some() && self.out.fd.is_none() && self.err.fd.is_none()) {
                return Ok(false);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            last = left.is_zero();
            let mut fds = Vec::new();
            fds.extend(self.out.fd.as_ref().map(|f| PollFd::new(f.as_fd(), PollFlags::POLLIN)));
            fds.extend(self.err.fd.as_ref().map(|f| PollFd::new(f.as_fd(), PollFlags::POLLIN)));
            let exit = self.ended.is_none().then(|| PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN));
            let streams = fds.len();
            fds.extend(exit);
            let millis = left.as_millis().max(u128::from(!last));
            let millis = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, millis) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(broken(format!("poll: {e}"))),
            }
            if fds.get(streams).is_some_and(|p| p.any().unwrap_or(false)) {
                self.ended = Some(Instant::now());
            }
        }
    }

    /// Waits until a line of stdout contains `mark`.
    pub fn wait_line(&mut self, mark: &str) -> Result<(), Fail> {
        let complete = |run: &Self| {
            let text = run.out.text();
            text.split_inclusive('\n').any(|line| line.ends_with('\n') && line.contains(mark))
        };
        if self.pump(pace::time(PATIENCE), complete)? {
            return Ok(());
        }
        let (out, err) = (self.out.text(), self.err.text());
        Err(broken(format!("the probe never said {mark:?}; stdout {:?}, stderr {:?}", cut(&out), cut(&err))))
    }

    /// Waits until `fact` holds on the host, looking again every millisecond while the output is read.
    pub fn wait_until(&mut self, timeout: Duration, mut fact: impl FnMut() -> bool) -> Result<bool, Fail> {
        let deadline = Instant::now() + pace::time(timeout);
        while Instant::now() < deadline {
            if fact() {
                return Ok(true);
            }
            self.pump(Duration::from_millis(1), |_| false)?;
        }
        Ok(fact())
    }

    /// Signals taskman (or the direct probe).
    pub fn signal(&self, signal: Signal) -> Result<(), Fail> {
        sys::pidfd_kill(&self.pidfd, signal as i32).map_err(|e| broken(format!("signal {signal}: {e}")))
    }

    /// Stop, and stop at once: two signals of two kinds, because two of one kind can arrive as one.
    pub fn stop_twice(&self) -> Result<(), Fail> {
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGINT)
    }

    /// The pipe to the child's stdin; dropping it closes the stream.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// sandbox-init: taskman's only child, once it is there.
    pub fn init(&self) -> Option<i32> {
        proc::children_of(self.pid).first().map(|s| s.pid)
    }

    /// The host's pids of everything in the task's v2 control group, init included.
    pub fn members(&self) -> Vec<i32> {
        self.group().map(|dir| super::place::members_of(&dir)).unwrap_or_default()
    }

    /// The task's v2 control group.
    pub fn group(&self) -> Option<PathBuf> {
        self.group_of("")
    }

    /// The task's control group in the hierarchy that has `controller`: version 2 (`""`), unless one of version 1 has it.
    pub fn group_of(&self, controller: &str) -> Option<PathBuf> {
        let own = super::place::own_groups();
        let of = |wanted: &str| own.iter().find(|(c, _)| c.split(',').any(|c| c == wanted));
        let (_, base) = of(controller).or_else(|| of(""))?;
        let init = self.init()?;
        let path = proc::cgroup_of(init).into_iter().find(|(c, _)| c.is_empty())?.1;
        let name = path.rsplit('/').next()?.to_owned();
        let dir = base.join(name);
        dir.is_dir().then_some(dir)
    }

    /// The payload: sandbox-init's first child.
    pub fn payload(&self) -> Option<i32> {
        proc::children_of(self.init()?).into_iter().min_by_key(|s| s.start).map(|s| s.pid)
    }

    /// The same, where being late is a breach: not final although it should be.
    pub fn final_within(mut self, limit: Duration) -> Result<Done, Fail> {
        let limit = pace::time(limit);
        self.pump(limit, |run| run.ended.is_some())?;
        if self.ended.is_none() {
            return Err(breach(format!("not final after {limit:?}; taskman says {:?}", cut(&self.err.text()))));
        }
        self.finish()
    }

    /// Reads on until taskman is dead and both its streams are closed.
    pub fn finish(self) -> Result<Done, Fail> {
        self.finish_within(pace::time(PATIENCE))
    }

    /// The same with another deadline; past it the suite gives up, and says so.
    pub fn finish_within(mut self, timeout: Duration) -> Result<Done, Fail> {
        self.pump(timeout, |_| false)?;
        if self.ended.is_none() {
            return Err(broken(format!("still running after {timeout:?}; stderr {:?}", cut(&self.err.text()))));
        }
        let status = self.child.wait().map_err(|e| broken(format!("wait: {e}")))?;
        let report = fs::read(&self.report).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let ended = self.ended.unwrap_or_else(Instant::now);
        let (out, err) = (self.out.text(), self.err.text());
        let took = ended - self.started;
        Ok(Done { status, out, err, out_total: self.out.total, report, took, ended })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Ok(mut live) = LIVE.lock() {
            live.remove(&self.pid);
        }
        let _ = fs::remove_file(&self.report);
    }
}
