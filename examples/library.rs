//! The library in one page: start a task, look at it, signal it, stop it, wait for it, and read its report.
//!
//! Needs root and a process with one thread: `cargo run --example library`.

use std::error::Error;
use std::time::Duration;

use taskman::launch::{Status, Stream};
use taskman::{Launcher, Limits, TaskSpec};

fn main() -> Result<(), Box<dyn Error>> {
    let launcher = Launcher::open()?;

    // Start, collect output, wait. The report has the outcome and the proof that nothing is left.
    let task = launcher.start(TaskSpec::new("sh", ["-c", "echo hello; echo world >&2; exit 3"])?)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let report = task.wait(|stream, bytes| match stream {
        Stream::Stdout => out.extend_from_slice(bytes),
        Stream::Stderr => err.extend_from_slice(bytes),
    })?;
    print!("out: {}err: {}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    println!("exit code {:?}, containment proven: {}", report.outcome.status.code(), report.containment.is_proven());

    // Limits are on by default; a task may be given smaller or larger ones.
    let limits = Limits { memory_bytes: 64 << 20, timeout: Duration::from_secs(5), ..Limits::default() };
    let sleeper = || TaskSpec::new("sleep", ["60"])?.with_limits(limits.clone());

    // A signal goes to the task's main process; what it makes of it is its own doing.
    let task = launcher.start(sleeper()?)?;
    println!("running: {}", task.status()? == Status::Running);
    task.signal(nix::libc::SIGUSR1)?;
    let outcome = task.wait(|_, _| {})?.outcome;
    println!("ended by {:?}, reason {:?}", outcome.status.signal(), outcome.reason);

    // A stop asks with SIGTERM, and kills everything in the task when the grace is over.
    let mut task = launcher.start(sleeper()?)?;
    task.stop(Duration::from_secs(2))?;
    let outcome = task.wait(|_, _| {})?.outcome;
    println!("ended by {:?}, reason {:?}", outcome.status.signal(), outcome.reason);

    // A task that is not waited for does not outlive the variable that holds it.
    let task = launcher.start(sleeper()?)?;
    let uid = task.uid();
    drop(task);
    println!("still running: {}", taskman::sys::user::has_processes(uid)?);

    // What cannot be meant is refused before anything runs, and the error names the field.
    let refused = TaskSpec::new("true", [""; 0])?.with_limits(Limits { memory_bytes: 1, ..Limits::default() });
    println!(
        "refused: {}",
        refused.map(|_| "nothing".into()).map_err(|error| error.field).unwrap_or_else(|field| field)
    );
    Ok(())
}
