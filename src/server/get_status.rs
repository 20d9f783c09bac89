//! `GetTaskStatus`: a task as it stands.

use std::sync::Arc;

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::registry::{Found, Registry};
use super::show;
use crate::proto::task_manager as pb;

/// The status, running or final.
pub async fn get_status(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::TaskStatusRequest,
) -> Result<Served<pb::TaskStatusResponse>, ApiError> {
    let found = registry.find_for(&caller, Verb::GetStatus, &request.task_id).await?;
    Ok(status(&found).into())
}

/// A found task in the protocol's words.
pub fn status(found: &Found) -> pb::TaskStatusResponse {
    match found {
        Found::Live(live) => show::live(live),
        Found::Ended(record) => show::record(record),
    }
}
