//! Compiles the seccomp filters of payload and sandbox-init, so that no start has to; and builds sandbox-init
//! (`src/sys/reaper/main.rs`) as a static program without libc, to be embedded in the library.
//!
//! That is a program of its own so that nothing of the launcher is in its memory; it is this small so that executing it
//! costs less than a tenth of a millisecond.

use std::env;
use std::path::PathBuf;
use std::process::Command;

#[path = "src/sandbox/seccomp/mod.rs"]
#[expect(dead_code, reason = "the library needs more of it")]
mod seccomp;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

fn main() {
    payloads_filters();
    inits_filter();
    sandbox_init();
}

/// As arrays of Rust's.
fn payloads_filters() {
    println!("cargo::rerun-if-changed=src/sandbox/seccomp");
    let instruction = |libc::sock_filter { code, jt, jf, k }| {
        format!("libc::sock_filter {{ code: {code}, jt: {jt}, jf: {jf}, k: {k} }},\n")
    };
    for (file, own_filters) in [("payload-filter.rs", false), ("own-filters-filter.rs", true)] {
        let array: String = seccomp::payload(own_filters).into_iter().map(instruction).collect();
        std::fs::write(out_dir().join(file), format!("[\n{array}]")).expect("OUT_DIR can be written to");
    }
}

/// What is not in its table kills init, and with it the sandbox: one answer for a match and one for the rest, which is what
/// seccompiler is for.
fn inits_filter() {
    let calls = seccomp::table::INIT_TABLE.iter().map(|row| (i64::from(row.nr), Vec::new())).collect();
    let (other, known) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(calls, other, known, TargetArch::x86_64).expect("two actions");
    let program = BpfProgram::try_from(filter).expect("a short filter");
    let array: String = program
        .iter()
        .map(|i| format!("Instruction {{ code: {}, jt: {}, jf: {}, k: {} }},\n", i.code, i.jt, i.jf, i.k))
        .collect();
    let text = format!("pub static FILTER: [Instruction; {}] = [\n{array}];\n", program.len());
    std::fs::write(out_dir().join("init-filter.rs"), text).expect("OUT_DIR can be written to");
}

fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
}

#[expect(clippy::disallowed_methods, reason = "a build script starts the compiler, not a task")]
fn sandbox_init() {
    let source = "src/sys/reaper/main.rs";
    println!("cargo::rerun-if-changed=src/sys/reaper");
    println!("cargo::rerun-if-changed=build.rs");
    let output = out_dir().join("sandbox-init");
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc.args([
        "--edition",
        "2024",
        "--crate-type",
        "bin",
        "--crate-name",
        "sandbox_init",
        "--target",
        "x86_64-unknown-linux-gnu",
    ]);
    rustc.args(["-C", "panic=abort", "-C", "opt-level=s", "-C", "relocation-model=static", "-C", "strip=symbols"]);
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-Wl,--build-id=none,-n,-z,noexecstack"] {
        rustc.args(["-C", &format!("link-arg={argument}")]);
    }
    if env::var_os("CARGO_FEATURE_MUTATION").is_some() {
        rustc.args(["--cfg", "mutation"]);
    }
    let status = rustc.arg(source).arg("-o").arg(&output).status().expect("rustc runs");
    assert!(status.success(), "sandbox-init did not build: {status}");
}
