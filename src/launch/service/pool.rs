//! Which sandboxes to have ready: as many of each shape as its starts have lately asked for, within bounds.
//!
//! A start that finds none doubles what is wanted of its shape; a sandbox that nobody came for takes one back. So a shape that
//! is asked for in bursts soon has a burst's worth waiting, and one that is forgotten costs nothing.

use std::time::{Duration, Instant};

use crate::task::id::TaskId;
use crate::wire::{Shape, StartRequest};

/// Shapes at once; with one more, the one that was asked for longest ago is forgotten.
const KINDS: usize = 8;

/// What is wanted, and what there is.
pub struct Pool {
    /// Sandboxes in all, waiting or in the making.
    most: usize,
    /// How long one waits for a task.
    idle: Duration,
    kinds: Vec<Kind>,
}

struct Kind {
    shape: Shape,
    /// The last request of the shape: with another command, it makes a sandbox of it.
    request: StartRequest,
    asked: Instant,
    wanted: usize,
    slots: Vec<Slot>,
}

struct Slot {
    id: TaskId,
    /// When it was begun and, once it waits, since when.
    since: Instant,
    parked: bool,
}

impl Pool {
    /// With these bounds; 0 is none at all.
    pub fn new(most: usize, idle: Duration) -> Self {
        Self { most, idle, kinds: Vec::new() }
    }

    /// Notes a start. Whether it found a sandbox decides how many its shape should have.
    pub fn note(&mut self, request: &StartRequest, found: bool, now: Instant) {
        let Some(shape) = request.shape().filter(|_| self.most > 0) else { return };
        let known = self.kinds.iter_mut().find(|kind| kind.shape == shape);
        match known {
            Some(kind) => {
                kind.asked = now;
                kind.request.clone_from(request);
                if !found {
                    kind.wanted = (kind.wanted * 2).clamp(1, self.most);
                }
            }
            None => {
                let slots = Vec::new();
                self.kinds.push(Kind { shape, request: request.clone(), asked: now, wanted: 1, slots });
            }
        }
    }

    /// Of which shape to build one now: the one that lacks most.
    pub fn lacking(&self) -> Option<&StartRequest> {
        let room = self.len() < self.most;
        let lacks = |kind: &&Kind| kind.wanted.saturating_sub(kind.slots.len());
        self.kinds.iter().max_by_key(lacks).filter(|kind| room && lacks(kind) > 0).map(|kind| &kind.request)
    }

    /// One of this request's shape is in the making.
    pub fn begun(&mut self, request: &StartRequest, id: TaskId, now: Instant) {
        let shape = request.shape();
        if let Some(kind) = self.kinds.iter_mut().find(|kind| Some(&kind.shape) == shape.as_ref()) {
            kind.slots.push(Slot { id, since: now, parked: false });
        }
    }

    /// None of this request's shape can be made: none is wanted, until the next start asks.
    pub fn give_up(&mut self, request: &StartRequest) {
        let shape = request.shape();
        self.kinds.retain(|kind| Some(&kind.shape) != shape.as_ref() || !kind.slots.is_empty());
        if let Some(kind) = self.kinds.iter_mut().find(|kind| Some(&kind.shape) == shape.as_ref()) {
            kind.wanted = 0;
        }
    }

    /// It waits from now on. Its shape, and how long it took.
    pub fn parked(&mut self, id: TaskId, now: Instant) -> Option<(Shape, Duration)> {
        let kind = self.kinds.iter_mut().find(|kind| kind.slots.iter().any(|slot| slot.id == id))?;
        let slot = kind.slots.iter_mut().find(|slot| slot.id == id)?;
        let took = now - slot.since;
        (slot.parked, slot.since) = (true, now);
        Some((kind.shape.clone(), took))
    }

    /// Whether this sandbox waits for a request of this shape.
    pub fn waits(&self, id: TaskId, request: &StartRequest) -> bool {
        let Some(shape) = request.shape() else { return false };
        self.kinds.iter().any(|kind| kind.shape == shape && kind.slots.iter().any(|slot| slot.id == id && slot.parked))
    }

    /// It is a task now, or gone.
    pub fn remove(&mut self, id: TaskId) {
        for kind in &mut self.kinds {
            kind.slots.retain(|slot| slot.id != id);
        }
    }

    /// Those that have waited too long, and those of shapes that are forgotten. They are to be ended.
    pub fn overdue(&mut self, now: Instant) -> Vec<TaskId> {
        let mut overdue = Vec::new();
        for kind in &mut self.kinds {
            let waited = |slot: &Slot| slot.parked && now >= slot.since + self.idle;
            let unused: Vec<TaskId> = kind.slots.iter().filter(|slot| waited(slot)).map(|slot| slot.id).collect();
            kind.wanted = kind.wanted.saturating_sub(unused.len());
            overdue.extend(unused);
        }
        if self.kinds.len() > KINDS {
            self.kinds.sort_by_key(|kind| std::cmp::Reverse(kind.asked));
            let forgotten = self.kinds.drain(KINDS..).flat_map(|kind| kind.slots);
            overdue.extend(forgotten.map(|slot| slot.id));
        }
        self.kinds.retain(|kind| kind.wanted > 0 || !kind.slots.is_empty());
        overdue
    }

    /// All of them, and nothing is wanted any more.
    pub fn drain(&mut self) -> Vec<TaskId> {
        self.kinds.drain(..).flat_map(|kind| kind.slots).map(|slot| slot.id).collect()
    }

    /// When the next one will have waited too long.
    pub fn deadline(&self) -> Option<Instant> {
        let slots = self.kinds.iter().flat_map(|kind| &kind.slots);
        slots.filter(|slot| slot.parked).map(|slot| slot.since + self.idle).min()
    }

    fn len(&self) -> usize {
        self.kinds.iter().map(|kind| kind.slots.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::task::limits::Limits;

    const IDLE: Duration = Duration::from_secs(60);

    fn request(profile: &str) -> StartRequest {
        StartRequest {
            task: TaskId::random(),
            owner: "alice".into(),
            command: "true".into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            working_dir: None,
            hostname: None,
            profile: profile.into(),
            limits: Limits::default(),
            bind_ro: Vec::new(),
            split_output: false,
        }
    }

    /// Builds all that is wanted, and says how many that were.
    fn fill(pool: &mut Pool, now: Instant) -> usize {
        let mut built = 0;
        while let Some(request) = pool.lacking().cloned() {
            let id = TaskId::random();
            pool.begun(&request, id, now);
            pool.parked(id, now).unwrap();
            built += 1;
        }
        built
    }

    #[test]
    fn misses_double_what_is_wanted_up_to_the_bound_and_hits_do_not() {
        let (mut pool, now) = (Pool::new(6, IDLE), Instant::now());
        let wanted = [1, 2, 4, 6, 6];
        for all in wanted {
            pool.note(&request("a"), false, now);
            fill(&mut pool, now);
            assert_eq!(pool.len(), all);
        }
        pool.note(&request("a"), true, now);
        assert_eq!(fill(&mut pool, now), 0);
    }

    #[test]
    fn what_nobody_comes_for_is_ended_and_not_built_again() {
        let (mut pool, now) = (Pool::new(8, IDLE), Instant::now());
        for _ in 0..3 {
            pool.note(&request("a"), false, now);
        }
        assert_eq!(fill(&mut pool, now), 4);
        assert_eq!(pool.deadline(), Some(now + IDLE));
        assert!(pool.overdue(now + IDLE / 2).is_empty());
        let overdue = pool.overdue(now + IDLE);
        assert_eq!(overdue.len(), 4);
        overdue.into_iter().for_each(|id| pool.remove(id));
        assert_eq!((fill(&mut pool, now + IDLE), pool.deadline()), (0, None));
    }

    #[test]
    fn a_sandbox_is_for_one_task_of_its_shape_alone() {
        let (mut pool, now) = (Pool::new(8, IDLE), Instant::now());
        pool.note(&request("a"), false, now);
        let id = TaskId::random();
        pool.begun(&request("a"), id, now);
        assert!(!pool.waits(id, &request("a")), "it is not built yet");
        pool.parked(id, now);
        // What is watched from outside, and what is executed, may differ.
        let mut same = StartRequest { command: "other".into(), working_dir: Some("/tmp".into()), ..request("a") };
        same.limits.timeout /= 2;
        assert!(pool.waits(id, &same));
        for change in [
            (|other| other.limits.memory_bytes /= 2) as fn(&mut StartRequest),
            |other| other.profile = "b".into(),
            |other| other.hostname = Some("other".into()),
            |other| other.split_output = true,
            |other| other.bind_ro = vec!["/opt".into()],
        ] {
            let mut other = request("a");
            change(&mut other);
            assert!(!pool.waits(id, &other), "{other:?}");
        }
        pool.remove(id);
        assert!(!pool.waits(id, &request("a")));
    }

    #[test]
    fn shapes_are_bounded_and_the_longest_forgotten_goes() {
        let (mut pool, now) = (Pool::new(100, IDLE), Instant::now());
        for number in 0..=KINDS as u32 {
            pool.note(&request(&number.to_string()), false, now + Duration::from_secs(number.into()));
            fill(&mut pool, now);
        }
        let first = pool.kinds.iter().find(|kind| kind.shape.profile == "0").unwrap().slots[0].id;
        assert_eq!(pool.overdue(now), [first]);
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
