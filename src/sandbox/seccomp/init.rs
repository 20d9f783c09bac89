//! Calls that could reach process 1, sandbox-init: it has the task's uid, so the kernel would let the payload.
//!
//! Init obeys signals from outside alone, and knows them by what the kernel says of the sender: none. A sender inside can make the kernel
//! say the same in three ways:
//!
//! - It writes the siginfo itself: rt_sigqueueinfo, rt_tgsigqueueinfo, and pidfd_send_signal with one. Refused here.
//! - It fills its uid's queue first. A usual signal by tkill, tgkill or to a thread by pidfd then comes without a siginfo, which reads as
//!   kill(2) by nobody. Refused here; one by kill(2) itself always has its siginfo.
//! - The kernel sends for it (SIGIO of a descriptor whose owner is init). No filter sees that; init knows it by its code.

use super::condition::{ALL, Condition, Test, Width, int, int_not};

/// Its number in the PID namespace. It has one thread.
const INIT: u64 = 1;

/// By a number in the first argument: of a process, of a thread, or 0 for the caller.
pub static NOT_INIT: Condition = Condition::new("pid is not 1, init", &[&[int_not(0, &[INIT])]]);

/// Whose descriptor it is cannot be tested: it may be a directory of `/proc`. Programs that use it (Go, Python) pass neither.
pub static PIDFD_SIGNAL: Condition = Condition::new(
    "info is NULL and flags are without PIDFD_SIGNAL_THREAD",
    &[&[Test { arg: 2, width: Width::Long, mask: ALL, values: &[0], member: true }, int(3, PIDFD_SIGNAL_THREAD, &[0])]],
)
.or(libc::EINVAL);
const PIDFD_SIGNAL_THREAD: u64 = 1;

/// A whole user's processes have init among them. Its process group is its own: number 1.
pub static PRIORITY: Condition = Condition::new(
    "which is PRIO_PROCESS or PRIO_PGRP, and who is not 1, init",
    &[&[int(0, ALL, &[libc::PRIO_PROCESS as u64, libc::PRIO_PGRP as u64]), int_not(1, &[INIT])]],
);

/// As [`PRIORITY`].
pub static IOPRIO: Condition = Condition::new(
    "which is IOPRIO_WHO_PROCESS or IOPRIO_WHO_PGRP, and who is not 1, init",
    &[&[int(0, ALL, &[1, 2]), int_not(1, &[INIT])]],
);
