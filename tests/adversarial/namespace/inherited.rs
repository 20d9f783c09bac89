//! What a caller hands down without noticing: scheduling, io priority, address space layout, masks and limits.

use std::fs;
use std::process::Command;

use crate::ensure;
use crate::harness::answers::watch;
use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "N12",
        tier: 2,
        what: "a privileged caller's priority, io class, personality, umask and ignored signals do not reach the task",
        defence: &["handed-down"],
        control: |bench| {
            let mut seen = None;
            let launch = bench.direct().wrapped(&PRIVILEGED).probe("k_victim", &[]);
            match watch(bench, None, launch, |run| {
                seen = Some(State::of(run.pid)?);
                Ok(())
            }) {
                Ok(_) if seen.as_ref().is_some_and(|state| state.differs().len() == 5) => Control::Works,
                Ok(_) => Control::Broken(format!("not all is handed down outside: {seen:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            }
        },
        attack,
    }]
}

/// A caller with more than its due of everything.
const PRIVILEGED: [&str; 15] = [
    "nice",
    "-n",
    "-20",
    "ionice",
    "-c",
    "1",
    "-n",
    "0",
    "setarch",
    "x86_64",
    "-R",
    "bash",
    "-c",
    "trap '' USR1; umask 0; exec \"$@\"",
    "privileged",
];

/// What the host sees of one process.
#[derive(Debug)]
struct State {
    nice: String,
    policy: String,
    io_class: String,
    personality: String,
    umask: String,
    ignored: String,
    realtime_limit: String,
}

impl State {
    fn of(pid: i32) -> Result<Self, Fail> {
        let gone = |what: &str| broken(format!("{what} of {pid} cannot be read"));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|_| gone("stat"))?;
        let fields: Vec<&str> = stat.rsplit_once(") ").ok_or_else(|| gone("stat"))?.1.split(' ').collect();
        let status = proc::status_of(pid).ok_or_else(|| gone("status"))?;
        let field = |name: &str| status.get(name).cloned().unwrap_or_default();
        let personality = fs::read_to_string(format!("/proc/{pid}/personality")).map_err(|_| gone("personality"))?;
        let io = Command::new("ionice").args(["-p", &pid.to_string()]).output().map_err(|_| gone("io class"))?;
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).map_err(|_| gone("limits"))?;
        let realtime = limits.lines().find_map(|line| line.strip_prefix("Max realtime priority"));
        Ok(Self {
            nice: (*fields.get(16).unwrap_or(&"")).to_owned(),
            policy: (*fields.get(38).unwrap_or(&"")).to_owned(),
            io_class: String::from_utf8_lossy(&io.stdout).split(':').next().unwrap_or("").trim().to_owned(),
            personality: personality.trim().to_owned(),
            umask: field("Umask"),
            ignored: field("SigIgn"),
            realtime_limit: realtime.unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    /// What is not as a task should have it.
    fn differs(&self) -> Vec<String> {
        let wanted = [
            ("nice", &self.nice, "0"),
            ("policy", &self.policy, "0"),
            ("io class", &self.io_class, "none"),
            ("personality", &self.personality, "00000000"),
            ("umask", &self.umask, "0022"),
            ("ignored signals", &self.ignored, "0000000000000000"),
            ("realtime limit", &self.realtime_limit, "0 0"),
        ];
        // A caller that is nicer than it must be may be taken at its word.
        let allowed = |name: &str, found: &str| name == "nice" && !found.starts_with('-');
        let off = wanted.into_iter().filter(|(name, found, wanted)| found != wanted && !allowed(name, found));
        off.map(|(name, found, _)| format!("{name} {found}")).collect()
    }
}

fn attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    watch(bench, Some(arm), bench.task(arm).wrapped(&PRIVILEGED).probe("k_victim", &[]), |run| {
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        let differs = State::of(payload)?.differs();
        ensure!(differs.is_empty(), "handed down: {}", differs.join(", "));
        Ok(())
    })?;
    Ok(())
}
