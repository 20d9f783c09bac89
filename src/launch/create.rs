//! From a request to a running command: place, create, and learn whether it was executed.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown, pipe2, write};

use super::Launcher;
use super::end::Placement;
use super::task::{Stdio, Task};
use crate::cgroup::{Device, Group, OomWatch};
use crate::error::{Context, StartError, SysError};
use crate::mutation::{Defence, off};
use crate::sandbox::{self, Failure, Plan};
use crate::sys::{SANDBOX_INIT, clone, fd, pidfd::PidFd};
use crate::task::spec::TaskSpec;
use serde::Deserialize;

/// How long a sandbox may take to build: a thousand times what it takes, and not for ever.
const START: Duration = Duration::from_secs(30);

/// The six namespaces, made in the same call that creates the process.
const NAMESPACES: [(Defence, libc::c_int); 6] = [
    (Defence::PidNamespace, libc::CLONE_NEWPID),
    // Never switched off: without it the steps that follow would take the host's own root apart.
    (Defence::Never, libc::CLONE_NEWNS),
    (Defence::IpcNamespace, libc::CLONE_NEWIPC),
    (Defence::UtsNamespace, libc::CLONE_NEWUTS),
    (Defence::NetNamespace, libc::CLONE_NEWNET),
    (Defence::CgroupNamespace, libc::CLONE_NEWCGROUP),
];

/// Creates the task in its cgroup, completes the cgroup while the child confines itself, and returns when the command
/// runs.
pub fn create(launcher: &Launcher, spec: TaskSpec, disks: &[Device], reduced: Vec<String>) -> Result<Task, StartError> {
    let lease = launcher.uids.take(spec.id.entropy()).map_err(StartError::step("uid"))?;
    let group = Group::create(&launcher.layout, &launcher.instance, &spec.id).map_err(StartError::step("cgroup"))?;
    let mut placement = Placement { group, init: None, tried: false };

    let pipes = |name| pipe(name).map_err(StartError::step("pipes"));
    let (stdin, feed) = pipes("stdin")?;
    let (output, stdout) = pipes("stdout")?;
    let (errors, stderr) = pipes("stderr")?;
    // The launcher's ends never block: the task shares the pipes and can change their size between a poll and a write.
    for end in [&feed, &output, &errors].into_iter().filter(|_| !off(Defence::NonBlockingPipes)) {
        fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .on("fcntl", "standard stream")
            .map_err(StartError::step("pipes"))?;
    }
    // What /dev/stdin, /dev/stdout and /dev/stderr lead to can be opened by the task, in its own direction.
    for (pipe, mode) in [(&stdin, 0o400), (&stdout, 0o200), (&stderr, 0o200)] {
        hand_over(pipe, lease.uid, mode).map_err(StartError::step("pipes"))?;
    }
    let (report, failure) = pipes("start")?;
    let (status, tell) = pipes("status")?;
    let (placed, place) = pipes("placed")?;
    let (go, ready) = pipes("go")?;
    let init = init_image().map_err(StartError::step("init"))?;
    let flags =
        NAMESPACES.iter().filter(|(defence, _)| !off(*defence)).fold(0, |flags, (_, flag)| flags | *flag as u64);
    let cgroup = (!off(Defence::CloneIntoCgroup)).then(|| placement.group.dir_fd());
    match clone::clone3(flags, cgroup).on("clone3", "sandbox-init").map_err(StartError::step("clone"))? {
        clone::Side::Child => {
            // The child keeps no copy: it learns of the launcher's death by the end of this pipe.
            drop(place);
            sandbox::enter(&Plan {
                spec: &spec,
                uid: lease.uid,
                group: &placement.group,
                launcher: &launcher.myself,
                assembly: Path::new(super::RUN_DIR),
                stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
                init: init.as_fd(),
                failure: failure.as_fd(),
                tell: tell.as_fd(),
                placed: placed.as_fd(),
                ready: ready.as_fd(),
                go: go.as_fd(),
            })
        }
        clone::Side::Parent(_, pidfd) => placement.init = pidfd.map(PidFd::from),
    }
    // The pipes' other ends are the child's alone from here on: their closing is how its end is seen.
    drop((stdin, stdout, stderr, failure, tell, placed, ready, go, init));

    // The child is building its root, and waits before it joins the groups made here and before anything of the task runs.
    let oom = complete(&mut placement.group, &spec, disks).map_err(StartError::step("cgroup"))?;
    match write(&place, &[sandbox::PLACED]) {
        // A child that gave up before tells why.
        Ok(_) | Err(Errno::EPIPE) => {}
        Err(errno) => return Err(StartError::step("cgroup")(SysError::new("write", "placed pipe", errno))),
    }
    launcher.sweep();
    wait_for_exec(report, &spec, &placement.group)?;

    let stdio = Stdio { stdin: Some(feed), stdout: Some(output), stderr: Some(errors) };
    let (started, started_at) = (Instant::now(), SystemTime::now());
    Ok(Task { spec, lease, placement, oom, status, stdio, reduced, started, started_at, ending: None, main: None })
}

/// Every limit written, and the watch for their most sudden end set.
fn complete(group: &mut Group, spec: &TaskSpec, disks: &[Device]) -> Result<OomWatch, SysError> {
    group.complete(&spec.limits, disks)?;
    group.watch_oom()
}

/// Reads what the child has to say: one byte when all steps are done, then silence (executed) or a [`Failure`].
fn wait_for_exec(report: OwnedFd, spec: &TaskSpec, group: &Group) -> Result<(), StartError> {
    let said = read_within(report, START).map_err(StartError::step("start"))?;
    let failure = said.strip_prefix(&[sandbox::CONFINED]);
    match failure.unwrap_or(&said) {
        [] if failure.is_some() => Ok(()),
        [] => Err(died(spec, group)),
        failure => Err(failed(failure, spec)),
    }
}

/// Everything up to the end of the pipe, unless that takes too long.
fn read_within(pipe: OwnedFd, patience: Duration) -> Result<Vec<u8>, SysError> {
    let deadline = Instant::now() + patience;
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout).on("poll", "start pipe")? {
            0 => {
                return Err(SysError::new("build", "sandbox", Errno::ETIMEDOUT)
                    .hint("a file system it touches does not answer; look at --bind-ro and --workdir"));
            }
            _ => match nix::unistd::read(&pipe, &mut piece).on("read", "start pipe")? {
                0 => return Ok(said),
                count => said.extend_from_slice(&piece[..count]),
            },
        }
    }
}

fn failed(failure: &[u8], spec: &TaskSpec) -> StartError {
    // Both processes of a sandbox may fail at once; the first to speak is heard.
    let mut reader = serde_json::Deserializer::from_slice(failure);
    match Failure::deserialize(&mut reader) {
        Ok(Failure::Step { step, source }) => StartError::Step { step: step.into(), source },
        Ok(Failure::Exec { not_found, source }) => {
            StartError::Exec { command: spec.command.clone(), not_found, source }
        }
        Err(error) => {
            StartError::step("start")(SysError::new("read", "start pipe", Errno::EBADMSG).hint(error.to_string()))
        }
    }
}

/// The child ended without a word: killed during set-up, by the memory limit or from outside.
fn died(spec: &TaskSpec, group: &Group) -> StartError {
    let hint = match group.oom_kills() {
        Ok(kills) if kills > 0 => {
            format!("the memory limit of {} bytes is too small for the sandbox", spec.limits.memory_bytes)
        }
        _ => "it was killed from outside; see the kernel log".to_owned(),
    };
    StartError::step("start")(SysError::new("build", "sandbox", Errno::ECHILD).hint(hint))
}

fn pipe(name: &'static str) -> Result<(OwnedFd, OwnedFd), SysError> {
    let lifted = || {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        Ok::<_, Errno>((fd::lift(read)?, fd::lift(write)?))
    };
    lifted().on("pipe2", name)
}

fn hand_over(pipe: &OwnedFd, uid: u32, mode: u32) -> Result<(), SysError> {
    fchmod(pipe, Mode::from_bits_truncate(mode)).on("fchmod", "standard stream")?;
    fchown(pipe, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).on("fchown", "standard stream")
}

/// Sandbox-init as a sealed file that a task can execute but neither read nor change.
fn init_image() -> Result<OwnedFd, SysError> {
    // MFD_EXEC, where the kernel knows it, says that execution is meant even if memfds are not executable by default.
    const MFD_EXEC: MFdFlags = MFdFlags::from_bits_retain(0x10);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let image = match memfd_create(c"taskman-init", flags | MFD_EXEC) {
        Err(Errno::EINVAL) => memfd_create(c"taskman-init", flags),
        other => other,
    }
    .on("memfd_create", "taskman-init")?;
    let mut file = File::from(image);
    file.write_all(SANDBOX_INIT).on("write", "taskman-init")?;
    let mode = if off(Defence::Dumpable) { 0o555 } else { 0o111 };
    fchmod(&file, Mode::from_bits_truncate(mode)).on("fchmod", "taskman-init")?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).on("fcntl", "seals of taskman-init")?;
    fd::lift(file.into()).on("fcntl", "taskman-init")
}
