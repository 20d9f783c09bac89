//! The server's own system call filter: what it never does, so that whoever takes it over cannot either.
//!
//! A list of refusals over the payload's table of all calls: the server is a large program with libraries of its own, and
//! what contains it is first of all that it has no privilege. What is refused, and every number that the table does not
//! know, answers ENOSYS: one answer, so seccompiler writes the filter, and a C library that tries a call has a way around it.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::sandbox::seccomp::table;
use crate::sandbox::seccomp::table::nr::*;

/// Refused, with the reason.
const REFUSED: [(&str, &[c_long]); 12] = [
    // What it forks off would outlive it, with its port, its key and its lock.
    // clone3's arguments cannot be read by a filter; the C library falls back to clone.
    ("it starts no program and no process", &[SYS_execve, SYS_execveat, SYS_fork, SYS_vfork, SYS_clone3]),
    ("it calls nobody: whoever it speaks with has come to its listener", &[SYS_socket, SYS_connect]),
    ("it watches no files", &[SYS_inotify_init, SYS_inotify_init1, SYS_inotify_add_watch]),
    (
        "it looks into no other process",
        &[
            SYS_ptrace,
            SYS_process_vm_readv,
            SYS_process_vm_writev,
            SYS_process_madvise,
            SYS_kcmp,
            SYS_pidfd_getfd,
            SYS_perf_event_open,
        ],
    ),
    (
        "its view of the host is fixed",
        &[
            SYS_mount,
            SYS_umount2,
            SYS_pivot_root,
            SYS_chroot,
            SYS_open_tree,
            SYS_open_tree_attr,
            SYS_move_mount,
            SYS_fsopen,
            SYS_fsconfig,
            SYS_fsmount,
            SYS_fspick,
            SYS_mount_setattr,
        ],
    ),
    ("it makes and enters no namespace", &[SYS_unshare, SYS_setns]),
    ("it puts no code into the kernel", &[SYS_bpf, SYS_init_module, SYS_finit_module, SYS_delete_module]),
    ("it holds no keys of the kernel", &[SYS_add_key, SYS_request_key, SYS_keyctl]),
    (
        "it needs none of these, and kernels were broken through them",
        &[
            SYS_userfaultfd,
            SYS_io_uring_setup,
            SYS_io_uring_enter,
            SYS_io_uring_register,
            SYS_personality,
            SYS_modify_ldt,
            SYS_fanotify_init,
            SYS_open_by_handle_at,
        ],
    ),
    (
        "the host is not its to run",
        &[
            SYS_kexec_load,
            SYS_kexec_file_load,
            SYS_reboot,
            SYS_swapon,
            SYS_swapoff,
            SYS_acct,
            SYS_quotactl,
            SYS_quotactl_fd,
            SYS_settimeofday,
            SYS_clock_settime,
            SYS_clock_adjtime,
            SYS_adjtimex,
            SYS_sethostname,
            SYS_setdomainname,
            SYS_syslog,
            SYS_iopl,
            SYS_ioperm,
            SYS_vhangup,
        ],
    ),
    ("it makes files and directories, and nothing else", &[SYS_mknod, SYS_mknodat]),
    ("its filter is the last one", &[SYS_seccomp]),
];

/// A thread. The low word is all that the kernel reads: see the payload's condition of the same call.
const THREAD: u64 = libc::CLONE_THREAD as u64;

/// Of its standard error, which it shares with the launcher, it may only ask. A terminal that it stops would hold up the
/// launcher's next line; what it types into it, a shell would obey.
const IOCTLS: [u64; 5] = [libc::FIONBIO, libc::FIOCLEX, libc::FIONCLEX, libc::FIONREAD, libc::TCGETS];

/// Names of threads and of memory, and questions about itself. It may not take back its death with the launcher.
const PRCTL_OPTIONS: [u64; 4] =
    [libc::PR_GET_DUMPABLE as u64, libc::PR_SET_NAME as u64, libc::PR_GET_SECUREBITS as u64, libc::PR_SET_VMA as u64];

/// Left out with intent: SO_LINGER. Handed to the launcher, such a socket would make it wait in the close.
const SOCKET_OPTIONS: [u64; 5] = [
    libc::SO_REUSEADDR as u64,
    libc::SO_KEEPALIVE as u64,
    libc::SO_SNDBUF as u64,
    libc::SO_RCVBUF as u64,
    libc::SO_PASSCRED as u64,
];
const TCP_OPTIONS: [u64; 4] =
    [libc::TCP_NODELAY as u64, libc::TCP_KEEPIDLE as u64, libc::TCP_KEEPINTVL as u64, libc::TCP_KEEPCNT as u64];

/// The filter, ready to load.
pub fn program() -> Result<Vec<libc::sock_filter>, BackendError> {
    let mut calls = BTreeMap::new();
    for row in table::rows().filter(|row| !is_refused(row.nr)) {
        calls.insert(i64::from(row.nr), conditions(row.nr)?);
    }
    let other = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(calls, other, SeccompAction::Allow, TargetArch::x86_64)?;
    let program = BpfProgram::try_from(filter)?;
    Ok(program.iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect())
}

fn is_refused(number: u32) -> bool {
    REFUSED.iter().any(|(_, calls)| calls.contains(&c_long::from(number)))
}

/// Of which one must hold; none at all for a call that is allowed whatever its arguments.
#[allow(non_upper_case_globals)] // libc's names
fn conditions(number: u32) -> Result<Vec<SeccompRule>, BackendError> {
    let one_of = |argument, values: &[u64]| values.iter().map(|value| rule(&[(argument, *value)])).collect();
    let option = |level: i32, option: &u64| rule(&[(1, level as u64), (2, *option)]);
    match c_long::from(number) {
        SYS_clone => {
            let thread = SeccompCmpOp::MaskedEq(THREAD);
            let thread = SeccompCondition::new(0, SeccompCmpArgLen::Dword, thread, THREAD)?;
            Ok(vec![SeccompRule::new(vec![thread])?])
        }
        SYS_ioctl => one_of(1, &IOCTLS),
        SYS_prctl => one_of(0, &PRCTL_OPTIONS),
        SYS_socketpair => one_of(0, &[libc::AF_UNIX as u64]),
        SYS_setsockopt => {
            let socket = SOCKET_OPTIONS.iter().map(|name| option(libc::SOL_SOCKET, name));
            socket.chain(TCP_OPTIONS.iter().map(|name| option(libc::IPPROTO_TCP, name))).collect()
        }
        _ => Ok(Vec::new()),
    }
}

/// Each of these arguments has this value, in the low word: these calls read no more.
fn rule(arguments: &[(u8, u64)]) -> Result<SeccompRule, BackendError> {
    let equal = |(argument, value): &(u8, u64)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value)
    };
    SeccompRule::new(arguments.iter().map(equal).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_call_is_in_the_table_once() {
        let refused: Vec<c_long> = REFUSED.iter().flat_map(|(_, calls)| *calls).copied().collect();
        for number in &refused {
            assert_eq!(refused.iter().filter(|other| *other == number).count(), 1, "{number} stands twice");
            assert!(table::rows().any(|row| c_long::from(row.nr) == *number), "{number} is not in the table");
        }
        assert!(is_refused(SYS_execve as u32) && !is_refused(SYS_epoll_wait as u32));
    }

    #[test]
    fn what_a_server_asks_for_is_allowed_and_what_reaches_others_is_not() {
        use crate::sandbox::seccomp::compile::ARCH;
        use crate::sandbox::seccomp::machine::{Call, run};
        let filter = program().unwrap();
        let answer = |arch: u32, nr: c_long, args: [u64; 3]| {
            let args = [args[0], args[1], args[2], 0, 0, 0];
            run(&filter, &Call { arch, nr: nr as u32, args }).0
        };
        let allowed = |nr: c_long, args: [u64; 3]| answer(ARCH, nr, args) == libc::SECCOMP_RET_ALLOW;
        let (socket, tcp) = (libc::SOL_SOCKET as u64, libc::IPPROTO_TCP as u64);
        let thread = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
        assert!(allowed(SYS_clone, [thread, 0, 0]));
        assert!(allowed(SYS_ioctl, [9, libc::FIONBIO, 0]) && allowed(SYS_ioctl, [2, libc::TCGETS, 0]));
        assert!(allowed(SYS_setsockopt, [9, tcp, libc::TCP_NODELAY as u64]));
        assert!(allowed(SYS_prctl, [libc::PR_SET_NAME as u64, 0, 0]));
        assert!(!allowed(SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, 0, 0]));
        assert!(!allowed(SYS_clone, [libc::SIGCHLD as u64, 0, 0]));
        for request in
            [libc::TIOCSTI, libc::TIOCSTI | 1 << 32, libc::TCXONC, libc::TCSETS, libc::TIOCSCTTY, libc::TIOCSETD]
        {
            assert!(!allowed(SYS_ioctl, [2, request, 0]), "{request:#x}");
        }
        assert!(!allowed(SYS_setsockopt, [9, socket, libc::SO_LINGER as u64]));
        assert!(!allowed(SYS_setsockopt, [9, tcp, libc::TCP_ULP as u64]));
        // Numbers of x32 are other names of the same calls.
        const X32: c_long = 0x4000_0000;
        let no_sys = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        for call in [SYS_clone3, SYS_read | X32, SYS_execve | X32, 471, 1023] {
            assert_eq!(answer(ARCH, call, [0; 3]), no_sys, "{call}");
        }
        assert_eq!(answer(ARCH ^ 0x8000_0000, SYS_read, [0; 3]), libc::SECCOMP_RET_KILL_PROCESS);
        for call in [SYS_fork, SYS_vfork, SYS_socket, SYS_connect, SYS_execve] {
            assert!(!allowed(call, [1, 1, 0]), "{call}");
        }
    }
}
