//! What Prometheus reads: off until asked for, true to what was done, and out of reach of those who mean no good.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::scrape::{ask, connect, scrape, series};
use crate::support::{GUARD, Process, Server, cgroups, pace, wait_until};

/// Every family, with its type.
const FAMILIES: [(&str, &str); 21] = [
    ("taskman_audit_seconds", "histogram"),
    ("taskman_audit_unseen_places", "gauge"),
    ("taskman_auditor_heartbeat_age_seconds", "gauge"),
    ("taskman_build_info", "gauge"),
    ("taskman_cleanup_failures_total", "counter"),
    ("taskman_containment_violations_total", "counter"),
    ("taskman_limit_hits_total", "counter"),
    ("taskman_orphan_processes_detected_total", "counter"),
    ("taskman_quarantined", "gauge"),
    ("taskman_stream_bytes_total", "counter"),
    ("taskman_streams_open", "gauge"),
    ("taskman_task_cleanup_seconds", "histogram"),
    ("taskman_task_ends_total", "counter"),
    ("taskman_task_start_seconds", "histogram"),
    ("taskman_task_starts_total", "counter"),
    ("taskman_tasks", "gauge"),
    ("taskman_uid_pool_size", "gauge"),
    ("taskman_uid_pool_used", "gauge"),
    ("taskman_warm_build_seconds", "histogram"),
    ("taskman_warm_slots", "gauge"),
    ("taskman_warm_starts_total", "counter"),
];

fn watched() -> Server {
    Server::with(&["--metrics-address", "localhost:0"])
}

/// Prometheus's own judge of the format, which also knows what good names are.
fn lint(text: &str) {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/bin/promtool");
    let mut child = Command::new(tool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{tool}: {error}; `scripts/test install` brings it"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn metrics_are_off_until_they_are_asked_for() {
    let server = Server::start();
    assert_eq!(server.metrics, None);
    // The service's own port is the only one it listens on.
    let listening = Command::new("ss").args(["-Hltnp"]).output().unwrap();
    let listening = String::from_utf8(listening.stdout).unwrap();
    let pid = format!("pid={},", server.half().pid);
    assert_eq!(listening.lines().filter(|line| line.contains(&pid)).count(), 1, "{listening}");
}

#[test]
fn every_series_is_there_from_the_start_in_a_form_that_prometheus_reads() {
    let server = watched();
    assert!(server.metrics.as_deref().is_some_and(|address| address.starts_with("127.0.0.1:")), "{:?}", server.metrics);
    let text = scrape(&server);
    lint(&text);
    for (name, kind) in FAMILIES {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}");
    }
    assert_eq!(text.matches("# TYPE ").count(), FAMILIES.len(), "a family that this test does not know: {text}");
    let zero = [
        "taskman_containment_violations_total{kind=\"orphan_detected\"}",
        "taskman_containment_violations_total{kind=\"confinement_lost\"}",
        "taskman_orphan_processes_detected_total",
        "taskman_quarantined",
        "taskman_cleanup_failures_total",
        "taskman_limit_hits_total{limit=\"memory\"}",
        "taskman_task_starts_total{outcome=\"failed\"}",
        "taskman_task_ends_total{reason=\"containment\"}",
        "taskman_task_start_seconds_bucket{le=\"+Inf\"}",
        "taskman_streams_open",
        "taskman_uid_pool_used",
    ];
    let series = series(&text);
    for name in zero {
        assert_eq!(series.get(name), Some(&0.0), "{name}");
    }
    assert_eq!(series["taskman_uid_pool_size"], 65536.0);
    assert_eq!(series[concat!("taskman_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}")], 1.0);
}

#[test]
fn counters_rise_by_what_was_done() {
    let server = watched();
    let done = server.task(&["--", "sh", "-c", "echo hello"]);
    let eater = server.task(&["--memory", "32M", "--", "perl", "-e", "my $x = 'a' x (256 << 20)"]);
    let long = server.task(&["--", "sleep", "600"]);
    assert_eq!(server.ended(&done)["outcome"]["reason"], "exit");
    assert_eq!(server.ended(&eater)["outcome"]["reason"], "oom");
    assert_eq!(server.taskman("client001", &["start", "--", "/no/such/command"]).status.code(), Some(127));
    assert_eq!(server.text("client001", &["stream", &done]), "hello\n");

    let mut reader = server.begin("client001", &["stream", &long]);
    let now = wait_until("the reader is there, and one uid is taken", || {
        let now = series(&scrape(&server));
        (now["taskman_streams_open"] == 1.0 && now["taskman_uid_pool_used"] == 1.0).then_some(now)
    });
    assert_eq!(now["taskman_tasks{state=\"running\"}"], 1.0);
    reader.signal(nix::sys::signal::Signal::SIGINT);
    reader.end();
    server.text("client001", &["stop", &long, "--grace", "0s"]);
    server.ended(&long);

    let text = wait_until("nothing is left of the tasks and the reader", || {
        let text = scrape(&server);
        let now = series(&text);
        (now["taskman_uid_pool_used"] + now["taskman_streams_open"] == 0.0).then_some(text)
    });
    lint(&text);
    let series = series(&text);
    let is = |name: &str, value: f64| assert_eq!(series.get(name), Some(&value), "{name} in\n{text}");
    is("taskman_task_starts_total{outcome=\"started\"}", 3.0);
    is("taskman_task_starts_total{outcome=\"invalid\"}", 1.0);
    is("taskman_task_starts_total{outcome=\"failed\"}", 0.0);
    is("taskman_task_start_seconds_count", 3.0);
    is("taskman_task_ends_total{reason=\"exit\"}", 1.0);
    is("taskman_task_ends_total{reason=\"oom\"}", 1.0);
    is("taskman_task_ends_total{reason=\"stopped\"}", 1.0);
    is("taskman_task_ends_total{reason=\"signal\"}", 0.0);
    is("taskman_limit_hits_total{limit=\"memory\"}", 1.0);
    is("taskman_limit_hits_total{limit=\"timeout\"}", 0.0);
    is("taskman_task_cleanup_seconds_count", 3.0);
    is("taskman_cleanup_failures_total", 0.0);
    is("taskman_stream_bytes_total", 6.0);
    let cleanup = series["taskman_task_cleanup_seconds_sum"];
    assert!(cleanup > 0.0 && cleanup < 3.0 * GUARD.as_secs_f64(), "{cleanup}");
    assert!(series["taskman_task_start_seconds_sum"] > 0.0);
}

#[test]
fn nothing_a_client_sends_makes_a_series() {
    let server = watched();
    let names = |text: &str| series(text).into_keys().collect::<Vec<_>>();
    let before = names(&scrape(&server));
    for number in 0..20 {
        let label = format!("name{number}=\"}} value{number}");
        let profile = format!("profile{number}");
        server.task(&["--label", &label, "--", &format!("/bin/../bin/{}true", "./".repeat(number))]);
        server.taskman("client001", &["start", "--profile", &profile, "--", "true"]);
        server.taskman("client001", &["start", "--", &format!("/no/such/{number}")]);
        ask(&server, format!("GET /metrics/{number}?kind={number} HTTP/1.1\r\nHost: h{number}\r\n\r\n").as_bytes());
    }
    let after = scrape(&server);
    assert_eq!(names(&after), before);
    assert_eq!(series(&after)["taskman_task_starts_total{outcome=\"invalid\"}"], 40.0);
}

#[test]
fn everything_but_a_scrape_is_not_found() {
    let server = watched();
    for request in ["GET /", "GET /metrics/", "POST /metrics", "DELETE /metrics", "GET /debug/pprof", "GET //metrics"] {
        let answer = ask(&server, format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 404 "), "{request}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{request} is told something: {answer}");
    }
    // One answer, and the connection is over: a scraper holds nothing.
    let twice = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    assert_eq!(ask(&server, &twice).matches("HTTP/1.1 ").count(), 1);
}

#[test]
fn garbage_and_idle_connections_disturb_neither_the_service_nor_the_next_scrape() {
    let server = watched();
    scrape(&server);
    let before = server.half().list("fd").len();
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..], b"\0\0\0\0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET"]
    {
        let mut socket = connect(&server);
        socket.write_all(garbage).unwrap();
    }
    let endless = [&b"GET /metrics HTTP/1.1\r\n"[..], &b"X-Long: y\r\n".repeat(10_000)].concat();
    let refused = ask(&server, &endless);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431"), "{refused}");
    let idle: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut socket = connect(&server);
            if number % 2 == 0 {
                let _ = socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
            }
            socket
        })
        .collect();
    // At most sixteen of them have a place, and not one is in the way of a scrape or a task.
    let open = server.half().list("fd").len();
    assert!(open <= before + 20, "{before} descriptors before, {open} with 200 idle connections");
    scrape(&server);
    let task = server.task(&["--", "echo", "served"]);
    assert_eq!(server.text("client001", &["stream", &task]), "served\n");
    // Those that still had a place lose it by themselves.
    for mut socket in idle {
        socket.set_read_timeout(Some(pace::time(Duration::from_secs(20)))).unwrap();
        let mut rest = Vec::new();
        match socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "held on to: {error}"),
        }
        assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    }
}

#[test]
fn an_address_that_cannot_be_had_is_refused_by_its_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (address, told) in [(port.as_str(), "--metrics-address"), ("nowhere", "metrics_address")] {
        let server = Server::prepare(&["--metrics-address", address]);
        let output = server.command_line().output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(told), "{error}");
    }
}

#[test]
fn an_escape_and_the_quarantine_that_follows_are_seen() {
    let server = Server::configured("metrics_address = \"0\"\nuid_range = \"1917000000:1000\"\n");
    let heard = wait_until("the auditor was heard of", || {
        let now = series(&scrape(&server));
        (now["taskman_audit_seconds_count"] > 0.0).then_some(now)
    });
    assert!(heard["taskman_auditor_heartbeat_age_seconds"] < 5.0, "{heard:?}");
    assert_eq!(heard["taskman_quarantined"], 0.0);
    let task = server.task(&["--", "sleep", "600"]);
    let process = Process { pid: server.status(&task)["process_id"].as_i64().unwrap() as i32 };
    let group = cgroups::directory(process, "the unified hierarchy");
    std::fs::write(group.parent().unwrap().join("cgroup.procs"), process.pid.to_string()).unwrap();
    assert_eq!(server.ended(&task)["outcome"]["reason"], "containment");
    // The health and the line of the journal that it comes from are counted one after the other.
    let text = wait_until("the quarantine and its finding are seen", || {
        let text = scrape(&server);
        let all = [
            "taskman_quarantined 1\n",
            "taskman_containment_violations_total{kind=\"orphan_detected\"} 1\n",
            "taskman_orphan_processes_detected_total 1\n",
        ];
        all.iter().all(|line| text.contains(line)).then_some(text)
    });
    let series_then = series(&text);
    let is = |name: &str, value: f64| assert_eq!(series_then.get(name), Some(&value), "{name} in\n{text}");
    is("taskman_containment_violations_total{kind=\"orphan_detected\"}", 1.0);
    is("taskman_containment_violations_total{kind=\"post_cleanup_leak\"}", 0.0);
    is("taskman_orphan_processes_detected_total", 1.0);
    is("taskman_task_ends_total{reason=\"containment\"}", 1.0);
    let refused = server.taskman("client001", &["start", "--", "true"]);
    assert!(refused.stderr.contains("quarantined"), "{refused:?}");
    assert_eq!(series(&scrape(&server))["taskman_task_starts_total{outcome=\"refused\"}"], 1.0);
}
