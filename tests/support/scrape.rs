//! A server's metrics, as Prometheus would read them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{GUARD, Server};

/// A connection to where metrics are answered.
pub fn connect(server: &Server) -> TcpStream {
    let address: SocketAddr = server.metrics.as_deref().expect("metrics are on").parse().unwrap();
    let socket = TcpStream::connect_timeout(&address, GUARD).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    socket
}

/// The whole answer to these bytes.
pub fn ask(server: &Server, request: &[u8]) -> String {
    let mut socket = connect(server);
    // One that has heard enough may have closed already.
    let _ = socket.write_all(request);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The page of metrics.
pub fn scrape(server: &Server) -> String {
    let answer = ask(server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}

/// Every series with its value.
pub fn series(text: &str) -> BTreeMap<String, f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line:?}"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("not a number: {line:?}")))
        })
        .collect()
}
