//! What is known of this worker's containment: findings, and whether it may take tasks. Pure data and its durable form.
//!
//! | file of the state directory | what it holds |
//! |---|---|
//! | `containment.jsonl` | the journal: findings, quarantines, recoveries and lifts, appended; of old ones the sum. [`Health`] is the sum of all |
//! | `containment.jsonl.1` | the journal before it was last shortened; nobody reads it but people |
//! | `incidents/<id>.json` | one finding with everything the kernel said |
//!
//! Both are root's alone. The auditor writes them, and the launcher when the auditor is lost; `taskman health` and `taskman
//! audit` read and write them directly where no server runs.

mod finding;
mod health;
mod incidents;
mod journal;
mod leftover;
mod message;
mod place;
mod stated;

pub use finding::{Action, Ancestor, Cause, Incident, IncidentId, Kind, ProcessState, Summary};
pub use health::{Health, HealthView, Quarantine, Reason};
pub use incidents::Incidents;
pub use journal::{Entry, Journal, Line};
pub use leftover::{Leftover, LeftoverKind, Swept};
pub use message::{Answer, Audited, FromAuditor, Query, Scan, Setup, ToAuditor};
pub use stated::stated_reason;

/// The runbook that a refusal names.
pub const RUNBOOK: &str = "runbooks/worker-quarantine.md";
