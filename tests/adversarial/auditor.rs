//! The auditor itself: what root plants is found, killed and told; what is harmless is not; and without it nothing starts.

mod accounts;
mod loss;
mod plants;
mod slow;
mod steady;

use serde_json::Value;

use crate::harness::{Arm, Bench, Case};
use crate::support::{HostDir, Server};

pub fn cases() -> Vec<Case> {
    [plants::cases(), steady::cases(), loss::cases(), accounts::cases(), slow::cases()].into_iter().flatten().collect()
}

/// A server whose tasks have uids of this suite, audited in this manner.
pub fn serve(bench: &Bench, audit: &str) -> Server {
    serve_as(bench, Arm::Contained, audit)
}

/// The same, of this arm's binary.
pub fn serve_as(bench: &Bench, arm: Arm, audit: &str) -> Server {
    let uids = bench.uid_range();
    let (dir, range) = (HostDir::new(), format!("{}:{}", uids.start, uids.end - uids.start));
    let text = format!("uid_range = \"{range}\"\n[audit]\n{audit}\n");
    let cold = if text.contains("[warm]") { "" } else { "[warm]\nslots = 0\n" };
    let config = dir.file("config.toml", text + cold, 0o644);
    let mut server = Server::prepare(&["--config", config.to_str().unwrap()]).keeping(dir);
    if let Arm::Mutant(names) = arm {
        server = server.mutated("TASKMAN_MUTATION", names);
    }
    server.launch();
    server
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
