//! Process 2 turns into the command: last descriptors, filter, a look at what was set, and execve.

use std::convert::Infallible;
use std::ffi::CString;

use nix::errno::Errno;
use nix::sched::CpuSet;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, execve, read, setsid, write};

use super::{CONFINED, FAILURE, Failure, PARKED, Plan, identity, limits, procfs, step, verify};
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::sys;
use crate::sys::{fd, signal};
use crate::task::profile::Profile;
use crate::task::spec::Command;

/// [`super::seccomp::payload`], compiled when this program was and not at each start.
static FILTER: &[libc::sock_filter] = &include!(concat!(env!("OUT_DIR"), "/payload-filter.rs"));
/// The same for [`Profile::Filters`].
static OWN_FILTERS: &[libc::sock_filter] = &include!(concat!(env!("OUT_DIR"), "/own-filters-filter.rs"));

/// Beside [`FAILURE`], the one descriptor above 2 that is open until execve.
const GO: i32 = 4;

/// The last steps, in this process alone.
pub fn become_payload(plan: &Plan<'_>, processors: &CpuSet) -> Result<Infallible, Failure> {
    fault::role("payload");
    step("session", own_session())?;
    step("proc", procfs::cover(plan))?;
    step("files", limits::bound_files(plan))?;
    // Init has mostly seen to it by now; once this process has another uid, it may not.
    step("processors", limits::show_processors(0, processors))?;
    step("identity", identity::drop_privileges(plan))?;
    // The change of credentials has cleared it; init is this process's parent.
    step("death-signal", identity::die_with(plan))?;
    step("descriptors", keep_descriptors(plan))?;
    step("signals", signal::unblock_all().on("sigprocmask", "none"))?;
    if !off(Defence::Seccomp) {
        let filter = if plan.spec.profile == Profile::Filters { OWN_FILTERS } else { FILTER };
        let mutant = off(Defence::SocketOptions).then(super::seccomp::any_socket_option);
        step("seccomp", sys::seccomp::install(mutant.as_deref().unwrap_or(filter)).on("seccomp", "payload filter"))?;
    }
    if !off(Defence::PayloadNotPid1) {
        step("init", wait_for_init(plan))?;
    }
    step("verify", verify::identity(plan))?;
    let command = if plan.parked { step("park", wait_for_command(plan))? } else { plan.spec.command() };
    step("workdir", enter_workdir(&command))?;
    step("start", tell(plan, CONFINED))?;
    execute(command)
}

fn execute(command: Command) -> Result<Infallible, Failure> {
    let c_string = |text: &str| CString::new(text).unwrap_or_default();
    let arguments: Vec<CString> =
        std::iter::once(&command.program).chain(&command.args).map(|arg| c_string(arg)).collect();
    let inherited = if off(Defence::Env) { std::env::vars().collect() } else { Vec::new() };
    let variables = command.env.iter().chain(&inherited);
    let environment: Vec<CString> = variables.map(|(name, value)| c_string(&format!("{name}={value}"))).collect();
    let program = &command.program;
    let candidates = if program.contains('/') {
        vec![program.clone()]
    } else {
        command.search_path().split(':').map(|dir| format!("{dir}/{program}")).collect()
    };
    let mut last = SysError::new("execve", &**program, Errno::ENOENT);
    for candidate in &candidates {
        let Err(errno) = execve(&c_string(candidate), &arguments, &environment);
        match errno {
            Errno::ENOENT | Errno::ENOTDIR if !std::path::Path::new(candidate).exists() => {
                if program.contains('/') {
                    last = SysError::new("execve", candidate, errno);
                }
            }
            // The file is there: its interpreter, named in its first line or its headers, is not.
            Errno::ENOENT => {
                last = SysError::new("execve", candidate, errno)
                    .hint("the file's interpreter does not exist in the sandbox");
                break;
            }
            // As execvp does: a file that may not be executed does not end the search, but is what is told.
            Errno::EACCES => last = SysError::new("execve", candidate, errno),
            Errno::ENOEXEC => {
                last = SysError::new("execve", candidate, errno)
                    .hint("neither a program of this machine nor a script whose first line begins with #!");
                break;
            }
            _ => {
                last = SysError::new("execve", candidate, errno);
                break;
            }
        }
    }
    let not_found = matches!(last.errno(), Errno::ENOENT | Errno::ENOTDIR) && last.hint.is_none();
    let source = if not_found && program.contains(' ') {
        last.hint("the whole is taken for a program's name; give its words one by one, or sh -c '…'")
    } else if not_found {
        last.hint("only what the sandbox shows can be executed; --bind-ro brings more in")
    } else {
        last
    };
    Err(Failure::Exec { not_found, source })
}

fn keep_descriptors(plan: &Plan<'_>) -> Result<(), SysError> {
    for (number, fd) in (0..).zip(plan.stdio) {
        fd::place(plan.child, fd, number, false).on("dup3", format!("descriptor {number}"))?;
    }
    fd::place(plan.child, plan.go, GO, true).on("dup3", "go pipe")?;
    if off(Defence::CloseFds) {
        return Ok(());
    }
    fd::close_range(plan.child, 3, Some(GO - 1)).on("close_range", "descriptor 3")?;
    fd::close_range(plan.child, FAILURE + 1, None).on("close_range", "all descriptors")
}

fn own_session() -> Result<(), SysError> {
    umask(Mode::from_bits_truncate(0o022));
    if off(Defence::Session) || off(Defence::PayloadNotPid1) {
        return Ok(());
    }
    setsid().on("setsid", "payload").map(drop)
}

fn enter_workdir(command: &Command) -> Result<(), SysError> {
    let name = command.workdir.display().to_string();
    chdir(&command.workdir).on("chdir", &*name).map_err(|e| e.hint("--workdir names a directory inside the sandbox"))
}

/// Says that all is done, and waits, for long perhaps, for the one command that this sandbox is for: the length of a text, and
/// the text. A launcher that gives the sandbox up, or dies, kills it.
fn wait_for_command(plan: &Plan<'_>) -> Result<Command, SysError> {
    tell(plan, PARKED)?;
    let mut length = [0; 4];
    fill(plan, &mut length)?;
    let mut text = vec![0; u32::from_ne_bytes(length) as usize];
    fill(plan, &mut text)?;
    let wrong = |error: serde_json::Error| SysError::new("read", "command", Errno::EBADMSG).hint(error.to_string());
    serde_json::from_slice(&text).map_err(wrong)
}

fn tell(plan: &Plan<'_>, word: u8) -> Result<(), SysError> {
    fd::placed(plan.child, FAILURE).and_then(|pipe| write(pipe, &[word])).on("write", "start pipe").map(drop)
}

fn fill(plan: &Plan<'_>, mut rest: &mut [u8]) -> Result<(), SysError> {
    let pipe = fd::placed(plan.child, FAILURE).on("fcntl", "start pipe")?;
    while !rest.is_empty() {
        match read(pipe, rest).on("read", "start pipe")? {
            0 => return Err(SysError::new("read", "start pipe", Errno::EPIPE).hint("the launcher gave up")),
            count => rest = &mut rest[count..],
        }
    }
    Ok(())
}

/// Init writes one byte when it is confined itself; before that, its memory and name are still the launcher's.
fn wait_for_init(plan: &Plan<'_>) -> Result<(), SysError> {
    match fd::placed(plan.child, GO).and_then(|go| read(go, &mut [0])).on("read", "go pipe")? {
        1 => Ok(()),
        _ => Err(SysError::new("read", "go pipe", Errno::EPIPE).hint("sandbox-init could not be started")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::seccomp;

    #[test]
    fn the_filter_is_the_tables() {
        assert_eq!(*FILTER, *seccomp::payload(false));
        assert_eq!(*OWN_FILTERS, *seccomp::payload(true));
    }
}
