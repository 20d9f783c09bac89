//! The network-facing process, from its first thread to its last: open what is durable, serve, drain, say goodbye.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::transport::Server;
use tower::util::MapResponseLayer;

use super::accept;
use super::arriving::Arriving;
use super::audit_log::AuditLog;
use super::body::uncopied;
use super::containment::Containment;
use super::events::Events;
use super::gate::Gate;
use super::health;
use super::journal::Records;
use super::link::{Link, ServerEvent};
use super::metrics;
use super::pace::pace;
use super::registry::{Registry, Stage};
use super::retention;
use super::service::Service;
use super::tls::Tls;
use super::ungated::Ungated;
use crate::config::Config;
use crate::fault;
use crate::log::{self, Level};
use crate::output::{Outputs, Policy};
use crate::proto::DESCRIPTORS;
use crate::proto::task_manager::containment_server::ContainmentServer;
use crate::proto::task_manager::task_manager_server::TaskManagerServer;
use crate::store::Store;

/// Flow control: what may be under way to the server on one stream and one connection.
const WINDOW: u32 = 1 << 20;
/// Streams that were reset before anyone looked at them; beyond it the connection is closed (rapid reset).
const PENDING_RESETS: usize = 64;
/// Requests to the services that no gate stands before: names, which they repeat in their answers.
const NAME_BYTES: usize = 4 << 10;
/// How long open streams have to take their last message once every task is final.
const CLOSING: Duration = Duration::from_secs(1);
/// For the rest to let go of the store, which is whole in its one file only once it is closed; the launcher waits a little longer.
const LEAVING: Duration = Duration::from_secs(4);
/// Readers of stored output that look into a file at the same moment; the others wait. Each has a descriptor then.
const READING: usize = 64;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where strangers connect, bound before the processes parted.
pub struct Listeners {
    /// The service.
    pub api: TcpListener,
    /// Metrics, if they are on.
    pub metrics: Option<TcpListener>,
}

/// Serves until the launcher says drain, and everything is recorded.
pub fn serve(config: Config, listeners: Listeners, socket: OwnedFd, state: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("taskman-server")
        .max_blocking_threads(READING)
        .build()?;
    let result = runtime.block_on(run(config, listeners, socket, state));
    runtime.shutdown_timeout(LEAVING);
    result
}

async fn run(config: Config, listeners: Listeners, socket: OwnedFd, state: &Path) -> Result<(), Failure> {
    let (store, opened) = Store::open(&state.join("tasks.db"))?;
    for damage in &opened.set_aside {
        tracing::error!(%damage, "a damaged record was set aside");
    }
    fault::point("opened");
    let policy = Policy { stored_per_task: config.output.stored_per_task, reserve: config.output.reserve };
    let outputs = Outputs::open(&state.join("output"), policy)?;
    let audit = AuditLog::open(&state.join("audit.log"), &config.audit_log)?;
    let (link, from) = Link::open(socket)?;
    let registry = Registry::new(config, store, outputs, Arc::clone(&link));
    // Where records were lost, what has none is all that is left of its task.
    retention::reconcile(&registry, opened.lost_file || !opened.set_aside.is_empty()).await?;

    fault::point("reconciled");
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let (journal, lines) = mpsc::unbounded_channel();
    let mut events = Events { from, registry: Arc::clone(&registry), reporter, journal };
    let tls = Arc::new(Tls::new(&events.first().await?)?);
    let counted = Arc::clone(&registry);
    let count = move |line: &_| counted.metrics.journalled(line);
    let records = tokio::spawn(Records::open(state, audit.clone())?.keep(Arc::clone(&link), lines, count));

    let address = listeners.api.local_addr()?;
    let limits = registry.config.connections.clone();
    let incoming =
        accept::incoming(awaited(listeners.api)?, Arc::clone(&tls), &limits, registry.config.tls.handshake_timeout);
    let gate = Gate::new(Arc::clone(&registry), audit.clone());
    let tasks = TaskManagerServer::new(Service(gate.clone())).max_decoding_message_size(limits.message_bytes);
    let containment = ContainmentServer::new(Containment(gate)).max_decoding_message_size(limits.message_bytes);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (arriving, quotas) = (Arriving::new(limits.message_bytes), &registry.quotas);
    let serving = Server::builder()
        .layer(tower::util::MapRequestLayer::new(move |request| arriving.count(request)))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .max_concurrent_streams(limits.streams)
        .http2_max_header_list_size(limits.header_bytes)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
        .http2_keepalive_interval(Some(limits.keepalive))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
        .layer(MapResponseLayer::new(|answer| pace(uncopied(answer))))
        .add_service(tasks)
        .add_service(containment)
        .add_service(Ungated::new(health_service.max_decoding_message_size(NAME_BYTES), quotas))
        .add_service(Ungated::new(reflection().build_v1()?.max_decoding_message_size(NAME_BYTES), quotas))
        .add_service(Ungated::new(reflection().build_v1alpha()?.max_decoding_message_size(NAME_BYTES), quotas))
        .serve_with_incoming(incoming);
    tokio::spawn(retention::run(Arc::clone(&registry)));
    tokio::spawn({
        let tls = Arc::clone(&tls);
        async move { tls.keep_watch().await }
    });
    if let Some(listener) = listeners.metrics {
        let address = listener.local_addr()?;
        let whose = if address.ip().is_loopback() { "" } else { ", to whoever can connect" };
        log::line(Level::Info, "taskman-server", &format!("metrics at http://{address}/metrics{whose}"));
        tokio::spawn(metrics::serve(awaited(listener)?, Arc::clone(&registry)));
    }
    log::line(Level::Info, "taskman-server", &format!("listening on {address}"));
    link.serving().await;
    tokio::select! {
        ended = serving => Err(ended.err().map_or_else(|| "the listener has ended".into(), Into::into)),
        done = heed(&tls, &mut events) => {
            done?;
            drop(events);
            // What came last is recorded; what cannot be now is asked for at the next start.
            let _ = tokio::time::timeout(CLOSING, records).await;
            audit.flush()?;
            link.goodbye().await;
            Ok(())
        }
    }
}

fn awaited(listener: TcpListener) -> std::io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Does what the launcher says, until everything is over.
async fn heed(tls: &Tls, events: &mut Events) -> Result<(), Failure> {
    loop {
        match events.next().await {
            Some(ServerEvent::TlsFiles(fds)) => match events.tls_files(fds).and_then(|files| tls.reload(&files)) {
                Ok(cut) => tracing::info!(cut, "certificates were reloaded"),
                Err(error) => {
                    tracing::error!(%error, "the new certificates cannot be used; the old ones stay in force")
                }
            },
            Some(ServerEvent::Drain) => break,
            Some(ServerEvent::Lost(why)) => return Err(why.into()),
            Some(_) => {}
            None => return Err("the launcher is gone".into()),
        }
    }
    let registry = Arc::clone(&events.registry);
    tracing::info!(running = registry.live_count(), "draining");
    registry.stage.send_replace(Stage::Draining);
    health::report(&events.reporter, false).await;
    loop {
        let ended = registry.ended.notified();
        if registry.live_count() == 0 {
            break;
        }
        tokio::select! {
            () = ended => {}
            event = events.next() => if let None | Some(ServerEvent::Lost(_)) = event {
                return Err("the launcher died while draining".into());
            }
        }
    }
    // Streams of tasks that have just ended are given the time to say so.
    tokio::time::sleep(CLOSING / 4).await;
    registry.stage.send_replace(Stage::Closing);
    tokio::time::sleep(CLOSING / 4).await;
    Ok(())
}
