//! The client against real handshakes, and a server that breaks where the test wants it to.

use super::testing::{Fake, Pki, Say, TASK, place};
use super::*;
use crate::proto::task_manager::stream_task_output_request::Begin as Start;

fn bytes(source: OutputSource, offset: u64, text: &str) -> Say {
    Say::Bytes(source, offset, text.into())
}

#[tokio::test]
async fn a_closed_port_is_named_with_what_to_look_at() {
    // Bound and not listened on: closed, and nobody else's meanwhile.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.local_addr().unwrap().to_string();
    let error = Client::connect(&address, &Pki::new().client(1)).await.unwrap_err();
    let wanted = format!("cannot reach the server at {address}: connection refused; is taskman-server running there?");
    assert_eq!(error.to_string(), wanted);
    assert_eq!(error.exit_code(), 125);
}

#[tokio::test]
async fn a_refused_certificate_comes_back_with_its_alert() {
    let pki = Pki::new();
    let address = Fake::default().serve(&pki).await;
    Client::connect(&address, &pki.client(1)).await.unwrap();
    let expired = Client::connect(&address, &pki.client(-1)).await.unwrap_err().to_string();
    assert!(expired.contains("refused the certificate of client001: it has expired"), "{expired}");
    // From another authority: the server is not trusted before it can refuse.
    let stranger = Client::connect(&address, &Pki::new().client(1)).await.unwrap_err().to_string();
    assert!(stranger.contains("is not trusted: its certificate is not from the authority in ca.crt"), "{stranger}");
}

#[tokio::test]
async fn the_servers_answer_is_the_message() {
    let client = Fake::default().client().await;
    let error = client.get_status(TASK.parse().unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no task like that; `taskman list` shows yours");
    assert!(matches!(error, ClientError::Status { code: Code::NotFound, .. }));
}

#[tokio::test]
async fn a_broken_stream_goes_on_at_the_byte_where_it_stopped() {
    let fake = Fake::default();
    let eof = Say::End(StreamEnd::Eof);
    *fake.streams.lock().unwrap() = vec![
        vec![bytes(OutputSource::All, 0, "abc"), bytes(OutputSource::All, 3, "de"), Say::Cut],
        vec![bytes(OutputSource::All, 5, "fg"), eof],
    ];
    let client = fake.client().await;
    let mut output = client.stream(OutputRequest::all(TASK.parse().unwrap())).await.unwrap();
    let mut seen = Vec::new();
    let mut breaks = 0;
    loop {
        match output.next().await {
            Ok(Some(chunk)) => seen.extend_from_slice(&chunk.bytes),
            Ok(None) => break,
            Err(error) => {
                assert!(error.is_passing(), "{error}");
                breaks += 1;
                output.resume().await.unwrap();
            }
        }
    }
    assert_eq!((String::from_utf8(seen).unwrap().as_str(), breaks), ("abcdefg", 1));
    let places: Vec<_> = fake.asked.lock().unwrap().iter().map(place).collect();
    assert_eq!(places, [(OutputSource::All, Some(Start::Offset(0))), (OutputSource::All, Some(Start::Offset(5)))]);
}

#[tokio::test]
async fn a_broken_stream_of_a_split_task_goes_on_with_each_of_its_streams() {
    let fake = Fake::default();
    let (out, err) = (OutputSource::Stdout, OutputSource::Stderr);
    *fake.streams.lock().unwrap() = vec![
        vec![bytes(out, 0, "abc"), bytes(err, 0, "x"), Say::Cut],
        vec![bytes(out, 3, "d"), Say::End(StreamEnd::Eof)],
        vec![bytes(err, 1, "y"), Say::End(StreamEnd::Eof)],
    ];
    let client = fake.client().await;
    let mut output = client.stream(OutputRequest::all(TASK.parse().unwrap())).await.unwrap();
    let (mut stdout, mut stderr, mut ends) = (Vec::new(), Vec::new(), 0);
    loop {
        match output.next().await {
            Ok(Some(chunk)) => {
                let stream = if chunk.source == out { &mut stdout } else { &mut stderr };
                stream.extend_from_slice(&chunk.bytes);
                ends += u32::from(chunk.end == StreamEnd::Eof);
            }
            Ok(None) => break,
            Err(_) => output.resume().await.unwrap(),
        }
    }
    assert_eq!((stdout.as_slice(), stderr.as_slice(), ends), (&b"abcd"[..], &b"xy"[..], 1));
    let places: Vec<_> = fake.asked.lock().unwrap().iter().map(place).collect();
    assert_eq!(places[1..], [(out, Some(Start::Offset(3))), (err, Some(Start::Offset(1)))]);
}
