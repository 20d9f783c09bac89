//! A client of another make: Python's grpcio, with code generated from the source design's own text.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{GUARD, HostDir, Server, Started};

/// An interpreter with grpcio and grpcio-tools; `scripts/test install` makes one.
fn python() -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python3");
    std::env::var_os("TASKMAN_TEST_PYTHON").map_or(made, PathBuf::from)
}

#[test]
fn a_client_generated_from_the_source_design_starts_watches_streams_and_stops() {
    assert!(python().exists(), "{} is missing: run `scripts/test install`", python().display());
    let server = Server::start();
    let (foreign, generated) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign"), HostDir::new());
    let mut command = Command::new(python());
    command.arg(foreign.join("client.py")).arg(foreign.join("source_design.proto")).arg(generated.root());
    command.arg(&server.address).arg(server.certs()).arg("client001");
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let seen: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let wanted = json!({
        "output": "hello\nworld\n",
        "ended": {"status": "JOB_STATUS_EXITED_ERROR", "exit_code": 3, "signal": "", "has_end": true},
        "running": {"status": "JOB_STATUS_STARTED", "exit_code": null, "signal": "", "has_end": false},
        "live": "ready\n",
        "stopped": {"status": "JOB_STATUS_SIGNALED", "exit_code": null, "signal": "SIGTERM", "has_end": true},
        "stopped_source": "user",
        "unknown": "NOT_FOUND",
        "no_command": "INVALID_ARGUMENT",
        "without_certificate": "UNAVAILABLE",
    });
    assert_eq!(seen, wanted);
}
