//! A04, A05 and A06: whoever has no sound certificate, or speaks anything but TLS 1.3 and HTTP/2, meets no handler.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use rustls::ClientConfig;
use rustls_pki_types::PrivateKeyDer;
use taskman::proto::task_manager as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::http2::{HEADERS, Raw, frames, opening, request};
use crate::support::rpc::{Identity, connect, connect_as, identity, odd, on, params, secure, sh, start, tls, whole};
use crate::support::{GUARD, HostDir, Server, host, wait_until};

const DAY: Duration = Duration::from_secs(86400);

/// A call that every handler would write to the audit log.
fn list() -> Vec<u8> {
    request(1, "ListTasks", &pb::ListTasksRequest::default())
}

/// Makes the whole call, as a client that does not wait to be let in; then once more as one that does, for the server's word.
async fn last_word(server: &Server, config: ClientConfig) -> String {
    let config = Arc::new(config);
    let pushy = async {
        let mut raw = Raw::open(server.port(), &config).await?;
        raw.send(&list()).await?;
        answer(&mut raw).await
    };
    // The word of a server that closes while it is written to can be lost to the reset; that it closes cannot.
    let pushed: std::io::Result<()> = tokio::time::timeout(GUARD, pushy).await.expect("the server answers or refuses");
    let patient = async {
        let mut raw = Raw { stream: secure(server.port(), &config).await? };
        raw.frame().await?;
        raw.send(&[opening(), list()].concat()).await?;
        answer(&mut raw).await
    };
    let heard: std::io::Result<()> = tokio::time::timeout(GUARD, patient).await.expect("the server answers or refuses");
    assert_eq!(pushed.is_ok(), heard.is_ok(), "{pushed:?}, {heard:?}");
    heard.map_or_else(|error| error.to_string(), |()| "answered".to_owned())
}

/// Reads until there is an answer.
async fn answer(raw: &mut Raw) -> std::io::Result<()> {
    loop {
        let (kind, _, stream, _) = raw.frame().await?;
        if (kind, stream) == (HEADERS, 1) {
            return Ok(());
        }
    }
}

async fn served(server: &Server, identity: Identity) -> bool {
    let Ok(mut client) = connect_as(server, identity).await else { return false };
    client.list_tasks(pb::ListTasksRequest::default()).await.is_ok()
}

/// Calls through openssl's client, which does what rustls refuses to; what it read and what it said.
fn openssl(server: &Server, bytes: &[u8], more: &[&str]) -> (Vec<u8>, String) {
    let address = format!("127.0.0.1:{}", server.port());
    let mut command = Command::new("openssl");
    command.args(["s_client", "-quiet", "-no_ign_eof", "-cipher", "DEFAULT@SECLEVEL=0", "-connect", &address]);
    command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("openssl");
    let mut stdin = child.stdin.take().unwrap();
    // Refused, it may be gone before it has read this.
    let _ = stdin.write_all(bytes);
    // Its end ends the client: it stays open until there is an answer, or none will come.
    let (mut read, mut chunk) = (Vec::new(), [0; 4096]);
    while !frames(&read).contains(&(HEADERS, 1)) {
        match child.stdout.as_mut().unwrap().read(&mut chunk).unwrap() {
            0 => break,
            length => read.extend(&chunk[..length]),
        }
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    (read, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a04_whoever_has_no_sound_certificate_meets_no_handler() {
    let (server, other) = (Server::start(), HostDir::new());
    let certs = server.certs();
    let elsewhere = other.path("certs").to_str().unwrap().to_owned();
    server.text("admin", &["certs", "init", "--certs", &elsewhere]);
    server.text("admin", &["certs", "issue", "gone", "--certs", certs.to_str().unwrap()]);
    let gone = identity(&certs, "gone");
    let now = time::OffsetDateTime::now_utc();
    let self_signed: Identity = {
        let key = KeyPair::generate().unwrap();
        let certificate = params("admin").self_signed(&key).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    };
    on(async {
        assert_eq!(last_word(&server, tls(&server, Some(gone.clone_key()))).await, "answered", "before it is revoked");
        server.text("admin", &["certs", "revoke", "gone", "--certs", certs.to_str().unwrap()]);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while served(&server, gone.clone_key()).await {
            assert!(std::time::Instant::now() < deadline, "the list is not read again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // A call of its that was cut off may still be on its way into the log.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = server.audit();
        let usage = |usage| odd(&certs, |params| params.extended_key_usages = vec![usage]);
        for (who, identity, alert) in [
            ("no certificate", None, "CertificateRequired"),
            ("another authority's", Some(identity(&other.path("certs"), "admin")), "UnknownCA"),
            ("self-signed", Some(self_signed), "UnknownCA"),
            ("expired", Some(odd(&certs, |p| p.not_after = now - Duration::from_secs(5))), "CertificateExpired"),
            ("not yet valid", Some(odd(&certs, |p| p.not_before = now + DAY)), "CertificateExpired"),
            ("the server's own", Some(identity(&certs, "server")), "UnsupportedCertificate"),
            ("for code", Some(usage(ExtendedKeyUsagePurpose::CodeSigning)), "UnsupportedCertificate"),
            ("revoked", Some(gone.clone_key()), "CertificateRevoked"),
        ] {
            let word = last_word(&server, tls(&server, identity)).await;
            assert!(word.contains(alert), "{who}: {word}");
        }
        assert_eq!(server.audit(), before, "a handler ran for one of them");
        // The control: the same kind of certificate without a fault. Its name is nobody's, but it is let in.
        assert_eq!(last_word(&server, tls(&server, Some(odd(&certs, |_| {})))).await, "answered");
        wait_until("the audit log has it", || (server.audit().len() == before.len() + 2).then_some(()));
    });
}

/// A key in DER does not clone by itself.
trait CloneKey {
    fn clone_key(&self) -> Identity;
}

impl CloneKey for Identity {
    fn clone_key(&self) -> Identity {
        (self.0.clone(), self.1.clone_key())
    }
}

#[test]
fn a04_a_weak_key_meets_no_handler() {
    let (server, dir) = (Server::start(), HostDir::new());
    let certs = server.certs();
    let path = |name: &str| dir.path(name).to_str().unwrap().to_owned();
    let of_ca = |name: &str| certs.join(name).to_str().unwrap().to_owned();
    dir.file("usage", "extendedKeyUsage=clientAuth\nbasicConstraints=CA:FALSE\n", 0o644);
    let call = [opening(), list()].concat();
    for (bits, admitted) in [("2048", true), ("1024", false)] {
        let (key, csr, crt) = (path("rsa.key"), path("rsa.csr"), path("rsa.crt"));
        let new = format!("rsa:{bits}");
        host::host_text(&[
            "openssl", "req", "-newkey", &new, "-nodes", "-keyout", &key, "-out", &csr, "-subj", "/CN=weak",
        ]);
        host::host_text(&[
            "openssl",
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            &of_ca("ca.crt"),
            "-CAkey",
            &of_ca("ca.key"),
            "-days",
            "1",
            "-extfile",
            &path("usage"),
            "-out",
            &crt,
        ]);
        let before = server.audit().len();
        let (read, said) = openssl(&server, &call, &["-alpn", "h2", "-tls1_3", "-cert", &crt, "-key", &key]);
        assert_eq!(read.is_empty(), !admitted, "{bits}: {said}");
        if admitted {
            wait_until("the audit log has it", || (server.audit().len() == before + 1).then_some(()));
        } else {
            assert!(said.contains("alert"), "{said}");
            assert_eq!(server.audit().len(), before, "a handler ran");
        }
    }
}

#[test]
fn a05_only_tls_1_3_with_http2_is_spoken() {
    let server = Server::start();
    let certs = server.certs();
    let path = |name: &str| certs.join(name).to_str().unwrap().to_owned();
    let (crt, key) = (path("admin.crt"), path("admin.key"));
    let call = [opening(), list()].concat();
    let with = |more: &[&str]| openssl(&server, &call, &[&["-cert", &crt, "-key", &key], more].concat());
    for (what, options, wanted) in [
        ("TLS 1.2", &["-alpn", "h2", "-tls1_2"][..], "alert protocol version"),
        ("TLS 1.1", &["-alpn", "h2", "-tls1_1"], "alert"),
        ("no ALPN", &["-tls1_3"], "alert no application protocol"),
        ("another ALPN", &["-tls1_3", "-alpn", "http/1.1"], "alert no application protocol"),
        ("a key exchange that is not allowed", &["-alpn", "h2", "-groups", "X448"], "alert handshake failure"),
    ] {
        let (read, said) = with(options);
        assert!(read.is_empty() && said.contains(wanted), "{what}: {said}");
    }
    on(async {
        for hello in [opening(), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), vec![0; 64], vec![0x16; 64]] {
            let mut plain = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
            plain.write_all(&hello).await.unwrap();
            let mut answer = Vec::new();
            let closed = tokio::time::timeout(Duration::from_secs(30), plain.read_to_end(&mut answer)).await;
            assert!(closed.is_ok() && answer.len() <= 7, "an alert and nothing more: {answer:?}");
        }
    });
    assert_eq!(server.audit(), [""; 0], "no handler ran");
    for group in ["X25519", "P-256", "P-384"] {
        let (read, said) = with(&["-alpn", "h2", "-tls1_3", "-groups", group]);
        assert!(!read.is_empty(), "the control, {group}: {said}");
    }
    wait_until("the controls were served", || (server.audit().len() == 3).then_some(()));
}

#[test]
fn a06_a_certificate_that_is_revoked_loses_the_streams_it_has() {
    let server = Server::start();
    let certs = server.certs().to_str().unwrap().to_owned();
    on(async {
        let (mut user, mut admin) = (connect(&server, "client001").await, connect(&server, "admin").await);
        let id = start(&mut user, sh("while :; do echo x; sleep 0.05; done")).await.unwrap();
        let mut theirs = user.stream_task_output(whole(&id)).await.unwrap().into_inner();
        let mut kept = admin.stream_task_output(whole(&id)).await.unwrap().into_inner();
        theirs.message().await.unwrap().unwrap();
        server.text("admin", &["certs", "revoke", "client001", "--certs", &certs]);
        let revoked = std::time::Instant::now();
        // The rule: when the launcher sees the new list, which it watches for, and not at the next reconnection.
        let cut = async { while theirs.message().await.is_ok_and(|message| message.is_some()) {} };
        tokio::time::timeout(Duration::from_secs(20), cut).await.expect("the stream is cut");
        println!("cut {:?} after the revocation", revoked.elapsed());
        for _ in 0..10 {
            kept.message().await.unwrap().expect("the streams of others go on");
        }
        let word = last_word(&server, tls(&server, Some(identity(&server.certs(), "client001")))).await;
        assert!(word.contains("CertificateRevoked"), "{word}");
        let status = admin.get_task_status(pb::TaskStatusRequest { task_id: id }).await.unwrap().into_inner();
        assert_eq!(status.status(), pb::JobStatus::Started, "the task is not its reader's certificate");
    });
}
