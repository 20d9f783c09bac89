//! Escapees that root plants: each is dead within moments, recorded with its task, and quarantines the worker; nobody else is
//! touched, also under recycled pids.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use taskman::proto::task_manager as pb;

use super::{findings, health, incidents, serve};
use crate::harness::place::own_groups;
use crate::harness::{Arm, Bench, Case, Fail, Run, breach, broken, proc, sys};
use crate::process::recycled::Bystander;
use crate::support::{Server, pace, rpc, wait_until};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "U01",
        tier: 1,
        what: "root moves a task's process away, and plants processes of a living and of an ended task's uid",
        // Switched off by taking its events: see the scan's own trials.
        defence: &[],
        control: |bench| plants_live(bench).into(),
        attack: plants_are_killed,
    }]
}

/// Machines are noisy: later than this is a fault, long before a scan would come, and what was measured is printed.
const LATEST: Duration = Duration::from_secs(5);
const TRIALS: usize = 201;

/// A group of the suite's own that is no task's; gone with the case.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let path = bench.place.v2().join("elsewhere");
        fs::create_dir_all(&path).map_err(|e| broken(format!("mkdir {}: {e}", path.display())))?;
        Ok(Self(path))
    }

    fn take(&self, pid: i32) -> Result<(), Fail> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).map_err(|e| broken(format!("move {pid}: {e}")))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let deadline = Instant::now() + pace::time(Duration::from_secs(2));
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            nix::poll::poll(&mut [], 1u8).ok();
        }
    }
}

/// Without an auditor all three live on.
fn plants_live(bench: &Bench) -> Result<(), Fail> {
    let elsewhere = Elsewhere::make(bench)?;
    let mut task = bench.task(Arm::Contained).opt("--grace", "1ms").probe("contain_sigterm_ignore", &["30"]).spawn()?;
    task.wait_line("ready")?;
    let payload = task.payload().ok_or_else(|| broken("no payload"))?;
    let of_task = proc::uid_of(payload).ok_or_else(|| broken("no uid"))?;
    elsewhere.take(payload)?;
    let mut planted = Vec::new();
    for uid in [of_task, bench.uid_range().end - 1] {
        let mut run = bench.direct().with_uid(uid).probe("contain_sigterm_ignore", &["30"]).spawn()?;
        run.wait_line("ready")?;
        planted.push(run);
    }
    task.pump(Duration::from_millis(500), |task| task.ended.is_some())?;
    require!(task.ended.is_none(), "the moved process did not live on");
    for run in &mut planted {
        run.pump(Duration::ZERO, |_| false)?;
        require!(run.ended.is_none(), "a planted process did not live on");
    }
    Ok(())
}

/// Long tasks of the server: id and pid of the main process of each.
fn tasks(server: &Server, count: usize) -> Vec<(String, i32)> {
    rpc::on(async {
        let mut client = rpc::connect(server, "client001").await;
        let mut tasks = Vec::new();
        for _ in 0..count {
            let request =
                pb::StartTaskRequest { command: "sleep".into(), args: vec!["1000".into()], ..Default::default() };
            let id = rpc::start(&mut client, request).await;
            let id = id.unwrap_or_else(|status| panic!("{status}: {}", incidents(server)));
            let request = pb::TaskStatusRequest { task_id: id.clone() };
            let status = client.get_task_status(request).await.expect("a status").into_inner();
            tasks.push((id, status.process_id));
        }
        tasks
    })
}

/// One plant: what it must be reported as, and how long it lived.
struct Plant {
    pid: i32,
    kind: &'static str,
    task: Option<String>,
    lived: Duration,
}

/// Waits for the end of a process that is not the suite's child.
fn seen_dead(fd: &OwnedFd, planted: Instant, limit: Duration, what: &str) -> Result<Duration, Fail> {
    let dead = sys::wait_readable(fd, limit);
    ensure!(dead, "{what} lives {limit:?} after it was planted");
    Ok(planted.elapsed())
}

fn plant_moved(elsewhere: &Elsewhere, (task, pid): (String, i32), limit: Duration) -> Result<Plant, Fail> {
    let fd = sys::pidfd_open(pid).map_err(|e| broken(format!("pidfd of {pid}: {e}")))?;
    let planted = Instant::now();
    elsewhere.take(pid)?;
    let lived = seen_dead(&fd, planted, limit, "a moved process")?;
    Ok(Plant { pid, kind: "orphan_detected", task: Some(task), lived })
}

/// A process of this uid that is in no task's group, and the moments it lived.
fn plant_uid(bench: &Bench, uid: u32, limit: Duration) -> Result<(i32, Duration), Fail> {
    let mut run: Run = bench.direct().with_uid(uid).probe("contain_sigterm_ignore", &["30"]).spawn()?;
    run.pump(limit, |run| run.ended.is_some())?;
    let ended = run.ended;
    ensure!(ended.is_some(), "a process of uid {uid} lives {limit:?} after it was planted");
    Ok((run.pid, ended.map_or(limit, |at| at - run.started)))
}

/// Incident files so far.
fn written(server: &Server) -> usize {
    fs::read_dir(server.state().join("incidents")).map_or(0, Iterator::count)
}

/// Plants one of each kind in turn, and looks after each.
fn plant_all(bench: &Bench, server: &Server, trials: usize, limit: Duration) -> Result<Vec<Plant>, Fail> {
    let elsewhere = Elsewhere::make(bench)?;
    let mut waiting = tasks(server, trials / 3 * 2).into_iter();
    let (ended, pid) = tasks(server, 1).remove(0);
    let free_uid = proc::uid_of(pid).ok_or_else(|| broken("no uid"))?;
    // Without events the auditor knows the tasks that a scan has met.
    server.text("admin", &["audit", "run"]);
    server.text("client001", &["stop", &ended, "--grace", "0s"]);
    server.ended(&ended);
    bench.tried(trials);
    bench.canary()?;
    let mut neighbour =
        bench.direct().with_uid(bench.uid_range().end).probe("contain_sigterm_ignore", &["300"]).spawn()?;
    neighbour.wait_line("ready")?;
    let mut bystanders = Vec::new();
    let mut plants = Vec::new();
    for trial in 0..trials {
        let mut next = || waiting.next().ok_or_else(|| broken("no task is left"));
        let mut plant = || match trial % 3 {
            0 => plant_moved(&elsewhere, next()?, limit),
            1 => {
                let (task, main) = next()?;
                let uid = proc::uid_of(main).ok_or_else(|| broken("no uid"))?;
                let (pid, lived) = plant_uid(bench, uid, limit)?;
                Ok(Plant { pid, kind: "orphan_detected", task: Some(task), lived })
            }
            _ => {
                let (pid, lived) = plant_uid(bench, free_uid, limit)?;
                Ok(Plant { pid, kind: "post_cleanup_leak", task: Some(ended.clone()), lived })
            }
        };
        let plant: Result<Plant, Fail> = plant();
        let plant = plant.map_err(|fail| match fail {
            Fail::Breach(what) => {
                breach(format!("trial {trial}: {what}; {} incidents; {}", written(server), health(server)))
            }
            other => other,
        })?;
        // Each by itself: the next one waits until this one is written down.
        wait_until("the incident is written", || (written(server) > trial).then_some(()));
        // The number of one that was just killed is a bystander's now.
        if trial % 10 == 1 {
            bystanders.push(Bystander::with_pid(bench, plant.pid)?);
        }
        plants.push(plant);
    }
    for bystander in bystanders {
        bystander.was_left_alone()?;
    }
    neighbour.pump(Duration::ZERO, |_| false)?;
    ensure!(neighbour.ended.is_none(), "a process of the next uid after the range was killed");
    Ok(plants)
}

/// The findings that no plant accounts for, in full.
fn unplanted(server: &Server, told: &[Value], plants: &[Plant]) -> String {
    let mut planted: Vec<(i64, &str)> = plants.iter().map(|plant| (i64::from(plant.pid), plant.kind)).collect();
    let mut more = Vec::new();
    for finding in told {
        let pair = (finding["pid"].as_i64().unwrap_or(0), finding["kind"].as_str().unwrap_or(""));
        match planted.iter().position(|plant| *plant == pair) {
            Some(at) => drop(planted.swap_remove(at)),
            None => {
                let same = told.iter().filter(|other| other["pid"] == finding["pid"]);
                more.extend(same.map(|f| server.text("admin", &["audit", "show", f["id"].as_str().unwrap_or("")])));
            }
        }
    }
    more.join("\n")
}

/// Every plant stands in the findings as what it was, and the worker takes no more tasks.
fn are_told(server: &Server, plants: &[Plant]) -> Result<(), Fail> {
    wait_until("all is written down", || (findings(server).len() >= plants.len()).then_some(()));
    let told = findings(server);
    let mut by_pid: BTreeMap<i64, Vec<(&str, Option<&str>)>> = BTreeMap::new();
    for finding in &told {
        let pid = finding["pid"].as_i64().unwrap_or(0);
        by_pid.entry(pid).or_default().push((finding["kind"].as_str().unwrap_or(""), finding["task"].as_str()));
    }
    for plant in plants {
        let wanted = (plant.kind, plant.task.as_deref());
        let seen = by_pid.get(&i64::from(plant.pid)).cloned().unwrap_or_default();
        ensure!(seen.contains(&wanted), "pid {} is told as {seen:?}, not as {wanted:?}", plant.pid);
    }
    let more = unplanted(server, &told, plants);
    ensure!(more.is_empty(), "{} findings of {} plants; not planted:\n{more}", told.len(), plants.len());
    let health = health(server);
    ensure!(health["status"] == "quarantined" && health["can_accept"] == false, "health says {health}");
    let (code, why) = server.refused_start();
    ensure!(code == tonic::Code::FailedPrecondition && why.contains("runbooks/"), "a start gives {code:?}: {why}");
    Ok(())
}

/// p50, p99 and the longest, in milliseconds.
fn spread(plants: &[Plant]) -> String {
    let mut lived: Vec<f64> = plants.iter().map(|plant| plant.lived.as_secs_f64() * 1000.0).collect();
    lived.sort_by(f64::total_cmp);
    let at = |share: f64| lived[((lived.len() - 1) as f64 * share).round() as usize];
    format!("p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", at(0.5), at(0.99), at(1.0))
}

fn plants_are_killed(bench: &Bench, _arm: Arm) -> Result<(), Fail> {
    let server = serve(bench, "events = true\nscan = \"60s\"");
    let trials = pace::count(TRIALS);
    let plants = plant_all(bench, &server, trials, pace::time(LATEST))?;
    bench.note(format!("{trials} plants with events, from the plant to the death: {}", spread(&plants)));
    are_told(&server, &plants)?;
    drop(server);

    let server = serve(bench, "events = false\nscan = \"1s\"");
    let plants = plant_all(bench, &server, 6, pace::time(LATEST + Duration::from_secs(1)))?;
    bench.note(format!("6 plants without events, a scan each second: {}", spread(&plants)));
    are_told(&server, &plants)?;
    drop(server);
    half_confined_are_killed(bench)
}

/// Where the groups of a process's task are, in each hierarchy.
fn groups_of(pid: i32) -> Vec<String> {
    let v2 = proc::cgroup_of(pid).into_iter().find(|(controllers, _)| controllers.is_empty()).unwrap_or_default().1;
    let name = v2.rsplit('/').next().unwrap_or("").to_owned();
    own_groups().into_iter().map(|(_, base)| base.join(&name).join("cgroup.procs").display().to_string()).collect()
}

/// In the task's groups and with its uid, but with something that no task has.
fn half_confined_are_killed(bench: &Bench) -> Result<(), Fail> {
    let server = serve(bench, "events = true");
    let join = r#"while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@""#;
    let enter = ["nsenter", "-t", "PID", "-m", "-u", "-i", "-n", "-p", "-C", "-T", "--"];
    let other_network = ["nsenter", "-t", "PID", "-m", "-u", "-i", "-p", "-C", "-T", "--"];
    let bare = ["setpriv", "--reuid", "UID", "--regid", "UID", "--clear-groups"];
    let with_capability = [&bare[..], &["--inh-caps", "+chown", "--ambient-caps", "+chown"]].concat();
    let without_more = [&bare[..], &["--inh-caps", "-all", "--bounding-set", "-all"]].concat();
    let no_privileges = [&without_more[..], &["--no-new-privs"]].concat();
    let ways = [
        // Which of its sets is still full when it is caught depends on how far it has come.
        ("capabilities: expected none", [&enter[..], &with_capability].concat()),
        ("no_new_privs", [&enter[..], &without_more].concat()),
        ("seccomp", [&enter[..], &no_privileges].concat()),
        ("net namespace", [&other_network[..], &no_privileges].concat()),
    ];
    let tasks = tasks(&server, ways.len());
    bench.tried(ways.len());
    for ((fault, way), (task, pid)) in ways.iter().zip(tasks) {
        let uid = proc::uid_of(pid).ok_or_else(|| broken("no uid"))?.to_string();
        let (target, groups) = (pid.to_string(), groups_of(pid));
        let words = way.iter().map(|word| match *word {
            "PID" => target.as_str(),
            "UID" => uid.as_str(),
            word => word,
        });
        let wrap: Vec<&str> = ["sh", "-c", join, "join"]
            .into_iter()
            .chain(groups.iter().map(String::as_str))
            .chain(["--"])
            .chain(words)
            .collect();
        let mut run = bench.direct().wrapped(&wrap).command("sleep", ["30"]).spawn()?;
        run.pump(pace::time(Duration::from_secs(3)), |run| run.ended.is_some())?;
        ensure!(run.ended.is_some(), "{fault}: what was planted lives: {}", run.err.text());
        let found = wait_until("it is written down", || {
            let of_task = |finding: &Value| finding["task"] == *task && finding["kind"] == "confinement_lost";
            findings(&server).into_iter().filter(of_task).find_map(|finding| {
                let id = finding["id"].as_str()?;
                let incident = server.taskman("admin", &["audit", "show", id, "--output", "json"]).json(0).to_string();
                incident.contains(fault).then_some(incident)
            })
        });
        ensure!(found.contains(&task) && found.contains("client001"), "{fault}: the incident names no owner: {found}");
        ensure!(server.ended(&task)["outcome"]["reason"] == "containment", "{fault}: {:#}", server.ended(&task));
    }
    bench.note("a capability, no no_new_privs, no seccomp, another network namespace: each told as confinement_lost and killed");
    Ok(())
}
