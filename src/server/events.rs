//! What the launcher says of the server as a whole. Health, journal and heartbeat are taken in here at once, in whatever
//! order they come; the rest is for the main loop.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tonic_health::server::HealthReporter;

use super::health;
use super::link::ServerEvent;
use super::registry::{Registry, Stage};
use super::tls::{Names, TlsError, TlsFiles};
use crate::containment::Line;

/// How long the launcher may take to hand over the first TLS files, and the auditor to look at the whole host once.
const FIRST: Duration = Duration::from_secs(15);

/// The launcher is never silent for as long while it lives.
const QUIET: Duration = Duration::from_secs(1);

/// The events, and who they are for.
pub struct Events {
    /// From the launcher.
    pub from: mpsc::Receiver<ServerEvent>,
    /// Knows whether tasks are taken.
    pub registry: Arc<Registry>,
    /// Tells gRPC health checks the same.
    pub reporter: HealthReporter,
    /// Records the journal's lines.
    pub journal: mpsc::UnboundedSender<Vec<Line>>,
}

impl Events {
    /// Waits for what the server cannot listen without: TLS files, and a word on whether tasks are taken.
    pub async fn first(&mut self) -> Result<TlsFiles, Box<dyn std::error::Error + Send + Sync>> {
        let deadline = Instant::now() + FIRST;
        let mut files = None;
        loop {
            if let Some(files) = files.take_if(|_| self.registry.health.view().is_some()) {
                return Ok(files);
            }
            match timeout_at(deadline, self.from.recv()).await {
                Ok(Some(ServerEvent::TlsFiles(fds))) => files = Some(self.tls_files(fds)?),
                Ok(Some(ServerEvent::Lost(why))) => return Err(why.into()),
                Ok(Some(event)) => drop(self.take(event).await),
                Ok(None) => return Err("the launcher is gone".into()),
                Err(_) if files.is_none() => return Err("the launcher did not hand over the TLS files".into()),
                Err(_) => return Err(format!("the auditor did not watch within {FIRST:?}; see the lines above").into()),
            }
        }
    }

    /// The files that were handed over, with the names they have in the configuration.
    pub fn tls_files(&self, fds: Vec<OwnedFd>) -> Result<TlsFiles, TlsError> {
        TlsFiles::from_descriptors(fds, Names::of(&self.registry.config.tls))
    }

    /// The next event that is not taken in here; none when the launcher is gone. While none comes, health is looked at: a
    /// launcher that stands still does not say so.
    pub async fn next(&mut self) -> Option<ServerEvent> {
        loop {
            match timeout(QUIET, self.from.recv()).await {
                Ok(event) => {
                    if let Some(event) = self.take(event?).await {
                        return Some(event);
                    }
                }
                Err(_) => self.report().await,
            }
        }
    }

    /// Tells gRPC health checks whether tasks are taken now.
    async fn report(&self) {
        let can_accept = self.registry.health.refusal().is_none();
        health::report(&self.reporter, can_accept && *self.registry.stage.borrow() == Stage::Serving).await;
    }

    async fn take(&self, event: ServerEvent) -> Option<ServerEvent> {
        match event {
            ServerEvent::Health(view) => {
                if let (false, Some(why)) = (view.can_accept, &view.refusal) {
                    tracing::warn!(why, "no tasks are taken");
                }
                self.registry.health.set(*view);
                self.report().await;
            }
            ServerEvent::Journal(lines) => {
                // Fails only when the recorder has ended, with the process.
                let _ = self.journal.send(lines);
            }
            ServerEvent::Scan(scan) => {
                let was_silent = self.registry.health.refusal().is_some();
                self.registry.health.beat();
                if was_silent {
                    self.report().await;
                }
                self.registry.metrics.scanned(&scan);
            }
            ServerEvent::Parked(slot) => {
                let took = Duration::from_micros(slot.built_micros);
                // Counted last: who sees the count finds it.
                self.registry.slots.add(*slot);
                self.registry.metrics.slot_built(took);
            }
            ServerEvent::Unparked(slot) => self.registry.slots.remove(slot),
            // Here, in the order of the line and on the task that takes connections: what was said before is done, and clients are
            // not kept waiting either.
            ServerEvent::Ping(seq) => self.registry.link.pong(seq),
            other => return Some(other),
        }
        None
    }
}
