//! `StopTask`: SIGTERM, a grace, and a kill of everything. A task that has ended is left as it is.

use std::sync::Arc;

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::registry::{Found, Registry};
use crate::proto::limits::duration;
use crate::proto::task_manager as pb;

/// Asks a task to end; the answer means that it was asked.
pub async fn stop(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::StopTaskRequest,
) -> Result<Served<pb::StopTaskResponse>, ApiError> {
    let found = registry.find_for(&caller, Verb::Stop, &request.task_id).await?;
    let grace = match request.grace {
        Some(grace) => duration("grace", &grace)?,
        None => registry.config.stop.grace,
    };
    if let Found::Live(live) = found {
        live.set_ending();
        registry.link.stop(live.id, grace).await;
    }
    Ok(pb::StopTaskResponse {}.into())
}
