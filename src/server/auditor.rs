//! `taskman-server auditor`: the same program, executed anew by the launcher as the auditor. Not for people.

use std::process::ExitCode;

use nix::sys::signal::Signal;
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, setsid};

use crate::audit;
use crate::error::{Context, SysError};
use crate::log::{self, Level};
use crate::sys::{scheduling, signal, spawn};

/// The launcher hears these, and closes the auditor's socket when all is done; a terminal would send them to both.
const NOT_FOR_THE_AUDITOR: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The auditor, to its end.
pub fn main() -> ExitCode {
    let socket = spawn::given_socket();
    let is_ours = |socket: &_| getsockopt(socket, sockopt::SockType) == Ok(SockType::SeqPacket);
    let Some(socket) = socket.ok().filter(is_ours) else {
        let why = "auditor is not a command; taskman-server starts its auditor itself";
        log::line(Level::Error, "taskman-server", why);
        return ExitCode::FAILURE;
    };
    match detach() {
        Ok(()) => ExitCode::from(audit::run(socket)),
        Err(error) => {
            log::line(Level::Error, "taskman-auditor", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn detach() -> Result<(), SysError> {
    setsid().on("setsid", "auditor")?;
    signal::ignore(&NOT_FOR_THE_AUDITOR).on("sigaction", "SIGINT, SIGTERM, SIGHUP")?;
    signal::unblock_all().on("sigprocmask", "none")?;
    nix::sys::prctl::set_name(c"taskman-auditor").on("prctl", "PR_SET_NAME")?;
    chdir("/").on("chdir", "/")?;
    umask(Mode::from_bits_truncate(0o077));
    // Whoever forks most must not keep the auditor from being heard.
    scheduling::prefer().on("setpriority", "auditor")?;
    scheduling::prefer_session();
    Ok(())
}
