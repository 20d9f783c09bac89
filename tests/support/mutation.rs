//! The programs whose defences can be switched off (`tests/mutants`). Built once, of the same dependencies as the tests.

use std::path::PathBuf;

use super::cargo;

/// Names the directory of the mutants to a process that need not build them again.
pub const BUILT: &str = "TASKMAN_MUTANTS";

/// Builds the mutant of `taskman` or `taskman-server`.
pub fn build(program: &str) -> Result<PathBuf, String> {
    let mutant = format!("{program}-mutant");
    if let Some(directory) = std::env::var_os(BUILT) {
        return Ok(PathBuf::from(directory).join(mutant));
    }
    let built = cargo::programs(&["build", "--features", "mutation", "--example", &mutant])?;
    built.into_iter().next_back().map(|(_, path)| path).ok_or_else(|| format!("cargo does not say where {mutant} is"))
}
