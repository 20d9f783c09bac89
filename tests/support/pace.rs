//! How fast this machine is. `TASKMAN_TEST_SLOW=20` says: twenty times slower than the usual one, as an emulated machine
//! is. Then whatever must not be late has twenty times as long. What a task may use, and how long something must *not* happen,
//! stay as they are.
//!
//! And how deep the run is. What is repeated to win a race is repeated a tenth as often as it could be; `TASKMAN_TEST_DEEP=1`
//! says: as often as it could be, `TASKMAN_TEST_FEWER=100`: a hundredth as often, `TASKMAN_TEST_MORE=100`: a hundred times as often.
#![allow(dead_code)] // each test program uses a part of it

use std::sync::LazyLock;
use std::time::Duration;

static SLOW: LazyLock<u32> = LazyLock::new(|| number("TASKMAN_TEST_SLOW"));
static FEWER: LazyLock<u32> = LazyLock::new(|| if short() { 10 } else { number("TASKMAN_TEST_FEWER") });
static MORE: LazyLock<u32> = LazyLock::new(|| number("TASKMAN_TEST_MORE"));

/// Whether nothing is said of how often.
fn short() -> bool {
    ["DEEP", "FEWER", "MORE"].iter().all(|name| std::env::var_os(format!("TASKMAN_TEST_{name}")).is_none())
}

fn number(variable: &str) -> u32 {
    let Ok(text) = std::env::var(variable) else { return 1 };
    text.parse()
        .ok()
        .filter(|times| *times > 0)
        .unwrap_or_else(|| panic!("{variable} is a number from 1 on, not {text:?}"))
}

/// How long that may take here which takes `usual` at most.
pub fn time(usual: Duration) -> Duration {
    usual.saturating_mul(*SLOW)
}

/// How long a limit is here which is waited out, and in which the test has things to do: as long as they take, no longer.
pub fn term(usual: Duration) -> Duration {
    usual.saturating_mul((*SLOW).min(4))
}

/// How often that is repeated here which is repeated `usual` times.
pub fn count(usual: usize) -> usize {
    (usual * *MORE as usize).div_ceil(*FEWER as usize)
}

/// How often a race is tried that can be tried `usual` times, and that is lost within `red` without the defence.
pub fn race(usual: usize, red: usize) -> usize {
    let least = if short() { red.min(usual) } else { 1 };
    count(usual).max(least)
}

/// How many times slower than the usual machine this one is.
pub fn slow() -> u32 {
    *SLOW
}

/// By what [`count`] divides.
pub fn fewer() -> u32 {
    *FEWER
}
