//! Requests that are arriving or being served, counted against whoever sends them.
//!
//! A handler begins when its message is whole, and every other quota with it. Until then the message lies in memory, and a
//! client could let any number of them arrive forever. So each claims its whole length as soon as it has said it; and keeps it
//! until its work is done, which may wait for others, whether its client does or not.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use super::peer::Peer;
use crate::task::units::human_bytes;

/// One user's requests under way, and how many messages of the largest size they may be together.
const REQUESTS: usize = 4096;
const LARGEST_ONES: u64 = 16;
/// In front of every message: a flag, and its length.
const HEAD: usize = 5;

/// What is arriving, by user.
pub struct Arriving {
    largest: u64,
    users: Mutex<HashMap<String, Share>>,
}

#[derive(Default)]
struct Share {
    requests: usize,
    bytes: u64,
}

impl Arriving {
    /// Of messages of at most `largest` bytes.
    pub fn new(largest: usize) -> Arc<Self> {
        Arc::new(Self { largest: largest as u64, users: Mutex::default() })
    }

    /// The same request, counted until its body was read or given up, and until the work is done that keeps its [`Held`].
    pub fn count(self: &Arc<Self>, mut request: http::Request<Body>) -> http::Request<Body> {
        let user = request.extensions().get().map_or_else(String::new, Peer::holder);
        let (claim, refused) = Claim::begin(self, user);
        request.extensions_mut().insert(Held { _claim: Arc::clone(&claim) });
        request.map(|inner| Body::new(Counted { inner, claim, refused, head: [0; HEAD], seen: 0, left: 0 }))
    }

    fn users(&self) -> MutexGuard<'_, HashMap<String, Share>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In the extensions of a request: kept by whoever works on it.
#[derive(Clone)]
pub struct Held {
    _claim: Arc<Claim>,
}

/// One request's part of its user's share, given back when dropped.
struct Claim {
    arriving: Arc<Arriving>,
    user: String,
    /// Changed under the lock of all shares.
    bytes: AtomicU64,
}

impl Claim {
    fn begin(arriving: &Arc<Arriving>, user: String) -> (Arc<Self>, Option<Status>) {
        let mut users = arriving.users();
        let share = users.entry(user.clone()).or_default();
        share.requests += 1;
        let too_many = || Status::resource_exhausted(format!("you have {REQUESTS} requests under way; finish some"));
        let refused = (share.requests > REQUESTS).then(too_many);
        (Arc::new(Self { arriving: Arc::clone(arriving), user, bytes: AtomicU64::new(0) }), refused)
    }

    /// A message of this length follows, in place of the one before.
    fn message(&self, bytes: u64) -> Result<(), Status> {
        let largest = self.arriving.largest;
        if bytes > largest {
            let most = human_bytes(largest);
            let text = format!("the message is larger than {most}, which is the most that is taken; send less");
            return Err(Status::resource_exhausted(text));
        }
        let mut users = self.arriving.users();
        let share = users.entry(self.user.clone()).or_default();
        share.bytes -= self.bytes.swap(0, Ordering::Relaxed);
        if share.bytes + bytes > LARGEST_ONES * largest {
            let text = "you have too much under way in unfinished requests; finish some";
            return Err(Status::resource_exhausted(text));
        }
        share.bytes += bytes;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut users = self.arriving.users();
        if let Some(share) = users.get_mut(&self.user) {
            share.requests -= 1;
            share.bytes -= self.bytes.load(Ordering::Relaxed);
            if share.requests == 0 {
                users.remove(&self.user);
            }
        }
    }
}

/// A body that is looked at as it passes.
struct Counted {
    inner: Body,
    claim: Arc<Claim>,
    refused: Option<Status>,
    head: [u8; HEAD],
    /// Bytes of the head that have come.
    seen: usize,
    /// Bytes of the message that are still to come.
    left: u64,
}

impl Counted {
    fn look(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while let Some((first, rest)) = data.split_first() {
            if self.left > 0 {
                let passed = data.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= passed as u64;
                data = &data[passed..];
                continue;
            }
            self.head[self.seen] = *first;
            self.seen = (self.seen + 1) % HEAD;
            data = rest;
            if self.seen == 0 {
                let [_, length @ ..] = self.head;
                self.left = u32::from_be_bytes(length).into();
                self.claim.message(self.left)?;
            }
        }
        Ok(())
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(refusal) = self.refused.take() {
            return Poll::Ready(Some(Err(refusal)));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let looked = match frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref) {
            Some(data) => self.look(data),
            None => Ok(()),
        };
        Poll::Ready(looked.err().map(Err).or(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.refused.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(arriving: &Arc<Arriving>) -> Counted {
        let (claim, refused) = Claim::begin(arriving, "a".into());
        Counted { inner: Body::empty(), claim, refused, head: [0; HEAD], seen: 0, left: 0 }
    }

    #[test]
    fn a_message_that_is_too_large_is_told_how_large_one_may_be() {
        let refused = Claim::begin(&Arriving::new(4 << 20), "a".into()).0.message((4 << 20) + 1).unwrap_err();
        assert_eq!(refused.message(), "the message is larger than 4M, which is the most that is taken; send less");
    }

    #[test]
    fn a_message_claims_its_length_however_it_is_cut() {
        let arriving = Arriving::new(100);
        let mut body = counted(&arriving);
        for byte in [[0, 0, 0, 0, 2].as_slice(), b"ab", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 90]].concat() {
            body.look(&[byte]).unwrap();
        }
        assert_eq!((body.left, arriving.users()["a"].bytes), (90, 90));
        body.look(&[[7; 90].as_slice(), &[0, 0, 0, 0, 3, 1]].concat()).unwrap();
        assert_eq!((body.left, arriving.users()["a"].bytes), (2, 3));
        drop(body);
        assert!(arriving.users().is_empty());
    }

    /// A start whose token another start has waits for that, with its arguments in memory and perhaps without its client.
    #[test]
    fn a_request_is_counted_until_its_work_is_done() {
        let arriving = Arriving::new(100);
        let request = arriving.count(http::Request::new(Body::empty()));
        let held = request.extensions().get::<Held>().cloned().unwrap();
        held._claim.message(90).unwrap();
        drop(request);
        let share = |users: &HashMap<String, Share>| (users[""].requests, users[""].bytes);
        assert_eq!(share(&arriving.users()), (1, 90));
        drop(held);
        assert!(arriving.users().is_empty());
    }

    #[test]
    fn too_long_too_much_and_too_many_are_refused() {
        let arriving = Arriving::new(100);
        assert!(counted(&arriving).look(&[0, 0, 0, 0, 101]).is_err(), "too long");
        let mut all: Vec<_> = (0..LARGEST_ONES).map(|_| counted(&arriving)).collect();
        assert!(all.iter_mut().all(|body| body.look(&[0, 0, 0, 0, 100]).is_ok()));
        assert!(counted(&arriving).look(&[0, 0, 0, 0, 1]).is_err(), "too much");
        all.pop();
        assert!(counted(&arriving).look(&[0, 0, 0, 0, 1]).is_ok(), "given back");
        all.extend((all.len()..REQUESTS).map(|_| counted(&arriving)));
        assert!(all.iter().all(|body| body.refused.is_none()));
        assert!(counted(&arriving).refused.is_some(), "too many");
    }
}
