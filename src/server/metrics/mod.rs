//! What the server counts for those who watch it: metrics for Prometheus. `docs/service.md` has the table of them.
//!
//! Own counters, and no library's: the set is small and fixed, no label comes from a client, and what the common libraries
//! add (a global registry, series made on the fly) is what must not be here.

mod listener;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tonic::Code;

use super::error::ApiError;
use super::registry::Registry;
use crate::containment::{Entry, Kind, Line, Scan};
use crate::task::outcome::Reason;
use crate::wire::Ended;
use text::{Counter, Counters, Histogram, Page};

pub use listener::serve;

/// Upper bounds in seconds. A start takes milliseconds, and ten seconds on a host that is in trouble.
const STARTS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// What was killed has five seconds to vanish.
const CLEANUPS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// A look at every process of the host.
const AUDITS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// How a start can come out, as the label has it.
const OUTCOMES: [&str; 7] = ["started", "repeated", "invalid", "exhausted", "refused", "unavailable", "failed"];
/// The limits for which a task is ended, by their names in the configuration. The others refuse the task something, and
/// it goes on.
const LIMITS: [&str; 4] = ["memory", "timeout", "cpu_time", "output_limit"];

/// Everything that is counted.
pub struct Metrics {
    born: Instant,
    violations: Counters,
    orphans: Counter,
    starts: Counters,
    start_seconds: Histogram,
    warm: Counters,
    slot_seconds: Histogram,
    ends: Counters,
    limit_hits: Counters,
    cleanup_seconds: Histogram,
    stream_bytes: Counter,
    audit_seconds: Histogram,
    /// When the auditor was last heard of, in milliseconds after `born`.
    heard_at: AtomicU64,
    /// Uids that the launcher had leased then.
    uids: AtomicU64,
    unseen: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            violations: Counters::new("kind", Kind::ALL.map(Kind::name)),
            orphans: Counter::default(),
            starts: Counters::new("outcome", OUTCOMES),
            start_seconds: Histogram::new(&STARTS),
            warm: Counters::new("sandbox", ["ready", "built"]),
            slot_seconds: Histogram::new(&STARTS),
            ends: Counters::new("reason", Reason::ALL.map(Reason::name)),
            limit_hits: Counters::new("limit", LIMITS),
            cleanup_seconds: Histogram::new(&CLEANUPS),
            stream_bytes: Counter::default(),
            audit_seconds: Histogram::new(&AUDITS),
            heard_at: AtomicU64::new(0),
            uids: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// A task's command was executed, so long after the start was asked for.
    pub fn started(&self, took: Duration) {
        self.starts.count("started");
        self.start_seconds.observe(took);
    }

    /// A task's sandbox stood ready, or had to be built.
    pub fn warm_start(&self, warm: bool) {
        self.warm.count(if warm { "ready" } else { "built" });
    }

    /// A sandbox stands ready that took so long to build.
    pub fn slot_built(&self, took: Duration) {
        self.slot_seconds.observe(took);
    }

    /// A start was asked for again, and answered with the task that it had made.
    pub fn start_repeated(&self) {
        self.starts.count("repeated");
    }

    /// A start was asked for, and there is no task.
    pub fn not_started(&self, error: &ApiError) {
        self.starts.count(match error.code() {
            Code::ResourceExhausted => "exhausted",
            Code::FailedPrecondition => "refused",
            Code::Unavailable => "unavailable",
            Code::Internal => "failed",
            _ => "invalid",
        });
    }

    /// A task has ended, and the kernel was asked what is left.
    pub fn ended(&self, ended: &Ended) {
        let reason = ended.outcome.reason;
        self.ends.count(reason.name());
        if let Some(limit) = limit(reason) {
            self.limit_hits.count(limit);
        }
        self.cleanup_seconds.observe(Duration::from_micros(ended.cleanup_micros));
    }

    /// A task died with an earlier server.
    pub fn lost(&self) {
        self.ends.count(Reason::ServerLost.name());
    }

    /// Output was taken by a reader.
    pub fn streamed(&self, bytes: usize) {
        self.stream_bytes.add(bytes as u64);
    }

    /// The containment journal has grown by a line.
    pub fn journalled(&self, line: &Line) {
        if let Entry::Finding { kind, .. } = &line.entry {
            self.violations.count(kind.name());
            if matches!(kind, Kind::OrphanDetected | Kind::TransientEscape) {
                self.orphans.add(1);
            }
        }
    }

    /// The auditor lives, and this is what it did since it was last heard of.
    pub fn scanned(&self, scan: &Scan) {
        self.uids.store(scan.uids, Ordering::Relaxed);
        self.unseen.store(scan.unseen, Ordering::Relaxed);
        self.heard_at.store(self.born.elapsed().as_millis() as u64, Ordering::Relaxed);
        for micros in &scan.scans {
            self.audit_seconds.observe(Duration::from_micros(*micros));
        }
    }

    /// Of an auditor that was never heard of: since the server has lived.
    fn heartbeat_age(&self) -> Duration {
        self.born.elapsed().saturating_sub(Duration::from_millis(self.heard_at.load(Ordering::Relaxed)))
    }

    /// What a scrape answers.
    fn page(&self, now: &Now) -> String {
        let mut page = Page::default();
        let version = [(env!("CARGO_PKG_VERSION"), 1)];
        page.gauges("taskman_build_info", "The version that runs; always 1.", "version", &version);
        page.counters("taskman_containment_violations_total", "Findings of the auditor, by kind.", &self.violations);
        page.counter(
            "taskman_orphan_processes_detected_total",
            "Processes found outside their task's control group, gone again or not.",
            self.orphans.get(),
        );
        page.gauge(
            "taskman_quarantined",
            "1 while this worker is quarantined and takes no tasks.",
            u8::from(now.quarantined),
        );
        page.gauge(
            "taskman_auditor_heartbeat_age_seconds",
            "Time since the auditor was last heard of.",
            self.heartbeat_age().as_secs_f64(),
        );
        page.histogram("taskman_audit_seconds", "How long a full audit of the host took.", &self.audit_seconds);
        page.gauges("taskman_tasks", "Tasks that live now, by state.", "state", &now.tasks);
        page.counters("taskman_task_starts_total", "Starts that were asked for, by what came of them.", &self.starts);
        page.histogram(
            "taskman_task_start_seconds",
            "Time from an admitted start to its command's execution, recorded.",
            &self.start_seconds,
        );
        page.counters(
            "taskman_warm_starts_total",
            "Tasks that were started, by whether their sandbox stood ready or had to be built.",
            &self.warm,
        );
        page.gauge("taskman_warm_slots", "Sandboxes that stand ready.", now.slots);
        page.histogram(
            "taskman_warm_build_seconds",
            "Time to build a sandbox that then stood ready.",
            &self.slot_seconds,
        );
        page.counters("taskman_task_ends_total", "Tasks that have ended, by reason.", &self.ends);
        page.counters("taskman_limit_hits_total", "Tasks that were ended for a limit, by limit.", &self.limit_hits);
        page.histogram(
            "taskman_task_cleanup_seconds",
            "Time from a task's end to the proof that nothing of it is left.",
            &self.cleanup_seconds,
        );
        page.counter(
            "taskman_cleanup_failures_total",
            "Tasks of whose end it could not be proven that nothing is left.",
            now.cleanup_failures,
        );
        page.counter("taskman_stream_bytes_total", "Bytes of output sent to readers.", self.stream_bytes.get());
        page.gauge("taskman_streams_open", "Readers of output that are connected now.", now.streams);
        let uids = self.uids.load(Ordering::Relaxed);
        let unseen = self.unseen.load(Ordering::Relaxed);
        page.gauge(
            "taskman_audit_unseen_places",
            "Places that the auditor could not look into when it last tried.",
            unseen,
        );
        page.gauge("taskman_uid_pool_used", "Uids that this server's tasks, and what is left of them, have now.", uids);
        page.gauge("taskman_uid_pool_size", "Uids that tasks can have.", now.uid_pool);
        page.into_text()
    }
}

/// What is not counted here but looked at.
#[derive(Default)]
struct Now {
    quarantined: bool,
    /// The launcher counts them.
    cleanup_failures: u64,
    tasks: [(&'static str, usize); 3],
    streams: usize,
    slots: usize,
    uid_pool: u32,
}

impl Now {
    fn of(registry: &Registry) -> Self {
        let tasks = registry.live_states();
        let health = registry.health.view();
        Self {
            quarantined: health.as_ref().is_some_and(|health| health.status == "quarantined"),
            cleanup_failures: health.map_or(0, |health| health.cleanup_failures),
            tasks: ["starting", "running", "ending"]
                .map(|state| (state, tasks.iter().filter(|s| **s == state).count())),
            // The registry holds one itself.
            streams: std::sync::Arc::strong_count(&registry.readers) - 1,
            slots: registry.slots.count(),
            uid_pool: registry.config.uid_range.count,
        }
    }
}

fn limit(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::Oom => Some("memory"),
        Reason::WallTime => Some("timeout"),
        Reason::CpuTime => Some("cpu_time"),
        Reason::OutputLimit => Some("output_limit"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containment::IncidentId;
    use crate::task::id::TaskId;
    use crate::task::outcome::Outcome;
    use crate::task::report::{Containment, Usage};

    fn page(metrics: &Metrics) -> String {
        metrics.page(&Now::default())
    }

    #[track_caller]
    fn assert_has(metrics: &Metrics, line: &str) {
        let page = page(metrics);
        assert!(page.lines().any(|found| found == line), "no {line:?} in\n{page}");
    }

    fn ended(reason: Reason) -> Ended {
        Ended {
            task: TaskId::random(),
            outcome: Outcome { reason, ..Outcome::server_lost() },
            ended_at: 0,
            usage: Usage::default(),
            containment: Containment::from_checks(Vec::new()),
            cleanup_micros: 1500,
        }
    }

    #[test]
    fn every_reason_and_every_limit_that_ends_a_task_has_a_series() {
        let metrics = Metrics::default();
        for reason in Reason::ALL {
            metrics.ended(&ended(reason));
            assert_has(&metrics, &format!("taskman_task_ends_total{{reason=\"{}\"}} 1", reason.name()));
            if let Some(limit) = limit(reason) {
                assert_has(&metrics, &format!("taskman_limit_hits_total{{limit=\"{limit}\"}} 1"));
            }
        }
        assert_has(&metrics, "taskman_task_cleanup_seconds_bucket{le=\"0.001\"} 0");
        assert_has(&metrics, "taskman_task_cleanup_seconds_bucket{le=\"0.0025\"} 10");
    }

    #[test]
    fn findings_are_counted_by_kind_and_processes_outside_once_more() {
        let metrics = Metrics::default();
        let finding = |kind| Entry::Finding { id: IncidentId::new(1), kind, task: None, owner: None };
        let lifted = Entry::Lifted { by: "admin".into(), reason: "looked".into() };
        let entries = Kind::ALL.map(finding).into_iter().chain([finding(Kind::OrphanDetected), lifted]);
        entries.for_each(|entry| metrics.journalled(&Line { seq: 1, at: 0, entry }));
        assert_has(&metrics, "taskman_containment_violations_total{kind=\"orphan_detected\"} 2");
        assert_has(&metrics, "taskman_containment_violations_total{kind=\"post_cleanup_leak\"} 1");
        assert_has(&metrics, "taskman_orphan_processes_detected_total 3");
    }

    #[test]
    fn an_auditor_is_as_old_as_its_last_word() {
        let mut metrics = Metrics::default();
        metrics.born -= Duration::from_secs(100);
        assert!(metrics.heartbeat_age() >= Duration::from_secs(100), "never heard of");
        metrics.scanned(&Scan { scans: vec![2000, 9000], uids: 7, ..Scan::default() });
        assert!(metrics.heartbeat_age() < Duration::from_secs(50));
        assert_has(&metrics, "taskman_audit_seconds_bucket{le=\"0.0025\"} 1");
        assert_has(&metrics, "taskman_audit_seconds_count 2");
        assert_has(&metrics, "taskman_uid_pool_used 7");
    }

    #[test]
    fn a_start_is_counted_by_what_its_client_is_told() {
        let metrics = Metrics::default();
        let errors = [
            (ApiError::Denied(String::new()), "invalid"),
            (ApiError::AlreadyExists(String::new()), "invalid"),
            (ApiError::Exhausted(String::new()), "exhausted"),
            (ApiError::Precondition(String::new()), "refused"),
            (ApiError::Unavailable(String::new()), "unavailable"),
            (ApiError::Internal(String::new()), "failed"),
        ];
        errors.iter().for_each(|(error, _)| metrics.not_started(error));
        for outcome in OUTCOMES {
            let count = errors.iter().filter(|(_, told)| *told == outcome).count();
            assert_has(&metrics, &format!("taskman_task_starts_total{{outcome=\"{outcome}\"}} {count}"));
        }
    }
}
