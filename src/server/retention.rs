//! Ended tasks are forgotten, oldest first, beyond the configured age, count and bytes.

use std::sync::Arc;
use std::time::Duration;

use super::registry::Registry;
use crate::store::StoreError;
use crate::task::outcome::Outcome;
use crate::task::record::{End, Record, now};
use crate::task::report::{Check, Containment, Usage};

/// Age is looked at this often; count and bytes also whenever a task has ended.
const LOOK: Duration = Duration::from_secs(30);

/// Forgets what is due, for as long as the server lives.
pub async fn run(registry: Arc<Registry>) {
    loop {
        if let Err(error) = forget(&registry).await {
            tracing::error!(%error, "old tasks could not be forgotten");
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = async {
                registry.ended.notified().await;
                // A crowd that ends together is looked at once.
                tokio::time::sleep(Duration::from_millis(200)).await;
            } => {}
        }
    }
}

async fn forget(registry: &Registry) -> Result<(), StoreError> {
    let expired = registry.store.expired(&registry.config.retain, now()).await?;
    if expired.is_empty() {
        return Ok(());
    }
    // The row goes first: output without a row is found and removed at the next start, a row without output would lie.
    registry.store.remove(expired.clone()).await?;
    for task in &expired {
        if let Err(error) = registry.outputs.remove(*task) {
            tracing::warn!(%task, %error, "the output of a forgotten task could not be removed");
        }
    }
    tracing::info!(count = expired.len(), "forgot ended tasks");
    Ok(())
}

/// At the start: what ran when the last server died is final now, and output that belongs to no task goes.
pub async fn reconcile(registry: &Registry, keep_strays: bool) -> Result<(), StoreError> {
    let lost = registry.store.running().await?;
    for record in &lost {
        let end = lost_end(registry, record);
        registry.store.finish(record.id, end).await?;
        registry.metrics.lost();
        tracing::warn!(task = %record.id, owner = record.owner, "task was running when the server died: server_lost");
    }
    if keep_strays {
        return Ok(());
    }
    for task in registry.outputs.tasks()? {
        if registry.store.get(task).await?.is_none() {
            tracing::info!(%task, "removed output of a task that is not recorded");
            if let Err(error) = registry.outputs.remove(task) {
                tracing::warn!(%task, %error, "output that belongs to no task could not be removed");
            }
        }
    }
    Ok(())
}

fn lost_end(registry: &Registry, record: &Record) -> End {
    let found = super::stream::recorded_logs(registry, record).unwrap_or_default();
    let output = super::keep::stored(&found);
    let unseen = Check {
        name: "server_lost".into(),
        value: "the server died before the kernel could be asked; its leftovers were swept at the next start"
            .to_owned(),
        ok: None,
    };
    End {
        outcome: Outcome::server_lost(),
        ended_at: now(),
        usage: Usage { output_bytes: output.bytes, ..Usage::default() },
        containment: Containment::from_checks(vec![unseen]),
        output,
    }
}
