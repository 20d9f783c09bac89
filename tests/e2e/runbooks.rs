//! Every command of every runbook, run as it is written, in order and in one shell, against the incident it is about; and the
//! scripts they name.
//!
//! A line of a block says at its end what is expected, where that is not exit 0: `# exit 1, prints quarantined`.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::incident::{DeadGroup, Elsewhere, stray};
use crate::support::run::TASKMAN;
use crate::support::{Ended, GUARD, HostDir, Process, Server, Started, wait_until};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn runbooks() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("runbooks")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect();
    pages.sort();
    pages
}

/// One line of a block.
struct Step {
    line: usize,
    text: String,
    codes: Vec<i32>,
    prints: Option<String>,
}

impl Step {
    fn parse(line: usize, text: &str) -> Self {
        let mut step = Self { line, text: text.to_owned(), codes: vec![0], prints: None };
        let expected = text.rsplit_once(" # ").map_or("", |(_, expected)| expected);
        for part in expected.split(", ").filter(|part| !part.is_empty()) {
            if let Some(codes) = part.strip_prefix("exit ") {
                step.codes = codes.split(" or ").map(|code| code.parse().unwrap()).collect();
            } else if let Some(printed) = part.strip_prefix("prints ") {
                step.prints = Some(printed.to_owned());
            } else {
                panic!("line {line}: {part:?} is no expectation: {text}");
            }
        }
        step
    }
}

/// The lines of a page's blocks. A block in another language than `sh`, or in none, would not be run: there are none.
fn steps(name: &str, page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        match line.trim().strip_prefix("```") {
            Some("") if inside => inside = false,
            Some("sh") if !inside => inside = true,
            Some(other) => panic!("{name}:{}: a block of {other:?} is not run", number + 1),
            None if inside && !line.trim().is_empty() => steps.push(Step::parse(number + 1, line.trim())),
            None => {}
        }
    }
    assert!(!inside && !steps.is_empty(), "{name}");
    steps
}

/// The variables that a step uses before any has set them: `NAME="${NAME:-its default}"`.
fn unset(steps: &[Step]) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>();
    let (mut set, mut unset) = (Vec::new(), Vec::new());
    for step in steps {
        let uses = step.text.split('$').skip(1).map(|rest| (rest, name(rest.strip_prefix('{').unwrap_or(rest))));
        // Its own default is what sets it.
        let is_default = |rest: &str, of: &str| rest.starts_with('{') && step.text.contains(&format!("{of}=\"${{{of}"));
        let open = uses.filter(|(rest, of)| of.len() > 1 && !set.contains(of) && !is_default(rest, of));
        unset.extend(open.map(|(_, of)| format!("line {}: {of}", step.line)));
        set.extend(step.text.split([' ', ';']).filter_map(|word| Some(name(word.split_once('=')?.0))));
    }
    unset
}

/// Runs a runbook in one shell that stands in a control group of its own, as an operator's does.
#[track_caller]
fn follow(name: &str, variables: &[(&str, &str)]) {
    let page = fs::read_to_string(root().join("runbooks").join(name)).unwrap();
    let steps = steps(name, &page);
    let (dir, elsewhere) = (HostDir::new(), Elsewhere::new());
    let mut script = elsewhere.join() + " || exit\n";
    for (number, step) in steps.iter().enumerate() {
        let output = dir.path(&number.to_string());
        script += &format!(
            "{{ {}\n}} >{output} 2>&1 </dev/null; echo $? >{output}.code\n",
            step.text,
            output = output.display()
        );
    }
    let script = dir.file("script", script, 0o644);
    let mut command = operator("bash");
    command.arg(script).env("SCRIPTS", root().join("scripts")).envs(variables.iter().copied());
    let ended = Started::spawn(command, HostDir::new(), 3 * GUARD).end();
    assert!(ended.status.success(), "{name}: {ended:?}");
    for (number, Step { line, text, codes, prints }) in steps.iter().enumerate() {
        let output = fs::read_to_string(dir.path(&number.to_string())).unwrap();
        let code: i32 = fs::read_to_string(dir.path(&format!("{number}.code"))).unwrap().trim().parse().unwrap();
        assert!(codes.contains(&code), "{name}:{line}: {text}\nexit {code}, expected {codes:?}:\n{output}");
        let printed = prints.as_ref().is_none_or(|text| output.contains(text));
        assert!(printed, "{name}:{line}: {text}\ndoes not print {prints:?}:\n{output}");
    }
}

/// A command as root has it on a worker: in the tree, with `taskman` on the search path, and nobody's certificate.
fn operator(program: &str) -> Command {
    let beside = Path::new(TASKMAN).parent().unwrap().display().to_string();
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command.env("PATH", format!("{beside}:{}", std::env::var("PATH").unwrap()));
    for name in ["TASKMAN", "TASKMAN_USER_ID", "TASKMAN_CERTS", "TASKMAN_SERVER_ADDRESS"] {
        command.env_remove(name);
    }
    command
}

/// A server whose uids are this test's alone.
struct Worker {
    server: Server,
    first_uid: u32,
    state_dir: String,
    config: String,
}

impl Worker {
    /// `number` makes the range its own in this process, and the process's number among those that test beside it.
    #[track_caller]
    fn start(number: u32) -> Self {
        let first_uid = 1_970_000_000 + std::process::id() % 10_000 * 10_000 + 1000 * number;
        let server = Server::configured(&format!("uid_range = \"{first_uid}:1000\"\n"));
        let state_dir = server.state().display().to_string();
        let config = server.options[1].clone();
        Self { server, first_uid, state_dir, config }
    }

    fn instance(&self) -> String {
        fs::read_to_string(self.server.state().join("instance")).unwrap().trim().to_owned()
    }

    /// One that no task has.
    fn free_uid(&self) -> u32 {
        (self.first_uid..self.first_uid + 1000).rev().find(|uid| Process::of_uid(*uid).is_empty()).unwrap()
    }

    fn dead_group(&self) -> DeadGroup {
        DeadGroup::plant(&self.instance(), self.free_uid())
    }

    /// What differs from a worker of the package; all else has its default.
    fn variables(&self) -> [(&str, &str); 2] {
        [("STATE_DIR", &*self.state_dir), ("CONFIG", &*self.config)]
    }

    #[track_caller]
    fn script(&self, name: &str) -> Ended {
        let mut command = operator(&format!("scripts/{name}"));
        command.args(["--state-dir", &self.state_dir, "--config", &self.config]);
        Started::spawn(command, HostDir::new(), GUARD).end()
    }

    /// Healthy, clean, and taking tasks.
    #[track_caller]
    fn assert_back(&self) {
        wait_until("the server takes tasks again", || {
            (self.server.taskman("admin", &["health"]).status.code() == Some(0)).then_some(())
        });
        self.server.text("admin", &["health", "--verify-clean"]);
        let task = self.server.task(&["--", "true"]);
        assert_eq!(self.server.ended(&task)["outcome"]["reason"], "exit");
    }
}

#[test]
fn every_runbook_has_the_same_shape_and_its_links_lead_somewhere() {
    let pages = runbooks();
    assert!(pages.len() >= 6, "{}", pages.len());
    for (name, page) in &pages {
        steps(name, page);
        let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let mut rest = headings.iter();
        for part in ["Symptoms", "Act", "Verify", "Escalate", "Prevention", "After the incident", "Related"] {
            assert!(rest.any(|heading| heading.starts_with(part)), "{name} has no {part:?} in its place: {headings:?}");
        }
        for link in page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            assert!(pages.iter().any(|(other, _)| other == link), "{name}: {link}");
        }
        assert_eq!(unset(&steps(name, page)), Vec::<String>::new(), "{name} uses what no step before has set");
        assert!(
            !steps(name, page).iter().any(|step| step.text.contains("scripts/")),
            "{name}: a worker has no source tree"
        );
        for never in ["xargs kill", "pkill", "killall", "kill -9"] {
            assert!(!page.contains(never), "{name} says {never:?}");
        }
    }
}

/// Where the package puts a script is where the runbooks, cron and the timer call it.
#[test]
fn scripts_are_called_where_the_package_puts_them() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let packaged = read("scripts/package");
    let puts = packaged.lines().find(|line| line.contains("scripts/cleanup-all; do put 755 $file")).expect("a line");
    let (_, rest) = puts.split_once('"').unwrap();
    let folder = format!("/{}", rest.split_once("/${file##*/}").expect("the file's name").0);
    let mut defaults = 0;
    for (name, page) in runbooks() {
        for step in steps(&name, &page) {
            if let Some((_, default)) = step.text.split_once("SCRIPTS=\"${SCRIPTS:-") {
                assert_eq!(default.split_once('}').unwrap().0, folder, "{name}:{}", step.line);
                defaults += 1;
            }
        }
    }
    assert!(defaults >= 4, "only {defaults} runbooks have a default");
    for path in ["scripts/audit-containment", "deploy/systemd/taskman-audit.service"] {
        assert!(read(path).contains(&format!("{folder}/audit-containment ")), "{path} calls another");
    }
}

#[test]
fn the_runbook_of_an_orphan_leads_from_the_finding_to_the_lift() {
    let worker = Worker::start(0);
    let living = worker.server.task(&["--", "sleep", "600"]);
    let mut escaped = stray(worker.free_uid());
    let ended = wait_until("the escaped one is ended", || escaped.try_wait().unwrap());
    assert_eq!(ended.signal(), Some(Signal::SIGKILL as i32));
    wait_until("the escaped one is found", || {
        let text = worker.server.text("admin", &["audit", "findings", "--output", "json"]);
        let findings: Value = serde_json::from_str(&text).unwrap();
        let mut all = findings["findings"].as_array().unwrap().iter();
        all.any(|finding| finding["pid"] == escaped.id()).then_some(())
    });
    follow("orphan-process.md", &worker.variables());
    assert_eq!(worker.server.status(&living)["status"], "JOB_STATUS_STARTED", "who was well, is");
    worker.assert_back();
}

#[test]
fn the_runbook_of_a_cleanup_failure_leads_from_the_leftovers_to_the_lift() {
    let worker = Worker::start(1);
    let left = worker.dead_group();
    assert_eq!(worker.server.taskman("admin", &["audit", "run"]).status.code(), Some(1), "it is found");
    follow("cleanup-failure.md", &worker.variables());
    assert!(!left.exists());
    worker.assert_back();
}

#[test]
fn the_runbook_of_stale_state_leads_from_a_killed_server_to_one_that_takes_tasks() {
    let mut worker = Worker::start(2);
    let lost = worker.server.task(&["--", "sleep", "600"]);
    worker.server.kill();
    let left = worker.dead_group();
    let journal = worker.server.state().join("containment.jsonl");
    let torn = [fs::read(&journal).unwrap_or_default(), b"{\"seq\":1,\"at\"".to_vec()].concat();
    fs::write(&journal, torn).unwrap();
    follow("stale-state.md", &worker.variables());
    assert!(!left.exists());
    worker.server.restart();
    assert_eq!(worker.server.status(&lost)["outcome"]["reason"], "server_lost");
    worker.assert_back();
}

#[test]
fn the_runbook_of_a_quarantine_leads_from_the_refusal_to_the_lift() {
    let worker = Worker::start(3);
    worker.server.text("admin", &["health", "--quarantine", "--reason", "a drill"]);
    let refused = worker.server.taskman("client001", &["start", "--", "true"]);
    let told = &refused.stderr;
    assert!(told.contains("a drill") && told.contains("runbooks/worker-quarantine.md"), "{refused:?}");
    follow("worker-quarantine.md", &worker.variables());
    worker.assert_back();
}

#[test]
fn the_runbook_of_certificates_leads_to_a_client_that_is_shut_out() {
    let server = Server::start();
    server.text("client001", &["list"]);
    let certs = server.certs().display().to_string();
    follow("certificate-rotation.md", &[("TASKMAN_CERTS", &certs), ("CLIENT", "client001")]);
    wait_until("client001 is shut out", || (!server.taskman("client001", &["list"]).status.success()).then_some(()));
    server.text("admin", &["list"]);
}

#[test]
fn the_runbook_of_the_host_runs_as_written() {
    follow("host-setup.md", &[]);
}

#[test]
fn the_audit_script_is_silent_when_all_is_well_and_tells_what_is_not() {
    let worker = Worker::start(4);
    for _ in 0..2 {
        let well = worker.script("audit-containment");
        assert_eq!((well.status.code(), well.stdout.len(), well.stderr.len()), (Some(0), 0, 0), "{well:?}");
    }
    let left = worker.dead_group();
    let found = worker.script("audit-containment");
    let told = &found.stderr;
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(told.starts_with("audit-containment: error: found something"), "{told}");
    assert!(told.contains("orphan-process.md") && told.contains(&left.task), "{told}");

    let mut nowhere = operator("scripts/audit-containment");
    nowhere.args(["--state-dir", "/nonexistent"]);
    let failed = Started::spawn(nowhere, HostDir::new(), GUARD).end();
    assert!(
        failed.status.code().is_some_and(|code| code > 1),
        "an audit that was not made is no clean one: {failed:?}"
    );
    assert!(failed.stderr.starts_with("audit-containment: error: the audit was not made"), "{failed:?}");
}

#[test]
fn the_cleanup_script_takes_everything_of_its_instance_and_nothing_else() {
    let worker = Worker::start(5);
    // A second one, and `taskman run`, with uids of the same range.
    let neighbour = Server::configured(&format!("uid_range = \"{}:1000\"\n", worker.first_uid));
    let (ours, theirs) = (worker.server.task(&["--", "sleep", "600"]), neighbour.task(&["--", "sleep", "600"]));
    let foreign = fs::read_to_string(neighbour.state().join("instance")).unwrap();
    let (left, other) = (worker.dead_group(), DeadGroup::plant(foreign.trim(), 0));
    let file = PathBuf::from("/dev/shm").join(&left.task);
    fs::write(&file, "x").unwrap();
    std::os::unix::fs::chown(&file, Some(worker.free_uid()), None).unwrap();
    for round in 1..=2 {
        let swept = worker.script("cleanup-all");
        assert_eq!(swept.status.code(), Some(0), "round {round}: {swept:?}");
        assert!(swept.text().contains("clean"), "{swept:?}");
        assert!(!left.exists() && !file.exists());
    }
    assert!(other.exists(), "another instance's is that one's to sweep");
    for (server, task) in [(&worker.server, &ours), (&neighbour, &theirs)] {
        assert_eq!(server.status(task)["status"], "JOB_STATUS_STARTED");
    }
}
