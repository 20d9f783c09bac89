//! What of a call's arguments a rule looks at.
//!
//! A register is 64 bits wide, but where the kernel's prototype says `int` it drops the upper half: a test of the
//! whole register would let `TIOCSTI | 1 << 32` pass as another request. So every test states the width the *kernel*
//! reads, and [`Width::Int`] tests look at the low word whatever the upper one holds.
//! Only values can be tested, never what a pointer points to: another thread may change that after the test.

/// How much of the register the kernel reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `int`, `unsigned int`, `pid_t`, `umode_t`: the low 32 bits.
    Int,
    /// `unsigned long`, `size_t`: all 64 bits.
    Long,
}

/// One look at one argument: `argument & mask` is, or is not, one of `values`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    /// Which argument, from 0.
    pub arg: u8,
    /// How much of it counts.
    pub width: Width,
    /// The bits that count.
    pub mask: u64,
    /// What the masked argument is compared with; not empty.
    pub values: &'static [u64],
    /// True: one of the values. False: none of them.
    pub member: bool,
}

/// Tests that must hold together.
pub type Clause = &'static [Test];

/// Which calls pass, which are answered without effect, and what all others answer. A clause of `pretend` comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// In words, for the page.
    pub text: &'static str,
    /// The kernel decides where any one of these clauses holds.
    pub any: &'static [Clause],
    /// Returns 0 without effect where any one of these clauses holds.
    pub pretend: &'static [Clause],
    /// The errno otherwise; 0 is success without effect.
    pub otherwise: i32,
}

impl Condition {
    /// EPERM unless one of the clauses holds.
    pub const fn new(text: &'static str, any: &'static [Clause]) -> Self {
        Self { text, any, pretend: &[], otherwise: libc::EPERM }
    }

    /// Another errno in place of EPERM.
    pub const fn or(self, otherwise: i32) -> Self {
        Self { otherwise, ..self }
    }

    /// Calls that are answered without effect.
    pub const fn pretending(self, pretend: &'static [Clause]) -> Self {
        Self { pretend, ..self }
    }
}

pub(super) const ALL: u64 = u64::MAX;

pub(super) const fn int(arg: u8, mask: u64, values: &'static [u64]) -> Test {
    Test { arg, width: Width::Int, mask, values, member: true }
}

pub(super) const fn int_not(arg: u8, values: &'static [u64]) -> Test {
    Test { arg, width: Width::Int, mask: ALL, values, member: false }
}

/// The bits that ask clone() for a namespace: mount, cgroup, uts, ipc, user, pid, net.
/// CLONE_NEWTIME is 0x80, inside the exit signal's byte, which clone() never reads as flags.
pub const NAMESPACES: u64 = 0x7e02_0000;

/// The kernel takes `lower_32_bits(clone_flags)` since clone3 exists, so the low word is the whole truth; libc hands
/// an `int` over with undefined upper bits, so refusing those would break callers and protect nothing.
///
/// Processes that share their open files share their POSIX locks, and these name whoever took them, also when that one has ended: nobody
/// would know whose they are (`launch/locks.rs`). Threads share them by nature; vfork and posix_spawn share memory alone.
pub static CLONE: Condition = Condition::new(
    "flags hold no CLONE_NEW*, and CLONE_FILES with CLONE_THREAD alone",
    &[
        &[int(0, NAMESPACES | libc::CLONE_FILES as u64, &[0])],
        &[int(0, NAMESPACES | libc::CLONE_THREAD as u64, &[libc::CLONE_THREAD as u64])],
    ],
);

/// AF_INET with SOCK_PACKET becomes a packet socket in the kernel, and an unusual protocol loads its module: so type
/// and protocol are part of what "AF_INET" means here. Not even netlink's routing family is among them: the kernel charges
/// unread answers to nobody, and a task of 64 MiB held 720 MiB of the host's memory in them.
pub static SOCKET: Condition = Condition::new(
    "AF_UNIX; AF_INET or AF_INET6 as a TCP stream or as a UDP or ICMP echo datagram",
    &[
        &[int(0, ALL, &[libc::AF_UNIX as u64])],
        &[INTERNET, int(1, SOCK_TYPE, &[libc::SOCK_STREAM as u64]), int(2, ALL, &[0, libc::IPPROTO_TCP as u64])],
        &[
            INTERNET,
            int(1, SOCK_TYPE, &[libc::SOCK_DGRAM as u64]),
            int(2, ALL, &[0, libc::IPPROTO_ICMP as u64, libc::IPPROTO_UDP as u64, libc::IPPROTO_ICMPV6 as u64]),
        ],
    ],
);

const INTERNET: Test = int(0, ALL, &[libc::AF_INET as u64, libc::AF_INET6 as u64]);
/// The rest of `type` is SOCK_CLOEXEC and SOCK_NONBLOCK; other bits are EINVAL in the kernel.
const SOCK_TYPE: u64 = 0xf;

/// socketpair() exists for other families too, and creates the same sockets.
pub static SOCKETPAIR: Condition = Condition::new("AF_UNIX", &[&[int(0, ALL, &[libc::AF_UNIX as u64])]]);

/// A datagram that more is to follow is held by its socket and charged to nobody: 64 KiB each, for 2.5 charged. The filter cannot tell
/// it from a stream, on which the flag is a hint that few use; the kernel's word for a flag that a socket does not know is EOPNOTSUPP. What splice and
/// sendfile leave unfinished are pages that are charged.
pub static SENDMSG: Condition =
    Condition::new("flags without MSG_MORE", &[&[int(2, libc::MSG_MORE as u64, &[0])]]).or(libc::EOPNOTSUPP);
/// As [`SENDMSG`], one argument further.
pub static SENDTO: Condition =
    Condition::new("flags without MSG_MORE", &[&[int(3, libc::MSG_MORE as u64, &[0])]]).or(libc::EOPNOTSUPP);

/// An access control list is an attribute that the kernel charges to nobody: two of 64 KiB on a directory, for 1 KiB charged. The name
/// is behind a pointer, so the size decides: fifteen entries. ENOTSUP is what a file system without attributes says, and programs go on.
pub static SETXATTR: Condition = Condition::new(
    "a value of at most 127 bytes",
    &[&[Test { arg: 3, width: Width::Long, mask: !127, values: &[0], member: true }]],
)
.or(libc::EOPNOTSUPP);

/// A directory notification on the host's own directories tells what others execute; F_SETFL is how [`OPEN`] would be passed by. A lock
/// of an open file description names no process, so nobody would know whose it is (`launch/locks.rs`). EINVAL is what a kernel without them says.
pub static FCNTL: Condition = Condition::new(
    "command is not F_NOTIFY, F_OFD_GETLK, F_OFD_SETLK or F_OFD_SETLKW, nor F_SETFL with O_DIRECT",
    &[&[int_not(1, NOT_FCNTL)], &[int(1, ALL, &[libc::F_SETFL as u64]), int(2, libc::O_DIRECT as u64, &[0])]],
)
.or(libc::EINVAL);

const NOT_FCNTL: &[u64] = &[
    libc::F_SETFL as u64,
    libc::F_OFD_GETLK as u64,
    libc::F_OFD_SETLK as u64,
    libc::F_OFD_SETLKW as u64,
    libc::F_NOTIFY as u64,
];

/// A read past the page cache takes a place in the task's io queue, before pages of the host's files that others wait for, and is
/// charged to nobody: 32 processes with 64 MiB of memory together had 3 GB queued. EINVAL is what a file system without such reads says.
pub static OPEN: Condition =
    Condition::new("flags without O_DIRECT", &[&[int(1, libc::O_DIRECT as u64, &[0])]]).or(libc::EINVAL);
/// As [`OPEN`], one argument further.
pub static OPENAT: Condition =
    Condition::new("flags without O_DIRECT", &[&[int(2, libc::O_DIRECT as u64, &[0])]]).or(libc::EINVAL);

/// As [`FCNTL`]: `/usr` is the host's, and opening a file there is what starting a program is. Changes may be watched.
pub static INOTIFY: Condition = Condition::new(
    "mask without IN_ACCESS, IN_OPEN and IN_CLOSE_NOWRITE",
    &[&[int(2, (libc::IN_ACCESS | libc::IN_OPEN | libc::IN_CLOSE_NOWRITE) as u64, &[0])]],
);

/// A notification pipe (O_NOTIFICATION_PIPE, which is O_EXCL) takes events of the kernel's own; programs get the answer of kernels
/// before Linux 5.8.
pub static PIPE: Condition =
    Condition::new("flags without O_NOTIFICATION_PIPE", &[&[int(1, libc::O_EXCL as u64, &[0])]]).or(libc::EINVAL);

/// RWF_NOWAIT tells whether a page of the host's file is in memory, and so whether others read it. What is not known to be harmless is
/// answered as by a kernel that does not have it.
pub static RW_FLAGS: Condition = Condition::new(
    "flags are RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_APPEND and RWF_NOAPPEND alone",
    &[&[int(5, !0x37, &[0])]],
)
.or(libc::EOPNOTSUPP);

/// Pages of the host's hugetlb pool are not charged to the task's memory.
pub static MMAP: Condition = Condition::new("flags without MAP_HUGETLB", &[&[int(3, libc::MAP_HUGETLB as u64, &[0])]]);
/// As [`MMAP`].
pub static MEMFD: Condition = Condition::new("flags without MFD_HUGETLB", &[&[int(1, libc::MFD_HUGETLB as u64, &[0])]]);
/// As [`MMAP`].
pub static SHMGET: Condition =
    Condition::new("flags without SHM_HUGETLB", &[&[int(2, libc::SHM_HUGETLB as u64, &[0])]]);

/// A policy over part of a shared file is kept with the file, and charged to nobody: half a million of them were 170 MB. The
/// whole process's policy (set_mempolicy) is one object.
pub static MBIND: Condition =
    Condition::new("mode is MPOL_DEFAULT", &[&[int(2, ALL, &[libc::MPOL_DEFAULT as u64])]]).or(libc::ENOSYS);

/// Merging equal pages across tasks tells one task what another holds; the other two take host memory away. The pretended ones
/// do to mapped files what [`FADVISE`] says: the first reads ahead, the others age and evict. Of the task's own memory, which has no
/// swap, there is nothing to read or evict. MADV_DONTNEED empties the caller's map and leaves the page cache alone.
pub static MADVISE: Condition = Condition::new(
    "advice is not MADV_MERGEABLE, MADV_HWPOISON or MADV_SOFT_OFFLINE; MADV_WILLNEED, MADV_COLD and MADV_PAGEOUT return 0",
    &[&[int_not(2, &[libc::MADV_MERGEABLE as u64, libc::MADV_HWPOISON as u64, libc::MADV_SOFT_OFFLINE as u64])]],
)
.pretending(&[&[int(2, ALL, &[libc::MADV_WILLNEED as u64, libc::MADV_COLD as u64, libc::MADV_PAGEOUT as u64])]]);

/// The page cache of a host file is the whole host's. What is dropped, others must read again; and what is read ahead is locked until
/// the task's io limit lets it through, without a process of the task that waits. Of files in memory, neither does anything.
pub static FADVISE: Condition = Condition::new(
    "advice is not POSIX_FADV_WILLNEED or POSIX_FADV_DONTNEED",
    &[&[int_not(3, &[libc::POSIX_FADV_WILLNEED as u64, libc::POSIX_FADV_DONTNEED as u64])]],
)
.or(0);

/// 0xffffffff asks and changes nothing. ADDR_NO_RANDOMIZE is for debuggers and sanitizers, which restart themselves
/// with it; it weakens the caller alone. READ_IMPLIES_EXEC and MMAP_PAGE_ZERO weaken it for no one's good.
pub static PERSONALITY: Condition = Condition::new(
    "asks (0xffffffff), or sets 0 or ADDR_NO_RANDOMIZE",
    &[&[int(0, ALL, &[0, libc::ADDR_NO_RANDOMIZE as u64, 0xffff_ffff])]],
);

/// Init has the task's uid: with another pid the payload could set init's limits.
pub static PRLIMIT: Condition = Condition::new(
    "pid is 0, the caller; RLIMIT_CORE is only read",
    &[
        &[int(0, ALL, &[0]), int_not(1, &[RLIMIT_CORE])],
        &[int(0, ALL, &[0]), Test { arg: 2, width: Width::Long, mask: ALL, values: &[0], member: true }],
    ],
);

/// A core handler behind a pipe runs on the host, as root, and heeds no limit but 1, which a task could lower to 0.
const RLIMIT_CORE: u64 = libc::RLIMIT_CORE as u64;

/// As [`PRLIMIT`].
pub static SETRLIMIT: Condition = Condition::new("resource is not RLIMIT_CORE", &[&[int_not(0, &[RLIMIT_CORE])]]);

/// A filter is compiled into memory of which the whole host has one budget, charged to nobody: twelve tasks could use it up, and then
/// neither a task nor any service of the host could put a filter on itself. And one that answers SECCOMP_RET_LOG writes to the
/// host's log. Strict mode is the kernel's own EINVAL for a process that has a filter.
pub static SECCOMP: Condition = Condition::new(
    "the two questions, SECCOMP_GET_ACTION_AVAIL and SECCOMP_GET_NOTIF_SIZES; in the profile `filters` also \
     SECCOMP_SET_MODE_FILTER without NEW_LISTENER and LOG",
    &[&[QUESTION]],
)
.or(libc::EINVAL);
const QUESTION: Test = int(0, ALL, &[2, 3]);

/// Where the operator has granted it. A filter only ever adds to this one; a listener would answer calls in the kernel's place, and the
/// log flag would write the host's log.
pub static SECCOMP_FILTERS: Condition = Condition::new(
    "",
    &[
        &[QUESTION],
        &[
            int(0, ALL, &[libc::SECCOMP_SET_MODE_FILTER as u64]),
            int(1, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_LOG, &[0]),
        ],
    ],
)
.or(libc::EINVAL);

const FILE_TYPES: &[u64] = &[0, libc::S_IFREG as u64, libc::S_IFIFO as u64, libc::S_IFSOCK as u64];
/// The mode is 16 bits wide; the file type is its upper four.
pub static MKNOD: Condition =
    Condition::new("a regular file, FIFO or socket", &[&[int(1, libc::S_IFMT as u64, FILE_TYPES)]]);
/// As [`MKNOD`], one argument further.
pub static MKNODAT: Condition =
    Condition::new("a regular file, FIFO or socket", &[&[int(2, libc::S_IFMT as u64, FILE_TYPES)]]);

/// An allow list of what programs ask about themselves. Left out with intent: PR_SET_SECCOMP (see [`SECCOMP`]), PR_SET_MM (a process
/// that rewrites its own command line and exe link lies to whoever looks from outside), PR_SCHED_CORE (keeps a core's other half idle),
/// PR_SET_MEMORY_MERGE (see [`MADVISE`]), PR_TASK_PERF_EVENTS_*, PR_SET_IO_FLUSHER, PR_SET_SYSCALL_USER_DISPATCH, and
/// other architectures' options. EINVAL is what a kernel says to an option that it does not have.
pub static PRCTL: Condition = Condition::new(
    "option is one of: PDEATHSIG, DUMPABLE, KEEPCAPS, TIMING, NAME, PR_GET_SECCOMP, CAPBSET, TSC, SECUREBITS, \
     TIMERSLACK, MCE_KILL, CHILD_SUBREAPER, NO_NEW_PRIVS, THP_DISABLE, CAP_AMBIENT, SPECULATION_CTRL, MDWE, \
     PR_SET_VMA, PR_SET_PTRACER, PR_GET_AUXV; in the profile `filters` also PR_SET_SECCOMP",
    &[&[PRCTL_OPTIONS]],
)
.or(libc::EINVAL);

/// As [`SECCOMP_FILTERS`].
pub static PRCTL_FILTERS: Condition =
    Condition::new("", &[&[PRCTL_OPTIONS], &[int(0, ALL, &[libc::PR_SET_SECCOMP as u64])]]).or(libc::EINVAL);

const PRCTL_OPTIONS: Test = int(
    0,
    ALL,
    &[
        1,
        2,
        3,
        4, // PDEATHSIG, DUMPABLE
        7,
        8, // KEEPCAPS: the locked securebits answer
        13,
        14,
        15,
        16, // TIMING, NAME
        21, // PR_GET_SECCOMP
        23,
        24, // CAPBSET
        25,
        26,
        27,
        28,
        29,
        30, // TSC, SECUREBITS, TIMERSLACK
        33,
        34, // MCE_KILL: the caller's own policy
        36,
        37,
        38,
        39, // CHILD_SUBREAPER, NO_NEW_PRIVS
        41,
        42, // THP_DISABLE
        47, // CAP_AMBIENT: nothing to raise, and programs ask
        52,
        53, // SPECULATION_CTRL
        65,
        66,          // MDWE
        0x4155_5856, // PR_GET_AUXV
        0x5356_4d41, // PR_SET_VMA: allocators name their memory
        0x5961_6d61, // PR_SET_PTRACER: crash handlers call it before they fork
    ],
);
