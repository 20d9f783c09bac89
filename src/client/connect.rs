//! The way to the server: names, TCP, TLS 1.3, and a look at what the server says first.
//!
//! In TLS 1.3 the client's handshake is over before the server has judged the client's certificate. So a connection counts
//! as made only when the server has said something: its HTTP/2 settings, or the alert that says why it refuses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use super::credentials::Credentials;
use super::error::{ClientError, words};

/// For the connection itself and for the handshake, each.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A server that says nothing at first is unusual, but allowed.
const FIRST_BYTES: Duration = Duration::from_secs(2);
/// The receiver sets the windows: with less, a fast stream waits for its reader's acknowledgements.
const WINDOW: u32 = 2 << 20;
const FRAME: u32 = 64 << 10;
/// A peer that is gone without a word is noticed after the sum of both.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
const ALIVE_WITHIN: Duration = Duration::from_secs(20);

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// `HOST:PORT`, with an IPv6 address in brackets.
    fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = || ClientError::Address(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
        let bare = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(bad()),
            None if host.contains(':') => return Err(bad()),
            None => host,
        };
        ServerName::try_from(bare).map_err(|_| bad())?;
        Ok(Self { host: bare.to_owned(), port })
    }

    /// `localhost` is resolved here: a static program's resolver may find no files to ask.
    async fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        if self.host.eq_ignore_ascii_case("localhost") {
            let both: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(both.map(|ip| SocketAddr::new(ip, self.port)).into());
        }
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

/// Connects, and gives a channel that connects again by itself when the connection was lost.
pub(super) async fn channel(address: &str, credentials: &Credentials) -> Result<Channel, ClientError> {
    let target = Address::parse(address)?;
    let endpoint = Endpoint::from_shared(format!("https://{address}"))
        .map_err(|_| ClientError::Address(address.to_owned()))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .http2_keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_WITHIN)
        .keep_alive_while_idle(true);
    let (named, credentials) = (address.to_owned(), credentials.clone());
    let connector = tower::service_fn(move |_| {
        let (target, named, credentials) = (target.clone(), named.clone(), credentials.clone());
        async move { secure(&target, &named, &credentials).await.map(TokioIo::new) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| ClientError::from_transport(&error, address))
}

async fn secure(target: &Address, named: &str, credentials: &Credentials) -> Result<TlsStream<TcpStream>, ClientError> {
    let tcp = tcp(target, named).await?;
    let name = ServerName::try_from(target.host.clone()).map_err(|_| ClientError::Address(named.to_owned()))?;
    let fault = |error: std::io::Error| ClientError::from_tls(&error, named, &credentials.user);
    let silent = || ClientError::Unreachable { address: named.to_owned(), why: "it does not speak TLS".into() };
    let handshake = TlsConnector::from(credentials.tls.clone()).connect(name, tcp);
    let mut stream = timeout(TIMEOUT, handshake).await.map_err(|_| silent())?.map_err(fault)?;
    // What is looked at here stays in the buffer for HTTP/2.
    match timeout(FIRST_BYTES, stream.fill_buf()).await {
        Ok(Ok([])) => {
            let why = "it closed the connection at once; it may be full or shutting down".into();
            return Err(ClientError::Unreachable { address: named.to_owned(), why });
        }
        Ok(Err(error)) => return Err(fault(error)),
        Ok(Ok(_)) | Err(_) => {}
    }
    Ok(stream)
}

async fn tcp(target: &Address, named: &str) -> Result<TcpStream, ClientError> {
    let unreachable = |why: String| ClientError::Unreachable { address: named.to_owned(), why };
    // The first answer counts: on a machine without IPv6 the second address of localhost says nothing about the server.
    let mut first = None;
    for address in target.resolve().await.map_err(|error| unreachable(words(&error)))? {
        match timeout(TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| unreachable(words(&error)))?;
                return Ok(stream);
            }
            Ok(Err(error)) => first = first.or_else(|| Some(words(&error))),
            Err(_) => first = first.or_else(|| Some(format!("no answer within {TIMEOUT:?}"))),
        }
    }
    Err(unreachable(first.unwrap_or_else(|| "the name has no address".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port() {
        let parsed = |text: &str| Address::parse(text).map(|a| (a.host, a.port)).ok();
        assert_eq!(parsed("localhost:50051"), Some(("localhost".into(), 50051)));
        assert_eq!(parsed("10.0.0.1:1"), Some(("10.0.0.1".into(), 1)));
        assert_eq!(parsed("[::1]:1"), Some(("::1".into(), 1)));
        for bad in ["", "localhost", "localhost:", "localhost:0", "localhost:99999", ":1", "::1:1", "[x]:1", "a b:1"] {
            assert!(Address::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn localhost_needs_no_resolver() {
        let addresses = Address::parse("LocalHost:7").unwrap().resolve().await.unwrap();
        assert_eq!(addresses, ["127.0.0.1:7".parse().unwrap(), "[::1]:7".parse().unwrap()]);
    }
}
