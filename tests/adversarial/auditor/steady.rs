//! What is harmless is never told, however much of it there is.

use std::time::Duration;

use taskman::proto::task_manager as pb;

use super::{findings, health, incidents, serve};
use crate::harness::{Arm, Bench, Case, Fail};
use crate::support::{Server, pace, rpc};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "U02",
        tier: 1,
        what: "hundreds of harmless tasks that fork without pause, scanned all the time",
        // The plants of U01 are what this must not be.
        defence: &[],
        control: |bench| churn_is_churn(bench).into(),
        attack: nothing_is_told,
    }]
}

/// Of ten tasks each.
const BATCHES: usize = 10;
const FORKS: usize = 30;

fn script() -> String {
    format!("i=0; while [ $i -lt {FORKS} ]; do (exit 0) & (sleep 0.001 & true); i=$((i+1)); done; wait; exit 7")
}

fn churn_is_churn(bench: &Bench) -> Result<(), Fail> {
    let done = bench.direct().sh(&script()).finish()?;
    require!(done.code() == 7, "exit {}: {}", done.code(), done.err);
    Ok(())
}

fn nothing_is_told(bench: &Bench, _arm: Arm) -> Result<(), Fail> {
    let server = serve(bench, "events = true\nscan = \"1s\"\n[warm]\nslots = 16");
    let batches = pace::count(BATCHES);
    let tasks = batches * 10;
    let (mut ended, mut refused) = (0, 0);
    for _ in 0..batches {
        let (well, gaps) = batch(&server);
        (ended, refused) = (ended + well, refused + gaps);
    }
    bench.tried(tasks);
    bench.canary()?;
    let audited = server.taskman("admin", &["audit", "run"]);
    ensure!(ended == tasks, "{ended} of {tasks} tasks ended as they should");
    ensure!(audited.status.code() == Some(0), "a full audit says {audited:?}");
    let told = findings(&server);
    ensure!(told.is_empty(), "{} false findings, such as {}", told.len(), told[0]);
    ensure!(health(&server)["status"] == "healthy", "health says {}", health(&server));
    bench.note(format!(
        "{tasks} tasks with {} forks, scanned each second: 0 findings; {refused} starts asked to try again",
        tasks * FORKS * 3
    ));
    Ok(())
}

/// Ten tasks at once: how many ended as they should, and how often a start was asked to try again.
fn batch(server: &Server) -> (usize, usize) {
    rpc::on(async {
        let client = rpc::connect(server, "client001").await;
        let batch = (0..10).map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let mut gaps = 0;
                let id = loop {
                    match rpc::start(&mut client, rpc::sh(&script())).await {
                        // On a machine that is too busy for its auditor starts are refused for a moment, and it says so.
                        Err(status) if status.message().contains("try again") && gaps < 100 => gaps += 1,
                        other => break other?,
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                };
                let request = pb::WaitTaskRequest { task_id: id, timeout: None };
                Ok::<_, tonic::Status>((client.wait_task(request).await?.into_inner(), gaps))
            })
        });
        let (mut ended, mut refused) = (0, 0);
        for task in batch.collect::<Vec<_>>() {
            let (status, gaps) =
                task.await.expect("a batch").unwrap_or_else(|status| panic!("{status}: {}", incidents(server)));
            refused += gaps;
            ended += usize::from(status.exit_code == Some(7) && status.reason == "exit");
        }
        (ended, refused)
    })
}
