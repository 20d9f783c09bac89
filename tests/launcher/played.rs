//! An auditor that does what the case says: this program, executed by the launcher in the true one's place. A question is its
//! order, so that a case directs it through the very line that is under test.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use taskman::containment::{Answer, FromAuditor, Health, IncidentId, Journal, Kind, Query, Scan, Summary, ToAuditor};
use taskman::sys::spawn::given_socket;
use taskman::task::id::TaskId;
use taskman::wire::{self, PacketError};

/// While a file of this name is in the state directory, a first look is not done.
pub const HOLD: &str = "hold";

/// While a file of this name is in the state directory, one that was told to flood goes on.
pub const FLOOD: &str = "flood";

/// Orders, as the reason of a quarantine that is asked for.
pub fn order(order: &str) -> Query {
    Query::Quarantine { by: "the case".into(), reason: order.into() }
}

/// A file of this name in the state directory, where the launcher of a case stands, asks for it in the true one's place.
pub const PLAYED: &str = "played";

/// Whether it is this one that the case wants.
pub fn is_meant() -> bool {
    Path::new(PLAYED).exists()
}

/// Whether this process was executed to be an auditor.
pub fn is_asked_for() -> bool {
    std::env::args().eq(["taskman-server", "auditor"])
}

/// Plays until the launcher is gone, or longer if it was told to be deaf.
pub fn play() -> std::process::ExitCode {
    let socket = given_socket().unwrap();
    let say = |message: FromAuditor| wire::send(socket.as_fd(), &message, &[]).unwrap();
    let mut later = Vec::new();
    loop {
        let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], 100u8);
        let message = match wire::receive::<ToAuditor>(socket.as_fd()) {
            Ok(Some(packet)) => packet.message,
            Ok(None) => return 0.into(),
            Err(_) => {
                say(FromAuditor::Beat { scan: Scan::default() });
                continue;
            }
        };
        match message {
            ToAuditor::Setup(setup) => say(first_look(&setup.state_dir)),
            ToAuditor::Ended { .. } => {}
            ToAuditor::Ask { seq, query: Query::Quarantine { reason, .. } } => {
                match reason.split(' ').collect::<Vec<_>>()[..] {
                    ["die"] => return 7.into(),
                    ["silence"] => drop(poll(&mut [], 60_000u16)),
                    ["never"] => continue,
                    ["later"] => {
                        later.push(seq);
                        continue;
                    }
                    ["found", task, pid] => {
                        say(found(task.parse().unwrap()));
                        // The launcher may have been faster.
                        let killed = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
                        assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
                    }
                    ["flood"] => flood(&socket),
                    ["now"] => {}
                    _ => panic!("{reason}"),
                }
                // In the wrong order, which the numbers set right.
                for seq in std::iter::once(seq).chain(later.drain(..).rev()) {
                    say(FromAuditor::Answer { seq, answer: Answer::Refused(format!("done: {reason}")) });
                }
            }
            ToAuditor::Ask { seq, query } => {
                say(FromAuditor::Answer { seq, answer: Answer::Refused(format!("{query:?}")) });
            }
        }
    }
}

fn first_look(state_dir: &Path) -> FromAuditor {
    while state_dir.join(HOLD).exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let health: Health = Journal::new(state_dir).health().unwrap();
    FromAuditor::Ready { without_events: None, health }
}

/// Says again and again that there is another finding; not for ever, where nobody takes the file away.
fn flood(socket: &impl AsFd) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut health = Journal::new(Path::new(".")).health().unwrap();
    while Path::new(FLOOD).exists() && Instant::now() < until {
        health.seq += 1;
        health.findings += 1;
        let message = FromAuditor::Health { lines: Vec::new(), health: health.clone() };
        while let Err(PacketError::WouldBlock) = wire::send(socket.as_fd(), &message, &[]) {
            poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], 100u8).unwrap();
        }
    }
}

fn found(task: TaskId) -> FromAuditor {
    let summary = Summary {
        id: IncidentId::new(1),
        kind: Kind::OrphanDetected,
        detected_at: 1,
        task: Some(task),
        owner: None,
        pid: None,
        what: "played".into(),
    };
    FromAuditor::Found { task: Some(task), summary }
}
