//! The policy: every system call of x86_64 Linux up to 6.18 stands here once, with its rule and why.
//!
//! A new kernel's call is unlisted and answers ENOSYS until someone gives it a row; a test compares the numbers with
//! libc's. Rows name `libc::SYS_*` where libc has the number.

use super::Rule::{Allow, AllowIf, NoSys, Pretend, Refuse};
use super::condition::{
    CLONE, FADVISE, FCNTL, INOTIFY, MADVISE, MBIND, MEMFD, MKNOD, MKNODAT, MMAP, OPEN, OPENAT, PERSONALITY, PIPE,
    PRCTL, PRLIMIT, RW_FLAGS, SECCOMP, SENDMSG, SENDTO, SETRLIMIT, SETXATTR, SHMGET, SOCKET, SOCKETPAIR,
};
use super::init::{IOPRIO, NOT_INIT, PIDFD_SIGNAL, PRIORITY};
use super::ioctl::IOCTL;
use super::options::{GETSOCKOPT, SETSOCKOPT};
use super::{Group, Row};

/// Numbers by name: libc's, and those that libc does not have yet.
#[allow(non_upper_case_globals, missing_docs)]
pub mod nr {
    pub use libc::*;

    pub const SYS_create_module: c_long = 174;
    pub const SYS_get_kernel_syms: c_long = 177;
    pub const SYS_query_module: c_long = 178;
    pub const SYS_io_pgetevents: c_long = 333;
    pub const SYS_uretprobe: c_long = 335;
    pub const SYS_uprobe: c_long = 336;
    pub const SYS_cachestat: c_long = 451;
    pub const SYS_map_shadow_stack: c_long = 453;
    pub const SYS_futex_wake: c_long = 454;
    pub const SYS_futex_wait: c_long = 455;
    pub const SYS_futex_requeue: c_long = 456;
    pub const SYS_statmount: c_long = 457;
    pub const SYS_listmount: c_long = 458;
    pub const SYS_lsm_get_self_attr: c_long = 459;
    pub const SYS_lsm_set_self_attr: c_long = 460;
    pub const SYS_lsm_list_modules: c_long = 461;
    pub const SYS_setxattrat: c_long = 463;
    pub const SYS_getxattrat: c_long = 464;
    pub const SYS_listxattrat: c_long = 465;
    pub const SYS_removexattrat: c_long = 466;
    pub const SYS_open_tree_attr: c_long = 467;
    pub const SYS_file_getattr: c_long = 468;
    pub const SYS_file_setattr: c_long = 469;
    pub const SYS_listns: c_long = 470;
}

/// `rule, why: names;` … as a slice of rows.
macro_rules! rows {
    ($($rule:expr, $why:literal: $($name:ident)+);+ $(;)?) => {
        &[$($(Row { nr: nr::$name as u32, name: stringify!($name).split_at(4).1, rule: $rule, why: $why },)+)+]
    };
}

/// The rows of every group.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    PAYLOAD.iter().flat_map(|group| group.rows)
}

/// What sandbox-init still does once the payload runs: wait, forward signals, report, end. No exec, no open, no
/// memory: whoever takes it over holds nothing. The filter itself stands in `src/sys/reaper/filter.rs`.
pub static INIT_TABLE: &[Row] = rows! {
    Allow, "reap": SYS_wait4;
    Allow, "take signals as data": SYS_rt_sigtimedwait;
    Allow, "forward them": SYS_kill;
    Allow, "the two pipes": SYS_write SYS_close;
    Allow, "the end": SYS_exit_group;
};

/// What the payload may do.
pub static PAYLOAD: &[Group] = &[
    Group {
        title: "Files and directories",
        why: "The root holds nothing to protect from its own user: host files are read-only mounts, and the rest is \
              the task's own tmpfs. Permissions and mounts decide, not the filter.",
        rows: rows! {
            Allow, "": SYS_read SYS_write SYS_close SYS_stat SYS_fstat SYS_lstat SYS_lseek SYS_pread64
                SYS_pwrite64 SYS_readv SYS_writev SYS_access SYS_flock
                SYS_truncate SYS_ftruncate SYS_getdents SYS_getcwd SYS_chdir SYS_fchdir SYS_rename SYS_mkdir
                SYS_rmdir SYS_creat SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_umask SYS_utime SYS_utimes
                SYS_getdents64 SYS_mkdirat SYS_futimesat SYS_newfstatat
                SYS_unlinkat SYS_renameat SYS_linkat SYS_symlinkat SYS_readlinkat SYS_faccessat SYS_utimensat
                SYS_fallocate SYS_preadv SYS_pwritev SYS_renameat2 SYS_statx SYS_faccessat2;
            AllowIf(&RW_FLAGS), "RWF_NOWAIT tells which pages of the host's files are in memory": SYS_preadv2 SYS_pwritev2;
            NoSys, "as FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR, which ioctl refuses": SYS_file_getattr SYS_file_setattr;
            Allow, "shows the size of the host file system behind a read-only bind": SYS_statfs SYS_fstatfs;
            Allow, "without capabilities the kernel lets the owner alone":
                SYS_chmod SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_chown SYS_fchown SYS_lchown SYS_fchownat;
            Allow, "the security and trusted spaces need capabilities":
                SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr
                SYS_lremovexattr SYS_fremovexattr SYS_getxattrat SYS_listxattrat SYS_removexattrat;
            AllowIf(&SETXATTR), "access control lists are charged to nobody; programs go on as on a file system without":
                SYS_setxattr SYS_lsetxattr SYS_fsetxattr;
            NoSys, "as setxattr, with the size behind a pointer": SYS_setxattrat;
            AllowIf(&MKNOD), "a device node is a door to a driver; mkfifo needs the rest": SYS_mknod;
            AllowIf(&MKNODAT), "as mknod": SYS_mknodat;
            Allow, "instances and watches are counted per uid, and the uid is the task's own":
                SYS_inotify_init SYS_inotify_init1 SYS_inotify_rm_watch;
            AllowIf(&INOTIFY), "tells who opens files of the host": SYS_inotify_add_watch;
            AllowIf(&FCNTL), "tells who opens files of the host; locks of nobody's; O_DIRECT as open": SYS_fcntl;
            AllowIf(&OPEN), "reads past the page cache hold up, without a bound, whoever waits for a page that the task reads": SYS_open;
            AllowIf(&OPENAT), "as open": SYS_openat;
            NoSys, "its flags are behind a pointer, which a filter cannot read; users fall back to openat": SYS_openat2;
            AllowIf(&FADVISE), "drops pages that others need, and queues reads of more without waiting": SYS_fadvise64;
            Pretend, "as fadvise64": SYS_readahead;
            Pretend, "writes back every file system of the host, as often as a loop likes; of the task's own, \
                      which is memory, there is nothing to write": SYS_sync SYS_syncfs SYS_fsync
                SYS_fdatasync SYS_sync_file_range;
        },
    },
    Group {
        title: "Descriptors, pipes and waiting",
        why: "Plumbing between the task's own descriptors; their number is limited.",
        rows: rows! {
            Allow, "": SYS_dup SYS_dup2 SYS_dup3 SYS_close_range SYS_pipe SYS_poll SYS_ppoll SYS_select
                SYS_pselect6 SYS_epoll_create SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_wait SYS_epoll_pwait
                SYS_epoll_pwait2 SYS_eventfd SYS_eventfd2 SYS_signalfd SYS_signalfd4 SYS_timerfd_create
                SYS_timerfd_settime SYS_timerfd_gettime SYS_sendfile SYS_copy_file_range SYS_splice SYS_tee
                SYS_vmsplice;
            AllowIf(&PIPE), "a notification pipe takes the kernel's own events": SYS_pipe2;
            AllowIf(&IOCTL), "terminals need the rest; a device's own requests need a device, and /dev has none":
                SYS_ioctl;
        },
    },
    Group {
        title: "Memory",
        why: "The caller's own address space, charged to the task's memory limit.",
        rows: rows! {
            Allow, "": SYS_mprotect SYS_munmap SYS_brk SYS_mremap SYS_msync SYS_mincore SYS_mlock SYS_mlock2
                SYS_munlock SYS_mlockall SYS_munlockall SYS_pkey_mprotect SYS_pkey_alloc SYS_pkey_free SYS_mseal
                SYS_map_shadow_stack SYS_membarrier;
            AllowIf(&MMAP), "the host's huge page pool is not charged to the task": SYS_mmap;
            AllowIf(&MEMFD), "as mmap": SYS_memfd_create;
            AllowIf(&MADVISE), "sharing pages with other tasks is a side channel; the rest as fadvise64": SYS_madvise;
            Allow, "the JVM, .NET and numactl place their own memory, on nodes the task has anyway":
                SYS_set_mempolicy SYS_get_mempolicy;
            AllowIf(&MBIND), "policies of shared memory are charged to nobody; a policy is a hint, and its users go on \
                              without": SYS_mbind;
            NoSys, "as mbind": SYS_set_mempolicy_home_node;
            Refuse, "emulated since Linux 4.0 and unused": SYS_remap_file_pages;
            Refuse, "takes pages out of the kernel's own map; no runtime needs it": SYS_memfd_secret;
            Refuse, "tells which pages of the host's files others have read": SYS_cachestat;
            Refuse, "stops the kernel inside a copy for as long as the caller likes: the tool of most race exploits":
                SYS_userfaultfd;
        },
    },
    Group {
        title: "Processes and threads",
        why: "Everything a task starts stays in its cgroup and PID namespace; the pids limit bounds the number.",
        rows: rows! {
            AllowIf(&CLONE), "a new namespace brings capabilities over it, and with them most of the kernel; locks of nobody's": SYS_clone;
            NoSys, "its flags are behind a pointer, which a filter cannot read; libc and Go fall back to clone":
                SYS_clone3;
            Allow, "": SYS_fork SYS_vfork SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid
                SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid SYS_getpgrp SYS_getsid SYS_setsid
                SYS_set_tid_address SYS_set_robust_list SYS_rseq SYS_arch_prctl SYS_pidfd_open;
            Allow, "": SYS_futex SYS_futex_waitv SYS_futex_wake SYS_futex_wait SYS_futex_requeue;
            AllowIf(&PRCTL), "options that a program needs about itself": SYS_prctl;
            AllowIf(&PERSONALITY), "other personalities switch protections of the address space off": SYS_personality;
            AllowIf(&SECCOMP), "filters take up memory of which the whole host has one budget, and can write its log": SYS_seccomp;
            Allow, "only ever take rights away":
                SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self;
            Refuse, "16-bit segments; no 64-bit runtime uses it": SYS_modify_ldt;
            Refuse, "reads another process's list; only checkpointing does": SYS_get_robust_list;
            Allow, "the kernel's own trampolines call these when the operator traces the task; refusing would \
                    kill it": SYS_uretprobe SYS_uprobe;
        },
    },
    Group {
        title: "Signals",
        why: "Inside the PID namespace there is only the task; init ignores what comes from there.",
        rows: rows! {
            Allow, "": SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait
                SYS_rt_sigsuspend SYS_sigaltstack SYS_kill SYS_pause SYS_restart_syscall;
            AllowIf(&NOT_INIT), "names a sender of the caller's choice, and init would take it for the launcher":
                SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo;
            AllowIf(&NOT_INIT), "loses its sender when the queue is full": SYS_tkill SYS_tgkill;
            AllowIf(&PIDFD_SIGNAL), "as these; a descriptor does not show whose it is": SYS_pidfd_send_signal;
        },
    },
    Group {
        title: "Limits, scheduling and accounting",
        why: "The cgroup holds the task's limits from outside; these only divide them among its own processes.",
        rows: rows! {
            Allow, "": SYS_getrlimit SYS_getrusage SYS_times SYS_getpriority SYS_sched_yield SYS_sched_getparam
                SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
                SYS_sched_rr_get_interval SYS_sched_getaffinity SYS_sched_getattr SYS_getcpu SYS_ioprio_get;
            AllowIf(&NOT_INIT), "init has the same uid; put last, it would neither reap nor forward":
                SYS_sched_setparam SYS_sched_setscheduler SYS_sched_setaffinity SYS_sched_setattr;
            AllowIf(&PRIORITY), "as these": SYS_setpriority;
            AllowIf(&IOPRIO), "as these": SYS_ioprio_set;
            AllowIf(&SETRLIMIT), "a core handler behind a pipe runs on the host; its limit stays": SYS_setrlimit;
            AllowIf(&PRLIMIT), "init has the same uid, and its limits are not the payload's to set": SYS_prlimit64;
            Allow, "shows the host's memory size, load and process count; libc does not check for its failure \
                    and would hand out garbage": SYS_sysinfo;
            Allow, "shows the host's kernel version": SYS_uname;
        },
    },
    Group {
        title: "Identity",
        why: "With no capability, no set-user-ID file and no_new_privs the kernel leaves nothing to gain: asking \
              for another id is its own EPERM, and programs that set the id they have go on.",
        rows: rows! {
            Allow, "": SYS_getuid SYS_getgid SYS_geteuid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups
                SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid
                SYS_setfsgid SYS_setgroups SYS_capget SYS_capset;
        },
    },
    Group {
        title: "Time and randomness",
        why: "Reading and sleeping; setting the clock is listed with the host's affairs.",
        rows: rows! {
            Allow, "": SYS_time SYS_gettimeofday SYS_clock_gettime SYS_clock_getres SYS_nanosleep
                SYS_clock_nanosleep SYS_alarm SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime
                SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_getrandom;
        },
    },
    Group {
        title: "Sockets",
        why: "The network namespace holds a loopback and nothing else. The filter keeps the rare families and \
              protocols away, each of which is a subsystem, often a loadable one, with a history.",
        rows: rows! {
            AllowIf(&SOCKET), "AF_INET alone would still mean packet sockets (SOCK_PACKET) and SCTP": SYS_socket;
            AllowIf(&SOCKETPAIR), "": SYS_socketpair;
            AllowIf(&SETSOCKOPT), "many options hold memory of the kernel that is charged to nobody; on a kernel without \
                                   an option programs go on": SYS_setsockopt;
            AllowIf(&GETSOCKOPT), "as setsockopt": SYS_getsockopt;
            AllowIf(&SENDTO), "unfinished datagrams are charged to nobody": SYS_sendto SYS_sendmmsg;
            AllowIf(&SENDMSG), "as sendto": SYS_sendmsg;
            Allow, "": SYS_connect SYS_accept SYS_accept4 SYS_recvfrom SYS_recvmsg
                SYS_recvmmsg SYS_shutdown SYS_bind SYS_listen SYS_getsockname SYS_getpeername;
        },
    },
    Group {
        title: "IPC objects",
        why: "The task has an IPC namespace of its own, which ends with it.",
        rows: rows! {
            AllowIf(&SHMGET), "as mmap": SYS_shmget;
            Allow, "": SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget
                SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive
                SYS_mq_notify SYS_mq_getsetattr;
        },
    },
    Group {
        title: "Namespaces, mounts and roots",
        why: "The walls themselves. The payload has no capability for these; the filter is the second lock.",
        rows: rows! {
            Refuse, "": SYS_unshare SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree
                SYS_open_tree_attr SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr;
            Refuse, "name the host's mounts and namespaces": SYS_statmount SYS_listmount SYS_listns;
            Refuse, "a handle names a file by inode, past every mount and root":
                SYS_name_to_handle_at SYS_open_by_handle_at;
        },
    },
    Group {
        title: "Other processes' insides",
        why: "Init has the task's uid; nothing may look into it or into a sibling. The price: debuggers, strace and \
              the leak check of address sanitizers do not work inside (ASAN_OPTIONS=disable_coredump=0:detect_leaks=0).",
        rows: rows! {
            Refuse, "": SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp
                SYS_process_madvise SYS_process_mrelease SYS_move_pages SYS_migrate_pages;
        },
    },
    Group {
        title: "Kernel machinery with a history",
        why: "Large, quickly changing parts of the kernel that let user code program it.",
        rows: rows! {
            NoSys, "makes calls that no filter sees, sockets among them; users fall back to epoll":
                SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register;
            NoSys, "its requests are counted host-wide (fs.aio-max-nr), so one task could take them from every \
                    database of the host; on tmpfs it is synchronous anyway, and users fall back":
                SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents SYS_io_pgetevents;
            NoSys, "keyrings have no namespace; users fall back": SYS_add_key SYS_request_key SYS_keyctl;
            Refuse, "": SYS_bpf SYS_perf_event_open SYS_fanotify_init SYS_fanotify_mark;
            Refuse, "name and set the host's security modules":
                SYS_lsm_get_self_attr SYS_lsm_set_self_attr SYS_lsm_list_modules;
        },
    },
    Group {
        title: "The host's affairs",
        why: "The operator's calls: modules, boot, swap, clock, names, quotas, ports, logs.",
        rows: rows! {
            Refuse, "": SYS_init_module SYS_finit_module SYS_delete_module SYS_create_module SYS_query_module
                SYS_get_kernel_syms SYS_kexec_load SYS_kexec_file_load SYS_reboot SYS_swapon SYS_swapoff SYS_acct
                SYS_quotactl SYS_quotactl_fd SYS_syslog SYS_iopl SYS_ioperm SYS_sethostname SYS_setdomainname
                SYS_vhangup;
            Refuse, "the clocks are the host's": SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime;
            Refuse, "remains of old interfaces":
                SYS_uselib SYS_ustat SYS_sysfs SYS_nfsservctl SYS_lookup_dcookie;
        },
    },
    Group {
        title: "Numbers without a call",
        why: "Reserved, removed, or for 32-bit programs: the kernel's own answer is ENOSYS.",
        rows: rows! {
            NoSys, "": SYS__sysctl SYS_getpmsg SYS_putpmsg SYS_afs_syscall SYS_tuxcall SYS_security SYS_vserver
                SYS_epoll_ctl_old SYS_epoll_wait_old SYS_set_thread_area SYS_get_thread_area;
        },
    },
];
