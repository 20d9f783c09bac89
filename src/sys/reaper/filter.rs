//! What sandbox-init may still do once the payload runs: the calls of `INIT_TABLE` (`src/sandbox/seccomp/table.rs`).
//!
//! `build.rs` compiles them. A file of its own because `src/sandbox/seccomp/tests.rs` runs the filter too.

/// A classic BPF instruction, as the kernel reads it.
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

include!(concat!(env!("OUT_DIR"), "/init-filter.rs"));
