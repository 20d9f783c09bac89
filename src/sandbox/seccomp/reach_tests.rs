//! What the table keeps out of a task's reach behind calls that it has: its init, and requests and flags that no program needs.

use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO};

use super::table::nr;
use super::tests::{EPERM, UPPER, call};

#[test]
fn init_is_out_of_reach() {
    const EINVAL: u32 = SECCOMP_RET_ERRNO | libc::EINVAL as u32;
    let by_number = [
        nr::SYS_rt_sigqueueinfo,
        nr::SYS_rt_tgsigqueueinfo,
        nr::SYS_tkill,
        nr::SYS_tgkill,
        nr::SYS_sched_setparam,
        nr::SYS_sched_setscheduler,
        nr::SYS_sched_setaffinity,
        nr::SYS_sched_setattr,
    ];
    for nr in by_number {
        for pid in [1, 1 | UPPER] {
            assert_eq!(call(nr, &[pid, 1, 64]), EPERM, "{nr} {pid:x}");
        }
        for pid in [0, 2, 300, u64::MAX] {
            assert_eq!(call(nr, &[pid, 1, 64]), SECCOMP_RET_ALLOW, "{nr} {pid:x}");
        }
    }
    // Which, who: a process, its group, and all of a user's; io counts from one.
    for (nr, first) in [(nr::SYS_setpriority, 0), (nr::SYS_ioprio_set, 1)] {
        for who in [0, 2, 300] {
            assert_eq!(call(nr, &[first, who]), SECCOMP_RET_ALLOW, "{nr} {who}");
            assert_eq!(call(nr, &[first + 1, who | UPPER]), SECCOMP_RET_ALLOW, "{nr} {who}");
            assert_eq!(call(nr, &[first + 2, who]), EPERM, "{nr} {who}");
        }
        assert_eq!(call(nr, &[first, 1 | UPPER]), EPERM, "{nr}");
        assert_eq!(call(nr, &[(first + 1) | UPPER, 1]), EPERM, "{nr}");
    }
    assert_eq!(call(nr::SYS_pidfd_send_signal, &[3, 64, 0, 0]), SECCOMP_RET_ALLOW);
    for info in [1, 1 << 32, UPPER] {
        assert_eq!(call(nr::SYS_pidfd_send_signal, &[3, 64, info, 0]), EINVAL, "{info:x}");
    }
    assert_eq!(call(nr::SYS_pidfd_send_signal, &[3, 10, 0, 1]), EINVAL, "a thread's");
    assert_eq!(call(nr::SYS_pidfd_send_signal, &[3, 10, 0, 4]), SECCOMP_RET_ALLOW, "a group's");
}

#[test]
fn requests_of_devices_and_file_systems_are_the_listed_ones() {
    let allowed = |request: u64| match call(nr::SYS_ioctl, &[3, request | UPPER]) {
        SECCOMP_RET_ALLOW => true,
        verdict => {
            assert_eq!(verdict, EPERM, "{request:x}");
            false
        }
    };
    let sockets: Vec<u64> = (0x8900..0x8a00).filter(|request| allowed(*request)).collect();
    let listed = [
        0x8901, 0x8902, 0x8903, 0x8904, 0x8905, 0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921,
        0x8927, 0x8933, 0x8942, 0x894b, 0x8970,
    ];
    assert_eq!(sockets, listed);
    // Whatever direction and size a request of theirs has.
    for kind in [0x15, 0x58, 0x66, 0x89, 0x94] {
        for (way, number) in
            [0x4000_0000, 0x8000_0000, 0xc000_0000].into_iter().flat_map(|way| (0..256).map(move |n| (way, n)))
        {
            for size in [4u64, 8, 24, 32, 4096] {
                let request = way | size << 16 | kind << 8 | number;
                let known = [0x4004_9409, 0x4020_940d, libc::FS_IOC_GETFLAGS];
                assert_eq!(allowed(request), known.contains(&request), "{request:x}");
            }
        }
    }
    for request in [libc::TCGETS, libc::TCSETS, libc::TIOCGWINSZ, libc::FIONREAD, libc::FIONBIO, libc::FIOASYNC] {
        assert!(allowed(request), "{request:x}");
    }
}

#[test]
fn flags_that_tell_or_take_are_refused() {
    let errno = |errno: i32| SECCOMP_RET_ERRNO | errno as u32;
    for flags in 0..0x1000 {
        let vectored = if flags & !0x37 == 0 { SECCOMP_RET_ALLOW } else { errno(libc::EOPNOTSUPP) };
        for nr in [nr::SYS_preadv2, nr::SYS_pwritev2] {
            assert_eq!(call(nr, &[3, 0, 1, 0, 0, flags | UPPER]), vectored, "{flags:x}");
        }
        let piped = if flags & libc::O_EXCL as u64 == 0 { SECCOMP_RET_ALLOW } else { errno(libc::EINVAL) };
        assert_eq!(call(nr::SYS_pipe2, &[0, flags | UPPER]), piped, "{flags:x}");
    }
}
