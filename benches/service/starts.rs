//! What a start costs over the service: until its first byte is at the client, and how many there are in a second.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskman::client::{Client, OutputRequest, StartTaskRequest};

use crate::measure::percentiles;
use crate::server::{Server, alone};
use crate::{Args, Failure};

/// A command with its arguments.
pub fn task(command: &str, args: &[&str]) -> StartTaskRequest {
    let args = args.iter().map(ToString::to_string).collect();
    StartTaskRequest { command: command.into(), args, ..Default::default() }
}

/// A server as somebody may configure it. Another arm is one more line here.
struct Arm {
    name: &'static str,
    /// Where its state lies, if not on the disk that is measured.
    dir: Option<&'static str>,
    /// More configuration.
    config: &'static str,
}

const ARMS: [Arm; 3] = [
    Arm { name: "cold", dir: None, config: "[warm]\nslots = 0\n" },
    Arm { name: "warm", dir: None, config: "" },
    Arm { name: "warm, state in memory", dir: Some("/dev/shm"), config: "" },
];

/// Before each start whose latency is taken: what the one before it has left to do is not this one's, nor is a sandbox that is
/// being built for the next.
const PAUSE: Duration = Duration::from_millis(25);

/// So many starts of one arm, then as many of the next: the machine drifts.
const TURN: usize = 20;

/// Starts that are not timed after a server has begun: it has nothing ready yet.
const WARM_UP: usize = 5;

impl Arm {
    /// Its server, which has started a few tasks already. One lives at a time: each auditor looks at everything that is executed
    /// on the host, and would do so for the others' starts.
    fn server(&self, args: &Args) -> Result<Server, Failure> {
        let dir = self.dir.map_or(args.dir.as_path(), Path::new);
        let server = Server::start_with(&args.server, dir, self.config)?;
        starts(&server, WARM_UP, &mut Starts::default())?;
        Ok(server)
    }
}

/// Latencies of each arm, then starts per second with 1 and 8 clients; a peer's beside them, where there is one.
pub async fn arms(args: &Args) -> Result<Value, Failure> {
    let mut arms = ARMS.map(|arm| (arm, Starts::default()));
    for turn in 0..args.starts.div_ceil(TURN) {
        for (arm, times) in &mut arms {
            starts(&arm.server(args)?, TURN.min(args.starts - turn * TURN), times)?;
        }
    }
    let mut latencies = Vec::new();
    for (Arm { name, .. }, times) in &arms {
        let kinds = times.kinds().map(|(kind, times)| json!({ "kind": kind, "ms": percentiles(times) }));
        println!("\n{:<38}{:>8}{:>8}{:>8}", format!("{name}, ms"), "p50", "p95", "p99");
        for (kind, times) in times.kinds() {
            let [p50, p95, p99] = percentiles(times);
            println!("{kind:<38}{p50:>8.2}{p95:>8.2}{p99:>8.2}");
        }
        latencies.push(json!({ "arm": name, "starts": args.starts, "kinds": kinds }));
    }
    let mut rates = Vec::new();
    let burst = Duration::from_millis(args.burst);
    for clients in [1, 8] {
        for (arm, _) in &arms {
            let name = arm.name;
            let rate = per_second(&arm.server(args)?, clients, burst).await?;
            println!("{name}, {clients} client(s), start to proven end, again and again: {rate:.0} per second");
            rates.push(json!({ "who": name, "clients": clients, "per_second": rate }));
        }
        let Some(beside) = &args.beside else { continue };
        match number_of(beside, &[args.burst.to_string(), clients.to_string()]) {
            Ok(rate) => {
                println!("{}, {clients} launcher(s): {rate:.0} per second", args.beside_name);
                rates.push(json!({ "who": args.beside_name, "clients": clients, "per_second": rate }));
            }
            // A peer's failure is not the service's.
            Err(error) => println!("{}, {clients} launcher(s): {error}", args.beside_name),
        }
    }
    Ok(json!({ "latencies": latencies, "rates": rates }))
}

/// The number that a program of scripts/bench prints last.
pub fn number_of(program: &Path, args: &[String]) -> Result<f64, Failure> {
    let output = Command::new(program).args(args).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = said.split_whitespace().last().and_then(|word| word.parse().ok());
    number
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("{} failed: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into())
}

/// Times of one kind each, taken in turns.
#[derive(Default)]
pub struct Starts {
    /// A status of a task that runs.
    pub status: Vec<Duration>,
    /// Until StartTask is answered.
    pub answered: Vec<Duration>,
    /// From StartTask to its first byte of output.
    pub first_byte: Vec<Duration>,
    /// Until the end is proven and known.
    pub ended: Vec<Duration>,
}

impl Starts {
    fn kinds(&self) -> [(&'static str, &[Duration]); 4] {
        [
            ("GetTaskStatus", &self.status),
            ("StartTask answered", &self.answered),
            ("StartTask to first output byte", &self.first_byte),
            ("StartTask to the proven end", &self.ended),
        ]
    }
}

/// `rounds` starts of `echo`, one after the other on one connection.
pub fn starts(server: &Server, rounds: usize, times: &mut Starts) -> Result<(), Failure> {
    alone(async {
        let client = server.client().await?;
        let sleeper = client.start(task("sleep", &["600"])).await?;
        for _ in 0..rounds {
            tokio::time::sleep(PAUSE).await;
            let began = Instant::now();
            client.get_status(sleeper).await?;
            times.status.push(began.elapsed());
            let began = Instant::now();
            let id = client.start(task("/usr/bin/echo", &["hello"])).await?;
            times.answered.push(began.elapsed());
            let mut output = client.stream(OutputRequest::all(id)).await?;
            output.next().await?.filter(|chunk| !chunk.bytes.is_empty()).ok_or("no output came")?;
            times.first_byte.push(began.elapsed());
            client.wait(id, None).await?;
            times.ended.push(began.elapsed());
        }
        client.stop(sleeper, Some(Duration::ZERO)).await?;
        client.wait(sleeper, None).await?;
        Ok(())
    })
}

/// Starts per second with this many clients, each of which waits for the end of its task before the next.
pub async fn per_second(server: &Server, clients: usize, time: Duration) -> Result<f64, Failure> {
    let mut running = tokio::task::JoinSet::new();
    let until = Instant::now() + time;
    for _ in 0..clients {
        let client = server.client().await?;
        running.spawn(async move { repeat(client, until).await.map_err(|error| error.to_string()) });
    }
    let began = Instant::now();
    let mut count = 0;
    while let Some(done) = running.join_next().await {
        count += done??;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

async fn repeat(client: Client, until: Instant) -> Result<usize, Failure> {
    let mut count = 0;
    while Instant::now() < until {
        let id = client.start(task("/usr/bin/true", &[])).await?;
        client.wait(id, None).await?;
        count += 1;
    }
    Ok(count)
}
