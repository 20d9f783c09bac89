//! Payloads are small C programs, compiled by the run that uses them, so that what was tested is what is in the tree.
//!
//! A machine on which compiling takes long is given them: `TASKMAN_ADV_COMPILE=DIR` compiles all and runs no case, and a run
//! with `TASKMAN_ADV_PAYLOADS=DIR` takes them from there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the directory of payloads that are compiled already.
pub const COMPILED: &str = "TASKMAN_ADV_PAYLOADS";

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/adversarial");

/// Compiles every payload into `dir`, which is made.
pub fn compile_all(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|e| format!("mkdir {}: {e}", dir.display()))?;
    for folder in [Path::new(HERE).to_owned(), Path::new(HERE).join("payloads")] {
        let files = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let files =
            files.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.extension() == Some("c".as_ref()));
        for name in files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())) {
            compile(dir, &name)?;
        }
    }
    Ok(())
}

/// Compiles `tests/adversarial/NAME.c` or `tests/adversarial/payloads/NAME.c` into `dir`, once.
pub fn compile(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let out = dir.join(name);
    if out.exists() {
        return Ok(out);
    }
    if let Some(ready) = std::env::var_os(COMPILED) {
        let ready = Path::new(&ready).join(name);
        fs::copy(&ready, &out).map_err(|e| format!("copy {}: {e}", ready.display()))?;
        return Ok(out);
    }
    let here = Path::new(HERE);
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
