//! The auditor itself: what root plants is found, killed and told; what is harmless is not; and without it nothing starts.

mod loss;
mod plants;
mod steady;

use serde_json::Value;

use crate::harness::{Bench, Case};
use crate::support::Server;

pub fn cases() -> Vec<Case> {
    [plants::cases(), steady::cases(), loss::cases()].into_iter().flatten().collect()
}

/// A server whose tasks have uids of this suite, audited in this manner.
pub fn serve(bench: &Bench, audit: &str) -> Server {
    let uids = bench.uid_range();
    Server::configured(&format!("uid_range = \"{}:{}\"\n[audit]\n{audit}\n", uids.start, uids.end - uids.start))
}

/// Everything that its auditor has found.
fn findings(server: &Server) -> Vec<Value> {
    let listed = server.taskman("admin", &["audit", "findings", "--limit", "1000", "--output", "json"]).json(0);
    listed["findings"].as_array().cloned().unwrap_or_default()
}

/// `taskman health`, whatever it says.
fn health(server: &Server) -> Value {
    let ended = server.taskman("admin", &["health", "--output", "json"]);
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// All incidents in full, for a case that met one it did not plant.
fn incidents(server: &Server) -> String {
    let ids: Vec<String> = findings(server).iter().filter_map(|f| f["id"].as_str().map(str::to_owned)).collect();
    let show = |id: &String| server.taskman("admin", &["audit", "show", id]).text();
    ids.iter().map(show).collect::<Vec<_>>().join("\n")
}
