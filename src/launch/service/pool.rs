//! Which sandboxes to have ready: as many of each shape as its starts have lately asked for, within bounds.
//!
//! A start that finds none doubles what is wanted of its shape; a sandbox that nobody came for takes one back, and one that
//! dies by itself takes all. So a shape that is asked for in bursts soon has a burst's worth waiting, one that is forgotten
//! costs nothing, and one that cannot be built is not tried for ever.

use std::time::{Duration, Instant};

use crate::task::id::TaskId;
use crate::task::limits::Limits;
use crate::task::request::TaskRequest;
use crate::wire::Shape;

/// Shapes at once. Whoever asks for ever new ones gets them cold.
const KINDS: usize = 8;

/// What is wanted, and what there is.
pub struct Pool {
    /// Sandboxes in all, whatever they are at.
    most: usize,
    /// How long one waits for a task.
    idle: Duration,
    kinds: Vec<Kind>,
}

struct Kind {
    shape: Shape,
    /// Of the last request: those that are watched from outside must be sound too.
    limits: Limits,
    asked: Instant,
    wanted: usize,
    slots: Vec<Slot>,
}

struct Slot {
    id: TaskId,
    /// When it came to what it is at.
    since: Instant,
    at: At,
}

/// What a sandbox is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// In the making.
    Built,
    /// It waits for a task.
    Parked,
    /// It is being ended.
    Leaving,
}

impl Pool {
    /// With these bounds; 0 is none at all.
    pub fn new(most: usize, idle: Duration) -> Self {
        Self { most, idle, kinds: Vec::new() }
    }

    /// Notes a start. Whether it found a sandbox decides how many its shape should have.
    pub fn note(&mut self, request: &TaskRequest, found: bool, now: Instant) {
        let Some(shape) = Shape::of(request).filter(|_| self.most > 0) else { return };
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.shape == shape) {
            (kind.asked, kind.limits) = (now, request.limits.clone());
            if !found {
                kind.wanted = (kind.wanted * 2).clamp(1, self.most);
            }
            return;
        }
        if self.kinds.len() == KINDS {
            let unused = self.kinds.iter().enumerate().filter(|(_, kind)| kind.slots.is_empty());
            let Some((oldest, _)) = unused.min_by_key(|(_, kind)| kind.asked) else { return };
            self.kinds.remove(oldest);
        }
        self.kinds.push(Kind { shape, limits: request.limits.clone(), asked: now, wanted: 1, slots: Vec::new() });
    }

    /// A request for a sandbox of the shape that lacks most, with nothing in it that is anybody's.
    pub fn lacking(&self) -> Option<TaskRequest> {
        let lacks = |kind: &&Kind| kind.wanted.saturating_sub(kind.slots.len());
        let room = self.kinds.iter().map(|kind| kind.slots.len()).sum::<usize>() < self.most;
        let kind = self.kinds.iter().max_by_key(lacks).filter(|kind| room && lacks(kind) > 0)?;
        let Shape { profile, hostname, split_output, limits: _ } = kind.shape.clone();
        let nobodys = TaskRequest::new("parked", [""; 0]);
        Some(TaskRequest {
            owner: "nobody".to_owned(),
            hostname,
            profile,
            limits: kind.limits.clone(),
            split_output,
            ..nobodys
        })
    }

    /// The sandbox of this request is in the making.
    pub fn begun(&mut self, request: &TaskRequest, now: Instant) {
        let shape = Shape::of(request);
        if let Some(kind) = self.kinds.iter_mut().find(|kind| Some(&kind.shape) == shape.as_ref()) {
            kind.slots.push(Slot { id: request.task, since: now, at: At::Built });
        }
    }

    /// It waits from now on. Its shape, and how long it took.
    pub fn parked(&mut self, id: TaskId, now: Instant) -> Option<(Shape, Duration)> {
        let kind = self.kinds.iter_mut().find(|kind| kind.slots.iter().any(|slot| slot.id == id))?;
        let slot = kind.slots.iter_mut().find(|slot| slot.id == id)?;
        let took = now - slot.since;
        (slot.at, slot.since) = (At::Parked, now);
        Some((kind.shape.clone(), took))
    }

    /// Whether this sandbox waits for a request of this shape.
    pub fn waits(&self, id: TaskId, request: &TaskRequest) -> bool {
        let Some(shape) = Shape::of(request) else { return false };
        let of_shape = self.kinds.iter().filter(|kind| kind.shape == shape).flat_map(|kind| &kind.slots);
        of_shape.into_iter().any(|slot| slot.id == id && slot.at == At::Parked)
    }

    /// It is a task now, or gone; what it was at before that. None of its shape is wanted if it went by itself, until the next
    /// start asks.
    pub fn remove(&mut self, id: TaskId, by_itself: bool) -> Option<At> {
        for kind in &mut self.kinds {
            if let Some(place) = kind.slots.iter().position(|slot| slot.id == id) {
                let at = kind.slots.remove(place).at;
                if by_itself && at != At::Leaving {
                    kind.wanted = 0;
                }
                return Some(at);
            }
        }
        None
    }

    /// It is being ended, and stays in the count until it is gone. What it was at before.
    pub fn leave(&mut self, id: TaskId) -> Option<At> {
        let slot = self.kinds.iter_mut().flat_map(|kind| &mut kind.slots).find(|slot| slot.id == id)?;
        Some(std::mem::replace(&mut slot.at, At::Leaving))
    }

    /// Those that have waited too long. They are to be ended, and are not named again.
    pub fn overdue(&mut self, now: Instant) -> Vec<TaskId> {
        let mut overdue = Vec::new();
        for kind in &mut self.kinds {
            for slot in kind.slots.iter_mut().filter(|slot| slot.at == At::Parked && now >= slot.since + self.idle) {
                slot.at = At::Leaving;
                kind.wanted = kind.wanted.saturating_sub(1);
                overdue.push(slot.id);
            }
        }
        self.kinds.retain(|kind| kind.wanted > 0 || !kind.slots.is_empty());
        overdue
    }

    /// Nothing is wanted any more; all that are not being ended are to be.
    pub fn drain(&mut self) -> Vec<TaskId> {
        self.kinds.retain(|kind| !kind.slots.is_empty());
        self.kinds.iter_mut().for_each(|kind| kind.wanted = 0);
        let slots = self.kinds.iter().flat_map(|kind| &kind.slots);
        slots.filter(|slot| slot.at != At::Leaving).map(|slot| slot.id).collect()
    }

    /// When the next one will have waited too long.
    pub fn deadline(&self) -> Option<Instant> {
        let slots = self.kinds.iter().flat_map(|kind| &kind.slots);
        slots.filter(|slot| slot.at == At::Parked).map(|slot| slot.since + self.idle).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn request(profile: &str) -> TaskRequest {
        TaskRequest {
            args: vec!["a secret".into()],
            env: BTreeMap::from([("SECRET".into(), "another".into())]),
            working_dir: Some("/tmp".into()),
            profile: profile.into(),
            ..TaskRequest::new("true", [""; 0])
        }
    }

    /// Builds all that is wanted.
    fn fill(pool: &mut Pool, now: Instant) -> Vec<TaskId> {
        let mut built = Vec::new();
        while let Some(request) = pool.lacking() {
            pool.begun(&request, now);
            pool.parked(request.task, now).unwrap();
            built.push(request.task);
        }
        built
    }

    #[test]
    fn misses_double_what_is_wanted_up_to_the_bound_and_hits_do_not() {
        let (mut pool, now) = (Pool::new(6, IDLE), Instant::now());
        let mut there = 0;
        for all in [1, 2, 4, 6, 6] {
            pool.note(&request("a"), false, now);
            there += fill(&mut pool, now).len();
            assert_eq!(there, all);
        }
        pool.note(&request("a"), true, now);
        assert!(fill(&mut pool, now).is_empty());
    }

    #[test]
    fn what_nobody_comes_for_is_ended_once_and_takes_one_back() {
        let (mut pool, now) = (Pool::new(8, IDLE), Instant::now());
        for _ in 0..3 {
            pool.note(&request("a"), false, now);
        }
        let built = fill(&mut pool, now);
        assert_eq!((built.len(), pool.deadline()), (4, Some(now + IDLE)));
        pool.remove(built[0], false);
        pool.parked(built[1], now + IDLE / 2);
        assert!(pool.overdue(now + IDLE / 2).is_empty());
        // Two are as old as that; the one that was used is replaced, and the two are not.
        assert_eq!(pool.overdue(now + IDLE), [built[2], built[3]]);
        assert!(pool.overdue(now + IDLE).is_empty(), "they are being ended already");
        assert_eq!(pool.deadline(), Some(now + IDLE / 2 + IDLE));
        assert!(fill(&mut pool, now + IDLE).is_empty(), "those that leave are still there");
        assert_eq!(pool.remove(built[2], true), Some(At::Leaving));
        assert_eq!(pool.remove(built[3], true), Some(At::Leaving));
        assert_eq!(fill(&mut pool, now + IDLE).len(), 1);
    }

    #[test]
    fn what_dies_by_itself_is_not_built_again_before_someone_asks() {
        let (mut pool, now) = (Pool::new(8, IDLE), Instant::now());
        pool.note(&request("a"), false, now);
        let wanted = pool.lacking().unwrap();
        pool.begun(&wanted, now);
        assert_eq!(pool.remove(wanted.task, true), Some(At::Built));
        assert_eq!(pool.lacking(), None);
        pool.note(&request("a"), false, now);
        let built = fill(&mut pool, now);
        assert_eq!(pool.remove(built[0], true), Some(At::Parked));
        assert_eq!(pool.lacking(), None);
    }

    #[test]
    fn a_sandbox_is_for_one_task_of_its_shape_alone() {
        let (mut pool, now) = (Pool::new(8, IDLE), Instant::now());
        pool.note(&request("a"), false, now);
        let wanted = pool.lacking().unwrap();
        pool.begun(&wanted, now);
        assert!(!pool.waits(wanted.task, &request("a")), "it is not built yet");
        pool.parked(wanted.task, now);
        // What is watched from outside, and what is executed, may differ.
        let mut same = TaskRequest { command: "other".into(), working_dir: None, ..request("a") };
        same.limits.timeout /= 2;
        assert!(pool.waits(wanted.task, &same));
        for change in [
            (|other| other.limits.memory_bytes /= 2) as fn(&mut TaskRequest),
            |other| other.profile = "b".into(),
            |other| other.hostname = Some("other".into()),
            |other| other.split_output = true,
            |other| other.bind_ro = vec!["/opt".into()],
        ] {
            let mut other = request("a");
            change(&mut other);
            assert!(!pool.waits(wanted.task, &other), "{other:?}");
        }
        pool.remove(wanted.task, false);
        assert!(!pool.waits(wanted.task, &request("a")));
    }

    #[test]
    fn nothing_of_a_request_is_kept_but_its_shape_and_shapes_are_bounded() {
        let (mut pool, now) = (Pool::new(100, IDLE), Instant::now());
        for number in 0..100u32 {
            pool.note(&request(&number.to_string()), false, now + Duration::from_secs(number.into()));
            assert!(pool.kinds.len() <= KINDS);
        }
        let kept = pool.lacking().unwrap();
        assert_eq!(Shape::of(&kept), Shape::of(&request(&kept.profile)));
        assert!(kept.args.is_empty() && kept.env.is_empty() && kept.working_dir.is_none(), "{kept:?}");
        assert_eq!((kept.owner.as_str(), kept.command.as_str()), ("nobody", "parked"));
        // One that has sandboxes is not forgotten for one that has none.
        fill(&mut pool, now);
        pool.note(&request("late"), false, now);
        assert!(pool.kinds.iter().all(|kind| kind.shape.profile != "late"));
        assert_eq!(pool.drain().len(), KINDS);
        assert!(pool.lacking().is_none());
    }

    #[test]
    fn without_room_nothing_is_wanted() {
        let (mut pool, now) = (Pool::new(0, IDLE), Instant::now());
        pool.note(&request("a"), false, now);
        assert!(pool.lacking().is_none());
        let mut bound = request("a");
        bound.bind_ro = vec!["/opt".into()];
        let mut pool = Pool::new(4, IDLE);
        pool.note(&bound, false, now);
        assert!(pool.lacking().is_none(), "one that shows a path of the host's is built when it is asked for");
    }
}
