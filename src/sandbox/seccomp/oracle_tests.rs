//! The payload's search tree beside seccompiler's lists: two compilers of one table, which must decide alike.
//!
//! seccompiler decides each test of an argument; the clauses are put together here, because it has no "none of these" under a
//! mask and one answer per filter.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO};
use proptest::prelude::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::compile::ARCH;
use super::condition::{Clause, Test, Width};
use super::machine::{Call, run};
use super::table::rows;
use super::tests::boundaries;
use super::{Row, Rule, payload};

static TREE: LazyLock<Vec<libc::sock_filter>> = LazyLock::new(|| payload(false));

/// A test of an argument, as seccompiler compiles it for this number.
struct OracleTest {
    program: Vec<libc::sock_filter>,
    member: bool,
}

impl OracleTest {
    fn of(number: u32, test: &Test) -> Self {
        let length = match test.width {
            Width::Int => SeccompCmpArgLen::Dword,
            Width::Long => SeccompCmpArgLen::Qword,
        };
        let equal = |value: &u64| {
            let equal = SeccompCmpOp::MaskedEq(test.mask);
            SeccompRule::new(vec![SeccompCondition::new(test.arg, length.clone(), equal, *value).unwrap()]).unwrap()
        };
        let calls = BTreeMap::from([(i64::from(number), test.values.iter().map(equal).collect())]);
        let filter = SeccompFilter::new(calls, SeccompAction::Trap, SeccompAction::Allow, TargetArch::x86_64).unwrap();
        let program = BpfProgram::try_from(filter).unwrap();
        let program = program.iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
        Self { program, member: test.member }
    }

    fn holds(&self, call: &Call) -> bool {
        (run(&self.program, call).0 == SECCOMP_RET_ALLOW) == self.member
    }
}

type OracleClauses = Vec<Vec<OracleTest>>;

/// What a row answers by seccompiler.
struct Oracle {
    row: Row,
    pretended: OracleClauses,
    allowed: OracleClauses,
}

impl Oracle {
    fn of(row: &Row) -> Self {
        let compiled = |clauses: &[Clause]| -> OracleClauses {
            clauses.iter().map(|clause| clause.iter().map(|test| OracleTest::of(row.nr, test)).collect()).collect()
        };
        let (pretended, allowed) = match row.rule {
            Rule::AllowIf(condition) => (compiled(condition.pretend), compiled(condition.any)),
            _ => (Vec::new(), Vec::new()),
        };
        Self { row: *row, pretended, allowed }
    }

    fn answer(&self, call: &Call) -> u32 {
        let any = |clauses: &OracleClauses| clauses.iter().any(|clause| clause.iter().all(|test| test.holds(call)));
        match self.row.rule {
            Rule::Allow => SECCOMP_RET_ALLOW,
            Rule::Refuse => SECCOMP_RET_ERRNO | libc::EPERM as u32,
            Rule::NoSys => SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            Rule::Pretend => SECCOMP_RET_ERRNO,
            Rule::AllowIf(_) if any(&self.pretended) => SECCOMP_RET_ERRNO,
            Rule::AllowIf(_) if any(&self.allowed) => SECCOMP_RET_ALLOW,
            Rule::AllowIf(condition) => SECCOMP_RET_ERRNO | condition.otherwise as u32,
        }
    }
}

static ORACLES: LazyLock<Vec<Oracle>> = LazyLock::new(|| rows().map(Oracle::of).collect());

/// Values near those that conditions compare with, and any.
fn argument() -> impl Strategy<Value = u64> {
    let near: Vec<u64> = rows()
        .filter_map(|row| if let Rule::AllowIf(condition) = row.rule { Some(boundaries(condition)) } else { None })
        .flatten()
        .collect();
    prop_oneof![3 => prop::sample::select(near), 1 => any::<u64>(), 1 => 0..4096u64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn tree_and_lists_decide_alike(args in prop::array::uniform6(argument())) {
        for oracle in ORACLES.iter() {
            let call = Call { arch: ARCH, nr: oracle.row.nr, args };
            prop_assert_eq!(run(&TREE, &call).0, oracle.answer(&call), "{} {:x?}", oracle.row.name, call);
        }
    }
}
