//! A task's output on the wire: the head of each message is encoded, and its bytes are sent from where they were read to.
//!
//! tonic copies every message into a buffer of its own, which for output is one copy in four. So it goes past tonic:
//! the call answers with an empty stream that carries the true one, and [`uncopied`] puts that in its place.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::HeaderMap;
use http_body::Frame;
use prost::Message;
use tonic::body::Body;
use tonic::{Response, Status};

use super::stream::OutputStream;
use crate::proto::task_manager::StreamTaskOutputResponse;

/// In front of every message: a flag (not compressed), and its length.
const PREFIX: usize = 5;
/// In front of the bytes: field 1, of a length that follows.
const OUTPUT: u8 = 1 << 3 | 2;

/// The true stream, on its way past tonic. Only whoever takes it first has it.
#[derive(Clone)]
struct Carried(Arc<Mutex<Option<OutputStream>>>);

/// The answer that tonic sees.
pub fn carry(answer: Response<OutputStream>) -> Response<OutputStream> {
    let (metadata, output, mut extensions) = answer.into_parts();
    extensions.insert(Carried(Arc::new(Mutex::new(Some(output)))));
    Response::from_parts(metadata, Box::pin(stream::empty()), extensions)
}

/// The answer that the client gets: of a call that carries output the output, of any other what it was.
pub fn uncopied(mut answer: http::Response<Body>) -> http::Response<Body> {
    let carried = answer.extensions_mut().remove::<Carried>();
    match carried.and_then(|carried| carried.0.lock().unwrap_or_else(PoisonError::into_inner).take()) {
        Some(output) => answer.map(|_| Body::new(OutputBody { output, bytes: Bytes::new(), is_over: false })),
        None => answer,
    }
}

struct OutputBody {
    /// Also holds the place of its reader, until all of this is dropped.
    output: OutputStream,
    /// Of the message whose head was sent last.
    bytes: Bytes,
    is_over: bool,
}

impl http_body::Body for OutputBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if !self.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let status = match ready!(self.output.as_mut().poll_next(cx)) {
            Some(Ok(message)) => {
                let (head, bytes) = cut(message);
                self.bytes = bytes;
                return Poll::Ready(Some(Ok(Frame::data(head))));
            }
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.is_over = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

/// A message as it is sent: everything up to the bytes of output, and those.
fn cut(mut message: StreamTaskOutputResponse) -> (Bytes, Bytes) {
    let bytes = std::mem::take(&mut message.output);
    let (rest, length) = (message.encoded_len(), bytes.len());
    let key = if bytes.is_empty() { 0 } else { 1 + prost::length_delimiter_len(length) };
    let mut head = BytesMut::with_capacity(PREFIX + rest + key);
    head.put_u8(0);
    head.put_u32(u32::try_from(rest + key + length).expect("a piece is no larger than LARGEST_PIECE"));
    message.encode(&mut head).expect("there is room");
    if !bytes.is_empty() {
        head.put_u8(OUTPUT);
        prost::encode_length_delimiter(length, &mut head).expect("there is room");
    }
    (head.freeze(), bytes)
}

/// What tonic makes of it.
#[cfg(test)]
pub fn carried(output: OutputStream) -> http::Response<Body> {
    let (_, _, extensions) = carry(Response::new(output)).into_parts();
    let mut answer = http::Response::new(Body::empty());
    *answer.extensions_mut() = extensions;
    answer
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_fn;
    use http_body::Body as _;

    use super::*;

    fn message(length: usize) -> StreamTaskOutputResponse {
        let output = vec![b'x'; length].into();
        StreamTaskOutputResponse { output, offset: 7, source: 1, omitted_bytes: 9, end: 2 }
    }

    #[test]
    fn a_message_in_two_parts_is_the_message() {
        for length in [0, 1, 127, 128, 1 << 16] {
            let (head, bytes) = cut(message(length));
            assert_eq!(bytes.len(), length);
            let whole = [&head[PREFIX..], &bytes].concat();
            assert_eq!(head[..PREFIX], [&[0], &(whole.len() as u32).to_be_bytes()[..]].concat());
            assert_eq!(StreamTaskOutputResponse::decode(&whole[..]).unwrap(), message(length));
        }
        assert!(cut(StreamTaskOutputResponse::default()).0[PREFIX..].is_empty());
    }

    #[tokio::test]
    async fn the_bytes_are_not_copied_and_the_status_comes_last() {
        let piece = message(1 << 16);
        let lies_at = piece.output.as_ptr();
        for status in [Status::ok(""), Status::unavailable("later")] {
            let failure = (status.code() != tonic::Code::Ok).then(|| Err(status.clone()));
            let output: OutputStream = Box::pin(stream::iter([Ok(piece.clone())].into_iter().chain(failure)));
            let mut body = uncopied(carried(output)).into_body();
            let mut next = async || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
            next().await.into_data().unwrap();
            assert_eq!(next().await.into_data().unwrap().as_ptr(), lies_at);
            let trailers = next().await.into_trailers().unwrap();
            assert_eq!(Status::from_header_map(&trailers).unwrap().code(), status.code());
            assert!(body.is_end_stream());
        }
    }
}
