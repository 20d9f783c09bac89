//! The sandboxes that stand ready, as the launcher has told. One is taken by giving its id to a task; whether it is still there
//! then is the launcher's to see, and no worry of anyone's here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::task::id::TaskId;
use crate::task::request::TaskRequest;
use crate::wire::{Parked, Shape};

/// Those that nobody has taken.
#[derive(Default)]
pub struct Slots {
    ready: Mutex<Vec<Parked>>,
}

impl Slots {
    /// One more.
    pub fn add(&self, slot: Parked) {
        self.ready().push(slot);
    }

    /// One fewer, unless it was taken.
    pub fn remove(&self, id: TaskId) {
        self.ready().retain(|slot| slot.slot != id);
    }

    /// One for this request, for good. The newest: what is more than is needed grows old, and is ended.
    pub fn take(&self, request: &TaskRequest) -> Option<TaskId> {
        let shape = Shape::of(request)?;
        let mut ready = self.ready();
        let newest = ready.iter().rposition(|slot| slot.shape == shape)?;
        Some(ready.remove(newest).slot)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ready().len()
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Parked>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_taken_once_and_only_for_its_shape() {
        let request = TaskRequest::new("true", [""; 0]);
        let slots = Slots::default();
        let ids = [TaskId::random(), TaskId::random(), TaskId::random()];
        for slot in ids {
            slots.add(Parked { slot, shape: Shape::of(&request).unwrap(), built_micros: 1 });
        }
        slots.remove(ids[1]);
        assert_eq!(slots.count(), 2);
        assert_eq!(slots.take(&TaskRequest { split_output: true, ..request.clone() }), None);
        assert_eq!(slots.take(&TaskRequest { bind_ro: vec!["/opt".into()], ..request.clone() }), None);
        let taken = [slots.take(&request), slots.take(&request), slots.take(&request)];
        assert_eq!(taken, [Some(ids[2]), Some(ids[0]), None]);
    }
}
