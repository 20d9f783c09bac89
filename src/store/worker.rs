//! The store's threads: one that writes, and two that read, of which one makes lists.
//!
//! SQLite has one writer at a time anyway, and a commit waits for the disk: so all that is queued when the disk is free
//! goes into the next transaction, and one fsync serves every caller. Reads have a connection and a thread aside: they
//! are short, never wait for a commit (WAL), and need neither a pool nor a lock. Lists are longer, so nothing else waits for them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::error::StoreError;
use crate::error::{Context, SysError};

/// The largest transaction: bounds what one failure fails.
const BATCH: usize = 256;

/// Given why there is no transaction, it does nothing and passes that on.
type Write = Box<dyn FnOnce(Result<&Connection, StoreError>) -> Done + Send>;
type Read = Box<dyn FnOnce(&Connection) + Send>;

/// A piece of work that was done inside a transaction and is not committed yet.
struct Done {
    failed: Option<StoreError>,
    /// Gives the caller its answer, or why the transaction failed.
    answer: Box<dyn FnOnce(Result<(), StoreError>) + Send>,
}

/// The threads.
#[derive(Debug)]
pub(super) struct Workers {
    writes: Option<Sender<Write>>,
    reads: Option<Sender<Read>>,
    lists: Option<Sender<Read>>,
    /// The one that reads, the one that lists, then the one that writes.
    threads: [Option<JoinHandle<()>>; 3],
}

impl Workers {
    /// Starts them.
    pub(super) fn start(writer: Connection, [reader, lister]: [Connection; 2]) -> Result<Self, SysError> {
        let (writes, to_write) = channel();
        let (reads, to_read) = channel::<Read>();
        let (lists, to_list) = channel::<Read>();
        // Threads of their own: a commit blocks for as long as the disk likes.
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let writing = thread("store-write").spawn(move || write(writer, &to_write)).on("clone", "store writer")?;
        let reading = thread("store-read").spawn(move || to_read.iter().for_each(|read| read(&reader)));
        let listing = thread("store-list").spawn(move || to_list.iter().for_each(|list| list(&lister)));
        let threads = [reading.on("clone", "store reader")?, listing.on("clone", "store lister")?, writing].map(Some);
        Ok(Self { writes: Some(writes), reads: Some(reads), lists: Some(lists), threads })
    }

    /// Does `work` in a transaction; it is durable when this returns. Not undone when the caller stops waiting.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Write = Box::new(move |database: Result<&Connection, StoreError>| {
            let result = database.and_then(work);
            let failed = result.as_ref().err().cloned();
            let answer = move |committed: Result<(), StoreError>| {
                // A failure of one's own says more than the batch's.
                let _ = answer.send(result.and_then(|value| committed.map(|()| value)));
            };
            Done { failed, answer: Box::new(answer) }
        });
        let writes = self.writes.as_ref().ok_or(StoreError::Closed)?;
        writes.send(job).map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// The same, for what need not be durable yet when the caller goes on; whatever is written later is so after it. A failure is
    /// told in the log.
    pub(super) fn write_later(&self, work: impl FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static) {
        let job: Write = Box::new(move |database: Result<&Connection, StoreError>| {
            let result = database.and_then(work);
            let failed = result.as_ref().err().cloned();
            let answer = move |committed: Result<(), StoreError>| {
                if let Err(error) = result.and(committed) {
                    tracing::error!(%error, "a task's record is not up to date");
                }
            };
            Done { failed, answer: Box::new(answer) }
        });
        // Closed only when the server ends.
        let _ = self.writes.as_ref().map(|writes| writes.send(job));
    }

    /// Asks `question` of what is committed.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        ask(self.reads.as_ref(), question).await
    }

    /// The same, of many tasks: only other lists wait for it.
    pub(super) async fn list<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        ask(self.lists.as_ref(), question).await
    }
}

async fn ask<T: Send + 'static>(
    thread: Option<&Sender<Read>>,
    question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let (answer, answered) = oneshot::channel();
    let job: Read = Box::new(move |database| drop(answer.send(question(database))));
    thread.ok_or(StoreError::Closed)?.send(job).map_err(|_| StoreError::Closed)?;
    answered.await.map_err(|_| StoreError::Closed)?
}

impl Drop for Workers {
    /// Lets the threads do what is queued, then ends them one after the other: the last to close the database puts everything
    /// into its one file, and of two that close at the same moment neither is the last.
    fn drop(&mut self) {
        let [reading, listing, writing] = &mut self.threads;
        self.reads = None;
        let _ = reading.take().map(JoinHandle::join);
        self.lists = None;
        let _ = listing.take().map(JoinHandle::join);
        self.writes = None;
        let _ = writing.take().map(JoinHandle::join);
    }
}

fn write(mut database: Connection, jobs: &Receiver<Write>) {
    while let Ok(first) = jobs.recv() {
        let mut batch = std::iter::once(first).chain(jobs.try_iter()).take(BATCH).collect::<Vec<_>>().into_iter();
        let mut done = Vec::new();
        let committed = commit(&mut database, &mut batch, &mut done);
        if let Err(refused) = &committed {
            // Those that had no turn hear why.
            done.extend(batch.map(|job| job(Err(refused.clone()))));
        }
        for done in done {
            (done.answer)(committed.clone());
        }
    }
}

/// Does a batch in one transaction, each piece whole or not at all.
fn commit(
    database: &mut Connection,
    batch: &mut impl Iterator<Item = Write>,
    done: &mut Vec<Done>,
) -> Result<(), StoreError> {
    let mut whole = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for job in batch {
        let piece = whole.savepoint()?;
        let did = job(Ok(&piece));
        let failed = did.failed.clone();
        done.push(did);
        match failed {
            None => piece.commit()?,
            // A full disk ends the whole transaction: nothing of this batch is stored.
            Some(failed) if piece.is_autocommit() => return Err(failed),
            Some(_) => piece.finish()?, // rolls back to where this piece began
        }
    }
    Ok(whole.commit()?)
}
