//! A classic BPF machine of the few instructions the compiler writes, so that tests run the program and not the table.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

use super::compile::{DATA_ARCH, DATA_ARGS, DATA_NR};

/// One system call, as the kernel shows it to a filter.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub arch: u32,
    pub nr: u32,
    pub args: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            DATA_NR => self.nr,
            DATA_ARCH => self.arch,
            _ => {
                let at = offset.checked_sub(DATA_ARGS).expect("the instruction pointer is never read") as usize;
                assert!(at.is_multiple_of(4), "unaligned load at {offset}");
                (self.args[at / 8] >> (at % 8 * 8)) as u32
            }
        }
    }
}

/// The filter's verdict and how many instructions it took.
pub fn run(program: &[sock_filter], call: &Call) -> (u32, usize) {
    let (mut at, mut a, mut steps) = (0, 0u32, 0);
    loop {
        let i = program.get(at).unwrap_or_else(|| panic!("{call:x?} runs off the program's end"));
        let (jt, jf) = (usize::from(i.jt), usize::from(i.jf));
        at += 1;
        steps += 1;
        let branch = |yes: bool| if yes { jt } else { jf };
        match u32::from(i.code) {
            code if code == BPF_LD | BPF_W | BPF_ABS => a = call.word(i.k),
            code if code == BPF_ALU | BPF_AND => a &= i.k,
            code if code == BPF_RET => return (i.k, steps),
            code if code == BPF_JMP | BPF_JA => at += i.k as usize,
            code if code == BPF_JMP | BPF_JEQ => at += branch(a == i.k),
            code if code == BPF_JMP | BPF_JGE => at += branch(a >= i.k),
            code if code == BPF_JMP | BPF_JGT => at += branch(a > i.k),
            code if code == BPF_JMP | BPF_JSET => at += branch(a & i.k != 0),
            code => panic!("instruction {code:#x} is not the compiler's"),
        }
    }
}
