//! From a request to a process that confines itself: place, create, complete.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown, pipe2, write};

use super::Launcher;
use super::end::Placement;
use super::starting::{START, Starting};
use super::task::Stdio;
use crate::cgroup::{Device, Group, OomWatch};
use crate::error::{Context, StartError, SysError};
use crate::fault;
use crate::mutation::{Defence, off};
use crate::sandbox::{self, Plan};
use crate::sys::clone::{self, Namespace};
use crate::sys::{SANDBOX_INIT, fd, pidfd::Child};
use crate::task::id::TaskId;
use crate::task::spec::{Command, TaskSpec};

/// The six namespaces, made in the same call that creates the process.
const NAMESPACES: [(Defence, Namespace); 6] = [
    (Defence::PidNamespace, Namespace::Pid),
    // Never switched off: without it the steps that follow would take the host's own root apart.
    (Defence::Never, Namespace::Mount),
    (Defence::IpcNamespace, Namespace::Ipc),
    (Defence::UtsNamespace, Namespace::Uts),
    (Defence::NetNamespace, Namespace::Net),
    (Defence::CgroupNamespace, Namespace::Cgroup),
];

/// Creates the task in its cgroup and completes the cgroup while the child confines itself. How that ends, the [`Starting`]
/// tells. If it is `parked`, its command is told to it later.
pub fn begin(
    launcher: &Launcher,
    spec: TaskSpec,
    parked: bool,
    disks: &[Device],
    reduced: Vec<String>,
) -> Result<Starting, StartError> {
    // Not from the task's own id, which someone else may have chosen.
    let lease = launcher.uids.take(TaskId::random().entropy()).map_err(StartError::step("uid"))?;
    fault::point("uid");
    let group = Group::create(&launcher.layout, &launcher.instance, &spec.id).map_err(StartError::step("cgroup"))?;
    fault::point("cgroup");
    let mut placement = Placement { group, init: None, tried: false };
    if let Some(owner) = &spec.owner {
        placement.group.note_owner(owner).map_err(StartError::step("cgroup"))?;
    }

    let pipes = |name| pipe(name).map_err(StartError::step("pipes"));
    let (stdin, feed) = pipes("stdin")?;
    let (output, stdout) = pipes("stdout")?;
    let (errors, stderr) = if spec.split_output {
        let (errors, stderr) = pipes("stderr")?;
        (Some(errors), stderr)
    } else {
        // One pipe for both is what keeps their true order.
        let copy = || fd::lift(stdout.try_clone().on("fcntl", "stdout")?).on("fcntl", "stdout");
        (None, copy().map_err(StartError::step("pipes"))?)
    };
    // The launcher's ends never block: the task shares the pipes and can change their size between a poll and a write.
    let ends = [Some(&feed), Some(&output), errors.as_ref()];
    for end in ends.into_iter().flatten().filter(|_| !off(Defence::NonBlockingPipes)) {
        fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .on("fcntl", "standard stream")
            .map_err(StartError::step("pipes"))?;
    }
    // What /dev/stdin, /dev/stdout and /dev/stderr lead to can be opened by the task, in its own direction.
    // One pipe for both outputs is handed over once: a second time it would be another's already.
    let second = spec.split_output.then_some((&stderr, 0o200));
    for (pipe, mode) in [(&stdin, 0o400), (&stdout, 0o200)].into_iter().chain(second) {
        hand_over(pipe, lease.uid, mode).map_err(StartError::step("pipes"))?;
    }
    let (report, failure) = report_channel(parked).map_err(StartError::step("pipes"))?;
    let (status, tell) = pipes("status")?;
    let (placed, place) = pipes("placed")?;
    let (go, ready) = pipes("go")?;
    let init = init_image().map_err(StartError::step("init"))?;
    fault::point("prepared");
    let namespaces: Vec<_> =
        NAMESPACES.iter().filter(|(defence, _)| !off(*defence)).map(|(_, namespace)| *namespace).collect();
    let cgroup = (!off(Defence::CloneIntoCgroup)).then(|| placement.group.dir_fd());
    match clone::clone3(&namespaces, cgroup).on("clone3", "sandbox-init").map_err(StartError::step("clone"))? {
        clone::Side::Child(child) => {
            // The child keeps no copy: it learns of the launcher's death by the end of this pipe.
            drop(place);
            sandbox::enter(&Plan {
                child: &child,
                spec: &spec,
                parked,
                uid: lease.uid,
                group: &placement.group,
                launcher: &launcher.myself,
                assembly: Path::new(crate::place::RUN_DIR),
                stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
                init: init.as_fd(),
                failure: failure.as_fd(),
                tell: tell.as_fd(),
                placed: placed.as_fd(),
                ready: ready.as_fd(),
                go: go.as_fd(),
            })
        }
        clone::Side::Parent(pid, pidfd) => placement.init = pidfd.map(|pidfd| Child::new(pid, pidfd.into())),
    }
    fault::point("created");
    // The pipes' other ends are the child's alone from here on: their closing is how its end is seen.
    drop((stdin, stdout, stderr, failure, tell, placed, ready, go, init));

    // The child is building its root, and waits before it joins the groups made here and before anything of the task runs.
    let completed = complete(&mut placement.group, &spec, disks).map_err(StartError::step("cgroup"));
    let completed = completed.and_then(|oom| match write(&place, &[sandbox::PLACED]) {
        // A child that gave up before tells why.
        Ok(_) | Err(Errno::EPIPE) => Ok(oom),
        Err(errno) => Err(StartError::step("cgroup")(SysError::new("write", "placed pipe", errno))),
    });
    fault::point("placed");
    let stdio = Stdio { stdin: Some(feed), stdout: Some(output), stderr: errors };
    let deadline = Some(Instant::now() + START);
    let (said, payload, died) = (Vec::new(), None, false);
    Ok(Starting { spec, lease, placement, completed, report, status, stdio, reduced, said, payload, died, deadline })
}

/// Every limit written, and the watch for their most sudden end set.
fn complete(group: &mut Group, spec: &TaskSpec, disks: &[Device]) -> Result<OomWatch, SysError> {
    group.complete(&spec.limits, disks)?;
    fault::point("limits");
    group.watch_oom()
}

/// Where the child tells how its start goes. A socket, because its messages name their sender: that is how the payload's pid
/// is known, however soon it is gone.
///
/// A parked one is told its command by it, in one go.
fn report_channel(parked: bool) -> Result<(OwnedFd, OwnedFd), SysError> {
    let (report, failure) =
        socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).on("socketpair", "start")?;
    setsockopt(&report, sockopt::PassCred, &true).on("setsockopt", "SO_PASSCRED")?;
    if parked {
        setsockopt(&report, sockopt::SndBuf, &(4 * Command::LONGEST)).on("setsockopt", "SO_SNDBUF")?;
    }
    Ok((fd::lift(report).on("fcntl", "start")?, fd::lift(failure).on("fcntl", "start")?))
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
