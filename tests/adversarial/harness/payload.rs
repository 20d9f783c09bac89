//! Payloads are small C programs, compiled by the run that uses them, so that what was tested is what is in the tree.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `tests/adversarial/NAME.c` or `tests/adversarial/payloads/NAME.c` into `dir`, once.
pub fn compile(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let out = dir.join(name);
    if out.exists() {
        return Ok(out);
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adversarial");
    let file = format!("{name}.c");
    let source = [here.join(&file), here.join("payloads").join(&file)].into_iter().find(|p| p.exists());
    let source = source.ok_or_else(|| format!("no payload {file}"))?;
    let bare = fs::read_to_string(&source).is_ok_and(|text| text.contains(" _start("));
    let gcc = |link: &[&str]| {
        let flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread"];
        let bare: &[&str] = if bare { &["-nostdlib"] } else { &[] };
        Command::new("gcc").args(flags).args(bare).args(link).arg("-o").arg(&out).arg(&source).output()
    };
    // Static first: it needs nothing of the root filesystem, so a missing library never looks like containment.
    let mut result = gcc(&["-static"]).map_err(|e| format!("gcc: {e}"))?;
    if !result.status.success() {
        result = gcc(&[]).map_err(|e| format!("gcc: {e}"))?;
    }
    if !result.status.success() {
        return Err(format!("gcc {file}: {}", String::from_utf8_lossy(&result.stderr)));
    }
    fs::set_permissions(&out, fs::Permissions::from_mode(0o755)).map_err(|e| format!("chmod {name}: {e}"))?;
    Ok(out)
}
