//! The compiled program against a plain reading of the table, and the promises the table makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS};
use proptest::prelude::*;

use super::compile::{ARCH, compile};
use super::condition::{Clause, Condition, NAMESPACES, Test, Width};
use super::machine::{Call, run};
use super::table::{INIT_TABLE, PAYLOAD, nr, rows};
use super::{Row, Rule, payload};

#[path = "../../sys/reaper/filter.rs"]
mod init_filter;

pub(super) const EPERM: u32 = SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
/// Rubbish for the half of a register that an `int` does not have.
pub(super) const UPPER: u64 = 0xdead_beef_0000_0000;

static PROGRAM: LazyLock<Vec<libc::sock_filter>> = LazyLock::new(|| payload(false));

fn holds(test: &Test, args: &[u64; 6]) -> bool {
    let bits = if test.width == Width::Int { u64::from(u32::MAX) } else { u64::MAX };
    let value = args[usize::from(test.arg)] & test.mask & bits;
    test.values.iter().any(|v| v & bits == value) == test.member
}

fn read(rows: &[Row], call: &Call) -> u32 {
    if call.arch != ARCH {
        return SECCOMP_RET_KILL_PROCESS;
    }
    match rows.iter().find(|row| row.nr == call.nr).map(|row| row.rule) {
        Some(Rule::Allow) => SECCOMP_RET_ALLOW,
        Some(Rule::AllowIf(c)) => {
            let any = |clauses: &[Clause]| clauses.iter().any(|clause| clause.iter().all(|t| holds(t, &call.args)));
            match (any(c.pretend), any(c.any)) {
                (true, _) => SECCOMP_RET_ERRNO,
                (false, true) => SECCOMP_RET_ALLOW,
                (false, false) => SECCOMP_RET_ERRNO | c.otherwise as u32,
            }
        }
        Some(Rule::Refuse) => EPERM,
        Some(Rule::NoSys) | None => ENOSYS,
        Some(Rule::Pretend) => SECCOMP_RET_ERRNO,
    }
}

/// The filter that sandbox-init puts on itself.
fn init() -> Vec<libc::sock_filter> {
    let instruction = |i: &init_filter::Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    init_filter::FILTER.iter().map(instruction).collect()
}

fn all_rows() -> Vec<Row> {
    rows().copied().collect()
}

pub(super) fn call(nr: libc::c_long, args: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    run(&PROGRAM, &Call { arch: ARCH, nr: nr as u32, args: all }).0
}

/// Every value a test compares with, its neighbours, and each with rubbish above.
pub(super) fn boundaries(condition: &Condition) -> Vec<u64> {
    let mut values = BTreeSet::from([0, 1, u64::MAX, u64::from(u32::MAX)]);
    for test in condition.any.iter().chain(condition.pretend).copied().flatten() {
        for v in test.values.iter().copied().chain([test.mask]) {
            for near in [v, v.wrapping_sub(1), v.wrapping_add(1), v << 1, v >> 1] {
                values.extend([near, near & 0xffff_ffff, near | UPPER, near ^ 1 << 32]);
            }
        }
    }
    values.into_iter().collect()
}

#[test]
fn every_number_gets_what_its_row_says() {
    let rows = all_rows();
    let x32 = 0x4000_0000..0x4000_0400;
    for nr in (0..1024).chain(x32).chain([0x8000_0000, u32::MAX - 1, u32::MAX]) {
        for args in [[0; 6], [u64::MAX; 6]] {
            let call = Call { arch: ARCH, nr, args };
            assert_eq!(run(&PROGRAM, &call).0, read(&rows, &call), "{call:x?}");
        }
    }
}

#[test]
fn every_condition_holds_at_its_boundaries() {
    let rows = all_rows();
    let mut tried = 0;
    for row in &rows {
        let Rule::AllowIf(condition) = row.rule else { continue };
        let used: BTreeSet<usize> =
            condition.any.iter().chain(condition.pretend).copied().flatten().map(|t| usize::from(t.arg)).collect();
        // Conditions on three arguments would square the work; for those proptest below goes through the middle.
        let values = boundaries(condition);
        for a in &values {
            for b in &values {
                for first in &used {
                    let mut args = [*b; 6];
                    args[*first] = *a;
                    let call = Call { arch: ARCH, nr: row.nr, args };
                    assert_eq!(run(&PROGRAM, &call).0, read(&rows, &call), "{} {call:x?}", row.name);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 10_000, "{tried}");
}

#[test]
fn x32_numbers_do_not_exist() {
    for row in rows() {
        let call = Call { arch: ARCH, nr: row.nr | 0x4000_0000, args: [0; 6] };
        assert_eq!(run(&PROGRAM, &call).0, ENOSYS, "{} with the x32 bit", row.name);
    }
}

#[test]
fn foreign_architectures_are_killed() {
    const I386: u32 = 3 | 0x4000_0000;
    const AARCH64: u32 = 183 | 0x8000_0000 | 0x4000_0000;
    for program in [payload(false), payload(true), init()] {
        for arch in [0, 3, 62, I386, AARCH64, ARCH ^ 1, u32::MAX] {
            for nr in 0..512 {
                let call = Call { arch, nr, args: [0; 6] };
                assert_eq!(run(&program, &call).0, SECCOMP_RET_KILL_PROCESS, "{call:x?}");
            }
        }
    }
}

#[test]
fn each_call_stands_once_and_none_is_missing() {
    let mut seen = BTreeMap::new();
    for row in rows() {
        assert_eq!(seen.insert(row.nr, row.name), None, "{} stands twice", row.name);
    }
    // 337 to 423 were never given out; 470 is the newest.
    let missing: Vec<u32> = (0..337).chain(424..471).filter(|nr| !seen.contains_key(nr)).collect();
    assert_eq!(missing, [] as [u32; 0]);
    assert_eq!(seen.len(), 337 + 47);
    for group in PAYLOAD {
        assert!(!group.why.is_empty() && !group.rows.is_empty(), "{}", group.title);
    }
}

#[test]
fn namespaces_are_out_of_reach() {
    assert_eq!(call(nr::SYS_clone3, &[]), ENOSYS);
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWCGROUP,
    ] {
        assert_eq!(NAMESPACES & flag as u64, flag as u64);
        assert_eq!(call(nr::SYS_clone, &[flag as u64 | libc::SIGCHLD as u64]), EPERM, "{flag:#x}");
        assert_eq!(call(nr::SYS_clone, &[flag as u64 | UPPER]), EPERM, "{flag:#x}");
    }
    assert_eq!(NAMESPACES.count_ones(), 7);
    let thread = 0x003d_0f00; // what glibc's pthread_create passes
    assert_eq!(call(nr::SYS_clone, &[thread]), SECCOMP_RET_ALLOW);
    for refused in [nr::SYS_unshare, nr::SYS_setns, nr::SYS_mount, nr::SYS_listmount, nr::SYS_name_to_handle_at] {
        assert_eq!(call(refused, &[]), EPERM);
    }
}

#[test]
fn every_lock_names_the_process_that_has_it() {
    const EINVAL: u32 = SECCOMP_RET_ERRNO | libc::EINVAL as u32;
    for command in [libc::F_OFD_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW] {
        assert_eq!(call(nr::SYS_fcntl, &[3, command as u64]), EINVAL, "{command}");
        assert_eq!(call(nr::SYS_fcntl, &[3, command as u64 | UPPER, libc::O_DIRECT as u64]), EINVAL, "{command}");
    }
    for command in [libc::F_GETLK, libc::F_SETLK, libc::F_SETLKW, libc::F_SETLEASE, libc::F_DUPFD_CLOEXEC] {
        assert_eq!(call(nr::SYS_fcntl, &[3, command as u64]), SECCOMP_RET_ALLOW, "{command}");
    }
    let [files, vm, vfork] = [libc::CLONE_FILES, libc::CLONE_VM, libc::CLONE_VFORK].map(|flag| flag as u64);
    for shared in [files, files | vm, files | vm | vfork, files | vfork | UPPER] {
        assert_eq!(call(nr::SYS_clone, &[shared | libc::SIGCHLD as u64]), EPERM, "{shared:#x}");
    }
    let posix_spawn = vm | vfork | libc::SIGCHLD as u64;
    assert_eq!(call(nr::SYS_clone, &[posix_spawn]), SECCOMP_RET_ALLOW);
    assert_eq!(call(nr::SYS_clone, &[libc::CLONE_THREAD as u64 | libc::CLONE_NEWNS as u64]), EPERM);
}

#[test]
fn the_upper_half_of_an_int_changes_nothing() {
    for request in [0x5412, 0x541c, 0x541d, 0x5423u64] {
        for upper in [0, 1 << 32, UPPER, 0xffff_ffff_0000_0000] {
            assert_eq!(call(nr::SYS_ioctl, &[0, request | upper]), EPERM, "{request:#x} {upper:#x}");
            assert_eq!(call(nr::SYS_ioctl, &[0, (request + 0x100) | upper]), SECCOMP_RET_ALLOW);
        }
    }
    let packet = libc::AF_PACKET as u64;
    assert_eq!(call(nr::SYS_socket, &[packet | UPPER, 3, 0]), EPERM);
    assert_eq!(call(nr::SYS_socket, &[1 | UPPER, 1, 0]), SECCOMP_RET_ALLOW);
    assert_eq!(call(nr::SYS_prlimit64, &[1 << 32]), SECCOMP_RET_ALLOW, "the kernel reads pid 0");
    assert_eq!(call(nr::SYS_prlimit64, &[1]), EPERM);
}

#[test]
fn sockets_are_the_four_kinds() {
    let cloexec = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let mut allowed = BTreeSet::new();
    for family in 0..64 {
        for kind in 0..16 {
            for protocol in [0, 1, 6, 16, 17, 58, 132, 256, 262] {
                let verdict = call(nr::SYS_socket, &[family, kind | cloexec, protocol]);
                assert_eq!(verdict, call(nr::SYS_socket, &[family, kind, protocol]));
                if verdict == SECCOMP_RET_ALLOW {
                    allowed.insert((family, kind, protocol));
                } else {
                    assert_eq!(verdict, EPERM);
                }
            }
        }
    }
    allowed.retain(|(family, ..)| *family != libc::AF_UNIX as u64);
    let mut expected = BTreeSet::new();
    for family in [libc::AF_INET as u64, libc::AF_INET6 as u64] {
        expected.extend([(1, 0), (1, 6), (2, 0), (2, 1), (2, 17), (2, 58)].map(|(k, p)| (family, k, p)));
    }
    assert_eq!(allowed, expected);
}

#[test]
fn options_are_the_listed_ones() {
    const ENOPROTOOPT: u32 = SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32;
    let (socket, ip, ipv6) = (libc::SOL_SOCKET as u64, libc::IPPROTO_IP as u64, libc::IPPROTO_IPV6 as u64);
    let tcp = libc::IPPROTO_TCP as u64;
    for (level, option) in [
        (socket, libc::SO_RCVBUF),
        (ip, libc::IP_RECVERR),
        (ipv6, libc::IPV6_RECVERR),
        (tcp, libc::TCP_KEEPIDLE),
        (tcp, libc::TCP_KEEPINTVL),
    ] {
        let option = option as u64;
        assert_eq!(call(nr::SYS_setsockopt, &[3, level | UPPER, option | UPPER]), SECCOMP_RET_ERRNO, "{option}");
        assert_eq!(call(nr::SYS_getsockopt, &[3, level, option]), SECCOMP_RET_ALLOW, "{option}");
    }
    for nr in [nr::SYS_setsockopt, nr::SYS_getsockopt] {
        // Every group, its filters and its memberships, at both levels.
        for option in (libc::IP_ADD_MEMBERSHIP as u64..49).chain(50..1 << 16) {
            assert_eq!(call(nr, &[3, ip, option]), ENOPROTOOPT, "{option}");
        }
        let families = [17, 58, 132, 136, 255, 270, 282, u64::from(u32::MAX)];
        for level in families {
            for option in 0..512 {
                assert_eq!(call(nr, &[3, level, option]), ENOPROTOOPT, "{level} {option}");
            }
        }
        for option in [1, 2, 3, 4, 5, 6, 7, 9, 20, 21, 27, 28, 32, 33, 42, 46, 54, 55, 57, 59, 64] {
            assert_eq!(call(nr, &[3, ipv6, option]), ENOPROTOOPT, "{option}");
        }
    }
}

#[test]
fn the_hosts_page_cache_takes_no_advice() {
    use libc::{MADV_COLD, MADV_DONTNEED, MADV_FREE, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_WILLNEED};
    for (advice, verdict) in [
        (libc::POSIX_FADV_NORMAL, SECCOMP_RET_ALLOW),
        (libc::POSIX_FADV_RANDOM, SECCOMP_RET_ALLOW),
        (libc::POSIX_FADV_SEQUENTIAL, SECCOMP_RET_ALLOW),
        (libc::POSIX_FADV_WILLNEED, SECCOMP_RET_ERRNO),
        (libc::POSIX_FADV_DONTNEED, SECCOMP_RET_ERRNO),
    ] {
        assert_eq!(call(nr::SYS_fadvise64, &[3, 0, 0, advice as u64 | UPPER]), verdict, "{advice}");
    }
    assert_eq!(call(nr::SYS_readahead, &[3, 0, 4096]), SECCOMP_RET_ERRNO);
    for (advices, verdict) in [
        ([MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT], SECCOMP_RET_ERRNO),
        ([MADV_DONTNEED, MADV_FREE, MADV_POPULATE_READ], SECCOMP_RET_ALLOW),
    ] {
        for advice in advices {
            assert_eq!(call(nr::SYS_madvise, &[0, 4096, advice as u64 | UPPER]), verdict, "{advice}");
        }
    }
}

#[test]
fn nothing_is_read_past_the_page_cache() {
    const EINVAL: u32 = SECCOMP_RET_ERRNO | libc::EINVAL as u32;
    let (direct, plain) = (libc::O_DIRECT as u64, (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK) as u64);
    for (flags, verdict) in [(plain, SECCOMP_RET_ALLOW), (direct, EINVAL), (plain | direct | UPPER, EINVAL)] {
        assert_eq!(call(nr::SYS_open, &[0, flags, direct]), verdict, "{flags:#x}");
        assert_eq!(call(nr::SYS_openat, &[0, direct, flags, direct]), verdict, "{flags:#x}");
        assert_eq!(call(nr::SYS_fcntl, &[3, libc::F_SETFL as u64 | UPPER, flags]), verdict, "{flags:#x}");
        // An argument that is no flags.
        assert_eq!(call(nr::SYS_fcntl, &[3, libc::F_DUPFD as u64, flags]), SECCOMP_RET_ALLOW);
    }
    assert_eq!(call(nr::SYS_fcntl, &[3, libc::F_NOTIFY as u64 | UPPER, plain]), EINVAL);
    assert_eq!(call(nr::SYS_openat2, &[]), ENOSYS);
}

#[test]
fn no_datagram_stays_unfinished() {
    const EOPNOTSUPP: u32 = SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
    let (more, others) = (libc::MSG_MORE as u64, (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as u64);
    for (nr, before) in [(nr::SYS_sendmsg, 2), (nr::SYS_sendto, 3), (nr::SYS_sendmmsg, 3)] {
        for (flags, verdict) in [(others, SECCOMP_RET_ALLOW), (more, EOPNOTSUPP), (more | others | UPPER, EOPNOTSUPP)] {
            let mut args = vec![more; before];
            args.push(flags);
            assert_eq!(call(nr, &args), verdict, "{nr} {flags:x}");
        }
    }
}

#[test]
fn attributes_are_small() {
    const EOPNOTSUPP: u32 = SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
    for nr in [nr::SYS_setxattr, nr::SYS_lsetxattr, nr::SYS_fsetxattr] {
        for (size, verdict) in [
            (0, SECCOMP_RET_ALLOW),
            (127, SECCOMP_RET_ALLOW),
            (128, EOPNOTSUPP),
            (65536, EOPNOTSUPP),
            (1 << 32, EOPNOTSUPP),
        ] {
            assert_eq!(call(nr, &[128, 128, 128, size]), verdict, "{nr} {size}");
        }
    }
    assert_eq!(call(nr::SYS_setxattrat, &[0; 6]), ENOSYS);
}

#[test]
fn filters_are_for_those_who_may() {
    const EINVAL: u32 = SECCOMP_RET_ERRNO | libc::EINVAL as u32;
    let granted = payload(true);
    let install: [(i64, &[u64]); 4] = [
        (nr::SYS_seccomp, &[1, 0]),
        (nr::SYS_seccomp, &[1 | UPPER, 1 | UPPER]), // TSYNC
        (nr::SYS_prctl, &[22, 2]),
        (nr::SYS_prctl, &[22 | UPPER, 2]),
    ];
    for (nr, args) in install {
        assert_eq!(call(nr, args), EINVAL, "{nr} {args:x?}");
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let verdict = run(&granted, &Call { arch: ARCH, nr: nr as u32, args: all }).0;
        assert_eq!(verdict, SECCOMP_RET_ALLOW, "{nr} {args:x?}");
    }
    let listener = Call { arch: ARCH, nr: nr::SYS_seccomp as u32, args: [1, 1 << 3, 0, 0, 0, 0] };
    assert_eq!(run(&granted, &listener).0, EINVAL);
}

#[test]
fn init_can_reap_and_nothing_else() {
    let program = init();
    for nr in (0..1024).chain(0x4000_0000..0x4000_0400) {
        let call = Call { arch: ARCH, nr, args: [0; 6] };
        let listed = INIT_TABLE.iter().any(|row| row.nr == nr);
        let expected = if listed { SECCOMP_RET_ALLOW } else { SECCOMP_RET_KILL_PROCESS };
        assert_eq!(run(&program, &call).0, expected, "{nr}");
    }
}

#[test]
fn the_common_path_is_short() {
    let steps = |nr| run(&PROGRAM, &Call { arch: ARCH, nr, args: [0; 6] }).1;
    let longest = (0..471).map(steps).max().unwrap();
    assert!(PROGRAM.len() < 600, "{} instructions", PROGRAM.len());
    assert!(longest < 48, "{longest} steps");
    assert!(steps(libc::SYS_read as u32) < 14 && steps(libc::SYS_futex as u32) < 14);
}

#[test]
fn a_target_out_of_a_jumps_reach_is_still_reached() {
    let conditional: Vec<Row> = all_rows().into_iter().filter(|row| matches!(row.rule, Rule::AllowIf(_))).collect();
    let rules = conditional.iter().map(|row| row.rule).cycle();
    let rows: Vec<Row> = (0..300).zip(rules).map(|(nr, rule)| Row { nr, name: "", rule, why: "" }).collect();
    let program = compile(&rows);
    let relays = program.iter().filter(|i| u32::from(i.code) == libc::BPF_JMP | libc::BPF_JA && i.k > 255).count();
    assert!(program.len() > 2000 && relays > 0, "{} instructions, {relays} relays", program.len());
    for nr in 0..310 {
        for value in [0, 1, 2, 0x5412, u64::MAX] {
            let call = Call { arch: ARCH, nr, args: [value; 6] };
            assert_eq!(run(&program, &call).0, read(&rows, &call), "{call:x?}");
        }
    }
}

/// Tables that no one would write: sparse, dense, with long conditions, far beyond one jump's reach.
fn any_test() -> impl Strategy<Value = Test> {
    let value = prop_oneof![0..16u64, any::<u64>(), any::<u32>().prop_map(u64::from)];
    let mask = prop_oneof![Just(u64::MAX), Just(0xf), Just(0xffff_0000_0000_000f), any::<u64>()];
    (0..6u8, any::<bool>(), mask, proptest::collection::vec(value, 1..5), any::<bool>()).prop_map(
        |(arg, long, mask, mut values, member)| {
            let width = if long { Width::Long } else { Width::Int };
            values.iter_mut().for_each(|v| *v &= mask);
            // Leaked, because the tables are static and a test run ends.
            Test { arg, width, mask, values: values.leak(), member }
        },
    )
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let clause = || proptest::collection::vec(any_test(), 1..4).prop_map(|tests| &*tests.leak());
    let clauses = |least| proptest::collection::vec(clause(), least..4);
    let condition = (clauses(1), clauses(0), prop_oneof![Just(0), Just(libc::EPERM), Just(libc::ENOPROTOOPT)])
        .prop_map(|(any, pretend, otherwise)| {
            Rule::AllowIf(Box::leak(Box::new(Condition {
                text: "",
                any: any.leak(),
                pretend: pretend.leak(),
                otherwise,
            })))
        });
    prop_oneof![
        3 => Just(Rule::Allow),
        2 => Just(Rule::Refuse),
        1 => Just(Rule::NoSys),
        1 => Just(Rule::Pretend),
        3 => condition,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_table_compiles_to_itself(
        rules in proptest::collection::btree_map(0..600u32, any_rule(), 0..200),
        picks in proptest::collection::vec((any::<u8>(), any::<[u64; 6]>()), 8),
    ) {
        let rows: Vec<Row> = rules.into_iter().map(|(nr, rule)| Row { nr, name: "", rule, why: "" }).collect();
        let program = compile(&rows);
        for nr in (0..620).chain([0x4000_0000, u32::MAX]) {
            let mut values = vec![0, u64::MAX];
            if let Some(Rule::AllowIf(condition)) = rows.iter().find(|r| r.nr == nr).map(|r| r.rule) {
                values = boundaries(condition);
            }
            for (pick, random) in &picks {
                // Boundary values, mixed with random ones, in every position.
                let mut args = *random;
                for (i, arg) in args.iter_mut().enumerate() {
                    if *arg % 4 != 0 {
                        *arg = values[(usize::from(*pick) * 7 + (*arg as usize >> 8) + i) % values.len()];
                    }
                }
                let call = Call { arch: ARCH, nr, args };
                prop_assert_eq!(run(&program, &call).0, read(&rows, &call), "{:x?}", call);
            }
        }
    }

    #[test]
    fn the_payload_filter_is_the_table(
        row in 0..384usize,
        random in any::<[u64; 6]>(),
        picks in any::<[u16; 6]>(),
    ) {
        let rows = all_rows();
        let row = rows[row];
        let mut args = random;
        if let Rule::AllowIf(condition) = row.rule {
            let values = boundaries(condition);
            args = picks.map(|p| values[usize::from(p) % values.len()]);
        }
        let call = Call { arch: ARCH, nr: row.nr, args };
        prop_assert_eq!(run(&PROGRAM, &call).0, read(&rows, &call), "{} {:x?}", row.name, call);
    }
}
