//! `ListTasks`: newest first, in pages.

use std::sync::Arc;

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::registry::{Phase, Registry};
use super::show;
use crate::proto::task_manager as pb;
use crate::store::{Query, State, StoreError};
use crate::task::outcome::ExitKind;
use crate::task::record::Record;
use crate::task::spec::SpecError;

/// Tasks on a page, where the request does not say, and at most.
const PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;
/// Labels and states in a request: each is a piece of the question to the store.
const MOST_LABELS: usize = 64;
const MOST_STATES: usize = 16;

/// The caller's tasks; an administrator's request can name another owner, or all.
pub async fn list(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::ListTasksRequest,
) -> Result<Served<pb::ListTasksResponse>, ApiError> {
    let asker = caller.name.clone();
    let owner = if request.all_owners {
        caller.may(Verb::ListOthers, "")?;
        None
    } else if request.owner.is_empty() || request.owner == caller.name {
        caller.may(Verb::List, &caller.name)?;
        Some(caller.name)
    } else {
        caller.may(Verb::ListOthers, &request.owner)?;
        Some(request.owner)
    };
    if request.labels.len() > MOST_LABELS {
        return Err(SpecError::new("labels", format!("at most {MOST_LABELS} can be asked for")).into());
    }
    if request.status.len() > MOST_STATES {
        return Err(SpecError::new("status", format!("at most {MOST_STATES} can be asked for")).into());
    }
    let limit = if request.page_size == 0 { PAGE } else { request.page_size.min(LARGEST_PAGE) };
    let bad =
        |_: StoreError| SpecError::new("page_token", "is not one that this server gave out; leave it out to begin");
    let query = Query {
        owner,
        states: request.status.iter().map(|status| wanted(*status)).collect::<Result<_, _>>()?,
        labels: request.labels,
        limit: limit as usize,
        after: Some(request.page_token)
            .filter(|token| !token.is_empty())
            .map(|token| token.parse())
            .transpose()
            .map_err(bad)?,
    };
    let place = registry.quotas.list(&asker)?;
    let page = registry.store.list(query).await?;
    drop(place);
    let tasks = page.records.iter().filter_map(|record| show(&registry, record)).collect();
    Ok(pb::ListTasksResponse { tasks, next_page_token: page.next.map(|cursor| cursor.to_string()).unwrap_or_default() }
        .into())
}

/// A task as it stands; none if it is still being started, and may yet turn out not to exist.
fn show(registry: &Registry, record: &Record) -> Option<pb::TaskStatusResponse> {
    match registry.live(record.id) {
        Some(live) if *live.phase.borrow() == Phase::Starting => None,
        Some(live) => Some(show::live(&live)),
        None => Some(show::record(record)),
    }
}

fn wanted(status: i32) -> Result<State, SpecError> {
    match pb::JobStatus::try_from(status) {
        Ok(pb::JobStatus::Started) => Ok(State::Running),
        Ok(pb::JobStatus::Signaled) => Ok(State::Ended(ExitKind::Signaled)),
        Ok(pb::JobStatus::ExitedOk) => Ok(State::Ended(ExitKind::ExitedOk)),
        Ok(pb::JobStatus::ExitedError) => Ok(State::Ended(ExitKind::ExitedError)),
        Ok(pb::JobStatus::Unknown) => Ok(State::Ended(ExitKind::Unknown)),
        Err(_) => Err(SpecError::new("status", format!("{status} is not a status; see JobStatus"))),
    }
}
