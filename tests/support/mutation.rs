//! The binaries whose defences can be switched off. They are built once, into a target directory of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Builds a program with the `mutation` feature; `TASKMAN_MUTATION_BIN` replaces it by a program beside the given one.
pub fn build(program: &str) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("TASKMAN_MUTATION_BIN") {
        return Ok(PathBuf::from(path).with_file_name(program));
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target directory")?.join("mutation");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--message-format", "json", "--bin", program, "--features", "mutation", "--target-dir"]);
    let output =
        cargo.arg(&target).current_dir(env!("CARGO_MANIFEST_DIR")).output().map_err(|e| format!("cargo: {e}"))?;
    // Where the binary lies depends on the configured target, so cargo is asked.
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let path = messages.filter_map(|m: Value| m.get("executable")?.as_str().map(PathBuf::from)).next_back();
    path.filter(|_| output.status.success())
        .ok_or_else(|| format!("the mutation build failed: {}", String::from_utf8_lossy(&output.stderr)))
}
