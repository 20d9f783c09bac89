//! The server's own system call filter: what it never does, so that whoever takes it over cannot either.
//!
//! A list of refusals over the payload's table of all calls: the server is a large program with libraries of its own, and
//! what contains it is first of all that it has no privilege. A call that the table does not know answers ENOSYS, as for a
//! task.

use crate::sandbox::seccomp::condition::{Condition, SOCKETPAIR, Test, Width};
use crate::sandbox::seccomp::table::nr::*;
use crate::sandbox::seccomp::{Row, Rule, compile, table};

/// Refused, with the reason.
const REFUSED: [(&str, &[c_long]); 12] = [
    // What it forks off would outlive it, with its port, its key and its lock.
    ("it starts no program and no process", &[SYS_execve, SYS_execveat, SYS_fork, SYS_vfork]),
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

const fn int(arg: u8, mask: u64, values: &'static [u64]) -> Test {
    Test { arg, width: Width::Int, mask, values, member: true }
}

/// The low word is all that the kernel reads: see the payload's condition of the same call.
static CLONE: Condition = Condition::new("a thread", &[&[int(0, THREAD, &[THREAD])]]);
const THREAD: u64 = libc::CLONE_THREAD as u64;

/// Of its standard error, which it shares with the launcher, it may only ask. A terminal that it stops would hold up the
/// launcher's next line; what it types into it, a shell would obey.
static IOCTL: Condition = Condition::new(
    "FIONBIO, FIOCLEX, FIONCLEX, FIONREAD, TCGETS",
    &[&[int(1, u64::MAX, &[libc::FIONBIO, libc::FIOCLEX, libc::FIONCLEX, libc::FIONREAD, libc::TCGETS])]],
);

/// Names of threads and of memory, and questions about itself. It may not take back its death with the launcher.
static PRCTL: Condition = Condition::new(
    "PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_SECUREBITS, PR_SET_VMA",
    &[&[int(0, u64::MAX, &PRCTL_OPTIONS)]],
)
.or(libc::EINVAL);
const PRCTL_OPTIONS: [u64; 4] =
    [libc::PR_GET_DUMPABLE as u64, libc::PR_SET_NAME as u64, libc::PR_GET_SECUREBITS as u64, libc::PR_SET_VMA as u64];

/// Left out with intent: SO_LINGER. Handed to the launcher, such a socket would make it wait in the close.
static SETSOCKOPT: Condition = Condition::new(
    "at level SOL_SOCKET SO_REUSEADDR, SO_KEEPALIVE, SO_SNDBUF, SO_RCVBUF, SO_PASSCRED; at level IPPROTO_TCP \
           TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT",
    &[
        &[int(1, u64::MAX, &[libc::SOL_SOCKET as u64]), int(2, u64::MAX, &SOCKET_OPTIONS)],
        &[int(1, u64::MAX, &[libc::IPPROTO_TCP as u64]), int(2, u64::MAX, &TCP_OPTIONS)],
    ],
);
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
pub fn program() -> Vec<libc::sock_filter> {
    let rows: Vec<Row> = table::rows().map(|row| Row { rule: rule(row.nr), ..*row }).collect();
    compile::compile(&rows)
}

#[allow(non_upper_case_globals)] // libc's names
fn rule(number: u32) -> Rule {
    let number = c_long::from(number);
    match number {
        // Its arguments cannot be read by a filter; the C library falls back to clone.
        SYS_clone3 => Rule::NoSys,
        SYS_clone => Rule::AllowIf(&CLONE),
        SYS_ioctl => Rule::AllowIf(&IOCTL),
        SYS_setsockopt => Rule::AllowIf(&SETSOCKOPT),
        SYS_prctl => Rule::AllowIf(&PRCTL),
        SYS_socketpair => Rule::AllowIf(&SOCKETPAIR),
        _ if REFUSED.iter().any(|(_, calls)| calls.contains(&number)) => Rule::Refuse,
        _ => Rule::Allow,
    }
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
        assert_eq!(rule(SYS_execve as u32), Rule::Refuse);
        assert_eq!(rule(SYS_epoll_wait as u32), Rule::Allow);
    }

    #[test]
    fn what_a_server_asks_for_is_allowed_and_what_reaches_others_is_not() {
        use crate::sandbox::seccomp::machine::{Call, run};
        let filter = program();
        let allowed = |nr: c_long, args: [u64; 3]| {
            let args = [args[0], args[1], args[2], 0, 0, 0];
            run(&filter, &Call { arch: compile::ARCH, nr: nr as u32, args }).0 == libc::SECCOMP_RET_ALLOW
        };
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
        for call in [SYS_fork, SYS_vfork, SYS_socket, SYS_connect, SYS_execve] {
            assert!(!allowed(call, [1, 1, 0]), "{call}");
        }
    }
}
