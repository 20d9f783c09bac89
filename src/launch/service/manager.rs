//! The service manager, where there is one: systemd, or whatever speaks as sd_notify(3) has it.
//!
//! It is told by datagrams: when the service is ready, what it is doing, that it ends, and, as often as it wants to hear it, that
//! everything still answers. The address comes by the environment and is taken out of it: it is the launcher's alone.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::errno::Errno;

use super::complain;
use crate::error::{Context, SysError};
use crate::log;
use crate::sys::{env, fd};

/// The manager ignores a datagram above 4096 bytes; a status is a sentence.
const STATUS: usize = 1024;

/// Where the manager listens, and how often it wants to hear.
#[derive(Debug)]
pub struct Manager {
    address: SocketAddr,
    watchdog: Option<Duration>,
}

impl Manager {
    /// Takes the manager's address out of the environment; none if nobody has put one there. Called before there is a thread,
    /// and before another process could inherit it.
    pub fn take() -> Result<Option<Self>, SysError> {
        let [address, usec, pid] =
            [c"NOTIFY_SOCKET", c"WATCHDOG_USEC", c"WATCHDOG_PID"].map(|name| env::take(name).filter(|v| !v.is_empty()));
        let Some(address) = address else { return Ok(None) };
        let number = |text: &OsStr| text.to_str().and_then(|text| text.parse::<u64>().ok());
        // Meant for another process of the unit.
        let is_mine = pid.as_deref().is_none_or(|pid| number(pid) == Some(u64::from(std::process::id())));
        let usec = usec.as_deref().and_then(number).filter(|usec| is_mine && *usec > 0);
        Ok(Some(Self { address: parse(&address)?, watchdog: usec.map(Duration::from_micros) }))
    }
}

/// A path, or `@` and the name of an abstract socket.
fn parse(address: &OsStr) -> Result<SocketAddr, SysError> {
    let bytes = address.as_bytes();
    let parsed = match bytes.first() {
        Some(b'/') => SocketAddr::from_pathname(address),
        Some(b'@') => SocketAddr::from_abstract_name(&bytes[1..]),
        _ => Err(Errno::EINVAL.into()),
    };
    parsed
        .on("use", format!("NOTIFY_SOCKET {}", address.display()))
        .map_err(|error| error.hint("it must be a path from the root, or @ and a name, of at most 107 bytes"))
}

/// What the manager knows of the service's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Not to be relied on yet.
    Starting,
    /// Started.
    Ready,
    /// Reading its certificates anew because someone asked for it.
    Reloading,
    /// Ending.
    Stopping,
}

/// The line to the manager. Without one, nothing is ever sent.
pub struct Line {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    told: (Life, String),
    /// Whether the last word did not get through, which was logged.
    failing: bool,
}

impl Line {
    /// Opens it.
    pub fn open(manager: Option<Manager>) -> Result<Self, SysError> {
        let mut line = Self { to: None, watchdog: None, told: (Life::Starting, String::new()), failing: false };
        if let Some(Manager { address, watchdog }) = manager {
            let socket = UnixDatagram::unbound().on("socket", "the service manager")?;
            let socket = UnixDatagram::from(fd::lift(socket.into()).on("fcntl", "the service manager")?);
            socket.set_nonblocking(true).on("fcntl", "the service manager")?;
            (line.to, line.watchdog) = (Some((socket, address)), watchdog);
        }
        Ok(line)
    }

    /// Whether there is a manager.
    pub fn is_open(&self) -> bool {
        self.to.is_some()
    }

    /// How often it is told that all is well: twice in the time that it waits for it. None if it does not wait.
    pub fn every(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| watchdog / 2)
    }

    /// Tells where the service stands, if that has changed.
    pub fn tell(&mut self, life: Life, status: &str) {
        let status: String = log::plain(status).chars().take(STATUS / 4).collect();
        let word = match life {
            _ if life == self.told.0 => "",
            Life::Starting => "",
            Life::Ready => "READY=1\n",
            Life::Reloading => "RELOADING=1\n",
            Life::Stopping => "STOPPING=1\n",
        };
        if (word.is_empty() && status == self.told.1) || !self.send(&format!("{word}STATUS={status}")) {
            return;
        }
        self.told = (life, status);
    }

    /// Tells that everything answers. Says whether that got through.
    pub fn is_alive(&mut self) -> bool {
        self.send("WATCHDOG=1")
    }

    /// Whether that was taken, or can never be. One that has no room is tried again in the loop's next turn.
    fn send(&mut self, text: &str) -> bool {
        let Some((socket, address)) = &self.to else { return true };
        let sent = socket.send_to_addr(text.as_bytes(), address);
        let failing = std::mem::replace(&mut self.failing, sent.is_err());
        match sent {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                if !failing {
                    complain(&format!("the service manager cannot be told {text:?}: {error}"));
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> Vec<String> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        let next = || socket.recv(&mut buffer).ok().map(|length| String::from_utf8(buffer[..length].to_vec()).unwrap());
        std::iter::from_fn(next).collect()
    }

    fn line(address: &str) -> Line {
        let address = parse(OsStr::new(address)).unwrap();
        Line::open(Some(Manager { address, watchdog: Some(Duration::from_secs(30)) })).unwrap()
    }

    #[test]
    fn each_change_is_told_once_by_either_kind_of_address() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("taskman-test-{}", std::process::id());
        let kinds = [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(), format!("@{name}")),
        ];
        for (manager, address) in kinds {
            let mut line = line(&address);
            assert_eq!(line.every(), Some(Duration::from_secs(15)));
            for (life, status) in [
                (Life::Starting, "starting"),
                (Life::Starting, "starting"),
                (Life::Ready, "serving"),
                (Life::Ready, "a\nWATCHDOG=1"),
                (Life::Reloading, "r"),
                (Life::Ready, "serving"),
                (Life::Stopping, "serving"),
            ] {
                line.tell(life, status);
            }
            assert!(line.is_alive());
            let all = [
                "STATUS=starting",
                "READY=1\nSTATUS=serving",
                // Whatever is in a status is no word of its own.
                "STATUS=a WATCHDOG=1",
                "RELOADING=1\nSTATUS=r",
                "READY=1\nSTATUS=serving",
                "STOPPING=1\nSTATUS=serving",
                "WATCHDOG=1",
            ];
            assert_eq!(heard(&manager), all);
        }
    }

    #[test]
    fn what_has_no_room_is_told_later_and_a_manager_that_is_gone_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut line = line(path.to_str().unwrap());
        while line.is_alive() {}
        line.tell(Life::Ready, "serving");
        assert!(heard(&manager).iter().all(|text| text == "WATCHDOG=1"));
        line.tell(Life::Ready, "serving");
        assert_eq!(heard(&manager), ["READY=1\nSTATUS=serving"]);
        drop(manager);
        assert!(line.is_alive());
        line.tell(Life::Stopping, "x");
        let mut nobody = Line::open(None).unwrap();
        nobody.tell(Life::Ready, "serving");
        assert!(nobody.is_alive() && !nobody.is_open() && nobody.every().is_none());
    }

    #[test]
    fn an_address_that_is_none_is_refused_by_name() {
        for wrong in ["run/notify", "vsock:2:1", &format!("/{}", "x".repeat(200))] {
            let error = parse(OsStr::new(wrong)).unwrap_err().to_string();
            assert!(error.contains("NOTIFY_SOCKET") && error.contains("@ and a name"), "{error}");
        }
    }
}
