//! Cargo, asked by a test to build a program that it needs.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// Runs `cargo words…` and returns each program that it built or found built: the target's name and the file.
pub fn programs(words: &[&str]) -> Result<Vec<(String, PathBuf)>, String> {
    let mut cargo = Command::new(env!("CARGO"));
    // What the cargo that runs this test has set: crates with C in them would be built anew because of it.
    let of_this_test =
        |name: &str| name == "OUT_DIR" || ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|of| name.starts_with(of));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this_test)) {
        cargo.env_remove(name);
    }
    let output = cargo
        .args(words)
        .args(["--quiet", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo {words:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let program = |m: Value| Some((m["target"]["name"].as_str()?.to_owned(), m["executable"].as_str()?.into()));
    Ok(messages.filter_map(program).collect())
}
