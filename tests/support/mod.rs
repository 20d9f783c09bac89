//! What the end-to-end tests share: running the real `taskman` under a hard time limit, and looking at its tasks from
//! outside through `/proc` and the control group file systems.
//!
//! Nothing here sleeps for a fixed time: a process's end is awaited, anything else is asked for again until a deadline.

pub mod cargo;
pub mod cgroups;
pub mod containment;
pub mod ended;
pub mod hierarchies;
pub mod host;
pub mod http2;
pub mod incident;
pub mod mutation;
pub mod pace;
pub mod port;
pub mod proc;
pub mod rpc;
pub mod run;
pub mod scrape;
pub mod server;
pub mod supervisor;
pub mod throttled;

pub use ended::Ended;
pub use host::HostDir;
pub use proc::Process;
pub use run::{Run, Started};
pub use server::Server;

use std::time::{Duration, Instant};

/// No step of a test takes longer than this at the usual [pace], or the test fails: a bug may not hang the suite.
pub const GUARD: Duration = Duration::from_secs(60);

/// Asks `question` until it answers, for at most [`GUARD`].
#[track_caller]
pub fn wait_until<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + pace::time(GUARD);
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "gave up after {GUARD:?} waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
