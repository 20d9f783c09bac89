//! Named places of a task's life at which a process can be made to stand still, for the fault suite (`tests/faults`).
//!
//! While it stands there, the suite kills it, or another, from outside, and looks at what becomes of the task. With the
//! `mutation` feature, which no shipped binary has, `TASKMAN_FAULT` names a file that suite and processes share as memory:
//! each place that is passed is written down in it, and at the place that stands armed in it the first to come waits. Memory,
//! because a confined process has no path, no descriptor and no signal left to wait by. Otherwise all of this is nothing.

#[cfg(feature = "mutation")]
pub use active::{point, role};

/// Says what this process is from here on; its places are named after it, and the first is `begin`.
#[cfg(not(feature = "mutation"))]
pub const fn role(_name: &'static str) {}

/// A place. Its name is unique within its role.
#[cfg(not(feature = "mutation"))]
pub const fn point(_name: &'static str) {}

#[cfg(feature = "mutation")]
mod active {
    use std::fs::File;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::{Mutex, OnceLock, PoisonError};

    use nix::poll::poll;

    use crate::sys::page::{self, Page};

    /// What the suite has written to [`Page::state`], but for the third, which is its answer.
    const ARMED: u32 = 1;
    const STANDING: u32 = 2;

    static ROLE: Mutex<&'static str> = Mutex::new("");
    /// Mapped by the first process that has a role, and inherited by all that it forks.
    static PAGE: OnceLock<Option<&'static Page>> = OnceLock::new();

    /// Says what this process is from here on; its places are named after it, and the first is `begin`.
    pub fn role(name: &'static str) {
        *ROLE.lock().unwrap_or_else(PoisonError::into_inner) = name;
        point("begin");
    }

    /// A place. Its name is unique within its role.
    pub fn point(name: &'static str) {
        let Some(page) = PAGE.get_or_init(open) else { return };
        let role = *ROLE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{role}.{name}\n");
        page.note(name.as_bytes());
        let is_first =
            page.names(name.as_bytes()) && page.state.compare_exchange(ARMED, STANDING, SeqCst, SeqCst).is_ok();
        while is_first && page.state.load(SeqCst) == STANDING {
            // Nobody can wake a process that has nothing open.
            let _ = poll(&mut [], 1u8);
        }
    }

    fn open() -> Option<&'static Page> {
        let path = std::env::var_os("TASKMAN_FAULT")?;
        let file = File::options().read(true).write(true).open(path).expect("TASKMAN_FAULT names a file");
        Some(page::map(&file).expect("the file can be mapped"))
    }
}
