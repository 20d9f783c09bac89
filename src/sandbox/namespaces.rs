//! What is set once inside the fresh namespaces: cgroup root, session, keys, clock, names, loopback.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{read, sethostname, setsid};

use super::Plan;
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::{keyring, net, uts};

/// Waits until every limit is written, joins the v1 groups (v2 was joined at birth), checks it, and makes them the root of
/// what the task sees.
pub fn join_cgroup(plan: &Plan<'_>) -> Result<(), SysError> {
    let mut byte = [0];
    if read(plan.placed, &mut byte).on("read", "placed pipe")? != 1 || byte != [super::PLACED] {
        return Err(SysError::new("read", "placed pipe", Errno::EPIPE).hint("the launcher gave up"));
    }
    plan.group.join()?;
    if !off(Defence::V1Join) && !off(Defence::CloneIntoCgroup) {
        plan.group.verify_joined()?;
    }
    // The namespace made by clone3 has the launcher's v1 groups as its root; only now is this process in its own.
    if !off(Defence::CgroupNamespace) {
        unshare(CloneFlags::CLONE_NEWCGROUP).on("unshare", "cgroup namespace")?;
    }
    Ok(())
}

/// A session without a terminal and with an empty keyring; nothing inherited decides the mode of files made here.
pub fn leave_session() -> Result<(), SysError> {
    leave_audit_session()?;
    if !off(Defence::Session) {
        setsid().on("setsid", "sandbox")?;
    }
    if !off(Defence::Keyring) {
        keyring::join_empty_session().on("keyctl", "session keyring")?;
    }
    umask(Mode::empty());
    Ok(())
}

/// Who logged in to start taskman is none of the task's business, nor the number of that session, which counts the host's. Both are unset, as of
/// any service: to set them the task would have to write to its `/proc`.
fn leave_audit_session() -> Result<(), SysError> {
    const LOGIN_UID: &str = "/proc/self/loginuid";
    let unset = u32::MAX.to_string();
    match std::fs::read_to_string(LOGIN_UID) {
        Ok(uid) if uid.trim() != unset && !off(Defence::LoginUid) => match std::fs::write(LOGIN_UID, unset) {
            // Where they are immutable, or in a container without CAP_AUDIT_CONTROL, they stay: the host has decided to know.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
            done => done.on("write", LOGIN_UID),
        },
        // Unset already, or a kernel without auditing.
        _ => Ok(()),
    }
}

/// A clock that starts now: the host's uptime is none of the task's business, and its own processes' times fit its `/proc`.
pub fn own_clock() -> Result<(), SysError> {
    const CLONE_NEWTIME: CloneFlags = CloneFlags::from_bits_retain(0x80);
    unshare(CLONE_NEWTIME).on("unshare", "time namespace")?;
    let offset = |clock| clock_gettime(clock).map(|now| -now.tv_sec()).on("clock_gettime", "uptime");
    let offsets =
        format!("monotonic {} 0\nboottime {} 0\n", offset(ClockId::CLOCK_MONOTONIC)?, offset(ClockId::CLOCK_BOOTTIME)?);
    std::fs::write("/proc/self/timens_offsets", offsets).on("write", "/proc/self/timens_offsets")
}

/// Bounds what the task's own network holds and charges to nobody: the first buffers of every TCP connection, which the
/// kernel grants whatever the memory limit says; connections that nobody has accepted, and those that linger after their end; sending
/// times; control data of a message that waits to be sent. Written through the host's `/proc`, which
/// shows the network of whoever looks; or, where a container's runtime has made `/proc/sys` read-only, through one of its own
/// that is there for this moment only, where the task's will be.
pub fn bound_socket_memory() -> Result<(), SysError> {
    if off(Defence::SocketMemory) || off(Defence::NetNamespace) {
        return Ok(());
    }
    match write_bounds("/proc") {
        Err(error) if error.errno() == Errno::EROFS => {}
        done => return done,
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "proc", Some("proc"), flags, None::<&str>).on("mount", "proc, to write to its sys")?;
    write_bounds("proc")?;
    umount2("proc", MntFlags::MNT_DETACH).on("umount2", "proc, written to")
}

/// A buffer grows once its connection is accepted and read. A queue of five is what Python's servers ask for; with less, a burst of
/// connections is not only slow: the kernel drops the last step of a handshake, and the client waits for a server that knows nothing of it.
const BOUNDS: [(&str, &str); 4] = [
    ("ipv4/tcp_rmem", "4096 4096 65536"),
    ("ipv4/tcp_wmem", "4096 16384 65536"),
    ("core/somaxconn", "4"),
    ("ipv4/tcp_max_tw_buckets", "4096"),
];
/// Of the network's own on newer kernels alone. `taskman doctor` reads the first of the host's. What SCM_RIGHTS asks for at most is 1 KiB.
const NEWER_BOUNDS: [(&str, &str); 2] = [("core/tstamp_allow_data", "0"), ("core/optmem_max", "4096")];

fn write_bounds(proc: &str) -> Result<(), SysError> {
    for (name, value) in BOUNDS {
        let path = format!("{proc}/sys/net/{name}");
        std::fs::write(&path, value).on("write", path)?;
    }
    for (name, value) in NEWER_BOUNDS {
        let path = format!("{proc}/sys/net/{name}");
        match std::fs::write(&path, value) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            done => done.on("write", path)?,
        }
    }
    Ok(())
}

/// The name the task finds itself on.
pub fn set_hostname(plan: &Plan<'_>) -> Result<(), SysError> {
    if off(Defence::UtsNamespace) {
        return Ok(());
    }
    sethostname(&plan.spec.hostname).on("sethostname", &*plan.spec.hostname)?;
    uts::clear_domain_name().on("setdomainname", "none")
}

/// The only network there is.
pub fn loopback_up() -> Result<(), SysError> {
    net::loopback_up().on("ioctl", "SIOCSIFFLAGS of lo")
}
