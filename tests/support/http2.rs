//! HTTP/2 frame by frame, for what no sound client sends.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::rpc::secure;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A TLS connection on which the preface was sent.
pub struct Raw {
    pub stream: TlsStream<TcpStream>,
}

impl Raw {
    /// Connects, and says what every client says first.
    pub async fn open(port: u16, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let mut stream = secure(port, config).await?;
        stream.write_all(&opening()).await?;
        stream.flush().await?;
        Ok(Self { stream })
    }

    /// Sends bytes; an error is the server's refusal to go on.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// The next frame: kind, flags, stream, payload.
    pub async fn frame(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.stream.read_exact(&mut payload).await?;
        Ok((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Reads until the server closes; the error code of its GOAWAY, if it sent one.
    pub async fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Ok((kind, _, _, payload)) = self.frame().await {
            if kind == GOAWAY && payload.len() >= 8 {
                code = Some(u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]));
            }
        }
        code
    }
}

/// Kind and stream of each frame that is whole.
pub fn frames(mut bytes: &[u8]) -> Vec<(u8, u32)> {
    let mut found = Vec::new();
    while let [a, b, c, kind, _, stream @ ..] = bytes
        && let Some((id, rest)) = stream.split_first_chunk()
        && let Some((_, after)) = rest.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)
    {
        found.push((*kind, u32::from_be_bytes(*id)));
        bytes = after;
    }
    found
}

/// The preface and empty settings.
pub fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header block of a call, nothing of it indexed.
pub fn call(method: &str) -> Vec<u8> {
    // POST and https are entries of the static table.
    let mut block = vec![0x83, 0x87];
    for (name, value) in [
        (":path", format!("/task_manager.TaskManager/{method}").as_str()),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        block.extend(field(name, value));
    }
    block
}

/// A header, as a literal.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127, "one byte for each length");
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

/// A message as gRPC frames it.
pub fn message(message: &impl prost::Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[0], (bytes.len() as u32).to_be_bytes().as_slice(), &bytes].concat()
}

/// A whole call on `stream`.
pub fn request(stream: u32, method: &str, content: &impl prost::Message) -> Vec<u8> {
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &call(method));
    let body = message(content);
    assert!(body.len() <= 16384, "one frame");
    bytes.extend(frame(DATA, END_STREAM, stream, &body));
    bytes
}
