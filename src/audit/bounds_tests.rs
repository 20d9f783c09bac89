//! What a client that makes findings gets written down. Needs root.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::facts::Facts;
use super::super::judge::group_of;
use super::*;
use crate::containment::{Incident, Journal, Kind, Reason, Setup, Summary};
use crate::place::{GroupName, UidRange};
use crate::task::id::TaskId;

const LAUNCHER: i32 = 7;
const UID: u32 = 1_916_900_000;

#[test]
fn an_owner_has_a_ration_and_what_is_beyond_it_is_counted() {
    let (mut rations, begun) = (Rations::default(), Instant::now());
    let [mallory, alice] = ["mallory", "alice"].map(|name| Some(name.to_owned()));
    for _ in 0..MOST {
        assert_eq!(rations.take(&mallory, begun), Some(0));
    }
    for untold in 1..=5 {
        assert_eq!(rations.take(&mallory, begun + SPAN / 2), None);
        assert_eq!(rations.is_first_untold(&mallory), untold == 1);
    }
    assert_eq!((rations.take(&alice, begun), rations.take(&None, begun)), (Some(0), Some(0)), "each has its own");
    assert_eq!(rations.take(&mallory, begun + SPAN), Some(5));
    assert_eq!(rations.take(&mallory, begun + SPAN), Some(0));
    rations.take(&alice, begun + 4 * SPAN);
    assert_eq!(rations.0.len(), 1, "nobody is remembered for ever");
}

fn auditor(state: &Path) -> Auditor {
    let setup = Setup {
        state_dir: state.to_owned(),
        instance: format!("bounds-{:08x}", TaskId::random().entropy() as u32),
        uid_range: UidRange { first: UID, count: 10 },
        launcher: Some(LAUNCHER),
        events: false,
        scan_ms: 0,
        zombie_ms: 0,
    };
    Auditor::open(setup, None).unwrap()
}

/// A dead process that the first process of this owner's new task does not reap.
fn zombie(auditor: &mut Auditor, owner: &str, pid: i32) -> Facts {
    let name = GroupName { instance: auditor.setup.instance.clone(), task: TaskId::random() }.to_string();
    auditor.tasks.plant(&name);
    let task = auditor.tasks.of_group_mut(&name).unwrap();
    let init = 1_000_000 + pid;
    (task.owner, task.init) = (Some(owner.to_owned()), Some((init, 1, BTreeMap::new())));
    let cgroup = vec![format!("0::{}/{name}", auditor.layout.base().cgroup.trim_end_matches('/'))];
    assert!(group_of(cgroup[0].trim_start_matches("0::"), &auditor.layout, &auditor.setup.instance).is_some());
    Facts { pid, ppid: init, start_time: 1, state: 'Z', uid: [UID; 4], cgroup, exiting: true, ..Facts::default() }
}

fn found(auditor: &mut Auditor) -> Vec<Summary> {
    std::mem::take(&mut auditor.found)
}

#[test]
fn the_zombies_of_an_owner_are_one_finding_of_a_scan_and_no_more_than_its_ration() {
    let state = tempfile::tempdir().unwrap();
    let mut auditor = auditor(state.path());
    let mut seen: Vec<Facts> = (0..190).map(|pid| zombie(&mut auditor, "mallory", 100 + pid)).collect();
    seen.push(zombie(&mut auditor, "alice", 500));
    auditor.look_at_zombies(&seen);
    let told = found(&mut auditor);
    assert_eq!(told.iter().map(|it| it.owner.as_deref().unwrap()).collect::<Vec<_>>(), ["alice", "mallory"]);
    assert!(told[1].what.contains("process 101 of task ") && told[1].what.ends_with("; and of 182 more"), "{told:?}");
    auditor.look_at_zombies(&seen);
    assert_eq!(found(&mut auditor), [], "each is told once");
    // One in each of many scans.
    for pid in 1000..1000 + MOST as i32 + 20 {
        let another = zombie(&mut auditor, "mallory", pid);
        auditor.look_at_zombies(&[another]);
    }
    assert_eq!(found(&mut auditor).len() as u32, MOST - 1);
    let health = Journal::new(state.path()).health().unwrap();
    assert_eq!((health.findings as u32, health.quarantine), (MOST + 1, None));
    assert_eq!(auditor.incidents.newest(1000).unwrap().len() as u32, MOST + 1);
    // What the launcher does not reap is this worker's fault, and always told.
    let launchers = Facts { ppid: LAUNCHER, ..zombie(&mut auditor, "mallory", 5000) };
    auditor.look_at_zombies(&[launchers]);
    assert_eq!(found(&mut auditor).len(), 1);
    assert_eq!(Journal::new(state.path()).health().unwrap().quarantine.unwrap().reason, Reason::Leak);
}

#[test]
fn the_oldest_incident_files_go_and_never_the_one_a_quarantine_rests_on() {
    let state = tempfile::tempdir().unwrap();
    let mut auditor = auditor(state.path());
    let seen = [zombie(&mut auditor, "mallory", 100)];
    auditor.look_at_zombies(&seen);
    let first: Incident = auditor.incidents.newest(1).unwrap().remove(0);
    let directory = state.path().join("incidents");
    let file = |id: &IncidentId| directory.join(format!("{id}.json"));
    let ids: Vec<IncidentId> = (0..FILES as i64 + 700).map(|at| IncidentId::new(1_000_000 + at)).collect();
    ids.iter().for_each(|id| _ = std::fs::hard_link(file(&first.id), file(id)));
    // As one that has just been started.
    auditor.files = Files::default();
    auditor.quarantine(Kind::ConfinementLost.reason(), format!("a drill; finding {}", ids[3]));
    for beat in 1..=3 {
        auditor.tidy();
        let left = std::fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, (FILES + 702 - AT_ONCE * beat).max(FILES + 1), "beat {beat}");
    }
    assert!(file(&ids[3]).exists() && file(&first.id).exists() && file(ids.last().unwrap()).exists());
    assert!(!file(&ids[0]).exists() && !file(&ids[700]).exists() && file(&ids[701]).exists());
}
