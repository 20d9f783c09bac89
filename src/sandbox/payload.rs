//! Process 2 turns into the command: last descriptors, filter, a look at what was set, and execve.

use std::convert::Infallible;
use std::ffi::CString;

use nix::errno::Errno;
use nix::sched::CpuSet;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, execve, read, setsid, write};

use super::{CONFINED, FAILURE, Failure, Plan, identity, limits, seccomp, step, verify};
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::sys;
use crate::sys::{fd, signal};

/// Beside [`FAILURE`], the one descriptor above 2 that is open until execve.
const GO: i32 = 4;

/// The last steps, in this process alone.
pub fn become_payload(plan: &Plan<'_>, processors: &CpuSet) -> Result<Infallible, Failure> {
    fault::role("payload");
    step("session", own_session())?;
    step("files", limits::bound_files(plan))?;
    // Init has mostly seen to it by now; once this process has another uid, it may not.
    step("processors", limits::show_processors(0, processors))?;
    step("identity", identity::drop_privileges(plan))?;
    // The change of credentials has cleared it; init is this process's parent.
    step("death-signal", identity::die_with(plan))?;
    step("descriptors", keep_descriptors(plan))?;
    step("workdir", enter_workdir(plan))?;
    step("signals", signal::unblock_all().on("sigprocmask", "none"))?;
    if !off(Defence::Seccomp) {
        step("seccomp", sys::seccomp::install(&seccomp::payload()).on("seccomp", "payload filter"))?;
    }
    if !off(Defence::PayloadNotPid1) {
        step("init", wait_for_init())?;
    }
    step("verify", verify::identity(plan))?;
    step("start", write(fd::placed(FAILURE), &[CONFINED]).on("write", "start pipe"))?;
    execute(plan)
}

fn execute(plan: &Plan<'_>) -> Result<Infallible, Failure> {
    let spec = plan.spec;
    let c_string = |text: &str| CString::new(text).unwrap_or_default();
    let arguments: Vec<CString> = std::iter::once(&spec.command).chain(&spec.args).map(|arg| c_string(arg)).collect();
    let mut variables = spec.environment();
    if off(Defence::Env) {
        variables.extend(std::env::vars());
    }
    let environment: Vec<CString> =
        variables.iter().map(|(name, value)| c_string(&format!("{name}={value}"))).collect();
    let candidates = if spec.command.contains('/') {
        vec![spec.command.clone()]
    } else {
        spec.search_path().split(':').map(|dir| format!("{dir}/{}", spec.command)).collect()
    };
    let mut last = SysError::new("execve", &*spec.command, Errno::ENOENT);
    for candidate in &candidates {
        let Err(errno) = execve(&c_string(candidate), &arguments, &environment);
        match errno {
            Errno::ENOENT | Errno::ENOTDIR if !std::path::Path::new(candidate).exists() => {
                if spec.command.contains('/') {
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
            _ => {
                last = SysError::new("execve", candidate, errno);
                break;
            }
        }
    }
    let not_found = matches!(last.errno(), Errno::ENOENT | Errno::ENOTDIR) && last.hint.is_none();
    let source = if not_found {
        last.hint("only what the sandbox shows can be executed; --bind-ro brings more in")
    } else {
        last
    };
    Err(Failure::Exec { not_found, source })
}

fn keep_descriptors(plan: &Plan<'_>) -> Result<(), SysError> {
    for (number, fd) in (0..).zip(plan.stdio) {
        fd::place(fd, number, false).on("dup3", format!("descriptor {number}"))?;
    }
    fd::place(plan.go, GO, true).on("dup3", "go pipe")?;
    if off(Defence::CloseFds) {
        return Ok(());
    }
    fd::close_range(3, Some(GO - 1)).on("close_range", "descriptor 3")?;
    fd::close_range(FAILURE + 1, None).on("close_range", "all descriptors")
}

fn own_session() -> Result<(), SysError> {
    umask(Mode::from_bits_truncate(0o022));
    if off(Defence::Session) || off(Defence::PayloadNotPid1) {
        return Ok(());
    }
    setsid().on("setsid", "payload").map(drop)
}

fn enter_workdir(plan: &Plan<'_>) -> Result<(), SysError> {
    let name = plan.spec.workdir.display().to_string();
    chdir(&plan.spec.workdir).on("chdir", &*name).map_err(|e| e.hint("--workdir names a directory inside the sandbox"))
}

/// Init writes one byte when it is confined itself; before that, its memory and name are still the launcher's.
fn wait_for_init() -> Result<(), SysError> {
    match read(fd::placed(GO), &mut [0]).on("read", "go pipe")? {
        1 => Ok(()),
        _ => Err(SysError::new("read", "go pipe", Errno::EPIPE).hint("sandbox-init could not be started")),
    }
}
