//! From a listening socket to authenticated connections, with limits on everything that a stranger can take.
//!
//! A stranger holds one of `connections.handshakes` sockets, for at most the handshake timeout, and until others need it more
//! ([`Strangers`]). Whoever has shown a certificate holds one of `connections.total`, of which so many are one address's and one user's.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::live::Registration;
use super::peer::Peer;
use super::strangers::{Stranger, Strangers};
use super::tls::{ALPN, Tls};
use crate::config;

/// How long accepting rests when the process has no descriptors or memory left; connections in the backlog wait.
const REST: Duration = Duration::from_millis(100);
/// A fatal alert "no application protocol", in the clear, as an answer to a ClientHello.
const NO_APPLICATION_PROTOCOL: [u8; 7] = [21, 3, 3, 0, 2, 2, 120];
/// What a connection keeps of what its socket does not take: a frame of the size that our own client asks for, with the heads around it. Less, and
/// the rest of each is encrypted and sent by itself.
const UNSENT: usize = 68 << 10;
/// A client sends its ClientHello right after it has connected.
const HELLO: Duration = Duration::from_secs(3);

/// An authenticated connection. Its [`Peer`] is in the extensions of every request.
pub struct Connection {
    // Before the stream: it names the stream's socket.
    _registration: Registration,
    stream: TlsStream<TcpStream>,
    peer: Peer,
    _place: Place,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

/// Accepts connections until the returned stream is dropped, and yields those whose handshake succeeded.
pub fn incoming(
    listener: TcpListener,
    tls: Arc<Tls>,
    limits: &config::Connections,
    handshake_timeout: Duration,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(64);
    let places = Arc::new(Places {
        total: limits.total,
        per_address: limits.per_address,
        per_user: limits.per_user,
        taken: Mutex::default(),
    });
    let gate = Arc::new(Gate { tls, places, strangers: Strangers::new(limits.handshakes), handshake_timeout });
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&listener, &gate, &sender) => {}
            () = sender.closed() => {}
        }
    });
    ReceiverStream::new(receiver)
}

struct Gate {
    tls: Arc<Tls>,
    places: Arc<Places>,
    strangers: Arc<Strangers>,
    handshake_timeout: Duration,
}

type Ready = mpsc::Sender<io::Result<Connection>>;

async fn accept(listener: &TcpListener, gate: &Arc<Gate>, ready: &Ready) {
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                let stranger = gate.strangers.enter(one_holder(address.ip())).await;
                tokio::spawn(admit(gate.clone(), socket, address, stranger, ready.clone()));
            }
            // The connection was gone before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!("accept: {error}; trying again in {REST:?}");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

async fn admit(gate: Arc<Gate>, socket: TcpStream, address: SocketAddr, mut stranger: Stranger, ready: Ready) {
    let ended = tokio::select! {
        ended = tokio::time::timeout(gate.handshake_timeout, handshake(&gate, socket, address)) => ended,
        () = stranger.gives_way() => return tracing::debug!(%address, "handshake gave way to another"),
    };
    drop(stranger);
    match ended {
        // A receiver that is gone takes no more connections.
        Ok(Ok(connection)) => drop(ready.send(Ok(connection)).await),
        // Strangers can cause these at will, so they are not worth a line by default.
        Ok(Err(error)) => tracing::debug!(%address, %error, "handshake refused"),
        Err(_) => tracing::debug!(%address, "handshake not finished in time"),
    }
}

async fn handshake(gate: &Gate, socket: TcpStream, address: SocketAddr) -> io::Result<Connection> {
    socket.set_nodelay(true)?;
    let acceptor = LazyConfigAcceptor::new(Acceptor::default(), socket);
    tokio::pin!(acceptor);
    let mut hello = tokio::time::timeout(HELLO, acceptor.as_mut()).await??;
    // rustls lets a client without ALPN in; offered others it refuses by itself.
    if hello.client_hello().alpn().is_none() {
        hello.io.write_all(&NO_APPLICATION_PROTOCOL).await?;
        return Err(io::Error::other("the client does not ask for HTTP/2 (ALPN h2)"));
    }
    let loaded = gate.tls.loaded();
    let limit = |session: &mut rustls::ServerConnection| session.set_buffer_limit(Some(UNSENT));
    let stream = hello.into_stream_with(loaded.config.clone(), limit).await?;
    let (socket, session) = stream.get_ref();
    let chain = session.peer_certificates().unwrap_or_default().to_vec();
    let (Some(leaf), Some(ALPN)) = (chain.first(), session.alpn_protocol()) else {
        return Err(io::Error::other("the handshake ended without a client certificate or without h2"));
    };
    let peer = Peer::new(address, leaf);
    let place = gate.places.take(&peer).ok_or_else(|| io::Error::other("there are as many connections as allowed"))?;
    let registration = Registration::new(&gate.tls, &loaded, socket.as_raw_fd(), peer.serial.clone(), chain)
        .map_err(io::Error::other)?;
    Ok(Connection { _registration: registration, stream, peer, _place: place })
}

/// Counts connections, in all, by address and by user.
struct Places {
    total: usize,
    per_address: usize,
    per_user: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_holder: HashMap<Holder, usize>,
}

/// Who has connections: each is one of an address's and one of a user's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Address(IpAddr),
    User(String),
}

/// A counted connection, until it is dropped.
struct Place {
    places: Arc<Places>,
    holders: [Holder; 2],
}

impl Places {
    fn take(self: &Arc<Self>, peer: &Peer) -> Option<Place> {
        let holders = [Holder::Address(one_holder(peer.address.ip())), Holder::User(peer.holder())];
        let limits = [self.per_address, self.per_user];
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let has = |holder| taken.by_holder.get(holder).copied().unwrap_or(0);
        if taken.total >= self.total || holders.iter().zip(limits).any(|(holder, limit)| has(holder) >= limit) {
            return None;
        }
        taken.total += 1;
        for holder in &holders {
            *taken.by_holder.entry(holder.clone()).or_default() += 1;
        }
        Some(Place { places: self.clone(), holders })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        for holder in &self.holders {
            if let Some(count) = taken.by_holder.get_mut(holder) {
                *count -= 1;
                if *count == 0 {
                    taken.by_holder.remove(holder);
                }
            }
        }
    }
}

/// One holder has one IPv4 address, however it is written, but a whole /64 of IPv6.
fn one_holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) >> 64 << 64)),
        v4 => v4,
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
