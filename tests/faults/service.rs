//! Faults of the service: the launcher, the server or a process of the sandbox is killed, or stands still, at every point of
//! a task's life and of the service's own start.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::Value;
use taskman::client::{Client, ClientError, Credentials, StartTaskRequest};

use crate::Suite;
use crate::host::sigkill;
use crate::points;
use crate::run::{LAST, STILL, WORK};
use crate::support::supervisor::nonce;
use crate::support::{GUARD, HostDir, Process, Server, Started, wait_until};
use crate::table::Tally;

/// Whom a fault hits.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Launcher,
    Server,
    Init,
    Payload,
}

/// One server over many deaths, with one state directory.
struct Service<'a> {
    suite: &'a Suite,
    server: Server,
}

/// A start that was asked for, and its answer.
struct Asked {
    /// Token, label and variable in one.
    nonce: String,
    answer: JoinHandle<Result<String, ClientError>>,
}

impl<'a> Service<'a> {
    fn start(suite: &'a Suite) -> Self {
        let dir = HostDir::new();
        // There is one uid, and it is the task's.
        let text = format!("uid_range = {:?}\n[warm]\nslots = 0\n", suite.host.service_uid());
        let config = dir.file("config.toml", text, 0o644);
        let server = Server::prepare(&["--config", config.to_str().unwrap()]).keeping(dir);
        let mut server = server.mutated("TASKMAN_FAULT", suite.page.path.to_str().unwrap());
        suite.page.clear();
        server.launch();
        Self { suite, server }
    }

    /// Asks for a task, and does not wait for the answer.
    fn ask(&self, nonce: &str, command: &[&str]) -> Asked {
        let (command, args) = command.split_first().expect("a command");
        let request = StartTaskRequest {
            command: (*command).to_owned(),
            args: args.iter().map(ToString::to_string).collect(),
            env: BTreeMap::from([("NONCE".to_owned(), nonce.to_owned())]),
            labels: BTreeMap::from([("nonce".to_owned(), nonce.to_owned())]),
            client_token: nonce.to_owned(),
            ..Default::default()
        };
        let (address, certs) = (self.server.address.clone(), self.server.certs());
        let answer = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = Client::connect(&address, &Credentials::from_dir(&certs, "client001")?).await?;
                // An auditor that is kept from its processor on a busy host is replaced: "try again", the server says.
                let deadline = Instant::now() + GUARD;
                loop {
                    match client.start(request.clone()).await {
                        Err(ClientError::Status { message, .. })
                            if message.contains("try again") && Instant::now() < deadline =>
                        {
                            tokio::time::sleep(STILL).await;
                        }
                        answer => return answer.map(|task| task.to_string()),
                    }
                }
            })
        });
        Asked { nonce: nonce.to_owned(), answer }
    }

    /// What is recorded of the task with this label.
    #[track_caller]
    fn recorded(&self, nonce: &str) -> Vec<Value> {
        let label = format!("nonce={nonce}");
        let text = self.server.text("admin", &["list", "--all", "--label", &label, "--output", "json"]);
        let listed: Value = serde_json::from_str(&text).expect("JSON");
        listed["tasks"].as_array().expect("tasks").clone()
    }

    /// A task that runs and ends as it should, and of which nothing is left.
    #[track_caller]
    fn assert_works(&self, nonce: &str) {
        let task = self.ask(nonce, &WORK).answer.join().unwrap();
        let task = task.unwrap_or_else(|error| panic!("the next start does not work: {error}; {}", self.incidents()));
        let ended = self.server.ended(&task);
        self.assert_done(&ended);
        assert_eq!(ended["containment"]["verdict"], "proven", "{ended:#}");
        assert_eq!(self.recorded(nonce).len(), 1);
        self.suite.host.assert_nothing_left();
        assert_eq!(self.incidents(), "");
    }

    #[track_caller]
    fn assert_done(&self, ended: &Value) {
        let outcome = &ended["outcome"];
        assert_eq!((&outcome["reason"], &outcome["exit_code"]), (&"exit".into(), &3.into()), "{ended:#}");
        assert_eq!(self.server.output(ended["task_id"].as_str().unwrap()), b"ran\ndone\n");
    }

    /// What the auditor has found, which must be nothing: a fault of taskman's own is no escape.
    fn incidents(&self) -> String {
        let files = std::fs::read_dir(self.server.state().join("incidents")).into_iter().flatten().flatten();
        files.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
    }

    fn pid(&self, who: Victim) -> i32 {
        match who {
            Victim::Launcher => self.server.launcher().pid,
            Victim::Server => self.server.half().pid,
            Victim::Init => self.suite.host.inside(1).expect("an init"),
            Victim::Payload => self.suite.host.inside(2).expect("a payload"),
        }
    }

    /// Stands a start still at `point`; `fault` is what happens then.
    fn at(&self, point: &str, command: &[&str], fault: impl FnOnce()) -> Asked {
        self.suite.page.arm(point);
        let asked = self.ask(&nonce(), command);
        self.suite.page.wait_standing();
        let runs = self.suite.host.payload_runs(&asked.nonce);
        assert!(!runs || points::may_run_at(point), "the command runs already");
        fault();
        self.suite.page.release();
        asked
    }

    /// Both processes and all tasks end; then it is started again.
    #[track_caller]
    fn dies(&mut self) {
        let ended = self.server.end();
        assert_ne!(ended.status.code(), Some(0), "{ended:?}");
        self.suite.host.assert_dead();
        self.suite.page.clear();
        self.server.restart();
    }

    /// Launcher or server is killed during a task's life: says what the next server tells of the task.
    fn loses(&mut self, point: &str, who: Victim) -> String {
        let command = points::command_until(point);
        let asked = self.at(point, command, || sigkill(self.pid(who)));
        let answer = asked.answer.join().unwrap();
        self.dies();
        let tasks = self.recorded(&asked.nonce);
        assert_eq!(tasks.len(), 1, "recorded before it exists, and once: {tasks:#?}");
        let (task, reason) = (&tasks[0], tasks[0]["outcome"]["reason"].as_str().unwrap_or("none"));
        if let Ok(id) = answer {
            assert_eq!(task["task_id"], *id);
        }
        match reason {
            "server_lost" => assert_eq!(task["containment"]["verdict"], "unproven", "{task:#}"),
            _ => self.assert_done(task),
        }
        // The launcher's last word was heard; whether it is recorded before the server ends is open.
        let was_heard = who == Victim::Launcher && ["server.ended", "server.flushed"].contains(&point);
        assert!(reason == "server_lost" || was_heard || point == "server.final", "{task:#}");
        assert!(reason != "server_lost" || point != "server.final", "{task:#}");
        // Asked for again, it is the same task, and not run twice.
        let again = self.ask(&asked.nonce, command).answer.join().unwrap().expect("the answer of the first");
        assert_eq!(task["task_id"], *again);
        self.assert_works(&nonce());
        format!("{reason}, one task for the token")
    }

    /// A process of the sandbox is killed during its start: says what the client is told.
    fn fails_to_start(&self, point: &str, who: Victim) -> String {
        let asked = self.at(point, &WORK, || sigkill(self.pid(who)));
        match (asked.answer.join().unwrap(), point) {
            // All was confined and said so; what is killed before execve is a task that was killed.
            // An init that has said `go` holds its payload up no more (see run.rs).
            (Ok(task), point) if point == "payload.start" || (who == Victim::Init && point.starts_with("payload.")) => {
                let ended = self.server.ended(&task);
                let reason = if who == Victim::Init { "containment" } else { "signal" };
                assert_eq!(ended["outcome"]["reason"], reason, "{ended:#}");
                assert_eq!(ended["containment"]["verdict"], "proven", "{ended:#}");
                self.suite.host.assert_nothing_left();
                self.assert_works(&nonce());
                format!("{reason}, proven")
            }
            (Err(ClientError::Status { code, message, .. }), _) => {
                assert!(points::tells_of_a_death(&message), "{message}");
                assert_eq!(self.recorded(&asked.nonce), Vec::<Value>::new());
                self.suite.host.assert_nothing_left();
                // There was no task, so the token is free.
                self.assert_works(&asked.nonce);
                format!("{code:?}: the sandbox was killed; no task")
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Suite {
    /// The points of the service's start, of a task that runs and ends, and of one whose command does not exist.
    pub fn trace_service(&self) -> [Vec<String>; 3] {
        let service = Service::start(self);
        let is_ready = |points: &Vec<String>| points.iter().any(|point| point == "auditor.ready");
        let begun = wait_until("the auditor is ready", || Some(self.page.passed()).filter(is_ready));
        self.page.clear();
        service.assert_works(&nonce());
        let task = self.page.passed();
        self.page.clear();
        service.ask(&nonce(), &["/nonexistent"]).answer.join().unwrap().expect_err("it does not exist");
        [begun, task, self.page.passed()]
    }
}

/// Children of a launcher that are its auditor, or that are not.
fn children(launcher: i32, auditor: bool) -> Vec<Process> {
    let is_auditor = |process: &Process| {
        std::fs::read(process.path("cmdline")).is_ok_and(|words| words.ends_with(b"\0auditor\0")) == auditor
    };
    Process::children_of(launcher).into_iter().filter(is_auditor).collect()
}

/// One fault at each of these points, with one service as long as all goes well.
fn at_each<'a>(
    suite: &Suite,
    (what, fault): (&'static str, &'static str),
    points: impl IntoIterator<Item = (usize, &'a String)>,
    trial: impl Fn(&mut Service<'_>, &str) -> String,
) {
    let mut tally = Tally::new(suite, what, fault);
    let mut service = Service::start(suite);
    for (at, point) in points {
        if !tally.trial(at, point, || trial(&mut service, point)) {
            service = Service::start(suite);
        }
    }
    tally.end();
}

pub fn a_killed_launcher_of_the_service_is_told_and_leaves_nothing(suite: &Suite) {
    let points = suite.traces.service.iter().enumerate();
    at_each(suite, ("service", "launcher killed"), points, |service, point| service.loses(point, Victim::Launcher));
}

pub fn a_killed_server_is_told_and_leaves_nothing(suite: &Suite) {
    let points = suite.traces.service.iter().enumerate();
    at_each(suite, ("service", "server killed"), points, |service, point| service.loses(point, Victim::Server));
}

pub fn a_killed_init_of_a_starting_task_is_told_to_the_client(suite: &Suite) {
    let points = suite.traces.service.iter().enumerate().filter(|(_, point)| points::has_init(point));
    at_each(suite, ("service", "init killed"), points, |service, point| service.fails_to_start(point, Victim::Init));
}

pub fn a_killed_payload_of_a_starting_task_is_told_to_the_client(suite: &Suite) {
    let points = suite.traces.service.iter().enumerate().filter(|(_, point)| points::has_payload(point));
    let killed = ("service", "payload killed");
    at_each(suite, killed, points, |service, point| service.fails_to_start(point, Victim::Payload));
}

/// Whoever stands still for a while is waited for.
pub fn a_process_of_the_service_that_stands_still_is_waited_for(suite: &Suite) {
    let points = suite.traces.service.iter().enumerate();
    at_each(suite, ("service", "stopped for 50 ms"), points, |service, point| {
        let asked = service.at(point, &WORK, || std::thread::sleep(STILL));
        let task = asked.answer.join().unwrap().expect("it starts");
        let ended = service.server.ended(&task);
        service.assert_done(&ended);
        assert_eq!(ended["containment"]["verdict"], "proven", "{ended:#}");
        suite.host.assert_nothing_left();
        assert_eq!(service.incidents(), "", "a task that takes its time is no finding");
        "exit 3, proven, no finding".to_owned()
    });
}

/// Launcher or server dies while a start that failed is taken back: there may be a record, and never a second task.
pub fn a_death_while_a_failed_start_is_taken_back_leaves_nothing(suite: &Suite) {
    for (who, fault) in [(Victim::Launcher, "launcher killed"), (Victim::Server, "server killed")] {
        let points = points::beyond(&suite.traces.failed_service, &suite.traces.service);
        at_each(suite, ("no start", fault), points, |service, point| {
            let asked = service.at(point, &["/nonexistent"], || sigkill(service.pid(who)));
            asked.answer.join().unwrap().expect_err("it does not exist");
            service.dies();
            let tasks = service.recorded(&asked.nonce);
            assert!(tasks.len() < 2, "{tasks:#?}");
            assert!(tasks.iter().all(|task| task["outcome"]["reason"] == "server_lost"), "{tasks:#?}");
            service.assert_works(&nonce());
            if tasks.is_empty() { "no task".to_owned() } else { "server_lost".to_owned() }
        });
    }
}

/// The next server dies too, while it starts; the one after it tells what the first has lost.
pub fn a_death_while_the_service_starts_loses_nothing(suite: &Suite) {
    for (who, fault) in [(Victim::Launcher, "launcher killed"), (Victim::Server, "server killed")] {
        let is_there =
            |point: &str| point.starts_with("server.") || (who == Victim::Launcher && point.starts_with("launcher."));
        let points = suite.traces.begun.iter().enumerate().filter(|(_, point)| is_there(point));
        at_each(suite, ("restart", fault), points, |service, point| {
            let asked = service.ask(&nonce(), &LAST);
            let task = asked.answer.join().unwrap().expect("it runs");
            service.server.kill();
            suite.host.assert_dead();
            suite.page.arm(point);
            let second = Started::spawn(service.server.command_line(), HostDir::new(), GUARD);
            suite.page.wait_standing();
            let launcher = second.pid();
            let half = || children(launcher, false).first().expect("a server").pid;
            sigkill(if who == Victim::Launcher { launcher } else { half() });
            suite.page.release();
            let ended = second.end();
            assert_ne!(ended.status.code(), Some(0), "{ended:?}");
            suite.host.assert_dead();
            suite.page.clear();
            service.server.restart();
            let tasks = service.recorded(&asked.nonce);
            assert_eq!((tasks.len(), &tasks[0]["task_id"]), (1, &task.into()));
            assert_eq!(tasks[0]["outcome"]["reason"], "server_lost");
            service.assert_works(&nonce());
            "the third start tells server_lost".to_owned()
        });
    }
}

/// An auditor that dies, or falls silent, is replaced; until then nothing is started, and then all is as before.
pub fn a_lost_auditor_is_replaced(suite: &Suite) {
    let is_its = |point: &&(usize, &String)| point.1.starts_with("auditor.");
    for fault in ["auditor killed", "auditor stopped"] {
        let mut tally = Tally::new(suite, "service", fault);
        for (at, point) in suite.traces.begun.iter().enumerate().collect::<Vec<_>>().iter().filter(is_its) {
            tally.trial(*at, point, || {
                // A new service each time: three losses are a quarantine.
                let service = Service::start(suite);
                // The first one is beyond every point by then.
                wait_until("it watches", || suite.page.passed().iter().any(|it| it == "auditor.ready").then_some(()));
                let launcher = service.server.launcher().pid;
                let auditor = || wait_until("there is an auditor", || children(launcher, true).first().copied());
                suite.page.arm(point);
                sigkill(auditor().pid);
                suite.page.wait_standing();
                let second = auditor();
                if fault == "auditor killed" {
                    sigkill(second.pid);
                } else {
                    wait_until("the silent one is gone", || (auditor() != second).then_some(()));
                }
                suite.page.release();
                service.assert_works(&nonce());
                assert_ne!(auditor(), second);
                "replaced, starts work, no finding".to_owned()
            });
        }
        tally.end();
    }
}
