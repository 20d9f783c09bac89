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

/// One is being sent, and one is ready to be.
pub const MOST: usize = 2;

/// An answer whose pieces are counted.
pub struct Paced {
    body: Body,
    under_way: Arc<UnderWay>,
}

/// Paces an answer.
pub fn pace(answer: Response<Body>) -> Response<Paced> {
    answer.map(|body| Paced { body, under_way: Arc::default() })
}

#[derive(Default)]
struct UnderWay {
    pieces: AtomicUsize,
    freed: AtomicWaker,
}

/// A piece under way, until it is dropped.
struct Piece {
    bytes: Bytes,
    under_way: Arc<UnderWay>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.under_way.pieces.fetch_sub(1, Ordering::AcqRel);
        self.under_way.freed.wake();
    }
}

impl Paced {
    fn is_full(&self) -> bool {
        self.under_way.pieces.load(Ordering::Acquire) >= MOST
    }
}

impl http_body::Body for Paced {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_full() {
            self.under_way.freed.register(cx.waker());
            // It may have been freed before there was anyone to wake.
            if self.is_full() {
                return Poll::Pending;
            }
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let counted = |bytes: Bytes| {
            self.under_way.pieces.fetch_add(1, Ordering::AcqRel);
            Bytes::from_owner(Piece { bytes, under_way: Arc::clone(&self.under_way) })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(counted))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::poll_fn;
    use http_body::Body as _;

    use super::*;

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
