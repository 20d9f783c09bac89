//! The launcher as a service: one thread, one epoll loop, many tasks, and a server at the other end of a socket that it does
//! not trust.
//!
//! | what happens | what follows |
//! |---|---|
//! | a request that is malformed, or not from the server's process | as if the server had died |
//! | the server dies | every task is killed and its end seen to; exit code 1 |
//! | SIGTERM or SIGINT | every task is stopped; the server records the ends and says goodbye; exit code 0 |
//! | a second one | every task is killed |
//! | the auditor dies or falls silent | no task is started until another watches; one after another lost is a quarantine |
//! | SIGHUP, or a change beside the TLS files | the server is handed the files anew |
//! | root asks in the state directory | it is sent whether tasks are taken |
//! | any of this, under a service manager | it is told (`managed`) |
//!
//! Nothing a request names reaches the kernel unchecked: a task is one that this process started itself, and what a new one
//! may be stands in this process's own copy of the configuration (`Config::admit`).

mod audited;
mod auditor;
mod live;
mod local;
mod managed;
mod manager;
mod outbox;
mod patience;
mod phase;
mod poller;
mod pool;
mod questions;
mod requests;
mod standing;
pub mod tls;
mod warm;

pub use manager::Manager;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::Launcher;
use crate::config::Config;
use crate::containment::Scan;
use crate::error::{Context, SysError};
use crate::log::{self, Level};
use crate::sys::pidfd::PidFd;
use crate::sys::{fd, scheduling, signal};
use crate::task::id::TaskId;
use crate::task::request::TaskRequest;
use crate::wire::{Event, PacketError, Sender};
use auditor::Auditor;
use live::{Live, News};
use local::Local;
use managed::Signs;
use manager::Line;
use outbox::Outbox;
use phase::Phase;
use poller::{AUDITOR, FIRST_TASK, MANAGER, Owner, Poller, SERVICE, STARTS, TLS, Token, WARM};
use pool::Pool;
use questions::Questions;
use standing::Standing;

/// Signals that the loop takes as data. [`block_signals`] must come before the server is forked off.
const SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
/// Certificate and key are replaced one after the other; this is how long the second may take.
const TLS_SETTLE: Duration = Duration::from_millis(250);

/// The server's process, as its parent knows it.
pub struct Server {
    /// Cannot be mistaken for another.
    pub process: PidFd,
    /// What every packet must come from.
    pub sender: Sender,
}

/// Keeps the signals that [`serve`] reads from ending the process before it does.
pub fn block_signals() -> Result<(), SysError> {
    let set: SigSet = SIGNALS.into_iter().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).on("sigprocmask", "SIGTERM, SIGINT, SIGHUP")
}

/// Serves until the server has said goodbye or is gone. Returns the exit code.
///
/// `program` is executed as the auditor. It is opened by whoever starts the service, before the file of that name may become
/// another one. `manager` is told what the service is doing, if there is one.
pub fn serve(
    launcher: &Launcher,
    config: &Config,
    socket: OwnedFd,
    server: Server,
    program: OwnedFd,
    manager: Option<Manager>,
) -> u8 {
    let mut service = match Service::new(launcher, config, socket, server, program, manager) {
        Ok(service) => service,
        Err(error) => {
            complain(&error.to_string());
            return 1;
        }
    };
    service.run().unwrap_or_else(|error| {
        // The loop cannot wait any more. What is dropped here is killed and removed.
        complain(&error.to_string());
        1
    })
}

/// What is going on.
fn log(line: &str) {
    log::line(Level::Notice, "taskman-launcher", line);
}

/// What should not have happened.
fn complain(line: &str) {
    log::line(Level::Error, "taskman-launcher", line);
}

struct Service<'a> {
    launcher: &'a Launcher,
    config: &'a Config,
    socket: OwnedFd,
    server: Server,
    signals: SignalFd,
    changes: tls::Changes,
    local: Local,
    /// Of the TLS files that were sent last.
    marks: Vec<[i64; 5]>,
    poller: Poller,
    outbox: Outbox,
    live: BTreeMap<Owner, Live>,
    ids: HashMap<TaskId, Owner>,
    /// Admitted, and not begun while too many others are being started.
    waiting: VecDeque<TaskRequest>,
    pool: Pool,
    /// Since when a sandbox is wanted ahead of need, and when a task was last asked for.
    lacking: Option<Instant>,
    last_start: Option<Instant>,
    next: Owner,
    phase: Phase,
    /// The server's process has ended and was waited for.
    reaped: bool,
    /// What the socket is watched for.
    interest: EpollFlags,
    standing: Standing,
    signs: Signs,
    questions: Questions,
    /// What the auditor did and the server was not told yet.
    scan: Scan,
    /// The last of the fields: it is dropped when nothing else is left, and ends what still is.
    auditor: Auditor,
}

impl<'a> Service<'a> {
    fn new(
        launcher: &'a Launcher,
        config: &'a Config,
        socket: OwnedFd,
        server: Server,
        program: OwnedFd,
        manager: Option<Manager>,
    ) -> Result<Self, SysError> {
        block_signals()?;
        // Whoever forks most must not keep it from ending a task. What it starts decides for itself: a sandbox gives it up.
        scheduling::prefer_if_usual().on("setpriority", "launcher")?;
        signal::keep_ended_children().on("signal", "SIGCHLD")?;
        let signs = Signs::new(Line::open(manager)?);
        let signals =
            SignalFd::with_flags(&SIGNALS.into_iter().collect(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
                .on("signalfd", "SIGTERM, SIGINT, SIGHUP")?;
        let changes = tls::Changes::watch(&config.tls)?;
        let poller = Poller::new()?;
        let interest = EpollFlags::EPOLLIN;
        poller.add(&socket, interest, Token::Socket)?;
        poller.add(&server.process, EpollFlags::EPOLLIN, Token::Server)?;
        poller.add(&signals, EpollFlags::EPOLLIN, Token::Signals)?;
        poller.add(changes.as_fd(), EpollFlags::EPOLLIN, Token::TlsFiles)?;
        let mut outbox = Outbox::default();
        let (fds, marks) = tls::Files::open(&config.tls)?.into_parts();
        outbox.push(Event::TlsFiles, fds);
        // The lock of the state directory is ours, so whoever made groups of our name is dead.
        let left = launcher.succeed();
        if left > 0 {
            complain(&format!("{left} tasks of an earlier server do not die; see taskman health --verify-clean"));
        }
        // Once, and not at each start: it looks at every task that lives.
        launcher.sweep();
        let setup = audited::setup(launcher, config)?;
        let standing = Standing::open(&setup.state_dir)?;
        let local = Local::listen(&setup.state_dir)?;
        poller.add(local.as_fd(), EpollFlags::EPOLLIN, Token::Local)?;
        let program = fd::lift(program).on("fcntl", "the auditor's program")?;
        Ok(Self {
            launcher,
            config,
            socket,
            server,
            signals,
            changes,
            local,
            marks,
            poller,
            outbox,
            live: BTreeMap::new(),
            ids: HashMap::new(),
            waiting: VecDeque::new(),
            pool: Pool::new(config.warm.slots, config.warm.idle),
            lacking: None,
            last_start: None,
            next: FIRST_TASK,
            phase: Phase::Serving,
            reaped: false,
            interest,
            standing,
            signs,
            questions: Questions::default(),
            scan: Scan::default(),
            auditor: Auditor::new(program, setup),
        })
    }

    fn run(&mut self) -> Result<u8, SysError> {
        // The first auditor, before the first request.
        self.auditor_is_due();
        loop {
            self.flush()?;
            self.start_waiting();
            self.flush()?;
            self.tell_manager();
            if let Some(code) = self.exit_code() {
                self.live.values_mut().for_each(Live::abandon);
                return Ok(code);
            }
            self.auditor.flush();
            self.tend_slots();
            self.poller.set_deadline(AUDITOR, self.auditor_deadline());
            let (ready, due) = self.poller.wait()?;
            // Before everything else of the batch: a task's end may be the auditor's doing, and it says so first.
            self.hear_auditor();
            for token in ready {
                match token {
                    Token::Socket => self.read_requests(),
                    Token::Server => self.server_ended(),
                    Token::Signals => self.heed_signals(),
                    Token::TlsFiles => self.note_change(),
                    Token::Local => self.answer_locally(),
                    Token::Auditor => {} // heard above
                    Token::AuditorEnded => self.auditor_ended(),
                    Token::Report(task) => self.with_task(task, |live, poller| live.step(None, poller)),
                    Token::Watch(task, source) => self.with_task(task, |live, poller| live.step(Some(source), poller)),
                }
            }
            for owner in due {
                match owner {
                    // What was ready has begun another phase, which has a bound of its own.
                    SERVICE if self.poller.has_deadline(SERVICE) => {}
                    SERVICE => self.phase_is_over(),
                    TLS => self.send_tls_files(false),
                    AUDITOR => self.auditor_is_due(),
                    MANAGER => self.sign_is_due(),
                    WARM => self.slots_are_due(),
                    STARTS => {} // begun above, before each wait
                    task => self.with_task(task, |live, poller| live.step(None, poller)),
                }
            }
        }
    }

    /// Lets a task take a step, and tells the server what came of it.
    fn with_task(&mut self, serial: Owner, step: impl FnOnce(&mut Live, &mut Poller) -> News) {
        // One event of a batch may have ended the task that a later one is about.
        let Some(live) = self.live.get_mut(&serial) else { return };
        let id = live.id;
        let news = step(live, &mut self.poller);
        let (is_slot, owner) = (live.is_slot, live.owner.clone().unwrap_or_default());
        let gone = matches!(news, News::Last(_) | News::Gone);
        let mut failed = None;
        match news {
            News::None | News::Gone => {}
            News::Parked => self.slot_waits(id),
            News::Tell(event, fds) => {
                // Of a sandbox that was no task yet the server has nothing to record, unless it is in the way of one.
                let is_silent = is_slot && live.instead.take().is_none();
                self.note_end(&owner, &event, false);
                if is_slot {
                    self.slot_is_stuck(id);
                }
                if !is_silent {
                    self.tell(event, fds);
                }
            }
            // Of such a one that is gone nobody need know: the auditor would take another of its id for it.
            News::Last(event) if is_slot => {
                if let Event::StartFailed { error, .. } = *event {
                    failed = Some(error);
                }
            }
            News::Last(event) => {
                self.note_end(&owner, &event, true);
                self.tell(*event, Vec::new());
            }
        }
        if gone {
            let instead = self.live.remove(&serial).and_then(|live| live.instead);
            self.ids.remove(&id);
            self.poller.set_deadline(serial, None);
            if is_slot {
                self.slot_is_gone(id, failed.as_ref(), instead);
            }
        }
    }

    fn with_every_task(&mut self, mut step: impl FnMut(&mut Live, &mut Poller) -> News) {
        let serials: Vec<Owner> = self.live.keys().copied().collect();
        for serial in serials {
            self.with_task(serial, &mut step);
        }
    }

    fn tell(&mut self, event: Event, fds: Vec<OwnedFd>) {
        if self.phase.has_server() {
            self.outbox.push(event, fds);
        }
    }

    /// Sends what waits. While anything does, no request is taken.
    fn flush(&mut self) -> Result<(), SysError> {
        if !self.phase.has_server() {
            return Ok(());
        }
        match self.outbox.flush(self.socket.as_fd()) {
            Ok(()) => {}
            // What it said before it closed still counts: it may have been goodbye.
            Err(PacketError::Closed) => {
                while self.phase.has_server() && self.read_request() {}
                self.server_has_closed();
                return Ok(());
            }
            Err(error) => {
                self.server_is_lost(&error.to_string());
                return Ok(());
            }
        }
        let interest = if self.outbox.is_empty() { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLOUT };
        if interest != self.interest {
            self.poller.change(&self.socket, interest, Token::Socket)?;
            self.interest = interest;
        }
        Ok(())
    }

    fn heed_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGHUP as u32 {
                self.send_tls_files(true);
                self.note_reload();
            } else {
                self.drain();
            }
        }
    }

    fn note_change(&mut self) {
        self.changes.clear();
        if !self.poller.has_deadline(TLS) {
            self.poller.set_deadline(TLS, Some(Instant::now() + TLS_SETTLE));
        }
    }

    /// Hands the TLS files over, if they have changed or someone asks for it. Those that are in use stay when they are wrong.
    fn send_tls_files(&mut self, asked: bool) {
        match tls::Files::open(&self.config.tls) {
            Ok(files) if !asked && files.is_same(&self.marks) => {}
            Ok(files) => {
                let (fds, marks) = files.into_parts();
                self.marks = marks;
                self.tell(Event::TlsFiles, fds);
            }
            Err(error) => complain(&format!("the TLS files in use stay: {error}")),
        }
    }
}
