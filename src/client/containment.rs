//! What administrators ask of a server about its containment, and tell it.

use tonic::Code;

use super::{Client, ClientError, DEADLINE, within};
use crate::containment::{Audited, HealthView, Incident, IncidentId, Leftover, Summary, Swept};
use crate::proto::containment::{Unreadable, all};
use crate::proto::task_manager as pb;

impl Client {
    /// Whether the server takes tasks, and why not.
    pub async fn health(&self) -> Result<HealthView, ClientError> {
        Ok(self.containment.clone().get_health(asked(pb::GetHealthRequest {})).await?.into_inner().into())
    }

    /// Has new tasks refused until it is lifted.
    pub async fn quarantine(&self, reason: &str) -> Result<HealthView, ClientError> {
        let request = pb::QuarantineRequest { reason: reason.to_owned() };
        Ok(self.containment.clone().quarantine(asked(request)).await?.into_inner().into())
    }

    /// Has tasks taken again; refused while something is left, but for places that could not be looked into and stand in `accept`.
    pub async fn lift_quarantine(&self, reason: &str, accept: &[String]) -> Result<HealthView, ClientError> {
        let request = pb::LiftQuarantineRequest { reason: reason.to_owned(), accept: accept.to_vec() };
        Ok(self.containment.clone().lift_quarantine(asked(request)).await?.into_inner().into())
    }

    /// A full audit, now.
    pub async fn run_audit(&self) -> Result<Audited, ClientError> {
        Ok(self.containment.clone().run_audit(asked(pb::RunAuditRequest {})).await?.into_inner().try_into()?)
    }

    /// The newest findings, newest first.
    pub async fn findings(&self, most: u32) -> Result<Vec<Summary>, ClientError> {
        let request = pb::ListFindingsRequest { most };
        Ok(all(self.containment.clone().list_findings(asked(request)).await?.into_inner().findings)?)
    }

    /// Everything about one finding.
    pub async fn finding(&self, id: &IncidentId) -> Result<Incident, ClientError> {
        let request = pb::GetFindingRequest { id: id.to_string() };
        let answer = self.containment.clone().get_finding(asked(request)).await?.into_inner();
        serde_json::from_str(&answer.incident_json).map_err(|error| unreadable(format!("the incident: {error}")))
    }

    /// What no living task accounts for.
    pub async fn verify_clean(&self) -> Result<Vec<Leftover>, ClientError> {
        let request = asked(pb::VerifyCleanRequest {});
        Ok(all(self.containment.clone().verify_clean(request).await?.into_inner().leftovers)?)
    }

    /// Sweeps it.
    pub async fn recover(&self) -> Result<Vec<Swept>, ClientError> {
        Ok(all(self.containment.clone().recover(asked(pb::RecoverRequest {})).await?.into_inner().swept)?)
    }
}

fn asked<T>(message: T) -> tonic::Request<T> {
    within(message, DEADLINE)
}

impl From<Unreadable> for ClientError {
    fn from(error: Unreadable) -> Self {
        unreadable(error.to_string())
    }
}

fn unreadable(why: String) -> ClientError {
    let message = format!("the server's answer is not understood: {why}; is it of another version?");
    ClientError::Status { code: Code::Internal, message, exit_code: None }
}
