//! What the launcher has to tell the server, in order, while the server is slow to read it. The launcher never blocks on the
//! server, and as long as something waits here it takes no new request: so the queue is bounded by the tasks that live.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::wire::{self, Event, PacketError};

/// Events that wait for room in the socket, with their descriptors.
#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<(Event, Vec<OwnedFd>)>,
}

impl Outbox {
    /// Queues an event; [`Outbox::flush`] sends it.
    pub fn push(&mut self, event: Event, fds: Vec<OwnedFd>) {
        self.waiting.push_back((event, fds));
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nobody is left to tell.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Sends as much as the socket takes.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), PacketError> {
        while let Some((event, fds)) = self.waiting.front() {
            let passed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match wire::send(socket, event, &passed) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(PacketError::WouldBlock) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::TaskId;
    use crate::task::spec::SpecError;

    #[test]
    fn a_slow_server_gets_everything_in_order_and_blocks_nobody() {
        let (here, there) = wire::pair().unwrap();
        let mut outbox = Outbox::default();
        let error = SpecError::new("args", "x".repeat(20_000));
        let tasks: Vec<TaskId> = (0..100).map(|_| TaskId::random()).collect();
        for task in &tasks {
            outbox.push(Event::StartFailed { task: *task, error: error.clone().into() }, Vec::new());
        }
        let mut seen = Vec::new();
        outbox.flush(here.as_fd()).unwrap();
        assert!(!outbox.is_empty(), "two megabytes fit into the socket");
        while seen.len() < tasks.len() {
            outbox.flush(here.as_fd()).unwrap();
            match wire::receive::<Event>(there.as_fd()).unwrap().unwrap().message {
                Event::StartFailed { task, .. } => seen.push(task),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, tasks);
        drop(there);
        crate::sys::fd::wait_hung_up(&here);
        outbox.push(Event::Drain, Vec::new());
        assert!(matches!(outbox.flush(here.as_fd()), Err(PacketError::Closed)));
    }
}
