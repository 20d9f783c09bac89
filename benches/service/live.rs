//! What one more task costs while many are alive: the latency of a start, memory, a list of all, the end of all.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskman::client::{Client, ListTasksRequest};

use crate::measure::percentiles;
use crate::server::Server;
use crate::starts::{Starts, number_of, starts, task};
use crate::{Args, Failure};

/// They start the sleepers; what is timed is done by one client alone.
const STARTERS: usize = 8;
/// Starts that are timed at each level.
const TIMED: usize = 50;

/// Each level on a server of its own, up to the first that the host has no room for.
pub async fn levels(args: &Args) -> Result<Value, Failure> {
    println!(
        "\n{:<14}{:>10}{:>10}{:>10}{:>14}{:>12}{:>14}{:>10}",
        "live tasks", "p50 ms", "p95 ms", "bare ms", "KiB per task", "list ms", "end of all s", "starts/s"
    );
    let (mut taken, mut bound) = (Vec::new(), Value::Null);
    for wanted in &args.levels {
        let server = Server::start(&args.server, &args.dir)?;
        // What the first starts of a server allocate is not the tasks' to answer for.
        starts(&server, 5, &mut Starts::default())?;
        let before = server.anonymous_kib()?;
        let began = Instant::now();
        let (alive, refused) = fill(&server, *wanted).await?;
        let rate = alive as f64 / began.elapsed().as_secs_f64();
        if refused.is_some() {
            // The starts that are timed need a place each.
            retire(&server, 2).await?;
        }
        let mut times = Starts::default();
        starts(&server, TIMED, &mut times)?;
        let [p50, p95, _] = percentiles(&times.first_byte);
        // Beside as many tasks the kernel itself is slower: what is left is the service's.
        let bare = args.bare.as_ref().map(|program| number_of(program, &[])).transpose()?.map(|ns| ns / 1e6);
        let kib = (server.anonymous_kib()?.saturating_sub(before)) as f64 / alive as f64;
        let began = Instant::now();
        let listed = list(&server.client().await?).await?.len();
        let list_ms = began.elapsed().as_secs_f64() * 1000.0;
        let warnings = server.warnings();
        let end = server.shutdown()?.as_secs_f64();
        let shown = bare.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"));
        println!("{alive:<14}{p50:>10.2}{p95:>10.2}{shown:>10}{kib:>14.1}{list_ms:>12.1}{end:>14.2}{rate:>10.0}");
        taken.push(json!({ "tasks": alive, "p50_ms": p50, "p95_ms": p95, "bare_ms": bare, "kib_per_task": kib, "listed": listed,
            "list_ms": list_ms, "end_s": end, "starts_per_second": rate }));
        if let Some(why) = refused {
            println!("{wanted} were wanted: {why} ({warnings})");
            bound = json!({ "wanted": wanted, "why": why, "warnings": warnings });
            break;
        }
    }
    Ok(json!({ "levels": taken, "bound": bound }))
}

/// Starts so many sleepers, or as many as there is room for; then with what the server said.
async fn fill(server: &Server, wanted: usize) -> Result<(usize, Option<String>), Failure> {
    let mut starters = tokio::task::JoinSet::new();
    for starter in 0..STARTERS {
        let client = server.client().await?;
        let share = wanted / STARTERS + usize::from(starter < wanted % STARTERS);
        starters.spawn(async move {
            for done in 0..share {
                if let Err(error) = client.start(task("sleep", &["100000"])).await {
                    return (done, Some(error.to_string()));
                }
            }
            (share, None)
        });
    }
    let (mut alive, mut refused) = (0, None);
    while let Some(ended) = starters.join_next().await {
        let (done, why) = ended?;
        alive += done;
        refused = refused.or(why);
    }
    Ok((alive, refused))
}

/// Ends so many of the sleepers.
async fn retire(server: &Server, count: usize) -> Result<(), Failure> {
    let client = server.client().await?;
    for id in list(&client).await?.into_iter().take(count) {
        let id = id.parse()?;
        client.stop(id, Some(Duration::ZERO)).await?;
        client.wait(id, None).await?;
    }
    Ok(())
}

/// The ids of all tasks that the server knows, in pages of the largest size.
async fn list(client: &Client) -> Result<Vec<String>, Failure> {
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = client.list(ListTasksRequest { page_size: 1000, page_token, ..Default::default() }).await?;
        ids.extend(page.tasks.into_iter().map(|task| task.task_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(ids);
        }
    }
}
