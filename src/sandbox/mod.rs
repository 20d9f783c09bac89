//! The child's side of a start: the ordered list of steps that turn a copy of the launcher into a confined command.
//!
//! The order is the security property. A step that fails is reported with its name, and the task does not start; there
//! is no step that only warns. Everything here runs before the first instruction of the payload.

mod dev;
mod etc;
mod identity;
mod init;
mod limits;
mod machine;
mod namespaces;
mod payload;
pub mod procfs;
mod rootfs;
pub mod seccomp;
mod verify;

use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use identity::drop_to;
pub use verify::is_powerless;

use crate::cgroup::Group;
use crate::error::{Context, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::sys::{clone, fd, pidfd::PidFd, signal};
use crate::task::spec::TaskSpec;

/// The one byte that says: every step is done and verified, the command is executed next.
pub const CONFINED: u8 = b'!';
/// The one byte that says: every step is done and verified, and the command is waited for.
pub const PARKED: u8 = b'.';

/// The one byte that says: the cgroup is complete.
pub const PLACED: u8 = b'+';
/// Where both processes of a sandbox keep the start pipe until they execute.
const FAILURE: i32 = 5;

/// All a child needs, prepared by the launcher before the child exists.
pub struct Plan<'a> {
    /// What to build and, unless it is parked, to run.
    pub spec: &'a TaskSpec,
    /// The command is not known yet: it comes through the start pipe when the sandbox is built.
    pub parked: bool,
    /// The task's uid and gid.
    pub uid: u32,
    /// The task's cgroup.
    pub group: &'a Group,
    /// The launcher itself: a child whose launcher is gone must not go on.
    pub launcher: &'a PidFd,
    /// A directory of the host over which the child, in its own mount namespace, assembles its root.
    pub assembly: &'a Path,
    /// The task's ends of stdin, stdout, stderr.
    pub stdio: [BorrowedFd<'a>; 3],
    /// That this is the process that enters it.
    pub child: &'a clone::InChild,
    /// Sandbox-init's image.
    pub init: BorrowedFd<'a>,
    /// Where a [`Failure`] is written; closed by a successful execve.
    pub failure: BorrowedFd<'a>,
    /// Init tells the payload's wait status here.
    pub tell: BorrowedFd<'a>,
    /// The launcher says here that every limit is written.
    pub placed: BorrowedFd<'a>,
    /// Init says here that it is confined.
    pub ready: BorrowedFd<'a>,
    /// The payload-to-be waits here for init.
    pub go: BorrowedFd<'a>,
}

/// Why a child gave up.
#[derive(Debug, Serialize, Deserialize)]
pub enum Failure {
    /// A step failed.
    Step {
        /// Its name.
        step: String,
        /// What the kernel said.
        source: SysError,
    },
    /// The command could not be executed.
    Exec {
        /// No such file exists in the sandbox.
        not_found: bool,
        /// What the kernel said.
        source: SysError,
    },
}

/// Confines this process and executes the command in its child; reports and exits if anything fails.
pub fn enter(plan: &Plan<'_>) -> ! {
    fault::role("confine");
    // Without this pipe nothing can be told, and the launcher sees a child that died without a word.
    if fd::place(plan.child, plan.failure, FAILURE, true).is_ok() {
        let Err(failure) = confine(plan);
        let text = serde_json::to_vec(&failure).unwrap_or_default();
        let _ = fd::placed(plan.child, FAILURE).and_then(|pipe| nix::unistd::write(pipe, &text));
    }
    std::process::exit(125)
}

/// What both processes share is done first, by the one that becomes init; the rest side by side.
fn confine(plan: &Plan<'_>) -> Result<Infallible, Failure> {
    step("death-signal", identity::die_with(plan))?;
    step("session", namespaces::leave_session())?;
    step("scheduling", limits::reset_scheduling())?;
    step("cores", limits::forbid_cores())?;
    step("time", namespaces::own_clock())?;
    step("mounts", rootfs::make_private())?;
    step("root", rootfs::assemble(plan))?;
    step("sockets", namespaces::bound_socket_memory())?;
    step("cgroup", namespaces::join_cgroup(plan))?;
    step("proc", procfs::mount(plan))?;
    step("pivot", rootfs::pivot())?;
    step("verify", verify::mounts())?;
    step("limits", limits::apply(plan))?;
    step("signals", signal::reset_dispositions().and_then(|()| signal::block_all()).on("sigaction", "all signals"))?;
    let processors = step("processors", limits::choose_processors(plan))?;
    if off(Defence::PayloadNotPid1) {
        return payload::become_payload(plan, &processors);
    }
    match clone::fork(plan.child).on("fork", "payload").map_err(failed("fork"))? {
        clone::Side::Child(_) => payload::become_payload(plan, &processors),
        clone::Side::Parent(pid, _) => init::become_init(plan, pid, &processors),
    }
}

fn step<T>(name: &'static str, result: Result<T, SysError>) -> Result<T, Failure> {
    let done = result.map_err(failed(name))?;
    fault::point(name);
    Ok(done)
}

fn failed(step: &'static str) -> impl FnOnce(SysError) -> Failure {
    move |source| Failure::Step { step: step.to_owned(), source }
}

/// Paths of the host whose files the task can read, for the io limit of the disks behind them.
pub fn host_paths(spec: &TaskSpec) -> Vec<PathBuf> {
    let system = rootfs::SYSTEM.iter().map(|name| Path::new("/").join(name));
    let all = system.chain(spec.binds.iter().map(|bind| bind.source.clone()));
    // A symlink, as /bin is on a merged-usr host, is repeated inside, and leads to one of the others.
    all.filter(|path| path.symlink_metadata().is_ok_and(|meta| !meta.is_symlink())).collect()
}
