//! For tests without the true server: certificates made on the spot, and a server that says what the test wants.

use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Client, Credentials};
use crate::proto::task_manager::stream_task_output_request::Begin;
use crate::proto::task_manager::task_manager_server::{TaskManager, TaskManagerServer};
use crate::proto::task_manager::*;

/// An authority with a server and any number of clients.
pub struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Its certificate.
    pub ca: String,
}

impl Pki {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test CA");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { ca: issuer.pem(), issuer }
    }

    fn issue(&self, names: &[&str], cn: &str, usage: ExtendedKeyUsagePurpose, days: i64) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, cn);
        params.extended_key_usages = vec![usage];
        params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(30);
        params.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(days);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A client whose certificate is valid for this many days more.
    pub fn client(&self, days: i64) -> Credentials {
        let (cert, key) = self.issue(&[], "client001", ExtendedKeyUsagePurpose::ClientAuth, days);
        Credentials::from_pem("client001", self.ca.as_bytes(), cert.as_bytes(), key.as_bytes()).unwrap()
    }

    /// A directory as `taskman certs` makes it, with client001 in it.
    pub fn client_dir(&self) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = self.issue(&[], "client001", ExtendedKeyUsagePurpose::ClientAuth, 1);
        for (name, text, mode) in
            [("ca.crt", &self.ca, 0o644), ("client001.crt", &cert, 0o644), ("client001.key", &key, 0o600)]
        {
            let mut file = std::fs::File::options();
            let mut file = file.create_new(true).write(true).mode(mode).open(dir.path().join(name)).unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        }
        dir
    }

    fn server(&self) -> rustls::ServerConfig {
        let (cert, key) = self.issue(&["localhost", "127.0.0.1"], "server", ExtendedKeyUsagePurpose::ServerAuth, 1);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

/// What the server does with the next request for output.
#[derive(Debug, Clone)]
pub enum Say {
    /// These bytes, as of this source and place.
    Bytes(OutputSource, u64, Vec<u8>),
    /// This many bytes are not there.
    Omitted(u64),
    /// The last message.
    End(StreamEnd),
    /// Break the connection.
    Cut,
    /// Refuse.
    Fail(Status),
    /// Say nothing more, but keep the stream open.
    Hang,
}

/// A server whose answers are written down beforehand.
#[derive(Clone, Default)]
pub struct Fake {
    /// One script per request for output.
    pub streams: Arc<Mutex<Vec<Vec<Say>>>>,
    /// The requests for output that came: task, begin, source.
    pub asked: Arc<Mutex<Vec<StreamTaskOutputRequest>>>,
    /// What starts are answered with, in order; then with success.
    pub starts: Arc<Mutex<Vec<Status>>>,
    /// The starts that came.
    pub started: Arc<Mutex<Vec<StartTaskRequest>>>,
    connections: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

/// The id of every task it starts.
pub const TASK: &str = "a7da14c7-b47a-4535-a263-5bb26e503002";

impl Fake {
    /// Serves on a free port and gives its address.
    pub async fn serve(&self, pki: &Pki) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let tls = tokio_rustls::TlsAcceptor::from(Arc::new(pki.server()));
        let fake = self.clone();
        let (sender, receiver) = mpsc::channel(8);
        tokio::spawn(async move {
            loop {
                let tcp = listener.accept().await.unwrap().0.into_std().unwrap();
                fake.connections.lock().unwrap().push(tcp.try_clone().unwrap());
                if let Ok(stream) = tls.accept(TcpStream::from_std(tcp).unwrap()).await {
                    sender.send(Ok::<_, std::io::Error>(Connection(stream))).await.ok();
                }
            }
        });
        let service = TaskManagerServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(ReceiverStream::new(receiver)));
        address
    }

    /// Serves, and connects one client.
    pub async fn client(&self) -> Client {
        let pki = Pki::new();
        let address = self.serve(&pki).await;
        Client::connect(&address, &pki.client(1)).await.unwrap()
    }

    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.shutdown(Shutdown::Both).ok();
        }
    }
}

struct Connection(tokio_rustls::server::TlsStream<TcpStream>);

impl tonic::transport::server::Connected for Connection {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl tokio::io::AsyncRead for Connection {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Connection {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tonic::async_trait]
impl TaskManager for Fake {
    async fn start_task(&self, request: Request<StartTaskRequest>) -> Result<Response<StartTaskResponse>, Status> {
        self.started.lock().unwrap().push(request.into_inner());
        let mut starts = self.starts.lock().unwrap();
        if !starts.is_empty() {
            return Err(starts.remove(0));
        }
        Ok(Response::new(StartTaskResponse { task_id: TASK.into() }))
    }

    async fn stop_task(&self, _: Request<StopTaskRequest>) -> Result<Response<StopTaskResponse>, Status> {
        Ok(Response::new(StopTaskResponse {}))
    }

    async fn get_task_status(&self, _: Request<TaskStatusRequest>) -> Result<Response<TaskStatusResponse>, Status> {
        Err(Status::not_found("there is no task like that; `taskman list` shows yours"))
    }

    type StreamTaskOutputStream = ReceiverStream<Result<StreamTaskOutputResponse, Status>>;

    async fn stream_task_output(
        &self,
        request: Request<StreamTaskOutputRequest>,
    ) -> Result<Response<Self::StreamTaskOutputStream>, Status> {
        self.asked.lock().unwrap().push(request.into_inner());
        let script = self.streams.lock().unwrap().remove(0);
        let (sender, receiver) = mpsc::channel(1);
        let fake = self.clone();
        tokio::spawn(async move {
            for say in script {
                let mut message = StreamTaskOutputResponse::default();
                match say {
                    Say::Bytes(source, offset, bytes) => {
                        (message.offset, message.output) = (offset, Bytes::from(bytes));
                        message.set_source(source);
                    }
                    Say::Omitted(bytes) => message.omitted_bytes = bytes,
                    Say::End(end) => message.set_end(end),
                    Say::Cut => {
                        // What was said before is read before the connection is gone.
                        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                        return fake.cut();
                    }
                    Say::Fail(status) => return drop(sender.send(Err(status)).await),
                    Say::Hang => std::future::pending().await,
                }
                if sender.send(Ok(message)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn list_tasks(&self, _: Request<ListTasksRequest>) -> Result<Response<ListTasksResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn wait_task(&self, _: Request<WaitTaskRequest>) -> Result<Response<TaskStatusResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn signal_task(&self, _: Request<SignalTaskRequest>) -> Result<Response<SignalTaskResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

/// Where a request for output begins.
pub fn place(request: &StreamTaskOutputRequest) -> (OutputSource, Option<Begin>) {
    (request.source(), request.begin)
}
