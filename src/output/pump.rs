//! The threads that move all output from pipes to disk.
//!
//! They wait in one epoll for any pipe; the kernel hands each pipe that is ready to one of them, which gives it a bounded
//! turn and then lets it be watched again. The kernel's ready list is a queue, so turns go round.
//!
//! A turn can take as long as the program at the other end likes: while it writes, the kernel holds the pipe's lock, also
//! over a page fault on a file that is read at the task's own bandwidth limit. So whenever the last free thread takes a turn,
//! another one is started first: one task's stuck pipe holds up one thread, and nobody else's output. Waiting for a disk's
//! fsync is left to [the closers](super::close).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::close::Work;
use super::log::Closed;
use super::recording::{Recording, Turn};
use crate::error::{Context, SysError};

/// The key of the event descriptor that announces ends; pipes have the keys from 1 on.
const ENDS: u64 = 0;
/// Free threads beyond this many end.
const FREE: usize = 4;
/// They call little and hold nothing large.
const STACK: usize = 256 << 10;
/// How long the end of the pump waits for threads in the middle of a turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pump.
#[derive(Debug)]
pub(super) struct Pump {
    epoll: Epoll,
    /// Counts the ends that wait; each thread takes one.
    ends: EventFd,
    keys: AtomicU64,
    closers: Sender<Work>,
    shared: Mutex<Shared>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    slots: HashMap<u64, Arc<Slot>>,
    finishing: VecDeque<u64>,
    threads: usize,
    free: usize,
    stop: bool,
}

/// One recording, and whether its task is dead.
#[derive(Debug)]
struct Slot {
    recording: Mutex<Option<Recording>>,
    finish: AtomicBool,
}

impl Pump {
    /// Starts the first thread. What is over goes to `closers`.
    pub(super) fn start(closers: Sender<Work>) -> Result<Arc<Self>, SysError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE;
        let ends = EventFd::from_flags(flags).on("eventfd", "output pump")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).on("epoll_create1", "output pump")?;
        epoll.add(&ends, EpollEvent::new(EpollFlags::EPOLLIN, ENDS)).on("epoll_ctl", "output pump")?;
        let keys = AtomicU64::new(ENDS + 1);
        let pump = Arc::new(Self { epoll, ends, keys, closers, shared: Mutex::default(), ended: Condvar::new() });
        pump.start_thread(&mut pump.shared())?;
        Ok(pump)
    }

    /// A key for one more recording.
    pub(super) fn key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a recording on.
    pub(super) fn record(&self, key: u64, recording: Recording) -> Result<(), SysError> {
        let dir = recording.log().dir().display().to_string();
        let slot = Arc::new(Slot { recording: Mutex::new(Some(recording)), finish: AtomicBool::new(false) });
        self.shared().slots.insert(key, Arc::clone(&slot));
        let recording = slot.lock();
        let pipe = recording.as_ref().map(Recording::pipe).expect("put there above, and nobody else knows of it");
        self.epoll.add(pipe, EpollEvent::new(WATCHED, key)).on("epoll_ctl", dir).inspect_err(|_| {
            self.shared().slots.remove(&key);
        })
    }

    /// Drains and closes a recording, if it is still open.
    pub(super) fn finish(&self, key: u64) {
        self.shared().finishing.push_back(key);
        // Fails only when the counter is full: then every thread is awake.
        let _ = self.ends.write(1);
    }

    /// Ends the threads, leaving what is open as a crash would.
    pub(super) fn stop(&self) {
        let mut shared = self.shared();
        shared.stop = true;
        let _ = self.ends.write(1); // nobody takes it any more, so it wakes them all
        // Only to be sure that nobody writes any more; what hangs in a turn is left to the end of the process.
        let waited = self.ended.wait_timeout_while(shared, PATIENCE, |shared| shared.threads > 0);
        drop(waited);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(self: &Arc<Self>, shared: &mut Shared) -> Result<(), SysError> {
        let pump = Arc::clone(self);
        // Threads of their own: what they wait for must not take a worker of the async runtime away.
        let thread = std::thread::Builder::new().name("output-pump".to_owned()).stack_size(STACK);
        thread.spawn(move || pump.run()).on("clone", "output pump")?;
        shared.threads += 1;
        shared.free += 1;
        Ok(())
    }

    fn run(self: Arc<Self>) {
        let mut events = [EpollEvent::empty()];
        loop {
            match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                // No other error is possible for a descriptor that is open and a buffer that is there.
                Err(errno) => panic!("epoll_wait of the output pump: {errno}"),
            }
            if !self.leave_the_free() {
                return self.end();
            }
            match events[0].data() {
                ENDS => self.take_end(),
                key => self.take_turn(key, events[0].events()),
            }
            if !self.join_the_free() {
                return self.end();
            }
        }
    }

    /// False when the pump has ended.
    fn leave_the_free(self: &Arc<Self>) -> bool {
        let mut shared = self.shared();
        if shared.stop {
            return false;
        }
        if shared.free == 1
            && let Err(error) = self.start_thread(&mut shared)
        {
            // The others go on; what is ready waits for one of them.
            tracing::warn!(%error, "no further thread for output");
        }
        shared.free -= 1;
        true
    }

    /// False when there are free threads enough.
    fn join_the_free(&self) -> bool {
        let mut shared = self.shared();
        if shared.free >= FREE || shared.stop {
            return false;
        }
        shared.free += 1;
        true
    }

    fn end(&self) {
        let mut shared = self.shared();
        shared.threads -= 1;
        self.ended.notify_all();
    }

    fn take_end(&self) {
        if self.ends.read().is_err() {
            return; // another thread was faster
        }
        let mut shared = self.shared();
        let slot = shared.finishing.pop_front().and_then(|key| Some((key, shared.slots.get(&key)?.clone())));
        drop(shared);
        if let Some((key, slot)) = slot {
            slot.finish.store(true, Ordering::SeqCst);
            self.finish_if_told(key, &slot);
        }
    }

    fn take_turn(&self, key: u64, ready: EpollFlags) {
        let Some(slot) = self.shared().slots.get(&key).cloned() else { return };
        let over = {
            let mut held = slot.lock();
            let Some(recording) = held.as_mut() else { return };
            let stored = !recording.stopped_storing();
            // Hung up and nothing to read: a turn would begin a segment for nothing.
            let empty = !ready.contains(EpollFlags::EPOLLIN);
            let turn = if empty { recording.at_zero() } else { recording.turn() };
            if stored && recording.stopped_storing() {
                let _ = self.closers.send(Work::Note(recording.log().clone()));
            }
            match turn {
                Turn::Over(closed) => held.take().map(|recording| (recording, closed)),
                Turn::Later => {
                    // Fails only for a descriptor that is not watched, and this one is.
                    let _ = self.epoll.modify(recording.pipe(), &mut EpollEvent::new(WATCHED, key));
                    None
                }
            }
        };
        match over {
            Some((recording, closed)) => self.close(key, recording, closed),
            None => self.finish_if_told(key, &slot),
        }
    }

    /// Whoever tells first sets the mark and then tries the lock; whoever holds it looks at the mark after letting go. So one
    /// of them sees to the end, and neither waits for the other.
    fn finish_if_told(&self, key: u64, slot: &Slot) {
        if !slot.finish.load(Ordering::SeqCst) {
            return;
        }
        let held = match slot.recording.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut recording) = held.and_then(|mut held| held.take()) {
            let closed = recording.drain();
            self.close(key, recording, closed);
        }
    }

    fn close(&self, key: u64, recording: Recording, closed: Closed) {
        let log = recording.log().clone();
        self.shared().slots.remove(&key);
        let _ = self.epoll.delete(recording.pipe());
        drop(recording); // its descriptors are gone before anybody hears of the end
        let _ = self.closers.send(Work::Close(log, closed));
    }
}

/// Handed to one thread, and to none again until its turn is over.
const WATCHED: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLONESHOT);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
