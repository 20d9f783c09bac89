//! What sandbox-init may still do once the payload runs: wait, take signals, forward them, tell, end.
//!
//! A file of its own because `src/sandbox/seccomp/tests.rs` compares it with the table that the documentation shows.

/// A classic BPF instruction, as the kernel reads it.
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

const fn load(offset: u32) -> Instruction {
    Instruction { code: 0x20, jt: 0, jf: 0, k: offset }
}
const fn equal(value: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code: 0x15, jt, jf, k: value }
}
const fn answer(action: u32) -> Instruction {
    Instruction { code: 0x06, jt: 0, jf: 0, k: action }
}

/// Six calls of x86_64; anything else, or another architecture, kills init and with it the sandbox.
pub static FILTER: [Instruction; 11] = [
    load(4),
    equal(0xc000_003e, 0, 7),
    load(0),
    equal(128, 6, 0), // rt_sigtimedwait
    equal(61, 5, 0),  // wait4
    equal(62, 4, 0),  // kill
    equal(1, 3, 0),   // write
    equal(3, 2, 0),   // close
    equal(231, 1, 0), // exit_group
    answer(0x8000_0000),
    answer(0x7fff_0000),
];
