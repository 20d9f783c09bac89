//! `WaitTask`: answers when the task is final.

use std::sync::Arc;

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::get_status::status;
use super::registry::{Found, Registry, Stage};
use crate::proto::limits::duration;
use crate::proto::task_manager as pb;

/// The final status, or the status as it is when the timeout is over.
pub async fn wait(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::WaitTaskRequest,
) -> Result<Served<pb::TaskStatusResponse>, ApiError> {
    let found = registry.find_for(&caller, Verb::Wait, &request.task_id).await?;
    let timeout = request.timeout.map(|timeout| duration("timeout", &timeout)).transpose()?;
    if let Found::Live(live) = &found {
        // It may last as long as a stream does, and holds as much.
        let _place = registry.quotas.stream(&caller.name)?;
        let mut stage = registry.stage.subscribe();
        tokio::select! {
            () = live.wait_final() => {}
            () = async {
                match timeout {
                    Some(timeout) => tokio::time::sleep(timeout).await,
                    None => std::future::pending().await,
                }
            } => {}
            _ = stage.wait_for(|stage| *stage == Stage::Closing) => {}
        }
    }
    Ok(status(&found).into())
}
