//! What it takes from a request to a command's first instruction: in a sandbox that stands ready, in one that is built for it, and
//! with nothing around it. `scripts/bench` runs it and says how to read it.
//!
//! `warm-bench PROGRAM ROUNDS`: PROGRAM is `first.S`, which writes when it began.
#![allow(clippy::unwrap_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // it starts a process beside the launcher to compare with

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use taskman::{Launcher, TaskSpec};

type Failure = Box<dyn std::error::Error>;

/// Rounds that are not counted.
const WARM_UP: usize = 20;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let (program, rounds) = (words.next().ok_or("PROGRAM")?, words.next().ok_or("ROUNDS")?.parse::<usize>()?);
    let launcher = Launcher::open()?;
    let mut times: [(&str, Vec<Duration>); 3] = [("plain", vec![]), ("ready", vec![]), ("built", vec![])];
    for round in 0..rounds + WARM_UP {
        for (name, times) in &mut times {
            let took = match *name {
                "plain" => plain(&program)?,
                "ready" => ready(&launcher, &program)?,
                _ => built(&launcher, &program)?,
            };
            if round >= WARM_UP {
                times.push(took);
            }
        }
    }
    let mut parts = Vec::new();
    for (name, times) in &mut times {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1].as_secs_f64() * 1e6;
        parts.push(format!("\"{name}\":{{\"p50\":{:.1},\"p95\":{:.1},\"p99\":{:.1}}}", at(50), at(95), at(99)));
    }
    println!("{{\"unit\":\"us\",\"rounds\":{rounds},{}}}", parts.join(","));
    Ok(())
}

/// By the C library's vfork and execve.
fn plain(program: &str) -> Result<Duration, Failure> {
    let asked = SystemTime::now();
    let output = Command::new(program).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?.wait_with_output()?;
    since(asked, &output.stdout)
}

fn spec(program: &str) -> Result<TaskSpec, Failure> {
    let mut spec = TaskSpec::new("/bench/first", [""; 0])?;
    spec.binds = vec![format!("{}:/bench", Path::new(program).parent().ok_or("a path")?.display()).parse()?];
    Ok(spec)
}

/// The request comes when the sandbox stands ready.
fn ready(launcher: &Launcher, program: &str) -> Result<Duration, Failure> {
    let spec = spec(program)?;
    let mut parked = launcher.park(spec.clone())?;
    parked.wait_until_built()?;
    let asked = SystemTime::now();
    parked.take(spec)?;
    end(asked, parked.wait()?)
}

fn built(launcher: &Launcher, program: &str) -> Result<Duration, Failure> {
    let spec = spec(program)?;
    let asked = SystemTime::now();
    end(asked, launcher.start(spec)?)
}

fn end(asked: SystemTime, task: taskman::Task) -> Result<Duration, Failure> {
    let mut said = Vec::new();
    let report = task.wait(|_, bytes| said.extend_from_slice(bytes))?;
    if !report.containment.is_proven() {
        return Err(format!("{report:?}").into());
    }
    since(asked, &said)
}

/// From `asked` to what the program has written.
fn since(asked: SystemTime, said: &[u8]) -> Result<Duration, Failure> {
    let word = |at: usize| Some(u64::from_ne_bytes(said.get(at..at + 8)?.try_into().ok()?));
    let (seconds, nanos) = word(0).zip(word(8)).ok_or("the program has not said when it began")?;
    Ok((UNIX_EPOCH + Duration::new(seconds, nanos as u32)).duration_since(asked)?)
}
