//! Whether this server takes tasks, as the launcher last said: for starts, for `GetHealth`, and for gRPC health checks. Its last
//! word counts only while it is heard: a launcher that stands still says nothing, and its tasks are not watched.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::containment::Containment;
use super::service::Service;
use crate::containment::HealthView;
use crate::proto::task_manager::containment_server::ContainmentServer;
use crate::proto::task_manager::task_manager_server::TaskManagerServer;

/// The auditor's heart beats twice a second, through the launcher; a launcher that lost it says so within three seconds.
const SILENCE: Duration = Duration::from_secs(5);

/// The launcher's last word, and when the auditor was last heard.
#[derive(Default)]
pub struct Health {
    view: watch::Sender<Option<HealthView>>,
    heard: Mutex<Option<Instant>>,
}

impl Health {
    /// Takes the launcher's word.
    pub fn set(&self, view: HealthView) {
        self.view.send_replace(Some(view));
    }

    /// The auditor was heard just now.
    pub fn beat(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// As it is now; none before the launcher's first word.
    pub fn view(&self) -> Option<HealthView> {
        self.view.borrow().clone().map(|view| self.aged(view))
    }

    /// Why no task is taken, with what to do; none if one is.
    pub fn refusal(&self) -> Option<String> {
        match self.view() {
            Some(view) if view.can_accept => None,
            Some(HealthView { refusal: Some(why), .. }) => Some(why),
            _ => Some("the auditor does not watch yet; try again".to_owned()),
        }
    }

    /// Waits until it is as `wanted` says.
    pub async fn until(&self, wanted: impl Fn(&HealthView) -> bool) -> HealthView {
        let mut seen = self.view.subscribe();
        let found = seen.wait_for(|view| view.as_ref().is_some_and(&wanted)).await;
        // The sender lives in this very value, so the wait cannot fail.
        let view = found.ok().and_then(|view| view.clone()).expect("it was just seen");
        self.aged(view)
    }

    /// The launcher speaks when something changes; the auditor's heart beats in between.
    fn aged(&self, view: HealthView) -> HealthView {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(age) = heard.map(|heard| heard.elapsed()) else { return view };
        let heartbeat_age_ms = u64::try_from(age.as_millis()).ok();
        if age < SILENCE || !view.can_accept {
            return HealthView { heartbeat_age_ms, ..view };
        }
        let silent = format!("the launcher was last heard {} s ago", age.as_secs());
        HealthView { heartbeat_age_ms, ..view }.stalled(&silent)
    }
}

/// Tells gRPC health checks, of every service and of the server as a whole.
pub async fn report(reporter: &HealthReporter, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", TaskManagerServer::<Service>::NAME, ContainmentServer::<Containment>::NAME] {
        reporter.set_service_status(service, status).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(can_accept: bool, refusal: Option<&str>) -> HealthView {
        HealthView {
            status: if can_accept { "healthy" } else { "quarantined" }.into(),
            since: None,
            reason: None,
            detail: None,
            by: None,
            findings: 0,
            findings_total: 0,
            cleanup_failures: 0,
            cleanup_failures_in_a_row: 0,
            can_accept,
            refusal: refusal.map(str::to_owned),
            auditor: "watching".into(),
            heartbeat_age_ms: Some(1_000_000),
            auditor_restarts: 0,
            runbook: None,
        }
    }

    #[tokio::test]
    async fn nothing_is_taken_before_the_launcher_says_so_nor_after_it_says_no() {
        let health = Health::default();
        assert!(health.view().is_none() && health.refusal().is_some());
        health.set(view(true, None));
        assert_eq!(health.refusal(), None);
        health.set(view(false, Some("a drill")));
        assert_eq!(health.refusal().as_deref(), Some("a drill"));
        assert_eq!(health.until(|view| !view.can_accept).await.heartbeat_age_ms, Some(1_000_000));
        health.beat();
        assert!(health.view().unwrap().heartbeat_age_ms.unwrap() < 1_000_000, "a beat is heard between two words");
        health.set(view(true, None));
        *health.heard.lock().unwrap() = Instant::now().checked_sub(SILENCE);
        let aged = health.view().unwrap();
        assert!(!aged.can_accept && aged.status == "stalled", "{aged:?}");
        assert!(health.refusal().unwrap().contains("last heard 5 s ago"), "{aged:?}");
        health.set(view(false, Some("a drill")));
        assert_eq!(health.refusal().as_deref(), Some("a drill"), "the graver reason stands");
        let never = tokio::time::timeout(std::time::Duration::from_millis(10), health.until(|view| view.can_accept));
        assert!(never.await.is_err());
    }
}
