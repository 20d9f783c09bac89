//! Health checks and reflection, which other libraries answer, so that no gate stands before them. Their calls are counted all the same:
//! against their caller's rate, and as one of its streams until the answer is over. A watch of health has no end of its own.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use super::pace::Place;
use super::peer::Peer;
use super::quota::Quotas;

/// A service whose calls are counted.
#[derive(Clone)]
pub struct Ungated<S> {
    service: S,
    quotas: Arc<Quotas>,
}

impl<S> Ungated<S> {
    /// Counts the calls of `service`.
    pub fn new(service: S, quotas: &Arc<Quotas>) -> Self {
        Self { service, quotas: Arc::clone(quotas) }
    }
}

impl<S: NamedService> NamedService for Ungated<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Ungated<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let caller = request.extensions().get().map_or_else(String::new, Peer::holder);
        match self.quotas.request(&caller).and_then(|()| self.quotas.stream(&caller)) {
            Ok(taken) => {
                let answer = self.service.call(request);
                Box::pin(async move {
                    let mut answer = answer.await?;
                    Place::keep(taken, answer.extensions_mut());
                    Ok(answer)
                })
            }
            Err(error) => Box::pin(ready(Ok(Status::from(error).into_http()))),
        }
    }
}
