//! Makes ended output durable and then says so.
//!
//! Nothing is synced before the end: the middle of a long output goes again, and most of it never has to reach the disk.
//! The wait is for the disk, so a few threads share it, and one large output does not hold up every small one.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::log::{Closed, Log, segment_path};
use super::meta::{self, Meta};
use crate::error::{Context, SysError};

/// Enough that small outputs overtake a few large ones.
const THREADS: usize = 4;

/// Outputs whose end is not on disk yet, by directory.
pub(super) type Live = Arc<Mutex<HashMap<PathBuf, Arc<Log>>>>;

/// What is left to do for an output.
#[derive(Debug)]
pub(super) enum Work {
    /// Its storing stopped: note that, for the case that the server dies before its end.
    Note(Arc<Log>),
    /// It is over.
    Close(Arc<Log>, Closed),
}

/// Starts the threads. They end when nobody can send any more and all is done.
pub(super) fn start(received: Receiver<Work>, live: &Live) -> Result<Vec<JoinHandle<()>>, SysError> {
    let received = Arc::new(Mutex::new(received));
    let start = |number| {
        let (received, live) = (received.clone(), live.clone());
        // Threads of their own: fsync blocks for as long as the disk likes.
        let thread = std::thread::Builder::new().name(format!("output-close-{number}"));
        thread.spawn(move || run(&received, &live)).on("clone", "output closer")
    };
    (0..THREADS).map(start).collect()
}

fn run(received: &Mutex<Receiver<Work>>, live: &Live) {
    loop {
        // The guard is gone at the end of this statement: one thread waits for work, the others for the guard.
        let work = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match work {
            Ok(Work::Note(log)) => log.with_meta(|open| if open { note(&log, None) } else { Ok(()) }),
            Ok(Work::Close(log, closed)) => {
                log.with_meta(|_| close(&log, closed));
                live.lock().unwrap_or_else(PoisonError::into_inner).remove(log.dir());
                // Told even if the disk refused: readers must not wait for ever. After a restart the segments speak.
                log.publish(None, Some(closed));
            }
            Err(_) => return,
        }
    }
}

fn close(log: &Log, closed: Closed) -> Result<(), SysError> {
    let firsts: Vec<u64> = log.layout().firsts().collect();
    for first in firsts {
        let path = segment_path(log.dir(), first);
        match File::open(&path) {
            Ok(file) => file.sync_data().on("fdatasync", path.display().to_string())?,
            // Begun in the layout and refused by the disk.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).on("open", path.display().to_string()),
        }
    }
    note(log, Some(closed))
}

/// Writes the meta file and makes every name on the way to it durable.
fn note(log: &Log, closed: Option<Closed>) -> Result<(), SysError> {
    meta::write(log.dir(), &Meta::from(super::Progress { closed, ..log.now() }))?;
    // output/<task>/<source>: the two directories above hold its name.
    log.dir().ancestors().skip(1).take(2).try_for_each(|dir: &Path| meta::sync_directory(dir))
}
