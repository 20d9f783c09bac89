//! Real handshakes over loopback: who gets in, who does not and with what alert, and what strangers cannot take.
#![allow(clippy::disallowed_methods)] // runs openssl, for clients that rustls refuses to be

use std::process::{Command, Stdio};
use std::time::Instant;

use rcgen::{ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SubjectPublicKeyInfo};
use rustls::HandshakeKind;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::AsyncReadExt;

use super::super::test_client::{Authority, Echo, client, client_params, echoes};
use super::super::tls::{TlsFiles, provider};
use super::*;
use crate::certs::{self, KeyType, Which};

const DAY: Duration = Duration::from_secs(86400);

fn usual(_: &mut config::Connections, _: &mut Duration) {}

#[tokio::test]
async fn a_user_gets_in_with_every_kind_of_key_and_is_known_by_name() {
    let authority = Authority::new();
    let mut server = Echo::start(&authority.files(), usual).await;
    for (name, kind) in [("p256", KeyType::P256), ("p384", KeyType::P384), ("ed25519", KeyType::Ed25519)] {
        let issued = certs::issue(&authority.dir(), name, DAY, kind, false).unwrap();
        let mut stream = server.connect(client(&authority, Some(authority.identity(name)))).await.unwrap();
        assert!(echoes(&mut stream).await);
        let peer = server.peers.recv().await.unwrap();
        assert_eq!((peer.identity.as_deref(), peer.serial), (Ok(name), issued.entry.serial));
        assert_eq!(peer.address, stream.get_ref().0.local_addr().unwrap());
    }
}

#[tokio::test]
async fn whoever_has_no_sound_certificate_is_refused_in_the_handshake() {
    let (authority, other) = (Authority::new(), Authority::new());
    certs::revoke(&authority.dir(), &Which::User("client001".into())).unwrap();
    let server = Echo::start(&authority.files(), usual).await;
    let now = time::OffsetDateTime::now_utc();
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        let certificate = client_params("admin").self_signed(&key).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    };
    let signed_by_a_user = {
        let (mut chain, _) = authority.identity("admin");
        let text = std::fs::read_to_string(authority.dir().join("admin.key")).unwrap();
        let user = Issuer::from_ca_cert_der(&chain[0], KeyPair::from_pem(&text).unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        chain.insert(0, client_params("admin").signed_by(&key, &user).unwrap().der().clone());
        (chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    };
    for (who, identity, alert) in [
        ("no certificate", None, "CertificateRequired"),
        ("another authority's", Some(other.identity("admin")), "UnknownCA"),
        ("self-signed", Some(self_signed), "UnknownCA"),
        ("signed by a user", Some(signed_by_a_user), "CertificateUnknown"),
        (
            "expired",
            Some(authority.odd(|params| params.not_after = now - Duration::from_secs(5))),
            "CertificateExpired",
        ),
        ("not yet valid", Some(authority.odd(|params| params.not_before = now + DAY)), "CertificateExpired"),
        ("the server's", Some(authority.identity("server")), "UnsupportedCertificate"),
        (
            "for signing code",
            Some(authority.odd(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning])),
            "UnsupportedCertificate",
        ),
        (
            "an authority's",
            Some(authority.odd(|params| params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained))),
            "CertificateUnknown",
        ),
        ("revoked", Some(authority.identity("client001")), "CertificateRevoked"),
    ] {
        let error = server.connect(client(&authority, identity)).await.expect_err(who);
        assert!(error.contains(alert), "{who}: {error}");
    }
    assert_eq!(server.admitted(), 0, "no handler saw any of them");
    server.connect(client(&authority, Some(authority.odd(|_| {})))).await.expect("the control gets in");
}

#[tokio::test]
async fn a_certificate_without_a_usable_name_gets_in_as_nobody() {
    let authority = Authority::new();
    let mut server = Echo::start(&authority.files(), usual).await;
    let nameless = authority.odd(|params| params.distinguished_name = rcgen::DistinguishedName::new());
    server.connect(client(&authority, Some(nameless))).await.unwrap();
    assert!(server.peers.recv().await.unwrap().identity.unwrap_err().contains("no common name"));
}

#[tokio::test]
async fn only_http2_over_tls_is_spoken() {
    let authority = Authority::new();
    let server = Echo::start(&authority.files(), usual).await;
    for protocols in [vec![], vec![b"http/1.1".to_vec()]] {
        let mut config = client(&authority, Some(authority.identity("admin")));
        config.alpn_protocols = protocols;
        let error = server.connect(config).await.unwrap_err();
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    }
    let mut plain = server.tcp().await;
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.len() <= 7, "an alert and nothing more: {answer:?}");
    assert_eq!(server.admitted(), 0);
}

/// Runs openssl's client; returns what it read from the server and what it said.
async fn openssl(port: u16, more: &[&str]) -> (String, String) {
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-quiet", "-alpn", "h2", "-cipher", "DEFAULT@SECLEVEL=0", "-connect", &address])
        .args(more);
    let run = move || {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("openssl");
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"bye\n");
        let output = child.wait_with_output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).into()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn a_weak_key_and_an_old_protocol_are_refused() {
    let authority = Authority::new();
    let server = Echo::start(&authority.files(), usual).await;
    let path = |name: &str| authority.dir().join(name).to_str().unwrap().to_owned();
    for (bits, admitted) in [("2048", true), ("1024", false)] {
        let (key, public) = (path("rsa.key"), path("rsa.pub"));
        for arguments in [vec!["genrsa", "-out", &key, bits], vec!["pkey", "-in", &key, "-pubout", "-out", &public]] {
            assert!(Command::new("openssl").args(arguments).stderr(Stdio::null()).status().expect("openssl").success());
        }
        let public = SubjectPublicKeyInfo::from_pem(&std::fs::read_to_string(&public).unwrap()).unwrap();
        std::fs::write(path("rsa.der"), authority.sign(&public, |_| {})).unwrap();
        let identity = ["-cert", &path("rsa.der"), "-certform", "DER", "-key", &key];
        let (read, said) = openssl(server.port, &identity).await;
        assert_eq!(read == "hi", admitted, "RSA of {bits} bits: {read:?} {said}");
        assert!(admitted || said.contains("alert"), "{said}");
    }
    let admin = [path("admin.crt"), path("admin.key")];
    let identity = ["-cert", &admin[0], "-key", &admin[1]];
    let (read, _) = openssl(server.port, &[&["-tls1_3"], identity.as_slice()].concat()).await;
    assert_eq!(read, "hi", "the control: TLS 1.3");
    let (read, said) = openssl(server.port, &[&["-tls1_2"], identity.as_slice()].concat()).await;
    assert!(read.is_empty() && said.contains("alert protocol version"), "{said}");
    let (read, said) = openssl(server.port, &[&["-groups", "X448"], identity.as_slice()].concat()).await;
    assert!(read.is_empty() && said.contains("alert"), "a key exchange that is not allowed: {said}");
}

#[tokio::test]
async fn no_session_is_ever_resumed() {
    let authority = Authority::new();
    let server = Echo::start(&authority.files(), usual).await;
    let config = client(&authority, Some(authority.identity("admin")));
    for _ in 0..2 {
        let mut stream = server.connect(config.clone()).await.unwrap();
        assert!(echoes(&mut stream).await);
        let session = stream.get_ref().1;
        assert_eq!((session.handshake_kind(), session.tls13_tickets_received()), (Some(HandshakeKind::Full), 0));
    }
}

/// What a client sends first.
fn hello(authority: &Authority) -> Vec<u8> {
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(client(authority, None)), name).unwrap();
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn half_handshakes_keep_nobody_out_and_end_in_time() {
    let authority = Authority::new();
    let timeout = Duration::from_secs(5);
    let server = Echo::start(&authority.files(), |_, t| *t = timeout).await;
    let (began, hello) = (Instant::now(), hello(&authority));
    let mut halves = Vec::new();
    for number in 0..200 {
        let mut socket = server.tcp().await;
        match number % 3 {
            0 => {}
            1 => socket.write_all(&hello[..20]).await.unwrap(),
            _ => socket.write_all(&hello).await.unwrap(),
        }
        halves.push(socket);
    }
    let mut stream = server.connect(client(&authority, Some(authority.identity("admin")))).await.unwrap();
    assert!(echoes(&mut stream).await);
    assert!(began.elapsed() < timeout, "the good client did not wait for them");
    for mut half in halves {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(timeout * 4, half.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a half handshake outlived its time");
    }
    assert!(echoes(&mut stream).await, "the time is the handshake's, not the connection's");
    assert_eq!(server.admitted(), 1);
}

/// A connection from an address of its own: all of 127.0.0.0/8 is this host.
async fn tcp_from(address: [u8; 4], port: u16) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
}

#[tokio::test]
async fn strangers_of_few_addresses_keep_nobody_out() {
    let authority = Authority::new();
    let limit = |limits: &mut config::Connections, timeout: &mut Duration| {
        (limits.total, limits.per_address, limits.handshakes) = (32, 8, 16);
        *timeout = Duration::from_secs(600);
    };
    let server = Echo::start(&authority.files(), limit).await;
    let (config, hello) = (Arc::new(client(&authority, Some(authority.identity("admin")))), hello(&authority));
    // As many as there is room for in all. Some say nothing, some have said hello and go no further.
    let mut idle = Vec::new();
    for number in 0..32 {
        let mut socket = tcp_from([127, 0, 1, number / 8], server.port).await;
        if number % 2 == 1 {
            // It may have given way already.
            let _ = socket.write_all(&hello).await;
        }
        idle.push(socket);
    }
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let attempt = async {
        let socket = tcp_from([127, 0, 0, 2], server.port).await;
        tokio_rustls::TlsConnector::from(config).connect(name, socket).await?.read_u8().await
    };
    let greeted = tokio::time::timeout(Duration::from_secs(60), attempt).await.expect("the server answers");
    assert!(greeted.is_ok(), "{greeted:?}");
    let _ =
        tokio::time::timeout(Duration::from_secs(60), idle[0].read_to_end(&mut Vec::new())).await.expect("it gave way");
}

#[tokio::test]
async fn whoever_says_nothing_is_closed_early() {
    let authority = Authority::new();
    let server = Echo::start(&authority.files(), |_, timeout| *timeout = Duration::from_secs(600)).await;
    let mut silent = server.tcp().await;
    let end = tokio::time::timeout(HELLO * 20, silent.read_to_end(&mut Vec::new())).await;
    assert_eq!(end.expect("long before the time for a handshake").unwrap(), 0);
}

#[tokio::test]
async fn more_connections_than_allowed_are_closed() {
    let authority = Authority::new();
    for which in ["total", "per_address", "per_user"] {
        let limit = |limits: &mut config::Connections, _: &mut Duration| match which {
            "total" => limits.total = 2,
            "per_address" => limits.per_address = 2,
            _ => limits.per_user = 2,
        };
        let server = Echo::start(&authority.files(), limit).await;
        let good = || client(&authority, Some(authority.identity("admin")));
        let first = server.connect(good()).await.unwrap();
        let mut second = server.connect(good()).await.unwrap();
        assert!(server.connect(good()).await.is_err(), "{which}");
        let other = server.connect(client(&authority, Some(authority.identity("client001")))).await;
        assert_eq!(other.is_ok(), which == "per_user", "{which}");
        assert!(echoes(&mut second).await);
        drop((first, other));
        let again = async {
            while server.connect(good()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), again).await.expect("the place is given back");
    }
}

#[test]
fn an_address_counts_however_it_is_written() {
    let holder = |text: &str| one_holder(text.parse().unwrap());
    assert_eq!(holder("::ffff:10.0.0.1"), holder("10.0.0.1"));
    assert_eq!(holder("2001:db8::1"), holder("2001:db8::ffff:2"));
    assert_ne!(holder("2001:db8::1"), holder("2001:db8:0:1::1"));
    assert_ne!(holder("10.0.0.1"), holder("10.0.0.2"));
}

#[tokio::test]
async fn a_reload_keeps_open_connections_and_serves_the_new_certificate() {
    let authority = Authority::new();
    let server = Echo::start(&authority.files(), usual).await;
    let good = || client(&authority, Some(authority.identity("admin")));
    let mut before = server.connect(good()).await.unwrap();
    certs::renew(&authority.dir(), &[]).unwrap();
    assert_eq!(server.tls.reload(&authority.files()), Ok(0));
    assert!(echoes(&mut before).await);
    let after = server.connect(good()).await.unwrap();
    let shown = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    assert_ne!(shown(&before), shown(&after));
    assert_eq!(shown(&after), authority.identity("server").0[0]);
}

#[tokio::test]
async fn a_revoked_certificate_loses_its_open_connections_and_nobody_else_does() {
    let authority = Authority::new();
    let server = Echo::start(&authority.files(), usual).await;
    let of = |name: &str| client(&authority, Some(authority.identity(name)));
    let mut admin = server.connect(of("admin")).await.unwrap();
    let mut user = server.connect(of("client001")).await.unwrap();
    certs::revoke(&authority.dir(), &Which::User("client001".into())).unwrap();
    assert_eq!(server.tls.reload(&authority.files()), Ok(1));
    let mut byte = [0];
    let end = tokio::time::timeout(Duration::from_secs(5), user.read(&mut byte)).await.expect("it is cut at once");
    assert!(!matches!(end, Ok(1..)), "{end:?}");
    assert!(echoes(&mut admin).await);
    assert!(server.connect(of("client001")).await.unwrap_err().contains("CertificateRevoked"));
}

#[tokio::test]
async fn a_certificate_that_is_revoked_during_its_handshake_does_not_slip_in() {
    let authority = Authority::new();
    let tls = Arc::new(Tls::new(&authority.files()).unwrap());
    let (used, chain) = (tls.loaded(), authority.identity("client001").0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let enter = || Registration::new(&tls, &used, listener.as_raw_fd(), "1".into(), chain.clone());
    tls.reload(&authority.files()).unwrap();
    assert!(enter().is_ok(), "the control: files that changed, but still accept it");
    certs::revoke(&authority.dir(), &Which::User("client001".into())).unwrap();
    tls.reload(&authority.files()).unwrap();
    assert!(enter().is_err());
}

#[tokio::test]
async fn files_that_are_wrong_leave_the_old_ones_in_force() {
    let (authority, other) = (Authority::new(), Authority::new());
    certs::revoke(&authority.dir(), &Which::User("client001".into())).unwrap();
    let server = Echo::start(&authority.files(), usual).await;
    let mut open = server.connect(client(&authority, Some(authority.identity("admin")))).await.unwrap();
    let whole = authority.files().crl.unwrap();
    let cut = whole[..whole.len() / 2].to_vec();
    type Change = Box<dyn Fn(&mut TlsFiles)>;
    let list = |bytes: Vec<u8>| -> Change { Box::new(move |files| files.crl = Some(bytes.clone())) };
    let cases: Vec<(&str, Change, &str)> = vec![
        ("garbage", list(b"garbage".to_vec()), "/crl.pem: holds no list"),
        ("empty", list(Vec::new()), "holds no list"),
        ("cut short", list(cut.clone()), "damaged"),
        ("a whole list and half of one", list([whole, cut].concat()), "damaged"),
        ("another authority's list", list(other.files().crl.unwrap()), "has none signed by"),
        ("an expired list", list(authority.list(-60)), "has expired"),
        ("no list any more", Box::new(|files| files.crl = None), "is gone"),
        ("a certificate for a list", list(authority.files().ca), "holds no list"),
        ("no key", Box::new(|files| files.key = b"x".to_vec()), "server.key: holds no private key"),
        ("another's key", Box::new(move |files| files.key = other.files().key), "server.crt and the key file /"),
        ("no authority", Box::new(|files| files.ca.clear()), "ca.crt: holds no certificate"),
        ("a user as authority", Box::new(|files| files.ca = files.cert.clone()), "no authority's"),
        ("no certificate", Box::new(|files| files.cert.clear()), "server.crt: holds no certificate"),
    ];
    for (what, change, expected) in cases {
        let mut files = authority.files();
        change(&mut files);
        let error = server.tls.reload(&files).expect_err(what).to_string();
        assert!(error.contains(expected), "{what}: {error}");
    }
    assert!(echoes(&mut open).await);
    server.connect(client(&authority, Some(authority.identity("admin")))).await.expect("the old files admit");
    let refused = server.connect(client(&authority, Some(authority.identity("client001")))).await.unwrap_err();
    assert!(refused.contains("CertificateRevoked"), "and the old list is in force: {refused}");
}

#[tokio::test]
async fn the_accept_loop_ends_with_its_stream() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Arc::new(Tls::new(&authority.files()).unwrap());
    drop(incoming(listener, tls, &config::Config::default().connections, Duration::from_secs(1)));
    let gone = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the listener is closed");
}

#[test]
fn a_connection_is_what_tonic_serves() {
    fn served<T: AsyncRead + AsyncWrite + Connected<ConnectInfo = Peer> + Unpin + Send + 'static>() {}
    served::<Connection>();
}

#[test]
fn key_exchange_is_what_the_design_says() {
    let names: Vec<_> = provider().kx_groups.iter().map(|group| format!("{:?}", group.name())).collect();
    assert_eq!(names, ["X25519", "secp256r1", "secp384r1"]);
}

#[test]
fn files_come_as_descriptors_in_the_launchers_order() {
    let authority = Authority::new();
    let open = |name: &str| std::os::fd::OwnedFd::from(std::fs::File::open(authority.dir().join(name)).unwrap());
    let names = || authority.files().names;
    let three = || vec![open("ca.crt"), open("server.crt"), open("server.key")];
    assert!(TlsFiles::from_descriptors(three(), names()).unwrap().crl.is_none());
    let mut four = three();
    four.push(open("crl.pem"));
    let files = TlsFiles::from_descriptors(four, names()).unwrap();
    assert!(files.crl.is_some() && PrivateKeyDer::from_pem_slice(&files.key).is_ok());
    assert!(Tls::new(&files).is_ok_and(|tls| tls.warnings().is_empty()));
    assert!(TlsFiles::from_descriptors(vec![open("ca.crt")], names()).is_err());
}

#[test]
fn what_ends_soon_is_said_ahead() {
    let authority = Authority::new();
    let mut files = authority.files();
    files.crl = Some(authority.list(5 * 86400 + 60));
    let tls = Tls::new(&files).unwrap();
    assert_eq!(tls.warnings().len(), 1);
    assert!(tls.warnings()[0].starts_with("the revocation list expires in 5d"), "{:?}", tls.warnings());
    tls.reload(&authority.files()).unwrap();
    assert_eq!(tls.warnings(), [""; 0]);
}
