//! How much of an answer may be under way inside this process: a few pieces per stream, whatever the client's windows say.
//!
//! HTTP/2 takes from a stream as long as the client's window is open, up to hundreds of KiB that wait for the socket: times
//! a thousand readers that is more than everything else here. So a piece counts until its last byte was encrypted, and the
//! next one is not even read from disk while as many as are allowed wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::Response;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use super::quota::Taken;

/// Pieces of output: one is being sent, and one is ready to be.
pub const PIECES: usize = 2;
/// Each has a head of its own in front of it. One chunk less than that: the piece of a head that was taken waits in the answer itself.
const MOST: usize = 2 * PIECES - 1;
/// An answer ends when no more than this is under way. Until then it keeps its place among its user's: what it holds is held by somebody.
const SMALL: usize = 16 << 10;

/// An answer whose pieces are counted.
pub struct Paced {
    body: Body,
    /// What comes after all data, while that is still under way.
    last: Option<Last>,
    under_way: Arc<UnderWay>,
}

/// What an answer has taken of its user's, in its extensions: on its way past tonic to [`pace`].
#[derive(Clone)]
pub struct Place {
    _taken: Arc<Taken>,
}

impl Place {
    /// Puts it where it is found.
    pub fn keep(taken: Taken, extensions: &mut http::Extensions) {
        extensions.insert(Self { _taken: Arc::new(taken) });
    }
}

type Last = Option<Result<Frame<Bytes>, Status>>;

/// Paces an answer.
pub fn pace(mut answer: Response<Body>) -> Response<Paced> {
    let under_way = Arc::new(UnderWay { _place: answer.extensions_mut().remove(), ..UnderWay::default() });
    answer.map(|body| Paced { body, last: None, under_way })
}

#[derive(Default)]
struct UnderWay {
    pieces: AtomicUsize,
    bytes: AtomicUsize,
    freed: AtomicWaker,
    /// Given back when the answer is over and its last piece is gone.
    _place: Option<Place>,
}

impl UnderWay {
    /// Whether there is too much of it; then the task is woken when some has gone.
    fn is_too_much(&self, cx: &Context<'_>, limit: impl Fn(usize, usize) -> bool) -> bool {
        let is_too_much = || limit(self.pieces.load(Ordering::Acquire), self.bytes.load(Ordering::Acquire));
        // The second look: it may have gone before there was anyone to wake.
        is_too_much() && {
            self.freed.register(cx.waker());
            is_too_much()
        }
    }
}

/// A piece under way, until it is dropped.
struct Piece {
    bytes: Bytes,
    under_way: Arc<UnderWay>,
}

impl Piece {
    fn count(bytes: Bytes, under_way: &Arc<UnderWay>) -> Bytes {
        under_way.pieces.fetch_add(1, Ordering::AcqRel);
        under_way.bytes.fetch_add(bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(Self { bytes, under_way: Arc::clone(under_way) })
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.under_way.bytes.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        self.under_way.pieces.fetch_sub(1, Ordering::AcqRel);
        self.under_way.freed.wake();
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.last.is_none() {
            if self.under_way.is_too_much(cx, |pieces, _| pieces >= MOST) {
                return Poll::Pending;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) if frame.is_data() => {
                    return Poll::Ready(Some(Ok(frame.map_data(|bytes| Piece::count(bytes, &self.under_way)))));
                }
                last => self.last = Some(last),
            }
        }
        if self.under_way.is_too_much(cx, |_, bytes| bytes > SMALL) {
            return Poll::Pending;
        }
        Poll::Ready(self.last.take().flatten())
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_fn;
    use futures_util::{FutureExt, StreamExt, stream};
    use http_body::Body as _;

    use super::*;
    use crate::proto::task_manager::StreamTaskOutputResponse;
    use crate::server::body::{carried, uncopied};

    /// With more output than may be under way at the end.
    fn message() -> StreamTaskOutputResponse {
        StreamTaskOutputResponse { output: vec![0; SMALL + 1].into(), ..Default::default() }
    }

    /// Always has one more piece.
    struct Endless;

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
        }
    }

    #[tokio::test]
    async fn the_next_piece_is_asked_for_when_one_has_gone() {
        let mut body = pace(Response::new(Body::new(Endless))).into_body();
        let mut next = move || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).now_or_never();
        let bytes =
            |frame: Option<Option<Result<Frame<Bytes>, Status>>>| frame.unwrap().unwrap().unwrap().into_data().unwrap();
        let mut under_way: Vec<Bytes> = (0..MOST).map(|_| bytes(next())).collect();
        assert!(next().is_none(), "nobody has taken any of them");
        // A part of it that is still to be sent holds the whole.
        let rest = under_way[0].split_off(2);
        under_way.remove(0);
        assert!(next().is_none());
        drop(rest);
        under_way.push(bytes(next()));
        assert!(next().is_none());
        assert_eq!(under_way.pop().unwrap(), "piece");
    }

    /// One large piece of output; the answer holds the place of its reader.
    #[tokio::test]
    async fn an_answer_keeps_its_place_until_its_bytes_are_gone() {
        let place = Arc::new(());
        let held = Arc::clone(&place);
        let output = stream::iter([Ok(message())]).inspect(move |_| _ = &held);
        let mut body = Box::new(pace(uncopied(carried(Box::pin(output)))).into_body());
        let mut next = || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).now_or_never();
        let (head, bytes) = (next().unwrap(), next().unwrap());
        drop(head);
        assert!(next().is_none() && Arc::strong_count(&place) == 2, "its bytes are still in memory");
        drop(bytes);
        assert!(next().unwrap().unwrap().unwrap().is_trailers());
        assert!(next().unwrap().is_none());
        drop(body);
        assert_eq!(Arc::strong_count(&place), 1);
    }

    /// Whoever takes the head of a piece has not taken the piece, which waits in the answer.
    #[tokio::test]
    async fn no_more_than_two_pieces_of_output_are_read_before_one_has_gone() {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let output = stream::repeat_with(|| Ok(message()));
        let output = output.inspect(move |_| _ = counted.fetch_add(1, Ordering::Relaxed));
        let mut body = pace(uncopied(carried(Box::pin(output)))).into_body();
        let mut next = || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).now_or_never();
        // The sender copies heads and lets go of them at once, and keeps the first piece.
        drop(next());
        let _first = next().unwrap();
        let mut kept = Vec::new();
        while let Some(frame) = next() {
            kept.push(frame);
        }
        assert_eq!((read.load(Ordering::Relaxed), kept.len()), (PIECES, 2));
    }

    /// HTTP/2 lets go of a body that was reset, and not yet of a piece that the socket has not taken.
    #[tokio::test]
    async fn an_answer_is_counted_until_its_last_piece_is_gone_even_if_it_was_reset() {
        let quotas = crate::server::quota::Quotas::new(crate::config::Config::default().quota);
        let most = usize::MAX / 2;
        let mut answer = Response::new(Body::new(Endless));
        Place::keep(quotas.answer("a", most, true).unwrap(), answer.extensions_mut());
        let mut body = pace(answer).into_body();
        let piece = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(quotas.answer("a", 1, true).is_err());
        drop(body);
        assert!(quotas.answer("a", 1, true).is_err(), "a piece is still held");
        drop(piece);
        assert!(quotas.answer("a", 1, true).is_ok());
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let mut body = pace(Response::new(Body::new(Endless))).into_body();
        let mut under_way = Vec::new();
        for _ in 0..MOST {
            under_way.push(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await);
        }
        let waiting = tokio::spawn(async move { poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() });
        tokio::task::yield_now().await;
        drop(under_way);
        assert!(waiting.await.unwrap());
    }
}
