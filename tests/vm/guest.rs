//! What this program does inside a machine, where it is its own helper: `vm guest placements 1000`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taskman::{Launcher, Limits, TaskSpec};

use crate::placement::Seen;

pub fn main(mut words: impl Iterator<Item = String>) -> ExitCode {
    let number = |word: Option<String>| word.and_then(|word| word.parse().ok());
    match (words.next().as_deref(), number(words.next())) {
        (Some("placements"), Some(starts)) => placements(starts),
        (Some("watch"), Some(launcher)) => watch(launcher),
        _ => ExitCode::from(2),
    }
}

/// Starts so many tasks one after the other, while another process looks where their processes are.
fn placements(starts: i32) -> ExitCode {
    let launcher = Launcher::open().unwrap();
    let me = std::process::id().to_string();
    let mut watcher =
        std::process::Command::new("/proc/self/exe").args(["guest", "watch", &me]).spawn().expect("a watcher");
    let limits = Limits { timeout: Duration::from_secs(60), ..Limits::default() };
    for start in 0..starts {
        let spec = TaskSpec::new("/bin/busybox", ["true"]).unwrap().with_limits(limits.clone()).unwrap();
        let report = launcher.start(spec).unwrap().wait(|_, _| {}).unwrap();
        assert!(report.outcome.status.code() == Some(0) && report.containment.is_proven(), "start {start}: {report:?}");
    }
    println!("{starts} starts, each proven");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(watcher.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    ExitCode::from(watcher.wait().unwrap().code().unwrap_or(1) as u8)
}

static DONE: AtomicBool = AtomicBool::new(false);

/// Looks at every child of the launcher until it is told to stop.
fn watch(launcher: i32) -> ExitCode {
    let stop = nix::sys::signal::SigSet::from(nix::sys::signal::Signal::SIGTERM);
    stop.thread_block().unwrap();
    std::thread::spawn(move || {
        let _ = stop.wait();
        DONE.store(true, Ordering::Relaxed);
    });
    // A start takes a hundred milliseconds there: half a dozen of looks at each are left.
    let seen = Seen::watch(launcher, Duration::from_millis(10), || DONE.load(Ordering::Relaxed));
    println!("{seen}");
    ExitCode::from(u8::from(!seen.is_inside(1)))
}
