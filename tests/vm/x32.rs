//! A kernel that takes calls by their x32 numbers: Debian's usual one, told to at boot.

use std::time::Duration;

use libtest_mimic::Trial;

use crate::case;
use crate::machine::{Kernel, Machine, Spec};
use crate::suites;

pub fn cases() -> Vec<Trial> {
    vec![case("x32_calls_are_refused_where_the_kernel_has_them", refused)]
}

/// The suite skips this case where its control does not work, which is on a kernel without x32.
fn refused() {
    let mut machine = Machine::boot(Spec { kernel: Kernel::Stock, append: "syscall.x32=y", ..Spec::default() });
    let script = suites::script(&suites::adversarial("K07,K08"));
    let (code, said) = machine.run_within(&script, Duration::from_secs(600));
    let line = said.lines().find(|line| line.starts_with("K07 ")).unwrap_or_default();
    assert!(code == 0 && line.contains("held"), "{code}: {line}\n{said}");
}
