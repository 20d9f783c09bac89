//! Faults of `taskman run`: at every point of its one task's life.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Suite;
use crate::host::sigkill;
use crate::points;
use crate::support::supervisor::nonce;
use crate::support::{Ended, GUARD, HostDir, Started};
use crate::table::Tally;

/// Says that it runs, waits until its launcher has closed its input, and ends in a way that nothing else does.
pub const WORK: [&str; 3] = ["sh", "-c", "echo ran; read go; echo done; exit 3"];
/// Does not end by itself: whoever kills its launcher has to see it killed.
pub const LAST: [&str; 2] = ["sleep", "1000"];
/// Trials of each fault at each point, and of those at the first one: the gap between fork and the death signal.
const TRIALS: usize = 2;
const GAP_TRIALS: usize = 25;
/// How long a process stands still where that is the fault.
pub const STILL: Duration = Duration::from_millis(50);

/// Whom a fault hits.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Launcher,
    Init,
    Payload,
}

/// How a task is run by the binary with points.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Without them.
    Plain,
    /// With them.
    Faulty,
    /// With them, in a sandbox that is parked before its command is known.
    Parked,
}

impl Suite {
    fn run(&self, way: Way, nonce: &str, command: &[&str]) -> Started {
        let dir = HostDir::new();
        let mut line = Command::new(&self.program);
        line.args(["run", "--uid-range", &self.host.run_uid(), "--env", &format!("NONCE={nonce}")]);
        line.arg("--report").arg(dir.path("report.json")).arg("--").args(command).stdin(Stdio::null());
        if way != Way::Plain {
            line.env("TASKMAN_FAULT", &self.page.path);
        }
        if way == Way::Parked {
            line.env("TASKMAN_MUTATION", "cold-start");
        }
        Started::spawn(line, dir, GUARD)
    }

    /// A task of the binary with points.
    fn faulty_run(&self, nonce: &str) -> Started {
        self.run(Way::Faulty, nonce, &WORK)
    }

    /// The next start works, has the one uid there is, and leaves nothing of those before it.
    #[track_caller]
    fn next_run_works(&self) {
        assert_done(&self.run(Way::Plain, &nonce(), &WORK).end());
        self.host.assert_nothing_left();
    }

    /// The points of a task that runs and ends.
    pub fn trace_run(&self) -> Vec<String> {
        self.page.clear();
        assert_done(&self.faulty_run(&nonce()).end());
        self.page.passed()
    }

    /// Those of one whose command does not exist.
    pub fn trace_failed_run(&self) -> Vec<String> {
        self.page.clear();
        self.run(Way::Faulty, &nonce(), &["/nonexistent"]).end().assert_refused(127, &["/nonexistent"]);
        self.page.passed()
    }

    /// Those of one whose sandbox was parked.
    pub fn trace_parked_run(&self) -> Vec<String> {
        self.page.clear();
        assert_done(&self.run(Way::Parked, &nonce(), &WORK).end());
        self.page.passed()
    }

    /// Those of one that finds the leftovers of another.
    pub fn trace_sweeping_run(&self) -> Vec<String> {
        self.leave_something();
        self.page.clear();
        assert_done(&self.faulty_run(&nonce()).end());
        self.page.passed()
    }

    /// A launcher dies while its task runs.
    fn leave_something(&self) {
        self.page.arm("launcher.running");
        let run = self.faulty_run(&nonce());
        self.page.wait_standing();
        sigkill(run.pid());
        run.end();
        self.host.assert_dead();
    }

    fn victim(&self, who: Victim, run: &Started) -> i32 {
        match who {
            Victim::Launcher => Some(run.pid()),
            Victim::Init => self.host.inside(1),
            Victim::Payload => self.host.inside(2),
        }
        .expect("it is there")
    }

    /// Stands a task still at `point`, kills `who`, and says how `taskman run` ended.
    fn kill_at(&self, point: &str, who: Victim, command: &[&str]) -> Ended {
        self.kill_on_the_way(Way::Faulty, point, who, command)
    }

    fn kill_on_the_way(&self, way: Way, point: &str, who: Victim, command: &[&str]) -> Ended {
        self.page.arm(point);
        let nonce = nonce();
        let run = self.run(way, &nonce, command);
        self.page.wait_standing();
        let runs = self.host.payload_runs(&nonce);
        assert!(!runs || points::may_run_at(point), "the command runs already");
        sigkill(self.victim(who, &run));
        // What stands still looks for nobody's death: it ends by the signal alone.
        if who == Victim::Launcher && points::is_armed_at(point) {
            self.host.assert_dead();
        }
        self.page.release();
        let ended = run.end();
        self.host.assert_dead();
        ended
    }
}

/// The task ended by itself, and that is proven.
#[track_caller]
fn assert_done(ended: &Ended) {
    ended.assert_outcome(3, "exited_error", 3, "exit");
    assert_eq!(ended.text(), "ran\ndone\n");
}

/// The launcher is killed: at its own points, and at each of its child's.
pub fn a_killed_launcher_leaves_nothing_that_lives(suite: &Suite) {
    let mut tally = Tally::new(suite, "run", "launcher killed");
    for (at, point) in suite.traces.run.iter().enumerate() {
        let trials = if point == "confine.begin" { GAP_TRIALS } else { TRIALS };
        for _ in 0..trials {
            tally.trial(at, point, || {
                let ended = suite.kill_at(point, Victim::Launcher, points::command_until(point));
                assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");
                assert!(ended.report.is_none() && ended.stderr.is_empty(), "{ended:?}");
                assert!(ended.stdout.is_empty() || points::may_run_at(point), "{ended:?}");
                suite.next_run_works();
                "nothing lives, the next run sweeps".to_owned()
            });
        }
    }
    tally.end();
}

/// A process of the sandbox is killed while it, or the other, is at one of its steps.
fn killed_inside(suite: &Suite, who: Victim, fault: &'static str) {
    let mut tally = Tally::new(suite, "run", fault);
    let stands =
        |point: &str| if who == Victim::Payload { points::has_payload(point) } else { points::has_init(point) };
    for (at, point) in suite.traces.run.iter().enumerate().filter(|(_, point)| stands(point)) {
        for _ in 0..TRIALS {
            tally.trial(at, point, || {
                let ended = suite.kill_at(point, who, &WORK);
                // An init that has said `go` holds nobody up: until the kernel has ended the sandbox with it, the command may
                // have been executed, by then with everything on, and may have run for a moment.
                let begun = who == Victim::Init && point.starts_with("payload.") && ended.report.is_some();
                assert!(ended.stdout.is_empty() || begun, "{ended:?}");
                let told = match (point.as_str(), who) {
                    // All was confined and said so; what is killed before execve is a task that was killed.
                    ("payload.start", Victim::Payload) => {
                        ended.assert_outcome(137, "signaled", "SIGKILL", "signal");
                        "signal SIGKILL, proven"
                    }
                    _ if begun || point == "payload.start" => {
                        ended.assert_outcome(125, "signaled", "SIGKILL", "containment");
                        "containment: init was killed, proven"
                    }
                    _ => {
                        ended.assert_refused(125, &[]);
                        assert!(points::tells_of_a_death(&ended.stderr), "{ended:?}");
                        "125: the sandbox was killed"
                    }
                };
                suite.host.assert_nothing_left();
                suite.next_run_works();
                told.to_owned()
            });
        }
    }
    tally.end();
}

pub fn a_killed_init_is_told_and_leaves_nothing(suite: &Suite) {
    killed_inside(suite, Victim::Init, "init killed");
}

pub fn a_killed_payload_is_told_and_leaves_nothing(suite: &Suite) {
    killed_inside(suite, Victim::Payload, "payload killed");
}

/// A process that stands still for a while holds the start up, and nothing else.
pub fn a_process_that_stands_still_is_waited_for(suite: &Suite) {
    let mut tally = Tally::new(suite, "run", "stopped for 50 ms");
    for (at, point) in suite.traces.run.iter().enumerate() {
        tally.trial(at, point, || {
            suite.page.arm(point);
            let nonce = nonce();
            let run = suite.faulty_run(&nonce);
            suite.page.wait_standing();
            std::thread::sleep(STILL);
            let runs = suite.host.payload_runs(&nonce);
            assert!(!runs || points::may_run_at(point), "the command runs already");
            suite.page.release();
            assert_done(&run.end());
            suite.host.assert_dead();
            suite.host.assert_nothing_left();
            "exit 3, proven".to_owned()
        });
    }
    tally.end();
}

/// The launcher dies while it gives a start up that failed.
pub fn a_launcher_killed_while_it_gives_up_leaves_nothing_that_lives(suite: &Suite) {
    let mut tally = Tally::new(suite, "no start", "launcher killed");
    for (at, point) in points::beyond(&suite.traces.failed_run, &suite.traces.run) {
        tally.trial(at, point, || {
            let ended = suite.kill_at(point, Victim::Launcher, &["/nonexistent"]);
            assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");
            suite.next_run_works();
            "nothing lives, the next run sweeps".to_owned()
        });
    }
    tally.end();
}

/// A process dies while its sandbox is parked, or is given its command.
pub fn a_death_while_a_sandbox_waits_leaves_nothing(suite: &Suite) {
    let mut tally = Tally::new(suite, "parked", "killed");
    let all = points::beyond(&suite.traces.parked_run, &suite.traces.run);
    assert_eq!(all.len(), 3, "{all:?}");
    for (at, point) in all {
        for who in [Victim::Launcher, Victim::Init, Victim::Payload] {
            for _ in 0..TRIALS {
                tally.trial(at, point, || {
                    let ended = suite.kill_on_the_way(Way::Parked, point, who, &WORK);
                    assert_ne!(ended.status.code(), Some(3), "{ended:?}");
                    if who == Victim::Launcher {
                        assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");
                    } else {
                        suite.host.assert_nothing_left();
                    }
                    suite.next_run_works();
                    "nothing lives, and the next run works".to_owned()
                });
            }
        }
    }
    tally.end();
}

/// The launcher dies while it removes what another left; the third removes what both left.
pub fn a_launcher_killed_while_it_sweeps_is_swept_too(suite: &Suite) {
    let mut tally = Tally::new(suite, "sweep", "launcher killed");
    for (at, point) in points::beyond(&suite.traces.sweeping_run, &suite.traces.run) {
        for _ in 0..TRIALS {
            tally.trial(at, point, || {
                suite.leave_something();
                let ended = suite.kill_at(point, Victim::Launcher, &WORK);
                assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");
                suite.next_run_works();
                "nothing lives, the third run sweeps both".to_owned()
            });
        }
    }
    tally.end();
}
