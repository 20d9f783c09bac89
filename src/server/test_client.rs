//! For tests: a real authority on disk, a real acceptor on loopback that greets and echoes, and clients of all kinds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, PublicKeyData};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::StreamExt;
use tonic::transport::server::Connected;

use super::accept::incoming;
use super::peer::Peer;
use super::tls::{ALPN, Names, Tls, TlsFiles, provider};
use crate::{certs, config};

/// What the server says first: a client that reads it was admitted.
pub const GREETING: &[u8] = b"hi";

/// A certificates directory that goes with the value.
pub struct Authority {
    parent: tempfile::TempDir,
}

/// A certificate chain and its key, in DER.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    pub fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        certs::init(&parent.path().join("certs"), &[]).unwrap();
        Self { parent }
    }

    pub fn dir(&self) -> PathBuf {
        self.parent.path().join("certs")
    }

    pub fn files(&self) -> TlsFiles {
        let read = |name: &str| fs::read(self.dir().join(name)).unwrap();
        let [ca_cert, server_cert, server_key] =
            ["ca.crt", "server.crt", "server.key"].map(|name| self.dir().join(name));
        let tls = config::Tls { ca_cert, server_cert, server_key, ..config::Config::default().tls };
        TlsFiles {
            ca: read("ca.crt"),
            cert: read("server.crt"),
            key: read("server.key"),
            crl: Some(read("crl.pem")),
            names: Names::of(&tls),
        }
    }

    /// The certificate of `name` in the directory.
    pub fn identity(&self, name: &str) -> Identity {
        read_identity(&self.dir().join(format!("{name}.crt")), &self.dir().join(format!("{name}.key")))
    }

    /// Signs a client certificate that `change` has changed, for a key of anybody's making.
    pub fn sign(
        &self,
        key: &impl PublicKeyData,
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateDer<'static> {
        let mut params = client_params("odd");
        change(&mut params);
        params.signed_by(key, &self.issuer()).unwrap().der().clone()
    }

    /// The same, with a key.
    pub fn odd(&self, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().unwrap();
        (vec![self.sign(&key, change)], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// An empty revocation list, in PEM, whose next one is due in so many seconds.
    pub fn list(&self, due: i64) -> Vec<u8> {
        let now = time::OffsetDateTime::now_utc();
        let list = rcgen::CertificateRevocationListParams {
            this_update: now - Duration::from_secs(3600),
            next_update: now + time::Duration::seconds(due),
            crl_number: 7u64.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer()).unwrap().pem().unwrap().into_bytes()
    }

    fn issuer(&self) -> Issuer<'static, KeyPair> {
        let read = |name: &str| fs::read_to_string(self.dir().join(name)).unwrap();
        Issuer::from_ca_cert_pem(&read("ca.crt"), KeyPair::from_pem(&read("ca.key")).unwrap()).unwrap()
    }
}

/// What a sound client certificate has.
pub fn client_params(name: &str) -> CertificateParams {
    let now = time::OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = now - Duration::from_secs(60);
    params.not_after = now + Duration::from_secs(3600);
    params
}

fn read_identity(certificate: &Path, key: &Path) -> Identity {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_file(key).unwrap())
}

/// A server that greets, echoes, and closes when told `bye`.
pub struct Echo {
    pub port: u16,
    pub tls: Arc<Tls>,
    pub admitted: Arc<AtomicUsize>,
    pub peers: tokio::sync::mpsc::UnboundedReceiver<Peer>,
}

impl Echo {
    pub async fn start(files: &TlsFiles, change: impl FnOnce(&mut config::Connections, &mut Duration)) -> Self {
        let (mut limits, mut timeout) = (config::Config::default().connections, Duration::from_secs(10));
        change(&mut limits, &mut timeout);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = Arc::new(Tls::new(files).unwrap());
        let mut stream = incoming(listener, tls.clone(), &limits, timeout);
        let admitted = Arc::new(AtomicUsize::new(0));
        let counter = admitted.clone();
        let (told, peers) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(mut connection)) = stream.next().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let _ = told.send(connection.connect_info());
                tokio::spawn(async move {
                    let mut buffer = [0; 64];
                    connection.write_all(GREETING).await?;
                    connection.flush().await?;
                    loop {
                        match connection.read(&mut buffer).await? {
                            0 => return connection.shutdown().await,
                            n if buffer[..n].starts_with(b"bye") => return connection.shutdown().await,
                            n => connection.write_all(&buffer[..n]).await?,
                        }
                        connection.flush().await?;
                    }
                });
            }
        });
        Self { port, tls, admitted, peers }
    }

    pub fn admitted(&self) -> usize {
        self.admitted.load(Ordering::SeqCst)
    }

    pub async fn tcp(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Connects and waits for the greeting, so that a refusal comes with its alert.
    pub async fn connect(&self, config: ClientConfig) -> Result<TlsStream<TcpStream>, String> {
        let attempt = async {
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await?;
            let mut greeting = [0; GREETING.len()];
            stream.read_exact(&mut greeting).await?;
            assert_eq!(greeting, GREETING);
            Ok(stream)
        };
        let result = tokio::time::timeout(Duration::from_secs(20), attempt).await.expect("the server answers");
        result.map_err(|error: std::io::Error| error.to_string())
    }
}

/// A client that trusts `authority` and shows `identity`.
pub fn client(authority: &Authority, identity: Option<Identity>) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.dir().join("ca.crt")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_root_certificates(roots);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// Whether a connection still echoes.
pub async fn echoes(stream: &mut TlsStream<TcpStream>) -> bool {
    let exchange = async {
        stream.write_all(b"ping").await?;
        // A task that has done much without a pause is given none of its socket: then it is only encrypted so far.
        stream.flush().await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.map(|_| answer == *b"ping")
    };
    tokio::time::timeout(Duration::from_secs(10), exchange).await.is_ok_and(|result| result.unwrap_or(false))
}
