//! What is left of the output when the task is dead: delivered, counted and ended, whoever else holds a copy of the pipe.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "O03",
            tier: 1,
            what: "writes more than its output limit and is gone before anyone has read it",
            defence: &["removed-group"],
            control: |bench| all_of_it_arrives(bench).into(),
            attack: overflow_is_told,
        },
        Case {
            id: "O04",
            tier: 1,
            what: "hands its output to a socket of the host that listens in a bound directory, and exits",
            defence: &["no-more-writers"],
            control: |bench| the_pipe_stays_open(bench).into(),
            attack: listener_delays_nothing,
        },
        Case {
            id: "O05",
            tier: 1,
            what: "leaves its output and a file in messages between sockets that nobody holds",
            defence: &["collect-messages"],
            control: the_file_stays,
            attack: messages_are_collected,
        },
        Case {
            id: "O08",
            tier: 2,
            what: "writes its output in packets, of which a short read loses the rest",
            defence: &["seccomp,whole-reads"],
            control: |bench| short_reads_lose(bench).into(),
            attack: packets_are_counted,
        },
    ]
}

const PRINTF: [&str; 2] = ["%0100d", "0"];
/// More than the launcher takes with one read, and no more than a shrunk pipe of the host and the task's own hold together,
/// however the reads fall: the task exits, and the rest is in its pipe.
const LONG: u64 = 66 << 10;
const LONG_LIMIT: u64 = LONG - 10;

fn long() -> [String; 3] {
    ["-c".to_owned(), LONG.to_string(), "/dev/zero".to_owned()]
}

fn all_of_it_arrives(bench: &Bench) -> Result<(), Fail> {
    for (launch, bytes) in [
        (bench.direct().command("/usr/bin/printf", PRINTF), 100),
        (bench.direct().command("/usr/bin/head", long()), LONG),
    ] {
        let done = launch.finish()?;
        require!(done.code() == 0 && done.out_total == bytes, "exit {}, {} bytes", done.code(), done.out_total);
    }
    Ok(())
}

/// Nobody reads until the task is gone, so that only the last reading can find out.
fn overflow_is_told_late(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let task = bench.task(arm).opt("--output-limit", LONG_LIMIT.to_string());
    let run = task.command("/usr/bin/head", long()).spawn()?;
    run.out.shrink()?;
    std::thread::sleep(Duration::from_millis(300));
    let deadline = Instant::now() + pace::time(Duration::from_secs(10));
    while !proc::of_uid_range(&bench.uid_range()).is_empty() {
        require!(Instant::now() < deadline, "the task has not ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = run.final_within(Duration::from_secs(2))?;
    ensure!(done.report.is_some(), "no report, exit {}: {}", done.code(), done.err);
    let seen = format!("{}, exit {}, {}, {} bytes", done.reason()?, done.code(), done.verdict()?, done.out_total);
    ensure!(done.reason()? == "output_limit" && done.code() == 137 && done.verdict()? == "proven", "{seen}");
    ensure!(done.out_total == LONG_LIMIT, "{seen}");
    Ok(())
}

fn overflow_is_told(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let runs = pace::count(50);
    overflow_is_told_late(bench, arm)?;
    for run in 0..runs {
        let done = bench.task(arm).opt("--output-limit", "10").command("/usr/bin/printf", PRINTF).finish()?;
        ensure!(done.report.is_some(), "run {run}: no report, exit {}: {}", done.code(), done.err);
        let (reason, verdict) = (done.reason()?, done.verdict()?);
        let seen = format!("run {run}: {reason}, exit {}, {verdict}, {:?}", done.code(), done.out);
        ensure!(reason == "output_limit" && done.code() == 137 && verdict == "proven", "{seen}");
        ensure!(done.out == "0".repeat(10), "{seen}");
        if arm == Arm::Contained && run == 0 {
            bench.canary()?;
        }
    }
    bench.note(format!("{runs} runs, each told as output_limit with its 10 bytes"));
    Ok(())
}

/// A socket of the host that listens, accepts nobody, and keeps what it is sent until it is dropped.
struct Listener {
    dir: std::path::PathBuf,
    _socket: UnixListener,
}

impl Listener {
    fn open(bench: &Bench) -> Result<Self, Fail> {
        let fail = |e: std::io::Error| broken(format!("listener: {e}"));
        let dir = bench.work_dir().join("s");
        fs::create_dir(&dir).map_err(fail)?;
        let path = dir.join("s");
        // The path of a socket may be no longer than 108 bytes; that of a working directory is.
        let from = fs::File::open(&dir).map_err(fail)?;
        let short = format!("/proc/self/fd/{}/s", std::os::fd::AsRawFd::as_raw_fd(&from));
        let socket = UnixListener::bind(short).map_err(fail)?;
        for path in [&dir, &path] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).map_err(fail)?;
        }
        Ok(Self { dir, _socket: socket })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn the_pipe_stays_open(bench: &Bench) -> Result<(), Fail> {
    let listener = Listener::open(bench)?;
    // Named from inside the directory, for the same length.
    let wrap = ["sh", "-c", r#"cd "$0" && exec "$@""#, &listener.dir.display().to_string()];
    let mut run = bench.direct().wrapped(&wrap).probe("r_handout", &["s"]).spawn()?;
    run.pump(pace::time(Duration::from_secs(5)), |run| run.ended.is_some())?;
    run.pump(Duration::from_millis(200), |run| run.out.eof.is_some())?;
    let (ended, eof, said) = (run.ended.is_some(), run.out.eof.is_some(), run.out.text());
    require!(ended && !eof && said == "sent\n", "ended {ended}, end of file {eof}, said {said:?}");
    drop(listener);
    let eof = run.pump(pace::time(Duration::from_secs(5)), |run| run.out.eof.is_some())?;
    require!(eof, "the pipe outlives the listener");
    Ok(())
}

fn listener_delays_nothing(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let listener = Listener::open(bench)?;
    let bind = format!("{}:/host", listener.dir.display());
    let run = bench.task(arm).opt("--bind-ro", bind).opt("--timeout", "5s").probe("r_handout", &["/host/s"]).spawn()?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let done = run.final_within(arm.limit(Duration::from_secs(4), Duration::from_secs(2)))?;
    let seen = format!("{}, exit {}, {}, {:?}", done.reason()?, done.code(), done.verdict()?, done.out);
    ensure!(done.reason()? == "exit" && done.code() == 0 && done.verdict()? == "proven", "{seen}");
    ensure!(done.out == "sent\n", "{seen}");
    bench.note(format!("final after {:?}, while a socket of the host holds the pipe", done.took));
    // The same without a listener: two sockets that hold each other, and the pipe.
    let done = bench.task(arm).probe("r_cycle", &["/dev/shm", "1"]).spawn()?.final_within(Duration::from_secs(2))?;
    let seen = format!("{}, exit {}, {}, {:?}", done.reason()?, done.code(), done.verdict()?, done.out);
    ensure!(done.reason()? == "exit" && done.code() == 0 && done.out == "sent\n", "{seen}");
    Ok(())
}

const FILE_MIB: u64 = 96;
const TRIALS: usize = 60;
/// The kernel collects in the background, and a busy host takes its time for it.
const COLLECTED: Duration = Duration::from_millis(100);
/// That of a host which stalls.
const STALLED: Duration = Duration::from_secs(5);

/// What files in memory take on the whole host, in bytes.
fn shared_memory() -> u64 {
    crate::resource::meminfo("Shmem")
}

/// Whether the file of the probe is still there: others use memory too, so half of it is the mark.
fn file_is_there(before: u64) -> bool {
    shared_memory().saturating_sub(before) > FILE_MIB << 19
}

/// How long the file outlives this moment; nothing if it is there after the limit.
fn file_stays(before: u64, limit: Duration) -> Option<Duration> {
    let start = Instant::now();
    loop {
        // Read before the look: what has gone while the suite itself stood still was not late.
        let after = start.elapsed();
        if !file_is_there(before) {
            return Some(after);
        }
        if after > limit {
            return None;
        }
        nix::poll::poll(&mut [], 1u8).ok();
    }
}

/// Any close of any Unix socket has the kernel look for such messages: where others close them all the time, a task's own
/// are never seen to stay, and nothing can be shown.
fn the_file_stays(bench: &Bench) -> Control {
    let stay = || -> Result<Option<Duration>, Fail> {
        let before = shared_memory();
        let mut run = bench.direct().probe("r_cycle", &["/dev/shm", &FILE_MIB.to_string()]).spawn()?;
        // Its end of file is in the cycle too, and not waited for.
        run.pump(pace::time(Duration::from_secs(5)), |run| run.ended.is_some())?;
        require!(run.ended.is_some() && run.out.text() == "sent\n", "said {:?}", run.out.text());
        let stayed = file_stays(before, COLLECTED);
        drop(UnixStream::pair());
        require!(file_stays(before, pace::time(STALLED)).is_some(), "closing a socket did not free the file");
        Ok(stayed)
    };
    let mut longest = Duration::ZERO;
    for _ in 0..TRIALS {
        match stay() {
            Ok(None) => return Control::Works,
            Ok(Some(stayed)) => longest = longest.max(stayed),
            Err(fail) => return Control::Broken(fail.to_string()),
        }
    }
    Control::Cannot(format!(
        "others on this host close sockets all the time: in {TRIALS} trials the file stayed {longest:?} at most"
    ))
}

fn messages_are_collected(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(5, 2 * TRIALS);
    let (mut fastest, mut slowest) = (Duration::MAX, Duration::ZERO);
    let limit = arm.limit(pace::time(STALLED), COLLECTED);
    for trial in 0..trials {
        let before = shared_memory();
        let task = bench.task(arm).opt("--disk", "128M");
        let task = task.opt("--timeout", format!("{}s", pace::time(Duration::from_secs(5)).as_secs()));
        let run = task.probe("r_cycle", &["/dev/shm", &FILE_MIB.to_string()]).spawn()?;
        let done = run.final_within(Duration::from_secs(5))?;
        // The kernel's look is already under way when taskman exits; a mutant's is not, until somebody closes a socket.
        let stayed = file_stays(before, limit);
        let seen = format!("trial {trial}: {}, exit {}, {}", done.reason()?, done.code(), done.verdict()?);
        ensure!(done.reason()? == "exit" && done.code() == 0 && done.verdict()? == "proven", "{seen}");
        ensure!(done.out == "sent\n", "{seen}: {:?}", done.out);
        ensure!(stayed.is_some(), "{seen}: {FILE_MIB} MiB of the task's file are there {limit:?} after its end");
        fastest = fastest.min(stayed.unwrap_or_default());
        slowest = slowest.max(stayed.unwrap_or_default());
        if arm == Arm::Contained && trial == 0 {
            bench.canary()?;
        }
    }
    // A host that stalls is late once, and a fault is late every time.
    let promised = pace::time(COLLECTED);
    ensure!(fastest <= promised, "{trials} trials: the file was never gone within {promised:?}, at best {fastest:?}");
    bench.note(format!("{trials} trials: the file was gone {slowest:?} after the end at the latest"));
    Ok(())
}

fn short_reads_lose(bench: &Bench) -> Result<(), Fail> {
    let done = bench.direct().probe("r_packet", &["control"]).finish()?;
    require!(done.out == "read 10 then -1\n", "{:?}", done.out);
    Ok(())
}

fn packets_are_counted(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let done = bench.task(arm).opt("--output-limit", "10").probe("r_packet", &["attack"]).finish()?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let seen = format!("{}, exit {}, {}, {:?}", done.reason()?, done.code(), done.verdict()?, done.out);
    ensure!(done.reason()? == "output_limit" && done.code() == 137 && done.verdict()? == "proven", "{seen}");
    ensure!(done.out == "p".repeat(10), "{seen}");
    Ok(())
}
