//! taskman on hosts that this one is not, each a virtual machine with a kernel of Debian's: `scripts/vm-test`.
//!
//! Needs root, qemu and the images that the script makes.
#![allow(clippy::disallowed_methods)] // starts processes and waits as it likes
#![allow(clippy::unwrap_used, missing_docs)]

mod container;
mod guest;
mod limits;
mod machine;
mod package;
mod plain;
mod small;
mod suites;
mod unit;
mod x32;

use libtest_mimic::{Arguments, Trial};

/// The program under test; a machine with this host's programs has it at the same place.
const TASKMAN: &str = env!("CARGO_BIN_EXE_taskman");

fn main() -> std::process::ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("guest") {
        return guest::main(words);
    }
    let mut args = Arguments::from_args();
    // A machine takes both processors of a small host.
    args.test_threads.get_or_insert(1);
    #[rustfmt::skip] // a line each
    let cases = [
        plain::cases(),
        limits::cases(),
        small::cases(),
        x32::cases(),
        suites::cases(),
        unit::cases(),
        package::cases(),
        container::cases(),
    ];
    let trials: Vec<Trial> = cases.into_iter().flatten().collect();
    libtest_mimic::run(&args, trials).exit_code()
}

/// A test of this name.
fn case(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}
