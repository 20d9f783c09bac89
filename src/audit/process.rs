//! A process that cannot be mistaken for another: a descriptor of it, and facts that were read while it had its number.

use std::time::Duration;

use nix::errno::Errno;

use super::facts::Facts;
use crate::sys::pidfd::PidFd;

/// A process and what is known of it. The only thing that the auditor can signal.
pub struct Process {
    pidfd: PidFd,
    /// As read after the descriptor was opened, and before its number was free again.
    pub facts: Facts,
}

impl Process {
    /// Looks at the process of this number; none if it is gone, or went while it was looked at.
    pub fn look(pid: i32) -> Option<Self> {
        let pidfd = PidFd::open(pid).ok()?;
        let facts = Facts::read(pid)?;
        // The number is still this descriptor's: so nobody else had it in between, and the facts are of this process.
        (pidfd.kernel_pid().ok()? == i64::from(pid)).then_some(Self { pidfd, facts })
    }

    /// Kills it, and nobody else.
    pub fn kill(&self) -> Result<(), Errno> {
        self.pidfd.kill()
    }

    /// Waits until it is dead; false if it does not die in time.
    pub fn wait_dead(&self, patience: Duration) -> bool {
        self.pidfd.ends_within(patience).unwrap_or(false)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // processes to look at
mod tests {
    use super::*;

    #[test]
    fn a_process_is_killed_and_seen_dead_and_a_number_alone_is_nobody() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::look(child.id() as i32).unwrap();
        process.kill().unwrap();
        assert!(process.wait_dead(Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(Process::look(process.facts.pid).is_none(), "its number is free");
        for pid in [0, -1, i32::MIN, i32::MAX] {
            assert!(Process::look(pid).is_none(), "{pid}");
        }
    }
}
