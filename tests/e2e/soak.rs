//! A thousand tasks, clients that go away at any moment, and a server that is killed in the middle.
//!
//! Every start has a token and is repeated until it is answered, as a careful client does. In the end each token has one task,
//! each task that was seen to end is as it was seen, and each output is whole, or the beginning of what it would have been.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use taskman::client::{
    Client, ClientError, Credentials, ListTasksRequest, OutputRequest, StartTaskRequest, TaskStatusResponse,
};
use taskman::task::id::TaskId;
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::support::server::unwatched;
use crate::support::supervisor::{nonce, send};
use crate::support::{HostDir, Server, wait_until};

const TASKS: usize = 1000;
/// Tasks that write all the time, with a reader each, while the server is killed.
const WRITERS: usize = 6;
const WORKERS: usize = 8;

/// What a task is, what it prints, and how it must end if nobody kills the server.
struct Kind {
    script: String,
    output: Vec<u8>,
    reason: &'static str,
    exit_code: Option<i32>,
}

fn kind(number: usize) -> Kind {
    let kind = |script: String, output: Vec<u8>, reason, exit_code| Kind { script, output, reason, exit_code };
    match number % 5 {
        0 => kind(format!("echo {number}"), format!("{number}\n").into(), "exit", Some(0)),
        1 => kind(format!("exit {}", number % 256), Vec::new(), "exit", Some((number % 256) as i32)),
        2 => {
            let (line, bytes) = (format!("line of {number}\n"), 1000 + number * 40);
            let output = line.bytes().cycle().take(bytes).collect();
            kind(format!("yes 'line of {number}' | head -c {bytes}"), output, "exit", Some(0))
        }
        3 => {
            let output: String = (1..=number).map(|n| format!("{n}\n")).collect();
            kind(format!("seq {number}; kill -USR1 $$"), output.into(), "signal", None)
        }
        _ => kind(format!("echo {number}; exec sleep 1000"), format!("{number}\n").into(), "stopped", None),
    }
}

/// Everyone's view of the same server, over its restart.
struct Soak {
    address: String,
    certs: PathBuf,
    nonce: String,
    next: AtomicUsize,
    answered: Mutex<BTreeMap<usize, TaskId>>,
    ended: Mutex<HashMap<usize, TaskStatusResponse>>,
    repeated: AtomicUsize,
    dropped: AtomicUsize,
}

/// Not random, and not a pattern either.
fn scatter(number: usize) -> usize {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Worth another try: the server is away, or has no room just now.
fn passes(error: &ClientError) -> bool {
    error.is_passing()
        || matches!(error, ClientError::Status { code: Code::ResourceExhausted, .. })
        || matches!(error, ClientError::Status { message, .. } if unwatched(message))
}

impl Soak {
    async fn connect(&self) -> Client {
        let credentials = Credentials::from_dir(&self.certs, "client001").unwrap();
        loop {
            match Client::connect(&self.address, &credentials).await {
                Ok(client) => return client,
                Err(error) if passes(&error) => sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Gets ready to ask again, if that can help.
    async fn again(&self, client: &mut Client, error: ClientError) {
        assert!(passes(&error), "{error}");
        self.repeated.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(20)).await;
        *client = self.connect().await;
    }

    fn request(&self, number: usize, script: &str) -> StartTaskRequest {
        StartTaskRequest {
            command: "sh".into(),
            args: vec!["-c".into(), script.to_owned()],
            env: [("NONCE".to_owned(), self.nonce.clone())].into(),
            labels: [("n".to_owned(), number.to_string())].into(),
            client_token: format!("soak-{number}"),
            ..Default::default()
        }
    }

    async fn start(&self, client: &mut Client, number: usize, script: &str) -> TaskId {
        let request = self.request(number, script);
        // A client that goes away while its task starts, and comes back.
        if scatter(number).is_multiple_of(4) {
            let patience = Duration::from_millis(scatter(number) as u64 % 20);
            drop(timeout(patience, client.start(request.clone())).await);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        let task = loop {
            match client.start(request.clone()).await {
                Ok(task) => break task,
                Err(error) => self.again(client, error).await,
            }
        };
        self.answered.lock().unwrap().insert(number, task);
        task
    }

    async fn work(self: Arc<Self>) {
        let mut client = self.connect().await;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= TASKS {
                return;
            }
            let kind = kind(number);
            let task = self.start(&mut client, number, &kind.script).await;
            // A reader that goes away after a look.
            if scatter(number).is_multiple_of(3) {
                if let Ok(mut output) = client.stream(OutputRequest::all(task)).await {
                    drop(timeout(Duration::from_millis(5), output.next()).await);
                }
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            if kind.reason == "stopped" {
                while let Err(error) = client.stop(task, Some(Duration::from_secs(5))).await {
                    self.again(&mut client, error).await;
                }
            }
            if !number.is_multiple_of(7) {
                let ended = loop {
                    match client.wait(task, None).await {
                        Ok(ended) => break ended,
                        Err(error) => self.again(&mut client, error).await,
                    }
                };
                self.ended.lock().unwrap().insert(number, ended);
            }
        }
    }

    /// What a reader of a task that never ends has seen until its server died.
    async fn follow(self: Arc<Self>, number: usize) -> (TaskId, Vec<u8>) {
        let mut client = self.connect().await;
        let script = "i=0; while :; do i=$((i+1)); echo $i; [ $((i % 50)) != 0 ] || sleep 0.1; done";
        let task = self.start(&mut client, TASKS + number, script).await;
        let mut seen = Vec::new();
        let mut output = client.stream(OutputRequest::all(task)).await.unwrap();
        while let Ok(Some(chunk)) = output.next().await {
            assert_eq!(chunk.offset, seen.len() as u64, "a gap");
            seen.extend_from_slice(&chunk.bytes);
        }
        (task, seen)
    }
}

async fn read(client: &Client, task: TaskId) -> Vec<u8> {
    let mut output = client.stream(OutputRequest { follow: false, ..OutputRequest::all(task) }).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = output.next().await.unwrap() {
        bytes.extend_from_slice(&chunk.bytes);
    }
    bytes
}

async fn list(client: &Client) -> Vec<TaskStatusResponse> {
    let (mut tasks, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = client.list(ListTasksRequest { page_token, page_size: 300, ..Default::default() }).await.unwrap();
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return tasks;
        }
    }
}

#[test]
fn a_thousand_tasks_survive_clients_that_go_and_a_server_that_is_killed() {
    let began = Instant::now();
    let dir = HostDir::new();
    let config = "[quota]\nrequests_per_second = 100000\nburst = 100000\n";
    let config = dir.file("config.toml", config, 0o644);
    let mut server = Server::with(&["--config", config.to_str().unwrap(), "--log-level", "error"]);
    let soak = Arc::new(Soak {
        address: server.address.clone(),
        certs: server.certs(),
        nonce: nonce(),
        next: AtomicUsize::new(0),
        answered: Mutex::default(),
        ended: Mutex::default(),
        repeated: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let writers: Vec<_> = (0..WRITERS).map(|number| runtime.spawn(Arc::clone(&soak).follow(number))).collect();
    let workers: Vec<_> = (0..WORKERS).map(|_| runtime.spawn(Arc::clone(&soak).work())).collect();
    let far = |count: usize| soak.answered.lock().unwrap().len() >= count || workers.iter().any(|w| w.is_finished());
    // A busy host may take its time, as long as it goes on.
    let started = |count: usize| {
        for step in (0..=count).step_by(10) {
            wait_until(&format!("{step} are started"), || far(step).then_some(()));
        }
    };
    started(TASKS / 4);
    // Programs too are killed while they read.
    let first = *soak.answered.lock().unwrap().values().next_back().unwrap();
    for _ in 0..3 {
        drop(server.begin("client001", &["stream", &first.to_string()]));
    }
    started(TASKS / 2);
    let seen_before: Vec<(usize, TaskStatusResponse)> = soak.ended.lock().unwrap().clone().into_iter().collect();
    let traces = server.traces(&soak.nonce);
    send(server.half(), Signal::SIGKILL);
    traces.assert_dead_within(Duration::from_secs(2));
    server.end();
    server.restart();
    runtime.block_on(async {
        for worker in workers {
            worker.await.unwrap();
        }
    });
    let sound = runtime.block_on(check(&soak, &seen_before, writers));
    // Every task has ended, and nothing of it is left but its record; nor of the connections.
    let half = server.half();
    wait_until("the server's descriptors are those of an idle one", || (half.list("fd").len() < 40).then_some(()));
    let traces = server.traces(&soak.nonce);
    let stopped = server.stop();
    assert_eq!(stopped.status.code(), Some(0), "{stopped:?}");
    traces.assert_nothing_left();
    println!(
        "soak: {} in {:.1?}; {} requests repeated, {} clients or streams dropped, {} ends seen before the kill",
        sound,
        began.elapsed(),
        soak.repeated.load(Ordering::Relaxed),
        soak.dropped.load(Ordering::Relaxed),
        seen_before.len(),
    );
}

type Writer = tokio::task::JoinHandle<(TaskId, Vec<u8>)>;

async fn check(soak: &Soak, seen_before: &[(usize, TaskStatusResponse)], writers: Vec<Writer>) -> String {
    let client = soak.connect().await;
    let answered = soak.answered.lock().unwrap().clone();
    assert_eq!(answered.len(), TASKS + WRITERS);
    let waited = soak.ended.lock().unwrap().clone();
    for (_, task) in answered.iter().filter(|(number, _)| !waited.contains_key(number)) {
        let ended = timeout(Duration::from_secs(20), client.wait(*task, None)).await;
        ended.expect("it ends").unwrap();
    }
    let listed = list(&client).await;
    let mut by_number = HashMap::new();
    for task in &listed {
        let number: usize = task.labels["n"].parse().unwrap();
        assert!(by_number.insert(number, task).is_none(), "task {number} was doubled");
    }
    assert_eq!(by_number.len(), answered.len(), "lost, or started and never answered");
    let (mut lost, mut whole) = (0, 0);
    for (number, task) in answered.iter().filter(|(number, _)| **number < TASKS) {
        let (kind, status) = (kind(*number), by_number[number]);
        assert_eq!(status.task_id, task.to_string(), "the token of {number} has another task");
        let output = read(&client, *task).await;
        if status.reason == "server_lost" {
            lost += 1;
            assert!(kind.output.starts_with(&output), "{number}: not the beginning of its output");
            continue;
        }
        whole += 1;
        // A sleeper may be stopped before it has printed.
        let complete = output == kind.output || (kind.reason == "stopped" && output.is_empty());
        assert!(complete, "{number}: {} of {} bytes", output.len(), kind.output.len());
        assert_eq!((&*status.reason, status.exit_code), (kind.reason, kind.exit_code), "{number}: {status:?}");
        assert_eq!(status.containment.as_ref().unwrap().verdict, "proven", "{number}");
    }
    for (number, status) in seen_before {
        assert_eq!(by_number[number], status, "{number} had ended before the kill");
    }
    let mut bytes = 0;
    for writer in writers {
        let (task, seen) = writer.await.unwrap();
        let stored = read(&client, task).await;
        assert!(stored.starts_with(&seen), "{} bytes were read, {} are stored", seen.len(), stored.len());
        let lines = String::from_utf8(stored).unwrap();
        assert!(lines.lines().zip(1..).take(lines.matches('\n').count()).all(|(line, n)| line == format!("{n}")));
        assert!(!seen.is_empty());
        bytes += seen.len();
    }
    assert!(lost <= WORKERS * 4 + TASKS / 20, "{lost} tasks ran when the server was killed");
    format!(
        "{whole} tasks whole, {lost} lost with the server, {WRITERS} writers with {bytes} bytes read and none missing"
    )
}
