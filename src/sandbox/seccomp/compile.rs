//! From rows to a classic BPF program: a balanced search tree over ranges of numbers that share a rule.
//!
//! A tree, because the kernel pays for depth twice: at each call, and at install, where it runs the filter once per
//! system call number to learn which are always allowed. A list of comparisons costs several times as much there.
//!
//! The program is built from its end to its start: every jump in BPF goes forward, so whatever a jump needs already
//! exists, at a known distance, when the jump is written. Conditional jumps reach 255 instructions; a target further
//! away gets a copy (if it is a return) or a relay nearby.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
};
use libc::{SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_PROCESS, sock_filter};

use super::condition::{Clause, Condition, Test, Width};
use super::{Row, Rule};

/// AUDIT_ARCH_X86_64: the machine number, 64 bit, little endian.
pub const ARCH: u32 = 62 | 0x8000_0000 | 0x4000_0000;

/// Offsets in `struct seccomp_data`.
pub(super) const DATA_NR: u32 = 0;
pub(super) const DATA_ARCH: u32 = 4;
pub(super) const DATA_ARGS: u32 = 16;

const REFUSE: u32 = SECCOMP_RET_ERRNO | libc::EPERM as u32;
const NO_SYS: u32 = SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const PRETEND: u32 = SECCOMP_RET_ERRNO;

/// What a range of numbers gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Return(u32),
    If(&'static Condition),
}

impl Leaf {
    fn of(rule: Rule) -> Self {
        match rule {
            Rule::Allow => Self::Return(SECCOMP_RET_ALLOW),
            Rule::AllowIf(condition) => Self::If(condition),
            Rule::Refuse => Self::Return(REFUSE),
            Rule::NoSys => Self::Return(NO_SYS),
            Rule::Pretend => Self::Return(PRETEND),
        }
    }
}

/// Compiles `rows`, which name each number at most once, to a filter for x86_64. All other numbers answer ENOSYS; there is
/// no way to allow them, because x32 numbers are among them.
pub fn compile(rows: &[Row]) -> Vec<sock_filter> {
    let mut program = Backwards::default();
    let tree = program.tree(&ranges(rows));
    let number = program.load(DATA_NR, tree);
    let foreign = program.ret(SECCOMP_RET_KILL_PROCESS);
    let check = program.jump(BPF_JEQ, ARCH, number, foreign);
    program.load(DATA_ARCH, check);
    program.finish()
}

/// The whole number space as (first number, leaf), neighbours with the same leaf joined.
fn ranges(rows: &[Row]) -> Vec<(u32, Leaf)> {
    let rest = Leaf::Return(NO_SYS);
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_unstable_by_key(|row| row.nr);
    let mut points = vec![(0, rest)];
    for row in rows {
        // A row begins at its number and, unless the next row takes over, ends before the one after it.
        if points.last().is_some_and(|(first, _)| *first == row.nr) {
            points.pop();
        }
        points.push((row.nr, Leaf::of(row.rule)));
        points.push((row.nr + 1, rest));
    }
    points.dedup_by(|later, earlier| later.1 == earlier.1);
    points
}

/// An instruction, counted from the program's end.
type Label = usize;

/// The program so far, last instruction first.
#[derive(Default)]
struct Backwards {
    code: Vec<sock_filter>,
    /// The newest return of each value.
    returns: Vec<(u32, Label)>,
}

impl Backwards {
    fn push(&mut self, code: u32, jt: u8, jf: u8, k: u32) -> Label {
        self.code.push(sock_filter { code: code as u16, jt, jf, k });
        self.code.len() - 1
    }

    /// A return of `value`: the newest one if it is in reach, or another.
    fn ret(&mut self, value: u32) -> Label {
        let known = self.returns.iter().position(|(of, _)| *of == value);
        match known.map(|at| self.returns[at].1) {
            Some(label) if self.code.len() - label <= REACH => return label,
            _ => {}
        }
        let label = self.push(BPF_RET | BPF_K, 0, 0, value);
        match known {
            Some(at) => self.returns[at].1 = label,
            None => self.returns.push((value, label)),
        }
        label
    }

    /// `target`, or something in reach of the next conditional jump that leads there.
    fn near(&mut self, target: Label) -> Label {
        if self.code.len() - target <= REACH {
            return target;
        }
        let there = self.code[target];
        match u32::from(there.code) {
            code if code == BPF_RET | BPF_K => self.ret(there.k),
            _ => self.relay(target),
        }
    }

    fn relay(&mut self, target: Label) -> Label {
        let distance = self.code.len() - target - 1;
        self.push(BPF_JMP | BPF_JA, 0, 0, distance as u32)
    }

    /// A comparison of the accumulator with `k`.
    fn jump(&mut self, compare: u32, k: u32, yes: Label, no: Label) -> Label {
        if yes == no {
            return yes;
        }
        let (yes, no) = (self.near(yes), self.near(no));
        let distance = |label: Label| (self.code.len() - label - 1) as u8;
        let (jt, jf) = (distance(yes), distance(no));
        self.push(BPF_JMP | compare | BPF_K, jt, jf, k)
    }

    /// Makes sure that the next instruction pushed is followed by `next`.
    fn fall_through(&mut self, next: Label) {
        if next != self.code.len() - 1 {
            self.relay(next);
        }
    }

    fn load(&mut self, offset: u32, next: Label) -> Label {
        self.fall_through(next);
        self.push(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset)
    }

    fn tree(&mut self, ranges: &[(u32, Leaf)]) -> Label {
        match ranges {
            [] => unreachable!("the ranges cover every number"),
            [(_, Leaf::Return(value))] => self.ret(*value),
            [(_, Leaf::If(condition))] => self.condition(condition),
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let at_or_above = self.tree(high);
                let below = self.tree(low);
                self.jump(BPF_JGE, high[0].0, at_or_above, below)
            }
        }
    }

    fn condition(&mut self, condition: &Condition) -> Label {
        let refused = self.ret(SECCOMP_RET_ERRNO | condition.otherwise as u32);
        let not_pretended = self.clauses(condition.any, SECCOMP_RET_ALLOW, refused);
        self.clauses(condition.pretend, PRETEND, not_pretended)
    }

    /// Returns `value` where one of `clauses` holds.
    fn clauses(&mut self, clauses: &[Clause], value: u32, mut otherwise: Label) -> Label {
        for clause in clauses.iter().rev() {
            let mut then = self.ret(value);
            for test in clause.iter().rev() {
                then = self.test(test, then, otherwise);
            }
            otherwise = then;
        }
        otherwise
    }

    fn test(&mut self, test: &Test, then: Label, otherwise: Label) -> Label {
        let (yes, no) = if test.member { (then, otherwise) } else { (otherwise, then) };
        let low = DATA_ARGS + 8 * u32::from(test.arg);
        match test.width {
            Width::Int => {
                let mask = test.mask as u32;
                if test.values == [0] && mask != u32::MAX {
                    let bits = self.jump(BPF_JSET, mask, no, yes);
                    return self.load(low, bits);
                }
                let mut next = no;
                for (first, last) in spans(test.values).into_iter().rev() {
                    next = self.span(first, last, yes, next);
                }
                let masked = self.and(mask, next);
                self.load(low, masked)
            }
            Width::Long => {
                let mut next = no;
                for value in test.values.iter().rev() {
                    let equal = self.jump(BPF_JEQ, *value as u32, yes, next);
                    let masked = self.and(test.mask as u32, equal);
                    let loaded = self.load(low, masked);
                    let equal = self.jump(BPF_JEQ, (*value >> 32) as u32, loaded, next);
                    let masked = self.and((test.mask >> 32) as u32, equal);
                    next = self.load(low + 4, masked);
                }
                next
            }
        }
    }

    fn span(&mut self, first: u32, last: u32, yes: Label, no: Label) -> Label {
        if first == last {
            return self.jump(BPF_JEQ, first, yes, no);
        }
        let not_above = self.jump(BPF_JGT, last, no, yes);
        self.jump(BPF_JGE, first, not_above, no)
    }

    fn and(&mut self, mask: u32, next: Label) -> Label {
        if mask == u32::MAX {
            return next;
        }
        self.fall_through(next);
        self.push(BPF_ALU | BPF_AND | BPF_K, 0, 0, mask)
    }

    fn finish(mut self) -> Vec<sock_filter> {
        self.code.reverse();
        self.code
    }
}

/// How far back a target may lie: a jump's 255 less the two relays that may come in between.
const REACH: usize = 250;

/// Runs of consecutive values, in the order given.
fn spans(values: &[u64]) -> Vec<(u32, u32)> {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for value in values.iter().map(|value| *value as u32) {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(value) => *last = value,
            _ => spans.push((value, value)),
        }
    }
    spans
}
