//! One process becomes two: the parent stays root and launches, the child gives everything up and faces the network.
//!
//! It happens before any thread exists. The child's steps are a list whose order matters: what needs privilege first, then
//! the privilege itself, then the filter, then a look at what came of it.

use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, chdir, getppid, setsid};

use super::filter;
use crate::error::{Context, SysError};
use crate::sandbox;
use crate::sys::clone::InChild;
use crate::sys::{fd, seccomp, signal};

/// The launcher hears these, and tells the server in order; a terminal would send them to both.
const NOT_FOR_THE_SERVER: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Makes this process the server: `uid`, powerless, with nothing open but the standard streams and `keep`.
///
/// Whoever owns another descriptor in this process must have forgotten it.
pub fn become_server(child: InChild, launcher: Pid, uid: u32, keep: &[BorrowedFd<'_>]) -> Result<(), SysError> {
    setsid().on("setsid", "server")?;
    signal::ignore(&NOT_FOR_THE_SERVER).on("sigaction", "SIGINT, SIGTERM, SIGHUP")?;
    signal::unblock_all().on("sigprocmask", "none")?;
    close_others(child, keep)?;
    // What was reached from where root stood is not reached from here.
    chdir(Path::new("/")).on("chdir", "/")?;
    umask(Mode::from_bits_truncate(0o077));
    kill_as_any_other()?;
    sandbox::drop_to(uid)?;
    die_with(launcher)?;
    let filter = filter::program()
        .map_err(|why| SysError::new("compile", "server filter", Errno::EINVAL).hint(why.to_string()))?;
    seccomp::install(&filter).on("seccomp", "server filter")?;
    sandbox::is_powerless(uid)
}

/// Dies with the launcher, also where it stands still: it has the port, the lock of the state and the TLS key. After the change
/// of uid, which clears it.
fn die_with(launcher: Pid) -> Result<(), SysError> {
    prctl::set_pdeathsig(Signal::SIGKILL).on("prctl", "PR_SET_PDEATHSIG")?;
    match getppid() == launcher {
        true => Ok(()),
        false => Err(SysError::new("getppid", "the launcher", Errno::ESRCH).hint("the launcher died")),
    }
}

/// Gives up the protection from a host without memory that a unit gave the launcher: what strangers can make grow has none. It
/// is only ever raised, which needs no privilege; a value above is whoever's that set it.
fn kill_as_any_other() -> Result<(), SysError> {
    let file = "/proc/self/oom_score_adj";
    let inherited = std::fs::read_to_string(file).on("read", file)?;
    if inherited.starts_with('-') {
        std::fs::write(file, "0").on("write", file)?;
    }
    Ok(())
}

/// Raises the number of files that may be open as far as this host allows, and says how far that is: each task has several.
pub fn raise_open_files() -> Result<u64, SysError> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).on("getrlimit", "RLIMIT_NOFILE")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).on("setrlimit", "RLIMIT_NOFILE")?;
    Ok(most)
}

/// Standard input too is replaced: what an operator types is not for the server.
fn close_others(child: InChild, keep: &[BorrowedFd<'_>]) -> Result<(), SysError> {
    let null = std::fs::File::open("/dev/null").on("open", "/dev/null")?;
    fd::place(&child, &null, 0, false).on("dup3", "/dev/null")?;
    drop(null);
    fd::close_all_but(child, keep).on("close_range", "all descriptors")
}
