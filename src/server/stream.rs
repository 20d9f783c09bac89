//! `StreamTaskOutput`: what a task wrote, to any number of readers, each at its own pace.
//!
//! A reader is pulled by its own client: the next piece is read from disk when the last but one was taken. So a reader that
//! stops reading costs two pieces of memory and nothing else, and nobody waits for it.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, Stream};
use nix::errno::Errno;
use tokio::sync::watch;
use tonic::Status;

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::pace;
use super::quota::Taken;
use super::registry::{Found, Registry, Stage};
use crate::output::{self, Closed, LARGEST_PIECE, Log, Piece, Progress, Source};
use crate::proto::task_manager as pb;
use crate::proto::task_manager::stream_task_output_request::Begin;
use crate::task::record::Record;
use crate::task::spec::SpecError;

/// The smallest piece that is read where more is there: below it, gRPC costs more than the bytes.
const SMALLEST_PIECE: usize = 64 << 10;
/// Bytes that all readers together may have under way. Few readers have large pieces, which cost less per byte.
const UNDER_WAY: usize = 64 << 20;

/// The answer.
pub type OutputStream = Pin<Box<dyn Stream<Item = Result<pb::StreamTaskOutputResponse, Status>> + Send>>;

/// Streams a task's output from where the request says.
pub async fn stream(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::StreamTaskOutputRequest,
) -> Result<Served<OutputStream>, ApiError> {
    let found = registry.find_for(&caller, Verb::Stream, &request.task_id).await?;
    let place = registry.quotas.stream(&caller.name)?;
    let source = pb::OutputSource::try_from(request.source)
        .map_err(|_| SpecError::new("source", "is not an output; see OutputSource"))?;
    let logs = wanted(logs(&registry, &found)?, source)?;
    if logs.len() > 1 && !matches!(request.begin, None | Some(Begin::Offset(0))) {
        return Err(SpecError::new("source", "say stdout or stderr: each has offsets of its own").into());
    }
    let cursors = logs.into_iter().map(|(source, log)| Cursor::new(source, log, request.begin)).collect();
    let reader = Reader {
        cursors,
        turn: 0,
        follow: request.follow.unwrap_or(true),
        stage: registry.stage.subscribe(),
        over: false,
        readers: Arc::clone(&registry.readers),
        _place: place,
    };
    let stream = stream::unfold((reader, registry), |(mut reader, registry)| async move {
        let next = reader.next().await?;
        registry.metrics.streamed(next.as_ref().map_or(0, |piece| piece.output.len()));
        Some((next, (reader, registry)))
    });
    Ok(Served { task: None, bytes: 0, answer: Box::pin(stream) })
}

/// The logs of a task, whether it runs or not.
fn logs(registry: &Registry, found: &Found) -> Result<Vec<(Source, Arc<Log>)>, ApiError> {
    match found {
        Found::Live(live) => Ok(live.logs().to_vec()),
        Found::Ended(record) => recorded_logs(registry, record),
    }
}

/// The logs of a task that does not run any more.
pub fn recorded_logs(registry: &Registry, record: &Record) -> Result<Vec<(Source, Arc<Log>)>, ApiError> {
    let sources: &[Source] = if record.split_output { &[Source::Stdout, Source::Stderr] } else { &[Source::All] };
    let load = |source: &Source| match registry.outputs.load(record.id, *source) {
        // The server died between the record and the command: nobody has seen the task run.
        Err(error) if error.errno() == Errno::ENOENT && record.process_id == 0 => {
            Ok((*source, registry.outputs.nothing(record.id, *source)))
        }
        loaded => Ok((*source, loaded?)),
    };
    sources.iter().map(load).collect()
}

fn wanted(mut logs: Vec<(Source, Arc<Log>)>, source: pb::OutputSource) -> Result<Vec<(Source, Arc<Log>)>, SpecError> {
    let source = match source {
        pb::OutputSource::All => return Ok(logs),
        pb::OutputSource::Stdout => Source::Stdout,
        pb::OutputSource::Stderr => Source::Stderr,
    };
    logs.retain(|(known, _)| *known == source);
    if logs.is_empty() {
        return Err(SpecError::new(
            "source",
            "the task's output is one stream; start it with split_output to keep them apart",
        ));
    }
    Ok(logs)
}

/// The largest piece while there are so many readers, each of which may hold [`pace::PIECES`] of them, and so much is held already: by
/// those who came when they were few, perhaps.
fn piece_size(readers: usize, held: usize) -> usize {
    if held > UNDER_WAY {
        return SMALLEST_PIECE;
    }
    (UNDER_WAY / pace::PIECES / readers.max(1)).clamp(SMALLEST_PIECE, LARGEST_PIECE)
}

/// One reader's place in one log.
struct Cursor {
    source: Source,
    log: Arc<Log>,
    progress: watch::Receiver<Progress>,
    offset: u64,
}

impl Cursor {
    fn new(source: Source, log: Arc<Log>, begin: Option<Begin>) -> Self {
        let progress = log.progress();
        let end = progress.borrow().end;
        let offset = match begin {
            None => 0,
            Some(Begin::Offset(offset)) => offset,
            Some(Begin::Tail(bytes)) => end.saturating_sub(bytes),
        };
        Self { source, log, progress, offset }
    }

    fn has_more(&mut self) -> bool {
        self.offset < self.progress.borrow_and_update().end
    }

    fn closed(&self) -> Option<Closed> {
        self.progress.borrow().closed
    }

    async fn read(&mut self, most: usize) -> Result<pb::StreamTaskOutputResponse, Status> {
        let Piece { offset, omitted, bytes } = match self.log.read_cached(self.offset, most) {
            Some(piece) => piece,
            // Only for the disk is it worth a thread of its own: the way there and back costs as much as the bytes.
            None => {
                let (log, offset) = (Arc::clone(&self.log), self.offset);
                let piece = tokio::task::spawn_blocking(move || log.read_at(offset, most)).await;
                piece.map_err(|error| Status::internal(error.to_string()))?.map_err(ApiError::from)?
            }
        };
        self.offset = offset + bytes.len() as u64;
        Ok(pb::StreamTaskOutputResponse {
            output: bytes,
            offset,
            source: tag(self.source).into(),
            omitted_bytes: omitted,
            end: pb::StreamEnd::Unspecified.into(),
        })
    }
}

fn tag(source: Source) -> pb::OutputSource {
    match source {
        Source::All => pb::OutputSource::All,
        Source::Stdout => pb::OutputSource::Stdout,
        Source::Stderr => pb::OutputSource::Stderr,
    }
}

struct Reader {
    cursors: Vec<Cursor>,
    turn: usize,
    follow: bool,
    stage: watch::Receiver<Stage>,
    over: bool,
    /// Held by every reader: how many there are.
    readers: Arc<()>,
    _place: Taken,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<pb::StreamTaskOutputResponse, Status>> {
        loop {
            if self.over {
                return None;
            }
            if *self.stage.borrow_and_update() == Stage::Closing {
                return Some(Err(self.end_with(ApiError::Unavailable(
                    "the server is shutting down; resume at the byte you have".to_owned(),
                ))));
            }
            let count = self.cursors.len();
            self.turn = (self.turn + 1) % count.max(1);
            let turn = self.turn;
            if let Some(at) = (0..count).map(|step| (turn + step) % count).find(|at| self.cursors[*at].has_more()) {
                let piece = self.cursors[at].read(piece_size(Arc::strong_count(&self.readers), output::held())).await;
                self.over = piece.is_err();
                return Some(piece);
            }
            let closed: Option<Vec<Closed>> = self.cursors.iter().map(Cursor::closed).collect();
            let end = match closed {
                Some(all) if all.iter().all(|closed| *closed == Closed::Eof) => pb::StreamEnd::Eof,
                Some(_) => pb::StreamEnd::ClosedBySupervisor,
                None if !self.follow => pb::StreamEnd::NotFollowed,
                None => {
                    news(&mut self.cursors, &mut self.stage).await;
                    continue;
                }
            };
            // What was written between the look at the bytes and the look at the end is sent first.
            if end != pb::StreamEnd::NotFollowed && self.cursors.iter_mut().any(Cursor::has_more) {
                continue;
            }
            self.over = true;
            let offset = self.cursors.first().map_or(0, |cursor| cursor.offset);
            return Some(Ok(pb::StreamTaskOutputResponse { offset, end: end.into(), ..Default::default() }));
        }
    }

    fn end_with(&mut self, error: ApiError) -> Status {
        self.over = true;
        error.into()
    }
}

/// Sleeps until one of the logs has grown or is closed, or the server ends.
async fn news(cursors: &mut [Cursor], stage: &mut watch::Receiver<Stage>) {
    let open = cursors.iter_mut().filter(|cursor| cursor.closed().is_none());
    let changes: Vec<_> = open.map(|cursor| Box::pin(cursor.progress.changed())).collect();
    // The last of them may have closed since its reader looked.
    if changes.is_empty() {
        return;
    }
    tokio::select! {
        _ = futures_util::future::select_all(changes) => {}
        _ = stage.changed() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Outputs, Policy};
    use crate::task::id::TaskId;

    #[tokio::test]
    async fn a_log_that_has_closed_since_its_reader_looked_is_news() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(dir.path(), Policy { stored_per_task: 1, reserve: 0 }).unwrap();
        let ended = |source| Cursor::new(source, outputs.nothing(TaskId::random(), source), None);
        let (_serving, mut stage) = watch::channel(Stage::Serving);
        let mut cursors = [ended(Source::Stdout), ended(Source::Stderr)];
        let told = tokio::time::timeout(std::time::Duration::from_secs(10), news(&mut cursors, &mut stage)).await;
        assert!(told.is_ok(), "nobody else will wake the reader");
    }

    #[test]
    fn few_readers_have_large_pieces_and_many_have_small_ones() {
        assert_eq!(piece_size(1, 0), LARGEST_PIECE);
        assert_eq!(piece_size(1000, 0), SMALLEST_PIECE);
        assert_eq!(piece_size(1, UNDER_WAY + 1), SMALLEST_PIECE, "whoever holds it");
        let held = |readers| readers * pace::PIECES * piece_size(readers, 0);
        assert!((1..=UNDER_WAY / pace::PIECES / SMALLEST_PIECE).all(|readers| held(readers) <= UNDER_WAY));
    }
}
