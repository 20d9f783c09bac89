//! Tasks that die slowly, with as much to give back as their limits allow: each is ending until it has ended, and nobody's fault.

use std::time::{Duration, Instant};

use super::{findings, health, serve_as};
use crate::harness::{Arm, Bench, Case, Fail};
use crate::support::Server;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "U22",
        tier: 1,
        what: "dies slowly, with everything at its limit that the kernel takes long to give back",
        defence: &["slow-death"],
        control: |bench| takes_its_time(bench).into(),
        attack: nobody_is_quarantined,
    }]
}

const KINDS: [&str; 8] = ["memberships", "descriptors", "pipes", "mappings", "tables", "sparse", "threads", "files"];
/// Tasks of a kind at once.
const AT_ONCE: usize = 3;

/// Without taskman: a process with much to give back is not gone at once.
fn takes_its_time(bench: &Bench) -> Result<(), Fail> {
    let mut run = bench.direct().with_uid(bench.uid_range().start).probe("u_slow", &["tables"]).spawn()?;
    run.wait_line("ready")?;
    let killed = Instant::now();
    for pid in bench.ours() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    drop(run);
    bench.nothing_within(Duration::from_secs(60))?;
    require!(killed.elapsed() > Duration::from_millis(10), "it was gone after {:?}", killed.elapsed());
    Ok(())
}

/// Stops so many tasks of a kind at once; how long the last took to end, and what each was reported as.
fn ends(server: &Server, probes: &str, kind: &str) -> Result<(Duration, Vec<String>), Fail> {
    let bind = format!("{probes}:/probe");
    let start = || server.task(&["--bind-ro", &bind, "--", "/probe/u_slow", kind]);
    let tasks: Vec<String> = (0..AT_ONCE).map(|_| start()).collect();
    for task in &tasks {
        let line = server.begin("client001", &["stream", task]).line();
        require!(line.starts_with("ready"), "{kind}: {line}");
    }
    let begun = Instant::now();
    for task in &tasks {
        server.text("client001", &["stop", task, "--grace", "0s"]);
    }
    let verdicts = tasks.iter().map(|task| server.ended(task)["containment"]["verdict"].to_string()).collect();
    Ok((begun.elapsed(), verdicts))
}

fn nobody_is_quarantined(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    bench.payload("u_slow");
    let probes = bench.probe_dir().to_str().unwrap().to_owned();
    let audit = "scan = \"1s\"\ncleanup_failures = 3";
    let server = serve_as(bench, arm, &format!("{audit}\n[profiles.default]\nbind_ro = [\"{probes}\"]"));
    let kinds: &[&str] = if arm == Arm::Contained { &KINDS } else { &["tables"] };
    let mut took = Vec::new();
    for kind in kinds {
        let (last, verdicts) = ends(&server, &probes, kind)?;
        bench.tried(AT_ONCE);
        ensure!(verdicts.iter().all(|verdict| verdict == "\"proven\""), "{kind}: {verdicts:?} after {last:?}");
        let health = health(&server);
        ensure!(health["status"] == "healthy" && health["can_accept"] == true, "{kind}: health says {health}");
        took.push(format!("{kind} {} ms", last.as_millis()));
    }
    bench.canary()?;
    ensure!(findings(&server).is_empty(), "found: {:?}", findings(&server));
    bench.note(format!("{AT_ONCE} tasks at once, from the stop to the proof of the last: {}", took.join(", ")));
    Ok(())
}
