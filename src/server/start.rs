//! `StartTask`: from a request to a running command.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::authorize::{Caller, Role, Verb};
use super::error::ApiError;
use super::gate::Served;
use super::keep;
use super::quota::Taken;
use super::registry::{Claim, Registry, Stage};
use crate::config::Profile;
use crate::proto::limits::LimitFields;
use crate::proto::task_manager as pb;
use crate::task::id::TaskId;
use crate::task::record::{Record, Token, now};
use crate::task::request::TaskRequest;
use crate::task::spec::{SpecError, TaskSpec};

/// Longest token, label name and label value.
const LONGEST: usize = 256;
/// Labels of one task.
const MOST_LABELS: usize = 64;

/// Starts a task; the answer means that its command was executed.
pub async fn start(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::StartTaskRequest,
) -> Result<Served<pb::StartTaskResponse>, ApiError> {
    let id = match admit(&registry, caller, request).await {
        Ok(Admitted::New { record, start, place, claim }) => {
            let id = record.id;
            keep::start(&registry, *record, *start, place, claim).await?;
            id
        }
        Ok(Admitted::Repeated(first)) => {
            registry.metrics.start_repeated();
            first
        }
        Err(error) => {
            registry.metrics.not_started(&error);
            return Err(error);
        }
    };
    let answer = pb::StartTaskResponse { task_id: id.to_string() };
    Ok(Served { task: Some(id), ..answer.into() })
}

/// A start that nothing speaks against.
enum Admitted {
    New {
        record: Box<Record>,
        start: Box<TaskRequest>,
        place: Taken,
        claim: Option<Claim>,
    },
    /// It was sent before, and made this task.
    Repeated(TaskId),
}

async fn admit(registry: &Arc<Registry>, caller: Caller, request: pb::StartTaskRequest) -> Result<Admitted, ApiError> {
    caller.may(Verb::Start, &caller.name)?;
    if *registry.stage.borrow() != Stage::Serving {
        return Err(ApiError::Unavailable("the server is shutting down; try again when it is back".to_owned()));
    }
    let token = token(&request)?;
    let Parsed { spec, mut start, labels } = parse(registry, &caller, request)?;
    // Held until the start is decided, also when this caller goes away: the same request sent again meanwhile waits here,
    // and then finds the task, or none if it could not be started.
    let claim = match &token {
        Some(token) => Some(registry.claim(&caller.name, &token.token).await),
        None => None,
    };
    if let Some(token) = &token
        && let Some(first) = registry.store.find_token(&caller.name, &token.token).await?
    {
        return repeated(&first, token).map(Admitted::Repeated);
    }
    if let Some(why) = registry.health.refusal() {
        return Err(ApiError::Precondition(why));
    }
    let place = registry.quotas.task(&caller.name)?;
    let stored = registry.store.stored_bytes(&caller.name).await?;
    registry.quotas.stored(stored + registry.live_bytes(&caller.name))?;
    // The last thing that is asked for: a sandbox that is taken is used, or wasted.
    if let Some(slot) = spec.command().orders().and_then(|_| registry.slots.take(&start)) {
        start.task = slot;
    }
    let record = Record {
        id: start.task,
        owner: caller.name,
        command: spec.command,
        args: spec.args,
        labels,
        profile: start.profile.clone(),
        limits: start.limits.clone(),
        reduced: Vec::new(),
        split_output: start.split_output,
        token,
        process_id: 0,
        started_at: now(),
        end: None,
    };
    Ok(Admitted::New { record: Box::new(record), start: Box::new(start), place, claim })
}

fn repeated(first: &Record, token: &Token) -> Result<TaskId, ApiError> {
    if first.token.as_ref() != Some(token) {
        return Err(ApiError::AlreadyExists(format!(
            "client_token: task {} was started with this token by another request; use a new token",
            first.id
        )));
    }
    Ok(first.id)
}

struct Parsed {
    spec: TaskSpec,
    start: TaskRequest,
    labels: BTreeMap<String, String>,
}

/// Everything that can be wrong with a request is found here, before anything happens.
fn parse(registry: &Registry, caller: &Caller, request: pb::StartTaskRequest) -> Result<Parsed, ApiError> {
    let name = if request.profile.is_empty() { "default" } else { &request.profile };
    let profile = profile(registry, caller, name)?;
    let asked = LimitFields { limits: request.limits.unwrap_or_default(), timeout: request.timeout };
    check_labels(&request.labels)?;
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let start = TaskRequest {
        owner: caller.name.clone(),
        env: request.env,
        working_dir: given(request.working_dir),
        hostname: given(request.hostname),
        profile: name.to_owned(),
        limits: asked.asked()?.over(&profile.limits),
        bind_ro: request.bind_ro,
        split_output: request.split_output,
        ..TaskRequest::new(&request.command, request.args)
    };
    Ok(Parsed { spec: registry.config.admit(&start)?, start, labels: request.labels })
}

/// The profile, if it exists and is granted to the caller; the two are not told apart.
fn profile<'a>(registry: &'a Registry, caller: &Caller, name: &str) -> Result<&'a Profile, ApiError> {
    let profile = registry.config.profiles.get(name);
    let granted = |profile: &&Profile| {
        caller.role == Role::Admin || profile.users.iter().any(|user| user == "*" || *user == caller.name)
    };
    profile.filter(granted).ok_or_else(|| {
        let message = format!("{name:?} does not exist or is not granted to you; leave it out for the default profile");
        SpecError::new("profile", message).into()
    })
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), SpecError> {
    if labels.len() > MOST_LABELS {
        return Err(SpecError::new("labels", format!("at most {MOST_LABELS} can be set")));
    }
    let wrong = |text: &String| text.len() > LONGEST || text.chars().any(char::is_control);
    if labels.iter().any(|(name, value)| name.is_empty() || wrong(name) || wrong(value)) {
        return Err(SpecError::new(
            "labels",
            format!("need a name, and at most {LONGEST} bytes without control characters"),
        ));
    }
    Ok(())
}

fn token(request: &pb::StartTaskRequest) -> Result<Option<Token>, SpecError> {
    let token = &request.client_token;
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() > LONGEST || token.chars().any(char::is_control) {
        return Err(SpecError::new("client_token", format!("at most {LONGEST} bytes without control characters")));
    }
    let rest = pb::StartTaskRequest { client_token: String::new(), ..request.clone() };
    // Maps are sorted (build.rs), so the same request has the same bytes.
    let digest = ring::digest::digest(&ring::digest::SHA256, &rest.encode_to_vec());
    let digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Token { token: token.clone(), digest }))
}
