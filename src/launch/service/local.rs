//! Where root on this host asks whether tasks are taken: a socket in the state directory. Whoever connects is sent the answer, and
//! nothing is read. A launcher that stands still does not answer, which no file could tell without a write to a disk at each beat.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::{Service, complain};
use crate::error::{Context, SysError};
use crate::place::HEALTH_SOCKET;
use crate::sys::fd;

/// Answered in one turn of the loop.
const BATCH: usize = 16;

/// The socket that is listened on.
pub struct Local(UnixListener);

impl Local {
    /// In place of that of an earlier launcher, which is dead: the state directory is locked.
    pub fn listen(state_dir: &Path) -> Result<Self, SysError> {
        let shown = state_dir.join(HEALTH_SOCKET).display().to_string();
        let _ = std::fs::remove_file(&shown);
        // A socket's path has at most 107 bytes.
        let directory = std::fs::File::open(state_dir).on("open", state_dir.display().to_string())?;
        let path = format!("/proc/self/fd/{}/{HEALTH_SOCKET}", directory.as_raw_fd());
        let listener = UnixListener::bind(&path).on("bind", &*shown)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).on("chmod", &*shown)?;
        let listener = UnixListener::from(fd::lift(listener.into()).on("fcntl", &*shown)?);
        listener.set_nonblocking(true).on("fcntl", shown)?;
        Ok(Self(listener))
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Service<'_> {
    /// Answers whoever asks.
    pub(super) fn answer_locally(&mut self) {
        for _ in 0..BATCH {
            let Ok((mut asking, _)) = self.local.0.accept() else { return };
            // What root has just written to the journal counts.
            let _ = self.refusal();
            let view = serde_json::to_vec(&self.standing.view(&self.auditor)).unwrap_or_default();
            // It fits into the socket, and whoever has gone needs no answer.
            if asking.set_nonblocking(true).and_then(|()| asking.write_all(&view)).is_err() {
                complain("whoever asked for health on this host was not answered");
            }
        }
    }
}
