//! The calls of `proto/containment.proto`, for administrators alone. Each is a question to the auditor, passed on by the
//! launcher; who asks is in the question, and so in the journal.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};

use super::authorize::{Caller, Verb};
use super::error::ApiError;
use super::gate::{Gate, Served};
use super::registry::Registry;
use crate::containment::{Answer, HealthView, Query, Summary, stated_reason};
use crate::proto::task_manager as pb;

/// Findings in one answer, where the request does not say, and at most.
const FINDINGS: u32 = 100;
const MOST_FINDINGS: u32 = 1000;
/// From the journal's line to the launcher's word that it is in force.
const IN_FORCE: Duration = Duration::from_secs(5);

/// The service, behind its gate.
pub struct Containment(pub Gate);

type Reply<R> = Result<Response<R>, Status>;

#[tonic::async_trait]
impl pb::containment_server::Containment for Containment {
    async fn get_health(&self, request: Request<pb::GetHealthRequest>) -> Reply<pb::HealthResponse> {
        self.0.serve(Verb::Health, None, request, health).await
    }

    async fn quarantine(&self, request: Request<pb::QuarantineRequest>) -> Reply<pb::HealthResponse> {
        self.0.serve(Verb::Quarantine, None, request, quarantine).await
    }

    async fn lift_quarantine(&self, request: Request<pb::LiftQuarantineRequest>) -> Reply<pb::HealthResponse> {
        self.0.serve(Verb::Unquarantine, None, request, lift).await
    }

    async fn run_audit(&self, request: Request<pb::RunAuditRequest>) -> Reply<pb::RunAuditResponse> {
        self.0.serve(Verb::Audit, None, request, audit).await
    }

    async fn list_findings(&self, request: Request<pb::ListFindingsRequest>) -> Reply<pb::ListFindingsResponse> {
        self.0.serve(Verb::Findings, None, request, findings).await
    }

    async fn get_finding(&self, request: Request<pb::GetFindingRequest>) -> Reply<pb::GetFindingResponse> {
        self.0.serve(Verb::ShowFinding, None, request, finding).await
    }

    async fn verify_clean(&self, request: Request<pb::VerifyCleanRequest>) -> Reply<pb::VerifyCleanResponse> {
        self.0.serve(Verb::VerifyClean, None, request, verify_clean).await
    }

    async fn recover(&self, request: Request<pb::RecoverRequest>) -> Reply<pb::RecoverResponse> {
        self.0.serve(Verb::Recover, None, request, recover).await
    }
}

type Answered<R> = Result<Served<R>, ApiError>;

async fn health(registry: Arc<Registry>, caller: Caller, _: pb::GetHealthRequest) -> Answered<pb::HealthResponse> {
    caller.may(Verb::Health, "")?;
    let health = registry.health.view().ok_or_else(unheard)?;
    Ok(pb::HealthResponse::from(&health).into())
}

async fn quarantine(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::QuarantineRequest,
) -> Answered<pb::HealthResponse> {
    caller.may(Verb::Quarantine, "")?;
    let query = Query::Quarantine { by: caller.name, reason: stated_reason(&request.reason)? };
    change(&registry, query).await
}

async fn lift(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::LiftQuarantineRequest,
) -> Answered<pb::HealthResponse> {
    caller.may(Verb::Unquarantine, "")?;
    let query = Query::Lift { by: caller.name, reason: stated_reason(&request.reason)?, accept: request.accept };
    change(&registry, query).await
}

/// Answered when it is in force: a start that comes after the answer is refused, or taken.
async fn change(registry: &Registry, query: Query) -> Answered<pb::HealthResponse> {
    let quarantined = match registry.link.containment(query).await {
        Answer::Health(health) => health.quarantine.is_some(),
        Answer::Left(things) => return Err(ApiError::Left(things)),
        other => return Err(unmeant(other)),
    };
    let in_force = |view: &HealthView| (view.status == "quarantined") == quarantined;
    let health = tokio::time::timeout(IN_FORCE, registry.health.until(in_force)).await;
    let late =
        |_| ApiError::Unavailable("it is recorded, but not yet in force; `taskman health` tells when".to_owned());
    Ok(pb::HealthResponse::from(&health.map_err(late)?).into())
}

async fn audit(registry: Arc<Registry>, caller: Caller, _: pb::RunAuditRequest) -> Answered<pb::RunAuditResponse> {
    caller.may(Verb::Audit, "")?;
    match registry.link.containment(Query::Audit).await {
        Answer::Audited(audited) => Ok(pb::RunAuditResponse::from(&audited).into()),
        other => Err(unmeant(other)),
    }
}

async fn findings(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::ListFindingsRequest,
) -> Answered<pb::ListFindingsResponse> {
    caller.may(Verb::Findings, "")?;
    let most = if request.most == 0 { FINDINGS } else { request.most.min(MOST_FINDINGS) };
    match registry.link.containment(Query::Findings { most }).await {
        Answer::Findings(findings) => {
            Ok(pb::ListFindingsResponse { findings: findings.iter().map(Into::into).collect() }.into())
        }
        other => Err(unmeant(other)),
    }
}

async fn finding(
    registry: Arc<Registry>,
    caller: Caller,
    request: pb::GetFindingRequest,
) -> Answered<pb::GetFindingResponse> {
    caller.may(Verb::ShowFinding, "")?;
    match registry.link.containment(Query::Finding { id: request.id.parse()? }).await {
        Answer::Finding(incident) => Ok(pb::GetFindingResponse {
            finding: Some((&Summary::from(&*incident)).into()),
            incident_json: serde_json::to_string(&incident).expect("plain data is always JSON"),
        }
        .into()),
        Answer::Refused(why) => Err(ApiError::NoFinding(why)),
        other => Err(unmeant(other)),
    }
}

async fn verify_clean(
    registry: Arc<Registry>,
    caller: Caller,
    _: pb::VerifyCleanRequest,
) -> Answered<pb::VerifyCleanResponse> {
    caller.may(Verb::VerifyClean, "")?;
    match registry.link.containment(Query::VerifyClean).await {
        Answer::Left(things) => {
            Ok(pb::VerifyCleanResponse { leftovers: things.iter().map(Into::into).collect() }.into())
        }
        other => Err(unmeant(other)),
    }
}

async fn recover(registry: Arc<Registry>, caller: Caller, _: pb::RecoverRequest) -> Answered<pb::RecoverResponse> {
    caller.may(Verb::Recover, "")?;
    match registry.link.containment(Query::Recover { by: caller.name }).await {
        Answer::Recovered(swept) => Ok(pb::RecoverResponse { swept: swept.iter().map(Into::into).collect() }.into()),
        other => Err(unmeant(other)),
    }
}

fn unheard() -> ApiError {
    ApiError::Unavailable("the auditor was not heard yet; try again".to_owned())
}

/// A refusal, or an answer to another question.
fn unmeant(answer: Answer) -> ApiError {
    match answer {
        Answer::Refused(why) => ApiError::Precondition(why),
        _ => ApiError::Internal("the auditor answered another question".to_owned()),
    }
}
