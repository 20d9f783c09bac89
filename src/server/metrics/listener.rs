//! `GET /metrics` over plain HTTP/1.1, and nothing else.
//!
//! Nobody is authenticated here, so nobody can take anything: [`MOST`] connections at once, each for [`LONGEST`] and one
//! answer. One more takes the place of the oldest: a scrape is over in a moment, so it is an idle one that goes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::Now;
use crate::config::METRICS_CONNECTIONS as MOST;
use crate::server::registry::Registry;

/// From the first byte of the request to the last one of the answer.
const LONGEST: Duration = Duration::from_secs(5);
/// How long accepting rests when the process has no descriptors or memory left.
const REST: Duration = Duration::from_millis(100);
/// A request's head is not larger.
const HEAD: usize = 8 << 10;
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers scrapes for as long as the server lives.
pub async fn serve(listener: TcpListener, registry: Arc<Registry>) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= MOST
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                    // Gone before the next has its place: a descriptor that is to be closed is still one.
                    let _ = oldest.await;
                }
                open.push_back(tokio::spawn(connection(socket, Arc::clone(&registry))));
            }
            Err(error) => {
                tracing::debug!("accept for metrics: {error}; trying again in {REST:?}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, registry: Arc<Registry>) {
    let answer = service_fn(|request| std::future::ready(Ok::<_, Infallible>(answer(&request, &registry))));
    let served =
        http1::Builder::new().keep_alive(false).max_buf_size(HEAD).serve_connection(TokioIo::new(socket), answer);
    // What a stranger does wrong is the stranger's business.
    let _ = tokio::time::timeout(LONGEST, served).await;
}

fn answer(request: &Request<Incoming>, registry: &Registry) -> Response<String> {
    let mut response = Response::new(String::new());
    if request.method() == Method::GET && request.uri().path() == "/metrics" {
        *response.body_mut() = registry.metrics.page(&Now::of(registry));
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(TEXT));
    } else {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}
