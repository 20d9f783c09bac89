//! The kernel's process events: the proc connector, a netlink group that tells of every fork, exec, change of identity and
//! exit on the host.
//!
//! A filter in the kernel lets two of them through, and a few of a third. A fork makes nothing that its parent is not; an exit
//! leaves nothing that the group does not show; and both come by the ten thousand. What can change a process is an exec and a
//! change of uid. But who forks and exits all the time is in no list of processes long enough to be found by it: so one fork
//! in sixteen is told, at random.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recv, send, setsockopt, sockopt};

const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const FORK: u32 = 1;
const EXEC: u32 = 2;
const UID: u32 = 4;
/// nlmsghdr, then cn_msg, then proc_event: what, cpu, time, and the event's own words.
const WHAT: usize = 16 + 20;
const WORDS: usize = WHAT + 16;
/// Of so many forks, one is told; a power of two.
const SAMPLE: u32 = 16;
/// Room for some ten thousand events while the auditor is busy.
const RECEIVE_BUFFER: usize = 4 << 20;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcEvent {
    /// A process executed a program.
    Exec(i32),
    /// A process changed its uid.
    Uid(i32),
    /// A process was forked.
    Fork(i32),
}

/// An open connection.
pub struct Connector(OwnedFd);

impl AsFd for Connector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Connector {
    /// Begins to listen. Needs CAP_NET_ADMIN, and the host's own PID and network namespace.
    pub fn open() -> Result<Self, Errno> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket touches no memory; the result is a new descriptor that nobody else owns.
        let fd = unsafe {
            OwnedFd::from_raw_fd(Errno::result(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR))?)
        };
        // Best effort: with less room an overrun comes sooner, and an overrun is a full scan.
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER);
        attach_filter(fd.as_fd())?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, CN_IDX_PROC))?;
        let mut message = Vec::with_capacity(40);
        for word in [40u32, 3, 0, 0, CN_IDX_PROC, CN_VAL_PROC, 0, 0, 4, PROC_CN_MCAST_LISTEN] {
            message.extend_from_slice(&word.to_ne_bytes());
        }
        send(fd.as_raw_fd(), &message, MsgFlags::empty())?;
        Ok(Self(fd))
    }

    /// Takes what has come, at most `most` events. ENOBUFS: some were lost.
    pub fn read(&self, most: usize) -> Result<Vec<ProcEvent>, Errno> {
        let mut events = Vec::new();
        let mut buffer = [0u8; 256];
        while events.len() < most {
            match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => events.extend(parse(&buffer[..length])),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(events)
    }
}

fn parse(message: &[u8]) -> Option<ProcEvent> {
    let word = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
    // The second word is the thread group: what is judged is a process.
    let process = word(WORDS + 4)? as i32;
    match word(WHAT)? {
        // The parent's two words come first; a new thread is no new process.
        FORK => (word(WORDS + 8) == word(WORDS + 12)).then_some(ProcEvent::Fork(word(WORDS + 12)? as i32)),
        EXEC => Some(ProcEvent::Exec(process)),
        UID => Some(ProcEvent::Uid(process)),
        _ => None,
    }
}

fn attach_filter(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump =
        |k: u32, jt: u8| libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf: 0, k };
    // The filter loads words as the network writes them.
    let equals = |what: u32, jt: u8| jump(what.to_be(), jt);
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, WHAT as u32),
        equals(EXEC, 7),
        equals(UID, 6),
        equals(FORK, 1),
        statement(libc::BPF_RET | libc::BPF_K, 0),
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, SAMPLE - 1),
        jump(0, 1),
        statement(libc::BPF_RET | libc::BPF_K, 0),
        statement(libc::BPF_RET | libc::BPF_K, u32::MAX),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    Errno::result(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods)] // a process to be heard of
    fn an_exec_and_a_change_of_uid_are_told_and_of_many_forks_a_few() {
        let connector = Connector::open().unwrap();
        let mut child = std::process::Command::new("setpriv")
            .args(["--reuid", "1912000001", "--clear-groups", "sh", "-c", ":"])
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        child.wait().unwrap();
        let mut mine = Vec::new();
        let wanted = [ProcEvent::Exec(pid), ProcEvent::Uid(pid), ProcEvent::Exec(pid)];
        while mine != wanted {
            let ready = poll(&mut [PollFd::new(connector.as_fd(), PollFlags::POLLIN)], PollTimeout::from(5000u16));
            assert_eq!(ready, Ok(1), "{mine:?}");
            let of_child = |event: &ProcEvent| matches!(event, ProcEvent::Exec(p) | ProcEvent::Uid(p) if *p == pid);
            mine.extend(connector.read(100).unwrap().into_iter().filter(of_child));
        }

        let forks = 640;
        let script = format!("i=0; while [ $i -lt {forks} ]; do (:); i=$((i+1)); done");
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let ended = || child.try_wait().unwrap().is_some();
        let mut told = 0;
        for is_over in std::iter::repeat_with(ended).take(60_000) {
            told += connector.read(10_000).unwrap().iter().filter(|event| matches!(event, ProcEvent::Fork(_))).count();
            if is_over {
                break;
            }
            let _ = poll(&mut [], PollTimeout::from(1u8));
        }
        // Others fork on this host too; those told of this one's alone are 40 on average, and once in a million tests under 10.
        assert!(told >= 10, "{told}");
    }
}
