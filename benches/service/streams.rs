//! Output to its readers: how fast, to how many, and what it costs the server in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use taskman::client::{Client, OutputRequest, StartTaskRequest, StreamEnd};
use taskman::task::id::TaskId;

use crate::Failure;
use crate::measure::{Rate, Watch};
use crate::server::{Memory, Server, alone};

const MIB: u64 = 1 << 20;

/// A task that writes this many MiB as fast as it can.
pub async fn writer(client: &Client, mib: u64) -> Result<TaskId, Failure> {
    let words =
        ["if=/dev/zero".to_owned(), "bs=256k".to_owned(), format!("count={}", mib * 4), "status=none".to_owned()];
    let request = StartTaskRequest { command: "dd".into(), args: words.to_vec(), ..Default::default() };
    Ok(client.start(request).await?)
}

/// Reads everything; the number of bytes must be right.
pub async fn read(client: &Client, task: TaskId, bytes: u64) -> Result<(), Failure> {
    let mut output = client.stream(OutputRequest::all(task)).await?;
    let (mut seen, mut end) = (0, StreamEnd::Unspecified);
    while let Some(chunk) = output.next().await? {
        seen += chunk.bytes.len() as u64;
        end = chunk.end;
    }
    if (seen, end) == (bytes, StreamEnd::Eof) { Ok(()) } else { Err(format!("{seen} bytes came, and {end:?}").into()) }
}

/// One reader of output that is there already.
pub fn stored(server: &Server, task: TaskId, mib: u64) -> Result<Rate, Failure> {
    alone(async {
        let client = server.client().await?;
        let watch = Watch::start(Some(server));
        read(&client, task, mib * MIB).await?;
        Ok(watch.stop(mib * MIB))
    })
}

/// One reader of output that is being written, from the request to start it until the last byte. Of which task it was.
pub fn live(server: &Server, mib: u64) -> Result<(Rate, TaskId), Failure> {
    alone(async {
        let client = server.client().await?;
        let watch = Watch::start(Some(server));
        let task = writer(&client, mib).await?;
        read(&client, task, mib * MIB).await?;
        Ok((watch.stop(mib * MIB), task))
    })
}

/// The writing alone: how fast the output comes when nobody reads.
pub async fn unread(server: &Server, mib: u64) -> Result<Rate, Failure> {
    let client = server.client().await?;
    let watch = Watch::start(Some(server));
    let task = writer(&client, mib).await?;
    client.wait(task, None).await?;
    Ok(watch.stop(mib * MIB))
}

/// How a reader behaves.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fast,
    /// One message, then a rest.
    Slow,
    /// One message, then nothing more.
    Stalled,
}

/// Readers on a connection each, until they are dropped.
struct Readers {
    seen: Arc<AtomicU64>,
    tasks: tokio::task::JoinSet<Result<(), String>>,
}

impl Readers {
    async fn connect(server: &Server, task: TaskId, kinds: &[Kind]) -> Result<Self, Failure> {
        let seen = Arc::<AtomicU64>::default();
        let mut tasks = tokio::task::JoinSet::new();
        let credentials = server.credentials()?;
        for kind in kinds {
            let client = Client::connect(server.address(), &credentials).await?;
            let (kind, seen) = (*kind, seen.clone());
            tasks.spawn(async move {
                let mut output = client.stream(OutputRequest::all(task)).await.map_err(|e| e.to_string())?;
                while let Some(chunk) = output.next().await.map_err(|e| e.to_string())? {
                    seen.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
                    match kind {
                        Kind::Fast => {}
                        Kind::Slow => tokio::time::sleep(Duration::from_millis(500)).await,
                        Kind::Stalled => std::future::pending().await,
                    }
                }
                Ok(())
            });
        }
        Ok(Self { seen, tasks })
    }

    fn check(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }
}

/// What many readers of stored output get in all, in this time.
pub async fn many(server: &Server, task: TaskId, readers: usize, time: Duration) -> Result<Rate, Failure> {
    let mut readers = Readers::connect(server, task, &vec![Kind::Fast; readers]).await?;
    // After the start, in which the first have the machine for themselves.
    tokio::time::sleep(time / 5).await;
    let before = readers.seen.load(Ordering::Relaxed);
    let watch = Watch::start(Some(server));
    tokio::time::sleep(time).await;
    let seen = readers.seen.load(Ordering::Relaxed) - before;
    let rate = watch.stop(seen);
    readers.check()?;
    Ok(rate)
}

/// The server's memory while a crowd follows an output.
pub struct Crowd {
    pub idle: Memory,
    pub connected: Memory,
    /// While the task writes: early, half way, at its end.
    pub during: [Memory; 3],
    /// Some time after the end, while the fast ones still read.
    pub after: Memory,
    /// What all of them read.
    pub gib: f64,
    pub fast: usize,
    pub slow: usize,
    pub stalled: usize,
}

/// A crowd of readers follows an output of so many MiB from its first byte: of ten, two are slow and one reads nothing.
pub async fn crowd(server: &Server, readers: usize, mib: u64) -> Result<Crowd, Failure> {
    let client = server.client().await?;
    let kind = |at| match at % 10 {
        0 => Kind::Stalled,
        1 | 2 => Kind::Slow,
        _ => Kind::Fast,
    };
    let kinds: Vec<Kind> = (0..readers).map(kind).collect();
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    let idle = server.memory();
    // It begins to write when everybody is there.
    let wait = Duration::from_millis(20 * readers as u64).max(Duration::from_secs(2));
    let parts = 64;
    let dd = format!("dd if=/dev/zero bs=256k count={} status=none", mib * 4 / parts);
    let script =
        format!("sleep {}; i=0; while [ $i -lt {parts} ]; do {dd}; sleep 0.2; i=$((i+1)); done", wait.as_secs());
    let request = StartTaskRequest { command: "sh".into(), args: vec!["-c".into(), script], ..Default::default() };
    let began = Instant::now();
    let task = client.start(request).await?;
    let mut crowd = Readers::connect(server, task, &kinds).await?;
    tokio::time::sleep(wait.saturating_sub(began.elapsed())).await;
    let connected = server.memory();
    let mut during = Vec::new();
    for part in [mib / 10, mib / 2, mib] {
        while client.get_status(task).await?.output_bytes < part * MIB {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        during.push(server.memory());
        crowd.check()?;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = server.memory();
    crowd.check()?;
    let gib = crowd.seen.load(Ordering::Relaxed) as f64 / f64::from(1 << 30);
    drop(crowd);
    let during = during.try_into().map_err(|_| "three samples")?;
    let (fast, slow, stalled) = (count(Kind::Fast), count(Kind::Slow), count(Kind::Stalled));
    Ok(Crowd { idle, connected, during, after, gib, fast, slow, stalled })
}
