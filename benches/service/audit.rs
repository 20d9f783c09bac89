//! What the auditor costs while nothing, little and very much happens; and how long an escapee lives.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use taskman::client::{Client, StartTaskRequest, proto_duration};
use taskman::task::id::TaskId;

use crate::measure::{percentiles, slope};
use crate::plants::{self, Plant};
use crate::server::{Server, processor_seconds, status_kib};
use crate::starts::task;
use crate::{Args, Failure};

/// Its own uids: no other auditor of this host may know the plants.
const UIDS: &str = "uid_range = \"1916000000:2000\"\n";
/// After so many scans the auditor has done everything that it does from time to time: see `audit/run.rs`.
const CYCLE: u32 = 60;
/// Scans of the configuration's default, per scan of the cycle that is measured here.
const FASTER: f64 = 10.0;
/// Plants that only a scan can find, of each kind.
const WITHOUT_EVENTS: usize = 6;

/// How long each kind of escapee lives, found by events and by scans alone.
pub async fn lives(args: &Args) -> Result<(), Failure> {
    println!("\n{:<50}{:>8}{:>8}{:>8}{:>8}", "from the plant to the victim's death, ms", "p50", "p95", "p99", "max");
    for plant in Plant::ALL {
        let lived = planted(args, plant, args.trials, "events = true").await?;
        let p99 = percentiles(&lived.since_begun)[2];
        show(&format!("{plant}, {} trials", args.trials), &lived.since_begun);
        if plant == Plant::Moved {
            show("  from when the kernel had moved it", &lived.since_done);
        }
        println!("  p99 {p99:.1}, wanted at most 50: {}", verdict(p99 <= 50.0));
    }
    for plant in Plant::ALL {
        let lived = planted(args, plant, WITHOUT_EVENTS, "events = false\nscan = \"1s\"").await?;
        show(&format!("{plant}, no events, a scan each second"), &lived.since_begun);
    }
    Ok(())
}

async fn planted(args: &Args, plant: Plant, trials: usize, audit: &str) -> Result<plants::Lived, Failure> {
    let server = serve(args, audit)?;
    plants::plant(&server, plant, trials).await
}

fn serve(args: &Args, audit: &str) -> Result<Server, Failure> {
    Server::start_with(&args.server, &args.dir, &format!("{UIDS}[audit]\n{audit}\n"))
}

fn show(name: &str, times: &[Duration]) {
    let [p50, p95, p99] = percentiles(times);
    let max = times.iter().max().map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
    println!("{name:<50}{p50:>8.1}{p95:>8.1}{p99:>8.1}{max:>8.1}");
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "not met" }
}

/// The auditor during some time.
struct Phase {
    /// Percent of one core: its own, and that of the processes which it sent to look at files and the like.
    own: f64,
    errands: f64,
}

/// Processor share and memory in each phase, all but the last with the server's defaults.
pub async fn costs(args: &Args) -> Result<(), Failure> {
    println!(
        "\n{:<34}{:>8}{:>9}{:>8}{:>8}{:>10}{:>10}{:>8}",
        "auditor, % of one core", "own", "errands", "KiB", "then", "KiB/min", "forks/s", "load"
    );
    let time = Duration::from_secs(args.seconds);
    let server = serve(args, "")?;
    let client = server.client().await?;
    watch(&server, "no task", time).await?;
    idle(&client, args.idle).await?;
    let quiet = watch(&server, &format!("{} idle tasks", args.idle), time).await?;
    let mut storms = Vec::new();
    for (name, what) in [("and a fork storm in one more", "(:)"), ("and an exec storm in one more", "/usr/bin/true")] {
        let storm = storm(&client, what, time).await?;
        storms.push(watch(&server, name, time).await?);
        client.stop(storm, Some(Duration::ZERO)).await?;
        client.wait(storm, None).await?;
    }
    drop(server);
    let server = serve(args, "scan = \"1s\"")?;
    idle(&server.client().await?, args.idle).await?;
    let name = format!("{} idle, a scan each second", args.idle);
    // A scan takes its time too.
    let cycle = watch(&server, &name, Duration::from_secs(1) * CYCLE * 6 / 5).await?;

    // What comes once in many scans may not have come in a short phase, so its share is taken from the whole cycle.
    let share = quiet.own + cycle.errands / FASTER;
    let name = format!("{} idle tasks, with its share of the rare looks", args.idle);
    println!("{name}: {share:.2}%, wanted under 1: {}", verdict(share < 1.0));
    for (name, phase) in ["fork storm", "exec storm"].into_iter().zip(&storms) {
        let share = phase.own + phase.errands;
        println!("{name}: {share:.2}%, wanted under 10: {}", verdict(share < 10.0));
    }
    Ok(())
}

async fn idle(client: &Client, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        client.start(task("sleep", &["100000"])).await?;
    }
    Ok(())
}

/// Four shells of one task do this again and again; bounded in number and time, should nobody stop it.
async fn storm(client: &Client, what: &str, time: Duration) -> Result<TaskId, Failure> {
    let again = format!("i=0; while [ $i -lt 1000000 ]; do {what}; i=$((i+1)); done");
    let script = format!("for n in 1 2 3 4; do ({again}) & done; wait");
    let timeout = Some(proto_duration(time + Duration::from_secs(60)));
    let request = StartTaskRequest { timeout, ..task("sh", &["-c", &script]) };
    Ok(client.start(request).await?)
}

/// Watches the auditor for this long, and prints the line.
async fn watch(server: &Server, name: &str, time: Duration) -> Result<Phase, Failure> {
    // What the phase began with has been looked at by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let auditor = server.auditor()?;
    let memory = || status_kib(auditor, "RssAnon:").map(|kib| kib as f64).ok_or("the auditor is gone");
    let (began, before, forked) = (Instant::now(), processor_seconds(auditor), forks()?);
    let mut samples = vec![(0.0, memory()?)];
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(1).min(time - began.elapsed().min(time))).await;
        samples.push((began.elapsed().as_secs_f64() / 60.0, memory()?));
    }
    let (seconds, after) = (began.elapsed().as_secs_f64(), processor_seconds(auditor));
    if server.auditor()? != auditor {
        return Err("the auditor was replaced while it was watched: this run says nothing".into());
    }
    let [own, errands] = [after[0] - before[0], after[1] - before[1]].map(|spent| 100.0 * spent / seconds);
    let forks = (forks()? - forked) as f64 / seconds;
    let load = fs::read_to_string("/proc/loadavg")?;
    println!(
        "{name:<34}{own:>8.2}{errands:>9.2}{:>8.0}{:>8.0}{:>10.0}{forks:>10.0}{:>8}",
        samples[0].1,
        samples[samples.len() - 1].1,
        slope(&samples),
        load.split(' ').next().unwrap_or_default()
    );
    Ok(Phase { own, errands })
}

/// Processes and threads made on this machine since it was started, by everybody.
fn forks() -> Result<u64, Failure> {
    let stat = fs::read_to_string(PathBuf::from("/proc/stat"))?;
    let line = stat.lines().find_map(|line| line.strip_prefix("processes "));
    Ok(line.ok_or("no count of processes")?.trim().parse()?)
}
