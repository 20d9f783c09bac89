//! Escapees that root plants, and how long each lives. One task is spent on each: the auditor ends it with its escapee.
//!
//! All tasks are started before the first plant, because a finding quarantines the worker; what runs goes on.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Gid, Uid, setresgid, setresuid};
use taskman::cgroup::Layout;
use taskman::sys::pidfd::PidFd;

use crate::Failure;
use crate::server::{Server, status_field};
use crate::starts::task;

/// The program's own first argument, for a process that becomes one of this uid.
pub const ESCAPEE: &str = "--escapee=";
/// Who lives this long is not found at all.
const LATEST: Duration = Duration::from_secs(10);
/// Between two plants, so that none waits for what is killed after, and written down about, the one before.
const APART: Duration = Duration::from_millis(250);

/// What is planted.
#[derive(Clone, Copy, PartialEq)]
pub enum Plant {
    /// A task's process, written into another control group.
    Moved,
    /// A process outside that takes on the uid of a running task.
    Outside,
    /// A process that takes on the uid of a task that has ended.
    Ended,
}

impl Plant {
    pub const ALL: [Self; 3] = [Self::Moved, Self::Outside, Self::Ended];
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Moved => "moved to another group",
            Self::Outside => "of a running task's uid",
            Self::Ended => "of an ended task's uid",
        })
    }
}

/// Until the victim's descriptor says that it is dead.
#[derive(Default)]
pub struct Lived {
    /// From just before the write, or the change of uid.
    pub since_begun: Vec<Duration>,
    /// From the return of the write: before it moves a process the kernel may wait for a grace period of its own.
    pub since_done: Vec<Duration>,
}

/// Plants `trials` of them, one after the other.
pub async fn plant(server: &Server, plant: Plant, trials: usize) -> Result<Lived, Failure> {
    let client = server.client().await?;
    let mut tasks = Vec::with_capacity(trials);
    for _ in 0..trials {
        let id = client.start(task("sleep", &["100000"])).await?;
        let pid = client.get_status(id).await?.process_id;
        let uid: u32 = status_field(pid as u32, "Uid:").ok_or("a task without a uid")?.parse()?;
        tasks.push((id, pid, uid));
    }
    if plant == Plant::Ended {
        for (id, ..) in &tasks {
            client.stop(*id, Some(Duration::ZERO)).await?;
            client.wait(*id, None).await?;
        }
    }
    let elsewhere = Elsewhere::make()?;
    let mut lived = Lived::default();
    for (_, pid, uid) in tasks {
        tokio::time::sleep(APART).await;
        let (begun, done, dead) = tokio::task::block_in_place(|| match plant {
            Plant::Moved => elsewhere.take(pid),
            Plant::Outside | Plant::Ended => escapee(uid),
        })?;
        lived.since_begun.push(dead - begun);
        lived.since_done.push(dead - done);
    }
    Ok(lived)
}

/// When it was begun, when it was done, and when the victim was seen dead.
type Moments = (Duration, Duration, Duration);

/// A control group that is no task's.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn make() -> Result<Self, Failure> {
        let path = Layout::detect()?.base().dir.join(format!("servicebench-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn take(&self, pid: i32) -> Result<Moments, Failure> {
        let process = PidFd::open(pid)?;
        let begun = now()?;
        fs::write(self.0.join("cgroup.procs"), pid.to_string())?;
        let done = now()?;
        Ok((begun, done, dead(&process)?))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

fn escapee(uid: u32) -> Result<Moments, Failure> {
    let mut command = Command::new("/proc/self/exe");
    let mut child = command.arg(format!("{ESCAPEE}{uid}")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let process = PidFd::child(child.id() as i32)?;
    let mut said = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
    said.next().ok_or("the escapee did not start")??;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    stdin.write_all(b"\n")?;
    let begun = Duration::from_nanos(said.next().ok_or("the escapee did not say when")??.parse()?);
    let dead = dead(&process);
    // One that was not found ends when nobody holds its input any more.
    drop(stdin);
    child.wait()?;
    Ok((begun, begun, dead?))
}

/// The escapee's side: takes on the uid when told, says when that was, and stays until it is killed.
pub fn escape(uid: &str) -> Result<(), Failure> {
    let id: u32 = uid.parse()?;
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    setresgid(gid, gid, gid)?;
    let mut stdin = std::io::stdin();
    println!("ready");
    stdin.read_exact(&mut [0])?;
    println!("{}", now()?.as_nanos());
    setresuid(uid, uid, uid)?;
    stdin.read_exact(&mut [0]).or(Ok(()))
}

fn dead(process: &PidFd) -> Result<Duration, Failure> {
    match process.ends_within(LATEST)? {
        true => now(),
        false => Err(format!("a plant lives {LATEST:?} later").into()),
    }
}

/// One clock for this process and its escapees.
fn now() -> Result<Duration, Failure> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}
