//! What this program does inside a machine, where it is its own helper: `vm guest placements 1000`.

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taskman::{Launcher, Limits, TaskSpec};

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
        assert!(report.outcome.exit_code == Some(0) && report.containment.is_proven(), "start {start}: {report:?}");
    }
    println!("{starts} starts, each proven");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(watcher.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    ExitCode::from(watcher.wait().unwrap().code().unwrap_or(1) as u8)
}

static DONE: AtomicBool = AtomicBool::new(false);

/// Looks at every child of the launcher, from its first moment on, until it is told to stop.
fn watch(launcher: i32) -> ExitCode {
    let own = fs::metadata("/proc/self/exe").map(inode).unwrap();
    let (mut looks, mut tasks, mut early, mut outside) = (0u64, BTreeSet::new(), 0u64, Vec::new());
    let stop = nix::sys::signal::SigSet::from(nix::sys::signal::Signal::SIGTERM);
    stop.thread_block().unwrap();
    std::thread::spawn(move || {
        let _ = stop.wait();
        DONE.store(true, Ordering::Relaxed);
    });
    while !DONE.load(Ordering::Relaxed) {
        // With one processor whoever looks without a pause keeps tasks from starting; dozens of looks at each are left.
        std::thread::sleep(Duration::from_millis(2));
        for pid in sandboxes(launcher) {
            let program = fs::metadata(format!("/proc/{pid}/exe")).map(inode);
            let Ok(place) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { continue };
            // Read last: one that is still there and alive was so when its place was read.
            let alive = fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
            if !alive {
                continue;
            }
            looks += 1;
            early += u64::from(program.is_ok_and(|program| program == own));
            match place.lines().find_map(|line| line.strip_prefix("0::/")).filter(|path| path.starts_with("taskman-")) {
                Some(path) => drop(tasks.insert(path.to_owned())),
                None => outside.push(format!("{pid} in {place:?}")),
            }
        }
    }
    println!(
        "{looks} looks at processes of {} tasks, {early} of them before exec: {} outside",
        tasks.len(),
        outside.len()
    );
    outside.iter().take(5).for_each(|line| println!("{line}"));
    ExitCode::from(u8::from(!outside.is_empty() || early == 0 || tasks.is_empty()))
}

fn inode(meta: fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (meta.dev(), meta.ino())
}

/// Children of the launcher that are not this process.
fn sandboxes(launcher: i32) -> Vec<i32> {
    let me = std::process::id() as i32;
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != me).collect()
}
