//! What one more reader of an output costs, and how old a line is when a client reads it.

use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use taskman::client::{Client, OutputRequest};

use crate::measure::percentiles;
use crate::server::Server;
use crate::starts::{per_second, task};
use crate::streams::read;
use crate::{Args, Failure};

const READERS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// What each of them reads.
const MIB: u64 = 128;
/// Lines whose age is taken, one each ten milliseconds or so.
const LINES: usize = 300;

/// Readers of one live stream, then the age of lines while nothing else happens and while much does.
pub async fn output(args: &Args) -> Result<Value, Failure> {
    let server = Server::start(&args.server, &args.dir)?;
    println!("\n{:<22}{:>12}{:>12}{:>22}", "readers of a live one", "MiB/s each", "MiB/s all", "server cpu s per GiB");
    let mut readers = Vec::new();
    for count in READERS {
        let (each, cpu) = follow(&server, count).await?;
        println!("{count:<22}{each:>12.0}{:>12.0}{cpu:>22.2}", each * count as f64);
        readers.push(json!({ "readers": count, "mib_s_each": each, "server_cpu_s_per_gib": cpu }));
    }
    let idle = ages(&server).await?;
    let (loaded, load) = tokio::join!(ages(&server), busy(&server));
    load?;
    let mut latencies = Vec::new();
    println!("\n{:<38}{:>8}{:>8}{:>8}", "from a payload's write to the client, ms", "p50", "p95", "p99");
    for (when, ages) in [("idle", idle), ("under load", loaded?)] {
        let [p50, p95, p99] = percentiles(&ages);
        println!("{when:<38}{p50:>8.2}{p95:>8.2}{p99:>8.2}");
        latencies.push(json!({ "when": when, "ms": [p50, p95, p99] }));
    }
    Ok(json!({ "mib": MIB, "readers": readers, "latencies": latencies }))
}

/// MiB/s of each reader, and the server's processor time per GiB that all of them read, from the first byte written.
async fn follow(server: &Server, readers: usize) -> Result<(f64, f64), Failure> {
    // It begins when everybody is there.
    let wait = Duration::from_secs(1);
    let script = format!("sleep {}; exec dd if=/dev/zero bs=256k count={} status=none", wait.as_secs(), MIB * 4);
    let began = Instant::now();
    let id = server.client().await?.start(task("sh", &["-c", &script])).await?;
    let clients = connect(server, readers).await?;
    let cpu = server.cpu();
    let mut reading = tokio::task::JoinSet::new();
    for client in clients {
        reading.spawn(async move { read(&client, id, MIB << 20).await.map_err(|error| error.to_string()) });
    }
    while let Some(done) = reading.join_next().await {
        done??;
    }
    let seconds = began.elapsed().saturating_sub(wait).as_secs_f64();
    let gib = (MIB * readers as u64) as f64 / 1024.0;
    Ok((MIB as f64 / seconds, (server.cpu() - cpu) / gib))
}

async fn connect(server: &Server, count: usize) -> Result<Vec<Client>, Failure> {
    let credentials = server.credentials()?;
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(Client::connect(server.address(), &credentials).await?);
    }
    Ok(clients)
}

/// How old each line is when it is here. The payload writes the time into it, by a builtin, just before it writes the line.
async fn ages(server: &Server) -> Result<Vec<Duration>, Failure> {
    let client = server.client().await?;
    let script = format!("for ((i = 0; i < {LINES}; i++)); do echo $EPOCHREALTIME; sleep 0.01; done");
    let id = client.start(task("bash", &["-c", &script])).await?;
    let mut output = client.stream(OutputRequest::all(id)).await?;
    let (mut ages, mut rest) = (Vec::new(), String::new());
    while let Some(chunk) = output.next().await? {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        rest += std::str::from_utf8(&chunk.bytes)?;
        while let Some((line, after)) = rest.split_once('\n') {
            let written = parse(line).ok_or_else(|| format!("not a time: {line:?}"))?;
            ages.push(now.saturating_sub(written));
            rest = after.to_owned();
        }
    }
    if ages.len() == LINES { Ok(ages) } else { Err(format!("{} lines came of {LINES}", ages.len()).into()) }
}

/// Seconds and microseconds, as bash writes them.
fn parse(line: &str) -> Option<Duration> {
    let (seconds, micros) = line.split_once('.')?;
    Some(Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(micros.parse().ok()?))
}

/// Two clients that start tasks, and four that follow an output, for about as long as the lines take.
async fn busy(server: &Server) -> Result<(), Failure> {
    let time = Duration::from_millis(15 * LINES as u64);
    let storm = async {
        let until = Instant::now() + time;
        while Instant::now() < until {
            follow(server, 4).await?;
        }
        Ok::<_, Failure>(())
    };
    let (started, followed) = tokio::join!(per_second(server, 2, time), storm);
    started?;
    followed
}
