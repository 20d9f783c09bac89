//! The service without the library's own client: what a test looks at is the status on the wire, or the handshake itself.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use taskman::proto::task_manager as pb;
use taskman::proto::task_manager::task_manager_client::TaskManagerClient;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::server::unwatched;
use super::{GUARD, Server, pace};

/// A client generated from proto/task.proto.
pub type Tasks = TaskManagerClient<Channel>;
/// A certificate chain and its key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Runs a test that talks to the server, for at most three times the usual guard.
pub fn on<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let result = runtime.block_on(async { tokio::time::timeout(pace::time(3 * GUARD), test).await });
    runtime.shutdown_background();
    result.expect("the test hangs")
}

/// The certificate of `name` in a directory of certificates.
pub fn identity(certs: &Path, name: &str) -> Identity {
    let chain = CertificateDer::pem_file_iter(certs.join(format!("{name}.crt"))).unwrap();
    (chain.map(Result::unwrap).collect(), PrivateKeyDer::from_pem_file(certs.join(format!("{name}.key"))).unwrap())
}

/// A certificate of the server's own authority that `taskman certs` would not make.
pub fn odd(certs: &Path, change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let read = |name: &str| std::fs::read_to_string(certs.join(name)).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("ca.crt"), KeyPair::from_pem(&read("ca.key")).unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = params("odd");
    change(&mut params);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// What a sound client certificate of this name has.
pub fn params(name: &str) -> CertificateParams {
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

/// A client that trusts the server and shows `identity`.
pub fn tls(server: &Server, identity: Option<Identity>) -> ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(server.certs().join("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_root_certificates(roots);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// TCP and TLS, with nothing said inside.
pub async fn secure(port: u16, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    tcp.set_nodelay(true)?;
    TlsConnector::from(config.clone()).connect(ServerName::try_from("localhost").unwrap(), tcp).await
}

/// A connection with this identity, and with windows of the given size: small ones make a reader that soon stops reading.
pub async fn channel(server: &Server, identity: Identity, window: u32) -> Result<Channel, tonic::transport::Error> {
    let (port, config) = (server.port(), Arc::new(tls(server, Some(identity))));
    let connector = tower::service_fn(move |_| {
        let config = config.clone();
        async move { secure(port, &config).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("https://localhost").initial_stream_window_size(window);
    endpoint.initial_connection_window_size(window).connect_with_connector(connector).await
}

/// The service as `user` sees it.
pub async fn connect(server: &Server, user: &str) -> Tasks {
    connect_as(server, identity(&server.certs(), user)).await.unwrap()
}

/// The service as the holder of a certificate sees it.
pub async fn connect_as(server: &Server, identity: Identity) -> Result<Tasks, tonic::transport::Error> {
    Ok(TaskManagerClient::new(channel(server, identity, 2 << 20).await?).max_decoding_message_size(64 << 20))
}

/// `sh -c script`.
pub fn sh(script: &str) -> pb::StartTaskRequest {
    pb::StartTaskRequest { command: "sh".into(), args: vec!["-c".into(), script.into()], ..Default::default() }
}

/// Starts a task.
pub async fn start(tasks: &mut Tasks, request: pb::StartTaskRequest) -> Result<String, Status> {
    loop {
        match tasks.start_task(request.clone()).await {
            Err(status) if unwatched(status.message()) => tokio::time::sleep(Duration::from_millis(50)).await,
            answer => return Ok(answer?.into_inner().task_id),
        }
    }
}

/// Waits for a task's first output.
pub async fn spoken(tasks: &mut Tasks, id: &str) {
    let mut stream = tasks.stream_task_output(whole(id)).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("output");
}

/// Waits for the end.
pub async fn ended(tasks: &mut Tasks, id: &str) -> pb::TaskStatusResponse {
    tasks.wait_task(pb::WaitTaskRequest { task_id: id.into(), timeout: None }).await.unwrap().into_inner()
}

/// All of a stream: its bytes, the place of each message checked, and how it ended.
pub async fn read(tasks: &mut Tasks, request: pb::StreamTaskOutputRequest) -> Result<(Vec<u8>, pb::StreamEnd), Status> {
    let (mut stream, mut bytes) = (tasks.stream_task_output(request).await?.into_inner(), Vec::new());
    let mut first = None;
    while let Some(message) = stream.message().await? {
        let begun = *first.get_or_insert(message.offset);
        assert_eq!(message.offset, begun + bytes.len() as u64, "a gap or a repetition");
        bytes.extend_from_slice(&message.output);
        if message.end != 0 {
            assert!(stream.message().await?.is_none(), "something after the end");
            return Ok((bytes, pb::StreamEnd::try_from(message.end).unwrap()));
        }
    }
    panic!("the stream ended without saying why, after {} bytes", bytes.len());
}

/// From the beginning, to the end.
pub fn whole(id: &str) -> pb::StreamTaskOutputRequest {
    pb::StreamTaskOutputRequest { task_id: id.into(), ..Default::default() }
}

/// Everything that a client can see of a refusal.
pub fn seen(status: &Status) -> String {
    let mut headers: Vec<_> = status.metadata().clone().into_headers().into_iter().collect();
    // The clock is the only thing that may differ.
    headers.retain(|(name, _)| name.as_ref().is_none_or(|name| name != "date"));
    format!("{:?} {:?} {:?} {headers:?}", status.code(), status.message(), status.details())
}
