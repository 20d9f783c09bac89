//! Files of a task's own network that count for the whole host, whatever network asks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::harness::answers::watch;
use crate::harness::{Arm, Bench, Case, Control, Fail, broken};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "L22",
        tier: 1,
        what: "reads in /proc/self/net what the host's network does",
        defence: &["proc-mask"],
        control: |_| match changed(std::process::id() as i32) {
            Ok(told) if told.contains("softnet_stat") => Control::Works,
            Ok(told) => Control::Broken(format!("outside too only {told:?} tell of it")),
            Err(fail) => Control::Broken(fail.to_string()),
        },
        attack,
    }]
}

/// The files below a process's `net` that anyone can read, with their contents.
fn readable(dir: &Path, below: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
        if meta.is_dir() {
            readable(&entry.path(), &format!("{name}/"), found);
        } else if meta.mode() & 0o004 != 0 {
            found.insert(name, fs::read(entry.path()).unwrap_or_default());
        }
    }
}

/// Which of them are other than before once the host has sent something to itself.
fn changed(pid: i32) -> Result<BTreeSet<String>, Fail> {
    let look = || {
        let mut found = BTreeMap::new();
        readable(Path::new(&format!("/proc/{pid}/net")), "", &mut found);
        found
    };
    let before = look();
    require!(before.len() > 10, "only {} files in /proc/{pid}/net", before.len());
    let held = traffic().map_err(|e| broken(format!("traffic: {e}")))?;
    let after = look();
    drop(held);
    Ok(after.into_iter().filter(|(name, text)| before.get(name) != Some(text)).map(|(name, _)| name).collect())
}

/// Datagrams and a connection, over the host's own loopback; the connection is open until it is dropped.
fn traffic() -> std::io::Result<(TcpStream, TcpStream)> {
    let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    for _ in 0..200 {
        one.send_to(b"counted", other.local_addr()?)?;
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    here.write_all(&[0; 4096])?;
    Ok((here, listener.accept()?.0))
}

/// Those that docs/proc.md names, as `/proc/net/NAME`.
fn documented(name: &str) -> Result<bool, Fail> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proc.md");
    let text = fs::read_to_string(&page).map_err(|e| broken(format!("{}: {e}", page.display())))?;
    Ok(text.contains(&format!("`/proc/net/{name}`")))
}

fn attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for profile in ["default", "judge"] {
        let launch = bench.task(arm).opt("--profile", profile).probe("k_victim", &[]);
        watch(bench, Some(arm), launch, |run| {
            let told = changed(run.payload().ok_or_else(|| broken("no payload"))?)?;
            bench.note(format_args!("{profile}: the host's traffic shows in {told:?}"));
            for name in told {
                ensure!(documented(&name)?, "/proc/net/{name} tells of the host's network in the {profile} profile");
            }
            Ok(())
        })?;
    }
    Ok(())
}
