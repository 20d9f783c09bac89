//! The server's end of the line to the launcher: requests out, events in, each event handed to whoever waits for it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot, watch};

use crate::containment::{Answer, HealthView, Line, Query, Scan};
use crate::error::{StartError, SysError};
use crate::task::id::TaskId;
use crate::task::request::TaskRequest;
use crate::wire::{self, Ended, Event, PacketError, Parked, Request, Started};

/// Requests that wait for the socket; beyond it, callers wait.
const WAITING: usize = 1024;
/// An auditor that does not answer within this time will not: it looks at a whole host in less.
const ANSWER: Duration = Duration::from_secs(50);

/// What happens to one task.
pub enum TaskEvent {
    /// Its command was executed; here is its output.
    Started(Started, Vec<OwnedFd>),
    /// It was not started.
    Failed(StartError),
    /// It has ended.
    Ended(Box<Ended>),
}

/// What concerns the server as a whole.
pub enum ServerEvent {
    /// Fresh TLS files, in the order CA, certificate, key and, if there is one, the revocation list.
    TlsFiles(Vec<OwnedFd>),
    /// Whether tasks are taken, from now on.
    Health(Box<HealthView>),
    /// The containment journal has grown.
    Journal(Vec<Line>),
    /// The auditor lives, and what it did.
    Scan(Scan),
    /// A sandbox stands ready.
    Parked(Box<Parked>),
    /// A sandbox does no longer.
    Unparked(TaskId),
    /// The launcher asks whether this process answers.
    Ping(u64),
    /// Admit no more tasks; the launcher stops those that run.
    Drain,
    /// The launcher is gone, or no longer makes sense: every task is dead or dying, and this process must end.
    Lost(String),
}

/// The line.
pub struct Link {
    requests: mpsc::Sender<Request>,
    /// The launcher's last question that was answered.
    answered: watch::Sender<u64>,
    waiting: Mutex<Waiting>,
    seq: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    tasks: HashMap<TaskId, mpsc::UnboundedSender<TaskEvent>>,
    signals: HashMap<u64, oneshot::Sender<Option<SysError>>>,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Link {
    /// Takes over the socket; what concerns the whole server comes out of the receiver.
    pub fn open(socket: OwnedFd) -> std::io::Result<(Arc<Self>, mpsc::Receiver<ServerEvent>)> {
        // The runtime knows no seqpacket sockets; all it does with this type is to wait until it is ready.
        let socket = Arc::new(UnixDatagram::from_std(socket.into())?);
        let (requests, to_send) = mpsc::channel(WAITING);
        let (events, received) = mpsc::channel(16);
        let (answered, answers) = watch::channel(0);
        let link = Arc::new(Self { requests, answered, waiting: Mutex::default(), seq: AtomicU64::new(1) });
        tokio::spawn(write(Arc::clone(&socket), to_send, answers, events.clone()));
        tokio::spawn(read(socket, Arc::clone(&link), events));
        Ok((link, received))
    }

    /// Asks for a task; its events come out of the receiver, [`TaskEvent::Failed`] or [`TaskEvent::Ended`] last.
    pub async fn start(&self, request: TaskRequest) -> mpsc::UnboundedReceiver<TaskEvent> {
        // At most three events per task, so the channel is bounded by what is sent.
        let (sender, receiver) = mpsc::unbounded_channel();
        self.waiting().tasks.insert(request.task, sender);
        self.send(Request::Start(Box::new(request))).await;
        receiver
    }

    /// Asks a task to end.
    pub async fn stop(&self, task: TaskId, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.send(Request::Stop { task, grace_ms }).await;
    }

    /// Has a task ended because of its output.
    pub async fn output_limit(&self, task: TaskId) {
        self.send(Request::OutputLimit { task }).await;
    }

    /// Sends a signal; `None` means delivered.
    pub async fn signal(&self, task: TaskId, number: i32) -> Option<SysError> {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting().signals.insert(seq, sender);
        self.send(Request::Signal { seq, task, number }).await;
        let lost = || Some(SysError::new("signal", format!("task {task}"), nix::errno::Errno::EPIPE));
        receiver.await.unwrap_or_else(|_| lost())
    }

    /// Puts a question to the auditor. Without an answer in time it is [`Answer::Refused`].
    pub async fn containment(&self, query: Query) -> Answer {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting().answers.insert(seq, sender);
        self.send(Request::Containment { seq, query }).await;
        match tokio::time::timeout(ANSWER, receiver).await {
            Ok(Ok(answer)) => answer,
            _ => {
                self.waiting().answers.remove(&seq);
                Answer::Refused("the auditor does not answer; `taskman health` says whether it lives".to_owned())
            }
        }
    }

    /// Says that clients are served from now on.
    pub async fn serving(&self) {
        self.send(Request::Serving).await;
    }

    /// Answers the launcher's question of this number, and with it those before.
    ///
    /// Without waiting: who answers is who takes what the launcher says, and the launcher takes no request while it cannot say
    /// it. Were an answer to wait for room among the requests, both could wait for each other for good.
    pub fn pong(&self, seq: u64) {
        self.answered.send_replace(seq);
    }

    /// Says that all is recorded; returns when that was sent, and nothing more will be.
    pub async fn goodbye(&self) {
        self.send(Request::Goodbye).await;
        self.requests.closed().await;
    }

    async fn send(&self, request: Request) {
        // Fails only once the launcher is gone, which is told as [`ServerEvent::Lost`].
        let _ = self.requests.send(request).await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dispatch(&self, event: Event, fds: Vec<OwnedFd>) -> Option<ServerEvent> {
        let task_event = match event {
            Event::Started(started) => (started.task, TaskEvent::Started(started, fds)),
            Event::StartFailed { task, error } => (task, TaskEvent::Failed(error)),
            Event::Ended(ended) => (ended.task, TaskEvent::Ended(ended)),
            Event::Signalled { seq, error } => {
                if let Some(waiting) = self.waiting().signals.remove(&seq) {
                    let _ = waiting.send(error); // the caller may have gone
                }
                return None;
            }
            Event::Containment { seq, answer } => {
                if let Some(waiting) = self.waiting().answers.remove(&seq) {
                    let _ = waiting.send(*answer); // the same
                }
                return None;
            }
            Event::Health(health) => return Some(ServerEvent::Health(health)),
            Event::Journal(lines) => return Some(ServerEvent::Journal(lines)),
            Event::Scan(scan) => return Some(ServerEvent::Scan(scan)),
            Event::Parked(parked) => return Some(ServerEvent::Parked(parked)),
            Event::Unparked { slot } => return Some(ServerEvent::Unparked(slot)),
            Event::Ping { seq } => return Some(ServerEvent::Ping(seq)),
            Event::TlsFiles => return Some(ServerEvent::TlsFiles(fds)),
            Event::Drain => return Some(ServerEvent::Drain),
        };
        let (task, event) = task_event;
        let mut waiting = self.waiting();
        if let Some(keeper) = waiting.tasks.get(&task) {
            let last = !matches!(event, TaskEvent::Started(..));
            let _ = keeper.send(event);
            if last {
                waiting.tasks.remove(&task);
            }
        }
        None
    }
}

async fn write(
    socket: Arc<UnixDatagram>,
    mut requests: mpsc::Receiver<Request>,
    mut answers: watch::Receiver<u64>,
    events: mpsc::Sender<ServerEvent>,
) {
    loop {
        let request = tokio::select! {
            Some(request) = requests.recv() => request,
            Ok(()) = answers.changed() => Request::Pong { seq: *answers.borrow_and_update() },
            else => return,
        };
        let send = || wire::send(socket.as_fd(), &request, &[]).map_err(io_error);
        if let Err(error) = socket.async_io(Interest::WRITABLE, send).await {
            let _ = events.send(ServerEvent::Lost(error.to_string())).await;
            return;
        }
        if request == Request::Goodbye {
            return;
        }
    }
}

async fn read(socket: Arc<UnixDatagram>, link: Arc<Link>, events: mpsc::Sender<ServerEvent>) {
    let lost = loop {
        let receive = || wire::receive::<Event>(socket.as_fd()).map_err(io_error);
        match socket.async_io(Interest::READABLE, receive).await {
            Ok(Some(packet)) => {
                if let Some(event) = link.dispatch(packet.message, packet.fds) {
                    let _ = events.send(event).await;
                }
            }
            Ok(None) => break "the launcher has ended".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    let _ = events.send(ServerEvent::Lost(lost)).await;
}

/// The runtime waits when an operation would block, and only then.
fn io_error(error: PacketError) -> io::Error {
    match error {
        PacketError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_waits_for_no_room_and_is_not_lost() {
        let (launcher, server) = wire::pair().unwrap();
        let (link, mut events) = Link::open(server).unwrap();
        // Nobody takes requests: the socket is full, and then the queue.
        let full = Duration::from_millis(200);
        while tokio::time::timeout(full, link.stop(TaskId::random(), Duration::ZERO)).await.is_ok() {}
        for seq in [1, 2] {
            wire::send(launcher.as_fd(), &Event::Ping { seq }, &[]).unwrap();
            assert!(matches!(events.recv().await, Some(ServerEvent::Ping(asked)) if asked == seq));
            link.pong(seq);
        }
        let answered = async {
            loop {
                match wire::receive::<Request>(launcher.as_fd()) {
                    Ok(Some(packet)) if packet.message == (Request::Pong { seq: 2 }) => break,
                    Ok(Some(_)) => {}
                    Err(PacketError::WouldBlock) => tokio::time::sleep(Duration::from_millis(1)).await,
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), answered).await.expect("the launcher hears the answer");
    }
}
