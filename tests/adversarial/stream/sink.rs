//! A reader of the host that stalls, or one that takes what another was told of, at the worst moment: the bytes wait, the
//! task's limits do not.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, read, write};

use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "O06",
            tier: 1,
            what: "floods stdout and stderr, which are one pipe of the host whose reader stalls, and is then stopped",
            defence: &["open-anew"],
            control: |bench| writer_blocks(bench),
            attack: |bench, arm| timeout_holds(bench, arm, &["both"]),
        },
        Case {
            id: "O07",
            tier: 1,
            what: "two tasks flood one pipe of the host whose reader stalls",
            defence: &["open-anew"],
            control: |bench| writer_blocks(bench),
            attack: |bench, arm| (0..arm.trials(1, 6)).try_for_each(|_| timeout_holds(bench, arm, &["one", "one"])),
        },
        Case {
            id: "O09",
            tier: 1,
            what: "two tasks read one named pipe of the host, and what one was told of the other has taken",
            defence: &["open-anew"],
            control: |bench| reader_blocks(bench),
            attack: |bench, arm| (0..arm.trials(1, 6)).try_for_each(|_| thief_delays_nothing(bench, arm)),
        },
    ]
}

/// Of the tasks.
fn timeout(arm: Arm) -> Duration {
    pace::term(arm.limit(Duration::from_secs(3), Duration::from_secs(1)))
}

/// How much later than their timeout they may be seen to be gone.
fn late(arm: Arm) -> Duration {
    pace::time(arm.limit(Duration::from_secs(3), Duration::from_millis(700)))
}

/// Long enough for a launcher to go back to sleep, so that the next byte or page wakes all of them at once.
const GAP: Duration = Duration::from_micros(500);

/// A pipe with a name, and the reader's end of it.
struct Fifo {
    path: PathBuf,
    reader: OwnedFd,
}

impl Fifo {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let path = bench.work_dir().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).map_err(|e| broken(format!("mkfifo: {e}")))?;
        // For both, so that neither side waits for the other to come.
        let reader = open(&path, OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty());
        Ok(Self { reader: reader.map_err(|e| broken(format!("open fifo: {e}")))?, path })
    }

    fn read(&self, bytes: usize) -> usize {
        read(&self.reader, &mut vec![0; bytes]).unwrap_or(0)
    }

    /// Starts a flood whose both streams go here.
    fn flood(&self, launch: crate::harness::Launch<'_>, kind: &str) -> Result<Run, Fail> {
        let path = self.path.display().to_string();
        launch.wrapped(&["sh", "-c", r#"exec "$@" > "$0" 2>&1"#, &path]).probe("r_both", &[kind]).spawn()
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the host sees a process waiting inside this system call.
fn is_in(pid: i32, number: libc::c_long) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    call.split(' ').next() == Some(&number.to_string())
}

/// Without taskman the flood blocks in write, and the host can see it.
fn writer_blocks(bench: &Bench) -> Control {
    let look = || -> Result<(), Fail> {
        let fifo = Fifo::make(bench)?;
        let mut run = fifo.flood(bench.direct(), "one")?;
        let pid = run.pid;
        let blocked = run.wait_until(Duration::from_secs(5), || is_in(pid, libc::SYS_write))?;
        require!(blocked, "the flood does not block in write");
        require!(fifo.read(4096) == 4096, "nothing to read");
        Ok(())
    };
    look().into()
}

fn timeout_holds(bench: &Bench, arm: Arm, kinds: &[&str]) -> Result<(), Fail> {
    let fifo = Fifo::make(bench)?;
    let (timeout, late) = (timeout(arm), late(arm));
    let task = || bench.task(arm).opt("--timeout", format!("{}ms", timeout.as_millis()));
    let mut runs = kinds.iter().map(|kind| fifo.flood(task(), kind)).collect::<Result<Vec<_>, Fail>>()?;
    let began = Instant::now();
    let mut started = began;
    // A page at a time: each makes room for one write, and tells all who wait for it. The reader stops for good when a
    // launcher has walked into the trap, or when the timeout is near.
    let (mut pages, mut trapped) = (0, false);
    while started.elapsed() < timeout.mul_f32(0.6) && !trapped && began.elapsed() < pace::time(timeout) {
        pages += usize::from(fifo.read(4096) > 0);
        // The tasks' time begins with them, and they with the first page.
        if pages == 0 {
            started = Instant::now();
        }
        std::thread::sleep(GAP);
        trapped = runs.iter().any(|run| is_in(run.pid, libc::SYS_write));
    }
    require!(trapped || pages >= 10, "only {pages} pages came");
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let left = (started + timeout + late).saturating_duration_since(Instant::now());
    let range = bench.uid_range();
    let over = runs[0].wait_until(left, || proc::of_uid_range(&range).is_empty())?;
    let alive: Vec<String> = proc::of_uid_range(&range).into_iter().map(proc::describe).collect();
    ensure!(over, "alive {late:?} after their timeout, while the reader stalls: {}", alive.join(", "));
    // One launcher is told to stop, and waits for no reader; with two the reader goes on, and the rest is delivered.
    if let [run] = &mut runs[..] {
        run.signal(Signal::SIGTERM)?;
        let ended = run.pump(pace::time(Duration::from_secs(5)), |run| run.ended.is_some())?;
        ensure!(ended, "not final 5 s after a stop, while the reader stalls");
    }
    for run in &mut runs {
        let pid = run.pid;
        let ended = || fifo.read(1 << 16) == 0 && proc::stat_of(pid).is_none_or(|stat| stat.state == 'Z');
        let ended = run.wait_until(Duration::from_secs(5), ended)?;
        ensure!(ended, "not final 5 s after the reader goes on");
    }
    for run in runs {
        let done = run.finish()?;
        let seen = format!("{}, exit {}, {}", done.reason()?, done.code(), done.verdict()?);
        ensure!(done.reason()? == "wall_time" && done.code() == 124 && done.verdict()? == "proven", "{seen}");
    }
    bench.note(format!("{pages} pages read one by one; {} launchers, none ever blocked in write", kinds.len()));
    Ok(())
}

/// A start whose standard input is this pipe.
fn reads_from<'b>(fifo: &Fifo, launch: crate::harness::Launch<'b>) -> crate::harness::Launch<'b> {
    launch.wrapped(&["sh", "-c", r#"exec "$@" < "$0""#, &fifo.path.display().to_string()])
}

fn reader_blocks(bench: &Bench) -> Control {
    let look = || -> Result<(), Fail> {
        let fifo = Fifo::make(bench)?;
        let mut run = reads_from(&fifo, bench.direct()).command("/bin/cat", [] as [&str; 0]).spawn()?;
        let pid = run.pid;
        let blocked = run.wait_until(Duration::from_secs(5), || is_in(pid, libc::SYS_read))?;
        require!(blocked, "cat does not block in read");
        Ok(())
    };
    look().into()
}

fn thief_delays_nothing(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let fifo = Fifo::make(bench)?;
    let (timeout, late) = (timeout(arm), late(arm));
    let task = || bench.task(arm).opt("--timeout", format!("{}ms", timeout.as_millis()));
    let start = || reads_from(&fifo, task()).probe("r_block", &["sleep", "30"]).spawn();
    let mut runs = [start()?, start()?];
    for run in &mut runs {
        run.wait_line("ready")?;
    }
    // A byte at a time: each wakes both, and one of them takes it.
    let (mut bytes, mut trapped) = (0, false);
    while (runs[0].started.elapsed() < timeout.mul_f32(0.6) || bytes < 10) && !trapped {
        bytes += write(&fifo.reader, b"x").unwrap_or(0);
        std::thread::sleep(GAP);
        trapped = runs.iter().any(|run| is_in(run.pid, libc::SYS_read));
    }
    require!(trapped || bytes >= 10, "only {bytes} bytes went");
    if arm == Arm::Contained {
        bench.canary()?;
    }
    for run in runs {
        let left = (run.started + timeout + late).saturating_duration_since(Instant::now());
        let done = run.final_within(left)?;
        let seen = format!("{}, exit {}, {}", done.reason()?, done.code(), done.verdict()?);
        ensure!(done.reason()? == "wall_time" && done.code() == 124 && done.verdict()? == "proven", "{seen}");
    }
    bench.note(format!("{bytes} bytes one by one; 2 launchers, none ever blocked in read"));
    Ok(())
}
