//! A pid that was a task's and is a bystander's now: nothing that ends the task reaches the bystander.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use taskman::proto::task_manager as pb;

use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, sys};
use crate::support::{Server, pace, rpc};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "P13",
        tier: 1,
        what: "its main process is dead and the pid a bystander's, when it is stopped",
        // Nothing to switch off: no function of taskman takes a number where a process is meant.
        defence: &[],
        control: a_number_hits_the_bystander,
        attack: bystander_is_left_alone,
    }]
}

/// A process of the suite with this very pid.
pub struct Bystander(Run);

impl Bystander {
    /// Makes it, once the number is nobody's.
    pub fn with_pid(bench: &Bench, pid: i32) -> Result<Self, Fail> {
        let mut run = bench.direct().probe("p_recycle", &[&pid.to_string()]).with_stdin().spawn()?;
        run.wait_line("main ")?;
        let said = run.out.text();
        require!(said == "main state ready\n" && Path::new(&format!("/proc/{pid}")).exists(), "no bystander: {said}");
        Ok(Self(run))
    }

    /// How it fared: its exit code, and the signals that reached it.
    fn ask(mut self) -> Result<(i32, String), Fail> {
        drop(self.0.stdin());
        let done = self.0.finish()?;
        Ok((done.code(), done.out.replace("main state ready\n", "")))
    }

    /// A breach if any signal reached it.
    pub fn was_left_alone(self) -> Result<(), Fail> {
        let (code, hits) = self.ask()?;
        ensure!(code == 0 && hits.is_empty(), "the bystander was signalled: exit {code}, {hits}");
        Ok(())
    }
}

/// Kills a process, and waits until its number is nobody's.
fn end(pid: i32) -> Result<(), Fail> {
    let fd = sys::pidfd_open(pid).map_err(|e| broken(format!("pidfd of {pid}: {e}")))?;
    sys::pidfd_kill(&fd, libc::SIGKILL).map_err(|e| broken(format!("kill {pid}: {e}")))?;
    require!(sys::wait_readable(&fd, pace::time(Duration::from_secs(2))), "{pid} does not die");
    Ok(())
}

/// Without taskman: who remembers the number, and signals it, hits the bystander.
fn a_number_hits_the_bystander(bench: &Bench) -> Control {
    let look = || -> Result<Control, Fail> {
        let mut run = bench.direct().probe("contain_sigterm_ignore", &["30"]).spawn()?;
        run.wait_line("ready")?;
        let pid = run.pid;
        end(pid)?;
        run.finish()?;
        let bystander = match Bystander::with_pid(bench, pid) {
            Ok(bystander) => bystander,
            Err(fail) => return Ok(Control::Cannot(format!("a pid cannot be chosen here: {fail}"))),
        };
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|e| broken(format!("kill {pid}: {e}")))?;
        let (code, hits) = bystander.ask()?;
        require!(code == 0 && hits == "main hit f\n", "exit {code}, {hits:?}");
        Ok(Control::Works)
    };
    look().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn bystander_is_left_alone(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let trials = arm.trials(100, 3);
    for trial in 0..trials {
        let mut run = bench.task(arm).opt("--grace", "20ms").probe("contain_sigterm_ignore", &["30"]).spawn()?;
        run.wait_line("ready")?;
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        // Held up, taskman learns of the death and of the stop at once, when the number is another's already.
        run.signal(Signal::SIGSTOP)?;
        end(payload)?;
        let bystander = Bystander::with_pid(bench, payload)?;
        run.stop_twice()?;
        run.signal(Signal::SIGCONT)?;
        let done = run.final_within(Duration::from_secs(2))?;
        let (reason, verdict) = (done.reason()?, done.verdict()?);
        ensure!(["signal", "stopped"].contains(&reason) && verdict == "proven", "trial {trial}: {reason}, {verdict}");
        bystander.was_left_alone()?;
        if arm == Arm::Contained && trial % 25 == 0 {
            bench.canary()?;
        }
    }
    bench.note(format!(
        "{trials} stops of taskman run with the main process's pid recycled: 0 signals to the bystander"
    ));
    stops_after_the_end(bench)
}

/// The service remembers ended tasks, and the pids they had; a thousand late stops and signals reach nobody.
fn stops_after_the_end(bench: &Bench) -> Result<(), Fail> {
    let stops = pace::count(1_000);
    let uids = bench.uid_range();
    let server = Server::configured(&format!("uid_range = \"{}:{}\"", uids.start, uids.end - uids.start));
    let task = server.task(&["--", "sh", "-c", "sleep 0.1; exit 7"]);
    bench.tried(1);
    let pid = server.status(&task)["process_id"].as_i64().unwrap_or(0) as i32;
    require!(pid > 0, "no pid is told");
    server.ended(&task);
    let bystander = Bystander::with_pid(bench, pid)?;
    let refused = rpc::on(async {
        let mut client = rpc::connect(&server, "client001").await;
        let mut refused = 0;
        for _ in 0..stops {
            let stop = pb::StopTaskRequest { task_id: task.clone(), grace: None };
            refused += usize::from(client.stop_task(stop).await.is_err());
        }
        let signal = pb::SignalTaskRequest { task_id: task.clone(), signal: "KILL".into() };
        let delivered = client.signal_task(signal).await.is_ok();
        (refused, delivered)
    });
    ensure!(refused == (0, false), "stops refused and a signal said to be delivered: {refused:?}");
    bystander.was_left_alone()?;
    bench.note(format!("{stops} stops and a signal to an ended task of the service: 0 signals to the bystander"));
    Ok(())
}
