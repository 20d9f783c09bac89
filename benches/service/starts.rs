//! What a start costs over the service: until its first byte is at the client, and how many there are in a second.

use std::time::{Duration, Instant};

use taskman::client::{Client, OutputRequest, StartTaskRequest};

use crate::Failure;
use crate::server::Server;

/// A command with its arguments.
pub fn task(command: &str, args: &[&str]) -> StartTaskRequest {
    let args = args.iter().map(ToString::to_string).collect();
    StartTaskRequest { command: command.into(), args, ..Default::default() }
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

/// `rounds` starts of `echo`, one after the other.
pub async fn starts(server: &Server, rounds: usize) -> Result<Starts, Failure> {
    let client = server.client().await?;
    let sleeper = client.start(task("sleep", &["600"])).await?;
    let mut times = Starts::default();
    for _ in 0..rounds {
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
    Ok(times)
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
