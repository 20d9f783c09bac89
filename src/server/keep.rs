//! The life of one task, as the server sees it, in the order it happens: recorded, started, written down, ended, final.
//!
//! A record is durable before its task exists, so that a start which was repeated after a crash finds the first one. It
//! is taken back when the command could not be executed: then there was no task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::error::ApiError;
use super::link::TaskEvent;
use super::quota::Taken;
use super::registry::{Claim, Live, Phase, Registry};
use crate::fault;
use crate::output::{Allowance, Log, Prepared, Source};
use crate::store::Inserted;
use crate::task::record::{End, Record, StoredOutput};
use crate::task::request::TaskRequest;
use crate::wire::{Ended, Started};

/// How long to wait before trying again to record an end that could not be recorded.
const RETRY: Duration = Duration::from_secs(1);

/// Starts a task and sees it through; returns when its command was executed, or with the reason why it was not.
///
/// The rest of its life does not depend on the caller: a client that goes away does not take its task with it.
pub async fn start(
    registry: &Arc<Registry>,
    record: Record,
    request: TaskRequest,
    place: Taken,
    claim: Option<Claim>,
) -> Result<(), ApiError> {
    let (answer, answered) = oneshot::channel();
    let live = registry.add(record);
    tokio::spawn(keep(Arc::clone(registry), live, request, (place, claim), answer));
    answered.await.unwrap_or_else(|_| Err(ApiError::Internal("the start was given up".to_owned())))
}

async fn keep(
    registry: Arc<Registry>,
    live: Arc<Live>,
    request: TaskRequest,
    (place, claim): (Taken, Option<Claim>),
    answer: oneshot::Sender<Result<(), ApiError>>,
) {
    let asked = Instant::now();
    match begin(&registry, &live, request).await {
        Err(error) => {
            registry.metrics.not_started(&error);
            registry.remove(live.id);
            let _ = answer.send(Err(error)); // the caller may have gone
        }
        Ok((mut events, allowance)) => {
            registry.metrics.started(asked.elapsed());
            live.phase.send_replace(Phase::Running);
            drop(claim);
            let _ = answer.send(Ok(()));
            fault::point("told");
            if let Some(ended) = run(&registry, &live, &mut events, &allowance).await {
                finish(&registry, &live, *ended).await;
            }
            drop(place);
            registry.remove(live.id);
        }
    }
}

type Begun = (mpsc::UnboundedReceiver<TaskEvent>, Arc<Allowance>);

async fn begin(registry: &Registry, live: &Live, request: TaskRequest) -> Result<Begun, ApiError> {
    let record = live.record().clone();
    if let Inserted::Repeated(first) = registry.store.insert(record).await? {
        return Err(ApiError::AlreadyExists(format!("client_token: task {} was started with this token", first.id)));
    }
    fault::point("recorded");
    let limit = request.limits.output_bytes;
    let mut events = registry.link.start(request).await;
    fault::point("asked");
    // While the launcher is at work: for which the request has to be sent first, by another task of this thread.
    tokio::task::yield_now().await;
    let places = prepare(registry, live);
    let first = events.recv().await;
    fault::point("answered");
    match first {
        Some(TaskEvent::Started(started, fds)) => match accept(registry, live, &started, places, fds, limit) {
            Ok(allowance) => Ok((events, allowance)),
            Err(error) => {
                registry.link.stop(live.id, Duration::ZERO).await;
                while !matches!(events.recv().await, None | Some(TaskEvent::Ended(_))) {}
                forget(registry, live).await?;
                Err(error)
            }
        },
        Some(TaskEvent::Failed(error)) => {
            forget(registry, live).await?;
            Err(error.into())
        }
        _ => Err(ApiError::Unavailable("the launcher is gone; try again when the server is back".to_owned())),
    }
}

/// Nothing of a task that was not started is kept.
async fn forget(registry: &Registry, live: &Live) -> Result<(), ApiError> {
    fault::point("forgetting");
    registry.outputs.remove(live.id)?;
    Ok(registry.store.remove(vec![live.id]).await?)
}

/// Makes room for what the task will write.
fn prepare(registry: &Registry, live: &Live) -> Result<Vec<Prepared>, ApiError> {
    let split = live.record().split_output;
    let sources: &[Source] = if split { &[Source::Stdout, Source::Stderr] } else { &[Source::All] };
    sources.iter().map(|source| Ok(registry.outputs.prepare(live.id, *source)?)).collect()
}

/// Writes down that the command was executed, and begins to store its output.
fn accept(
    registry: &Registry,
    live: &Live,
    started: &Started,
    places: Result<Vec<Prepared>, ApiError>,
    fds: Vec<std::os::fd::OwnedFd>,
    limit: u64,
) -> Result<Arc<Allowance>, ApiError> {
    let places = places?;
    if fds.len() != places.len() {
        return Err(ApiError::Exhausted("the server can open no more files; wait for a task to end".to_owned()));
    }
    registry.metrics.warm_start(started.warm);
    let allowance = Arc::new(Allowance::new(limit));
    let begin = |(place, pipe): (Prepared, _)| {
        let source = place.source;
        Ok((source, registry.outputs.record(place, pipe, Arc::clone(&allowance))?))
    };
    let logs = places.into_iter().zip(fds).map(begin).collect::<Result<Vec<_>, ApiError>>()?;
    live.set_logs(logs);
    let record = {
        let mut record = live.record();
        record.process_id = started.process_id;
        record.started_at = started.started_at;
        record.reduced.clone_from(&started.reduced);
        record.clone()
    };
    fault::point("storing");
    registry.store.update(record);
    fault::point("accepted");
    Ok(allowance)
}

/// Waits for the end; a task that writes too much is ended for it.
async fn run(
    registry: &Registry,
    live: &Live,
    events: &mut mpsc::UnboundedReceiver<TaskEvent>,
    allowance: &Allowance,
) -> Option<Box<Ended>> {
    let mut exceeded = allowance.exceeded();
    let mut told = false;
    loop {
        tokio::select! {
            // The value, not its change: a task can have written too much before anybody looks.
            () = async { drop(exceeded.wait_for(|exceeded| *exceeded).await) }, if !told => {
                told = true;
                live.set_ending();
                registry.link.output_limit(live.id).await;
            }
            event = events.recv() => match event {
                Some(TaskEvent::Ended(ended)) => return Some(ended),
                Some(_) => {}
                // The launcher is gone: this process ends, and the next one records the task as lost.
                None => return None,
            }
        }
    }
}

/// Stores the rest of the output and then the record; only then is the task final.
async fn finish(registry: &Registry, live: &Live, ended: Ended) {
    fault::point("ended");
    for (_, log) in live.logs() {
        log.finish();
    }
    for (_, log) in live.logs() {
        let _ = log.progress().wait_for(|progress| progress.closed.is_some()).await;
    }
    registry.metrics.ended(&ended);
    fault::point("flushed");
    let output = stored(live.logs());
    let mut usage = ended.usage;
    usage.output_bytes = output.bytes;
    let end = End { outcome: ended.outcome, ended_at: ended.ended_at, usage, containment: ended.containment, output };
    live.record().end = Some(end.clone());
    while let Err(error) = registry.store.finish(live.id, end.clone()).await {
        tracing::error!(task = %live.id, %error, "the end of a task could not be recorded; trying again");
        tokio::time::sleep(RETRY).await;
    }
    fault::point("final");
    tracing::info!(task = %live.id, owner = live.owner, reason = ?end.outcome.reason, verdict = ?end.containment.verdict, "task ended");
    live.phase.send_replace(Phase::Final);
}

/// What is stored of a task's output, all streams together.
pub fn stored(logs: &[(Source, Arc<Log>)]) -> StoredOutput {
    logs.iter().fold(StoredOutput::default(), |sum, (_, log)| {
        let progress = log.progress();
        let progress = progress.borrow();
        StoredOutput {
            bytes: sum.bytes + progress.end,
            omitted: sum.omitted + progress.omitted,
            truncation: sum.truncation.or(progress.truncation),
        }
    })
}
