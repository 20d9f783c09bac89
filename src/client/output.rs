//! A task's output as it arrives, and how to go on where it stopped.

use bytes::Bytes;
use tonic::Streaming;

use super::Client;
use super::error::ClientError;
use crate::proto::task_manager::stream_task_output_request::Begin as Start;
use crate::proto::task_manager::{OutputSource, StreamEnd, StreamTaskOutputRequest, StreamTaskOutputResponse};
use crate::task::id::TaskId;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At this byte.
    Offset(u64),
    /// This many bytes before the end.
    Tail(u64),
}

/// What to read of a task's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRequest {
    /// Of which task.
    pub task: TaskId,
    /// From where.
    pub begin: Begin,
    /// Whether to go on until the task has ended.
    pub follow: bool,
    /// All of it, or one stream of a split task.
    pub source: OutputSource,
}

impl OutputRequest {
    /// All of it, from the first byte until the task has ended.
    pub fn all(task: TaskId) -> Self {
        Self { task, begin: Begin::Offset(0), follow: true, source: OutputSource::All }
    }
}

/// Some bytes of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes; none in a message that only tells of an end or of omitted bytes.
    pub bytes: Bytes,
    /// Place of the first of them in its stream.
    pub offset: u64,
    /// `All`, or of a split task the stream they are of.
    pub source: OutputSource,
    /// Bytes that stood before them and are not stored.
    pub omitted: u64,
    /// Set in the last one.
    pub end: StreamEnd,
}

impl From<StreamTaskOutputResponse> for Chunk {
    fn from(message: StreamTaskOutputResponse) -> Self {
        Self {
            source: message.source(),
            end: message.end(),
            offset: message.offset,
            omitted: message.omitted_bytes,
            bytes: message.output,
        }
    }
}

/// A stream of output. When it fails in a [passing](ClientError::is_passing) way, [`Output::resume`] goes on at the byte
/// where it stopped.
#[derive(Debug)]
pub struct Output {
    client: Client,
    request: OutputRequest,
    /// One, or after a resume of a split task one for each of its two streams, whose places differ.
    legs: Vec<Leg>,
    split: bool,
    places: Places,
}

/// How far each stream has been read; none where nothing of it was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Places {
    /// Of both in one.
    pub all: Option<u64>,
    /// Of a split task's standard output.
    pub stdout: Option<u64>,
    /// Of a split task's standard error.
    pub stderr: Option<u64>,
}

impl Places {
    /// The place in this stream.
    pub fn of(&mut self, source: OutputSource) -> &mut Option<u64> {
        match source {
            OutputSource::All => &mut self.all,
            OutputSource::Stdout => &mut self.stdout,
            OutputSource::Stderr => &mut self.stderr,
        }
    }
}

#[derive(Debug)]
struct Leg {
    source: OutputSource,
    messages: Streaming<StreamTaskOutputResponse>,
}

impl Output {
    pub(super) async fn open(client: Client, request: OutputRequest) -> Result<Self, ClientError> {
        let mut output = Self { client, request, legs: Vec::new(), split: false, places: Places::default() };
        output.resume().await?;
        Ok(output)
    }

    /// The next bytes; none after the end. May be dropped and called again without losing any.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        let (leg, message) = match self.legs.as_mut_slice() {
            [] => return Ok(None),
            [one] => (0, one.messages.message().await),
            [one, two, ..] => tokio::select! {
                message = one.messages.message() => (0, message),
                message = two.messages.message() => (1, message),
            },
        };
        let Some(message) = message? else {
            self.legs.remove(leg);
            return Box::pin(self.next()).await;
        };
        let mut chunk = Chunk::from(message);
        if chunk.source == OutputSource::All {
            chunk.source = self.legs[leg].source;
        }
        self.split |= chunk.source != OutputSource::All;
        let place = self.places.of(chunk.source);
        // A message that only tells of the end may leave its place out.
        *place = (*place).max(Some(chunk.offset + chunk.bytes.len() as u64));
        if chunk.end != StreamEnd::Unspecified {
            self.legs.remove(leg);
        }
        // The end is told once: with the last of the streams.
        if !self.legs.is_empty() {
            chunk.end = StreamEnd::Unspecified;
        }
        Ok(Some(chunk))
    }

    /// Asks the server again for what has not arrived yet.
    pub async fn resume(&mut self) -> Result<(), ClientError> {
        let sources: &[OutputSource] = match self.request.source {
            OutputSource::All if self.split => &[OutputSource::Stdout, OutputSource::Stderr],
            OutputSource::All => &[OutputSource::All],
            OutputSource::Stdout => &[OutputSource::Stdout],
            OutputSource::Stderr => &[OutputSource::Stderr],
        };
        let mut legs = Vec::new();
        for source in sources {
            legs.push(self.leg(*source).await?);
        }
        self.legs = legs;
        Ok(())
    }

    async fn leg(&mut self, source: OutputSource) -> Result<Leg, ClientError> {
        let begin = match (*self.places.of(source), self.request.begin) {
            (Some(place), _) => Start::Offset(place),
            (None, Begin::Offset(offset)) => Start::Offset(offset),
            (None, Begin::Tail(bytes)) => Start::Tail(bytes),
        };
        let request = StreamTaskOutputRequest {
            task_id: self.request.task.to_string(),
            begin: Some(begin),
            follow: Some(self.request.follow),
            source: source.into(),
        };
        let messages = self.client.tasks.clone().stream_task_output(request).await?.into_inner();
        Ok(Leg { source, messages })
    }
}
