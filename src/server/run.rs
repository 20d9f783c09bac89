//! `taskman-server` from its command line to the split: everything that needs root and can be refused is done first, so that
//! an error is one line on the terminal and not half a service.

use std::error::Error;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use clap::Parser;
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::args::Args;
use super::serve::{self, Listeners};
use super::state::State;
use super::{auditor, logging, split};
use crate::config::Config;
use crate::error::{Context, StartError, SysError};
use crate::fault;
use crate::launch::Launcher;
use crate::launch::service::{self, Manager, tls};
use crate::log::{self, Level};
use crate::place;
use crate::stderr;
use crate::sys::clone::{self, InChild, Side};
use crate::sys::names;
use crate::wire::{self, Sender};
use crate::{certs, doctor, usage};

/// The whole of `taskman-server`.
pub fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "auditor") {
        return auditor::main();
    }
    // First of all: what is forked off inherits neither the variables nor what they say.
    let manager = Manager::take();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage::explain("taskman-server", error, 2),
    };
    if args.print_config {
        return print_config();
    }
    match manager.map_err(Into::into).and_then(|manager| run(&args, manager)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            log::line(Level::Error, "taskman-server", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Where it goes may be full: half a configuration is none.
fn print_config() -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    let text = Config::print_default();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that went away has seen what it wanted.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            log::line(Level::Error, "taskman-server", &format!("standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(args: &Args, manager: Option<Manager>) -> Result<u8, Box<dyn Error>> {
    let mut config = Config::load(args.config.as_deref(), &args.overrides())?;
    if !nix::unistd::geteuid().is_root() {
        return Err(StartError::Host(vec![doctor::NOT_ROOT.to_owned()]).into());
    }
    if args.state_dir.as_ref().is_some_and(|given| given.is_relative()) {
        let at = format!("the state directory is {}", config.state_dir.display());
        log::line(Level::Notice, "taskman-server", &at);
    }
    names::use_builtin_lookups().on("configure", "name lookups")?;
    check_uid(&config)?;
    if let Some(less) = config.fit(split::raise_open_files()?)? {
        log::line(Level::Warning, "taskman-server", &less);
    }
    let state = State::open(&config.state_dir, config.server_uid)?;
    place::set_uid_range(&config.state_dir, config.uid_range)?;
    if args.dev {
        make_certificates(&config)?;
    }
    // Sent to the server once it is there; what is wrong with them is said here and now.
    tls::Files::open(&config.tls)?;
    let listeners = Listeners {
        api: bind(&config.server_address, "--server-address")?,
        metrics: config.metrics_address.as_deref().map(|address| bind(address, "--metrics-address")).transpose()?,
    };
    if args.dev {
        advise(&config, &listeners.api)?;
    }
    service::block_signals()?;
    let program = File::open("/proc/self/exe").on("open", "/proc/self/exe")?;
    // Server and auditor will be where it is.
    let launcher = Launcher::with_uids(config.uid_range)?.settled()?.named(place::instance_of(&config.state_dir)?);
    let (here, there) = wire::pair()?;
    let parent = Pid::this();
    match clone::split().on("fork", "server")? {
        Side::Child(child) => {
            // Closed by number below: dropped here as well, they would close what has taken their numbers.
            std::mem::forget((launcher, here, program));
            Ok(run_server(args, (child, parent), config, listeners, there, state))
        }
        Side::Parent(pid, pidfd) => {
            drop((listeners, there));
            // The server process, taken over, could make each line wait.
            stderr::reopen();
            let process = pidfd.expect("split gives one").into();
            let sender = Sender { pid, uid: config.server_uid };
            let server = service::Server { process, sender };
            Ok(service::serve(&launcher, &config, here, server, program.into(), manager))
        }
    }
}

fn run_server(
    args: &Args,
    (child, launcher): (InChild, Pid),
    config: Config,
    listeners: Listeners,
    socket: OwnedFd,
    state: State,
) -> u8 {
    fault::role("server");
    let (lock, directory) = state.into_server();
    let mut keep = vec![listeners.api.as_fd(), socket.as_fd(), lock.as_fd()];
    keep.extend(listeners.metrics.as_ref().map(AsFd::as_fd));
    keep.extend(stderr::descriptor());
    if let Err(error) = split::become_server(child, launcher, config.server_uid, &keep) {
        log::line(Level::Error, "taskman-server", &error.to_string());
        return 1;
    }
    let served = logging::init(&args.log_level, args.log_format)
        .and_then(|()| serve::serve(config, listeners, socket, &directory));
    match served {
        Ok(()) => 0,
        Err(error) => {
            log::line(Level::Error, "taskman-server", &error.to_string());
            1
        }
    }
}

/// The server's uid is nobody else's: not root's, not a task's, not an account's but its own.
fn check_uid(config: &Config) -> Result<(), SysError> {
    let uid = config.server_uid;
    let refused = |why: String| Err(SysError::new("use", format!("server_uid {uid}"), Errno::EINVAL).hint(why));
    if uid == 0 || uid == u32::MAX || config.uid_range.contains(uid) {
        return refused("it must be neither root's nor one of uid_range".to_owned());
    }
    // By the files, as for the tasks' uids: the C library would load modules into a static program to ask.
    match doctor::server_refusals(uid).into_iter().next() {
        Some(why) => refused(why),
        None => Ok(()),
    }
}

/// The host part of the address, as it is configured.
fn host(config: &Config) -> &str {
    config.server_address.rsplit_once(':').map_or("localhost", |(host, _)| host)
}

/// The two lines that a newcomer needs next, with the port that was taken.
fn advise(config: &Config, listener: &TcpListener) -> Result<(), SysError> {
    let certs = config.tls.ca_cert.parent().unwrap_or(&config.state_dir).display();
    let taken = listener.local_addr().on("getsockname", "listener")?;
    let host = if taken.ip().is_unspecified() { "localhost" } else { host(config) };
    eprintln!("export TASKMAN_CERTS={certs} TASKMAN_USER_ID=client001 TASKMAN_SERVER_ADDRESS={host}:{}", taken.port());
    eprintln!("taskman start --follow -- echo hello");
    Ok(())
}

/// With `--dev`, on the first start: an authority and certificates.
///
/// In a process of its own: the authority's key must not be found in the memory of the server that is forked off later.
fn make_certificates(config: &Config) -> Result<(), SysError> {
    let directory = config.state_dir.join("certs");
    if config.tls.ca_cert.parent() != Some(&*directory) || config.tls.ca_cert.exists() {
        return Ok(());
    }
    let host = host(config).trim_start_matches('[').trim_end_matches(']').to_owned();
    let shown = directory.display().to_string();
    match clone::split().on("fork", "certificates")? {
        Side::Child(_) => std::process::exit(match certs::init(&directory, &[host]) {
            Ok(_) => 0,
            Err(error) => {
                log::line(Level::Error, "taskman-server", &error.to_string());
                1
            }
        }),
        Side::Parent(pid, _) => match waitpid(Pid::from_raw(pid), None).on("waitpid", "certificates")? {
            WaitStatus::Exited(_, 0) => Ok(()),
            _ => Err(SysError::new("make", shown, Errno::ECHILD).hint("see the line before this one")),
        },
    }
}

/// Binds the first of the name's addresses that can be had; of `localhost` the one that every client knows.
fn bind(address: &str, flag: &str) -> Result<TcpListener, SysError> {
    // A static program asks nobody for these two, who would have to be loaded for it.
    let plain = address.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    if let Ok(address) = plain.as_deref().unwrap_or(address).parse::<SocketAddr>() {
        return listen(&[address], flag);
    }
    let wrong = |error: SysError| error.hint(format!("write {flag} as HOST:PORT, for example localhost:50051"));
    let mut addresses: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|_| SysError::new("resolve", address, Errno::EINVAL))
        .map_err(wrong)?
        .collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    listen(&addresses, flag)
}

fn listen(addresses: &[SocketAddr], flag: &str) -> Result<TcpListener, SysError> {
    let names = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
    TcpListener::bind(addresses).on("bind", names).map_err(|error| match error.errno() {
        Errno::EADDRINUSE => error.hint(format!("another program listens there; give another {flag}")),
        _ => error,
    })
}
