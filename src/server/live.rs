//! The connections that live now, so that a certificate which is revoked meanwhile loses its open streams too.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::socket::{Shutdown, shutdown};
use rustls_pki_types::CertificateDer;

use super::tls::{Loaded, Tls};

/// All of them, by a number that is never used twice.
#[derive(Default)]
pub(super) struct Live {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    entries: HashMap<u64, Entry>,
}

struct Entry {
    /// Open as long as the entry is there: a [`Registration`] goes before the socket that it is for.
    socket: RawFd,
    serial: String,
    chain: Vec<CertificateDer<'static>>,
}

/// Keeps a connection in the list. It must be dropped before the connection's socket.
pub(super) struct Registration {
    tls: Arc<Tls>,
    id: u64,
}

impl Registration {
    /// Lists a connection whose handshake ran with `used`. When the files changed meanwhile, they judge it now: a
    /// certificate that was revoked during its handshake must not slip in.
    pub fn new(
        tls: &Arc<Tls>,
        used: &Arc<Loaded>,
        socket: RawFd,
        serial: String,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<Self, rustls::Error> {
        let mut state = tls.live.lock();
        let now = tls.loaded();
        if !Arc::ptr_eq(&now, used) {
            now.accepts(&chain)?;
        }
        state.last += 1;
        let id = state.last;
        state.entries.insert(id, Entry { socket, serial, chain });
        drop(state);
        Ok(Self { tls: tls.clone(), id })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.tls.live.lock().entries.remove(&self.id);
    }
}

impl Live {
    /// Puts `loaded` into force and shuts the sockets of those that it would refuse. Their readers see the end at once.
    pub fn judge_again(&self, loaded: &Loaded, put_into_force: impl FnOnce()) -> usize {
        let state = self.lock();
        put_into_force();
        let mut cut = 0;
        for entry in state.entries.values() {
            if let Err(error) = loaded.accepts(&entry.chain) {
                tracing::info!(serial = entry.serial, %error, "cutting a connection whose certificate is no longer accepted");
                // Fails only when the peer has gone already.
                let _ = shutdown(entry.socket, Shutdown::Both);
                cut += 1;
            }
        }
        cut
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the map as whole as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
