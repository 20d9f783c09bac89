//! Process 1 turns into sandbox-init: a program of its own, so that nothing of the launcher stays in its memory.

use std::convert::Infallible;
use std::ffi::CString;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sched::CpuSet;
use nix::unistd::execveat;

use super::{Failure, Plan, identity, limits, namespaces, step};
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::sys::{fd, scheduling};

/// The numbers sandbox-init expects; see `src/sys/reaper/main.rs`.
const TELL: i32 = 3;
const READY: i32 = 4;
/// Closed by execve, as [`super::FAILURE`] is, which stands between.
const IMAGE: i32 = 6;

/// The last steps of process 1. The payload-to-be waits until sandbox-init itself says that they are done.
pub fn become_init(plan: &Plan<'_>, payload: i32, processors: &CpuSet) -> Result<Infallible, Failure> {
    fault::role("init");
    step("payload-processors", part_from(payload, processors))?;
    step("priority", scheduling::prefer().on("setpriority", "sandbox-init"))?;
    step("hostname", namespaces::set_hostname(plan))?;
    step("loopback", namespaces::loopback_up())?;
    step("files", limits::bound_files(plan))?;
    step("identity", identity::drop_privileges(plan))?;
    // The change of credentials has cleared it.
    step("death-signal", identity::die_with(plan))?;
    step("init", execute(plan, payload))
}

/// Sends the payload-to-be to its own processors, so that both confine themselves side by side. One that has its uid by now is
/// another's process, which takes CAP_SYS_NICE; but before that it has gone there by itself.
fn part_from(payload: i32, processors: &CpuSet) -> Result<(), SysError> {
    match limits::show_processors(payload, processors) {
        Err(error) if error.errno() == Errno::EPERM => Ok(()),
        done => done,
    }
}

/// Keeps two descriptors and executes. The death signal and the signal mask survive execve; the environment is empty.
fn execute(plan: &Plan<'_>, payload: i32) -> Result<Infallible, SysError> {
    for (fd, number, name) in
        [(plan.tell, TELL, "status pipe"), (plan.ready, READY, "go pipe"), (plan.init, IMAGE, "taskman-init")]
    {
        fd::place(plan.child, fd, number, number == IMAGE).on("dup3", name)?;
    }
    fd::close_range(plan.child, 0, Some(TELL - 1)).on("close_range", "standard descriptors")?;
    fd::close_range(plan.child, IMAGE + 1, None).on("close_range", "all descriptors")?;
    let arguments =
        if cfg!(feature = "mutation") { mutated_arguments(payload) } else { vec![c"taskman-init".to_owned()] };
    let environment = if off(Defence::InitImage) { launcher_environment() } else { Vec::new() };
    fd::placed(plan.child, IMAGE)
        .and_then(|image| execveat(image, c"", &arguments, &environment, AtFlags::AT_EMPTY_PATH))
        .on("execveat", "taskman-init")
}

/// What the mutation arm's sandbox-init reads: the payload's pid, and one letter for each thing it is not to do.
fn mutated_arguments(payload: i32) -> Vec<CString> {
    let letters = [
        (Defence::InitReap, 'r'),
        (Defence::Dumpable, 'd'),
        (Defence::Seccomp, 's'),
        (Defence::DeathSignal, 'p'),
        (Defence::InitFilter, 'f'),
        (Defence::InitSenders, 'o'),
    ];
    let letters: String = letters.iter().filter(|(defence, _)| off(*defence)).map(|(_, letter)| letter).collect();
    ["taskman-init", &payload.to_string(), &letters].map(|text| CString::new(text).unwrap_or_default()).to_vec()
}

fn launcher_environment() -> Vec<CString> {
    std::env::vars().filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok()).collect()
}
