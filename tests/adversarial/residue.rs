//! What one task leaves, the next one does not find: neither in a sandbox that was built for it nor in one that stood ready.

use std::time::Duration;

use taskman::proto::task_manager as pb;

use crate::harness::{Arm, Bench, Case, Control, Fail, breach, broken};
use crate::support::pace;
use crate::support::rpc::{self, Tasks};
use crate::support::scrape::{scrape, series};
use crate::support::{HostDir, Server};
use crate::{ensure, require};

/// Marks places, or looks for marks. By its text: a task with a path bound from the host gets no sandbox that stands ready.
const SCRIPT: &str = include_str!("payloads/x_mark.pl");
const PAIRS: usize = 1_000;
/// Pairs that are under way at once.
const LANES: usize = 4;
/// Pairs of one lane in one go, at most.
const BATCH: usize = 10;

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "X02",
        tier: 1,
        what: "1,000 pairs of tasks in sandboxes that stood ready: what the first leaves everywhere, the second finds nowhere",
        defence: &["ipc-namespace", "net-namespace"],
        control: |bench| match mark_directly(bench) {
            Ok(found) if found.contains("shared memory") && found.contains("name /tmp/") => Control::Works,
            Ok(found) => Control::Broken(format!("outside too only this is found: {found}")),
            Err(fail) => Control::Broken(fail.to_string()),
        },
        attack: nothing_is_found,
    }]
}

fn mark_directly(bench: &Bench) -> Result<String, Fail> {
    let uid = bench.uid_range().start;
    let perl = |mode| bench.direct().with_uid(uid).command("perl", ["-e", SCRIPT, mode, "RESIDUE-of-the-control"]);
    let marked = perl("mark").finish()?;
    require!(marked.code() == 0, "{}", marked.err);
    let found = perl("find").finish()?.out;
    // The suite's sweep knows IPC objects by their uid; of files it knows those of tasks.
    for top in ["/tmp", "/dev", "/run", "/var", "/mnt", "/srv", "/home", "/opt"] {
        let below = std::fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
        for dir in below.filter(|path| path.is_dir() && !path.is_symlink()).chain([top.into()]) {
            for suffix in ["", ".d", ".l"] {
                let path = dir.join(format!("RESIDUE-of-the-control{suffix}"));
                let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
            }
        }
    }
    Ok(found)
}

fn nothing_is_found(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (server, _dir) = serve(bench, arm);
    let lanes = if arm == Arm::Contained { LANES } else { 1 };
    let batch = pace::count(PAIRS).div_ceil(lanes).min(BATCH);
    let mut told = Vec::new();
    while told.len() < arm.trials(PAIRS, 2) {
        told.extend(some_pairs(&server, lanes, batch, told.len())?);
    }
    if arm == Arm::Contained {
        bench.tried(2 * told.len());
        bench.canary()?;
    }
    for (marked, found, first, second) in &told {
        let places: usize = marked.trim().parse().map_err(|_| broken(format!("the first said {marked:?}")))?;
        require!(places > 20, "only {places} places took a mark");
        ensure!(found.is_empty(), "the next task found {found}");
        for status in [first, second] {
            let verdict = status.containment.as_ref().map(|containment| containment.verdict.clone());
            ensure!(verdict.as_deref() == Some("proven"), "a task ended {status:?}");
        }
    }
    let ready = ready(&server);
    if arm == Arm::Contained {
        // On a machine that is busy with other things many a task comes before its sandbox is ready: a fourth has one.
        require!(ready > told.len() / 2, "only {ready} of {} tasks had a sandbox that stood ready", 2 * told.len());
    }
    bench.note(format!("{} pairs, {ready} tasks in sandboxes that stood ready: nothing found", told.len()));
    Ok(())
}

/// What the first of a pair said, what the second found, and how both ended.
type Told = (String, String, pb::TaskStatusResponse, pb::TaskStatusResponse);

/// So many pairs in each of so many lanes.
fn some_pairs(server: &Server, lanes: usize, batch: usize, first: usize) -> Result<Vec<Told>, Fail> {
    rpc::on(async {
        let client = rpc::connect(server, "client001").await;
        let lane = |lane: usize| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let mut told = Vec::new();
                for pair in 0..batch {
                    let word = format!("RESIDUE-{lane}-{}", first + pair);
                    let (marked, marker) = perl(&mut client, &["mark", &word]).await?;
                    let (found, finder) = perl(&mut client, &["find"]).await?;
                    told.push((marked, found, marker, finder));
                }
                Ok(told)
            })
        };
        let lanes: Vec<_> = (0..lanes).map(lane).collect();
        let mut told = Vec::new();
        for lane in lanes {
            told.extend(lane.await.expect("a lane")?);
        }
        Ok(told)
    })
}

fn serve(bench: &Bench, arm: Arm) -> (Server, HostDir) {
    let (uids, dir) = (bench.uid_range(), HostDir::new());
    let range = format!("{}:{}", uids.start, uids.end - uids.start);
    let text = format!("uid_range = \"{range}\"\nmetrics_address = \"localhost:0\"\n[warm]\nidle = \"10m\"\n");
    let config = dir.file("config.toml", text, 0o644);
    let server = Server::prepare(&["--config", config.to_str().unwrap()]);
    let mut server = match arm {
        Arm::Contained => server,
        Arm::Mutant(names) => server.mutated("TASKMAN_MUTATION", names),
    };
    server.launch();
    (server, dir)
}

/// What a task of the script prints, and how it ended.
async fn perl(client: &mut Tasks, words: &[&str]) -> Result<(String, pb::TaskStatusResponse), Fail> {
    let args = ["-e", SCRIPT].iter().chain(words).map(ToString::to_string).collect();
    let request = pb::StartTaskRequest { command: "perl".into(), args, ..Default::default() };
    let id = loop {
        match rpc::start(client, request.clone()).await {
            // On a machine that is too busy for its auditor starts are refused for a moment, and it says so.
            Err(status) if status.message().contains("try again") => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            // The auditor has found what a task left before the next task could.
            Err(status) if status.message().contains("post_cleanup_leak") => return Err(breach(status.message())),
            other => break other.expect("a start"),
        }
    };
    let (bytes, _) = rpc::read(client, rpc::whole(&id)).await.expect("its output");
    Ok((String::from_utf8_lossy(&bytes).into_owned(), rpc::ended(client, &id).await))
}

/// How many tasks had a sandbox that stood ready.
fn ready(server: &Server) -> usize {
    series(&scrape(server))["taskman_warm_starts_total{sandbox=\"ready\"}"] as usize
}
