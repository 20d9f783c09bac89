//! What the machine gives without taskman: one loopback connection, plain and with TLS, the same cryptography, no HTTP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::Failure;
use crate::measure::{Rate, Watch};

/// Size of one write and of one read.
const WRITE: usize = 128 << 10;

/// `bytes` through a plain connection.
pub fn tcp(bytes: u64) -> Result<Rate, Failure> {
    let (here, there) = pair()?;
    transfer(bytes, here, there)
}

/// The same under TLS 1.3, with the server's own certificate; the handshake is not counted.
pub fn tls(bytes: u64, certs: &Path) -> Result<Rate, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certs.join("ca.crt"))?)?;
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let chain = CertificateDer::pem_file_iter(certs.join("server.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(certs.join("server.key"))?)?;
    let (mut here, mut there) = pair()?;
    let mut reader = ClientConnection::new(Arc::new(client), ServerName::try_from("localhost")?)?;
    let mut writer = ServerConnection::new(Arc::new(server))?;
    std::thread::scope(|scope| {
        let accept = scope.spawn(|| writer.complete_io(&mut there).map(drop));
        reader.complete_io(&mut here)?;
        accept.join().map_err(|_| "the handshake failed")??;
        Ok::<_, Failure>(())
    })?;
    transfer(bytes, StreamOwned::new(reader, here), StreamOwned::new(writer, there))
}

fn pair() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

fn transfer(bytes: u64, mut here: impl Read, mut there: impl Write + Send) -> Result<Rate, Failure> {
    std::thread::scope(|scope| {
        let watch = Watch::start(None);
        let writer = scope.spawn(move || {
            let block = vec![b'x'; WRITE];
            for _ in 0..bytes / WRITE as u64 {
                there.write_all(&block)?;
            }
            there.flush()
        });
        let mut block = vec![0; WRITE];
        let mut left = bytes;
        while left > 0 {
            let most = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            left -= match here.read(&mut block[..most])? {
                0 => return Err("the connection ended early".into()),
                read => read as u64,
            };
        }
        writer.join().map_err(|_| "the writer failed")??;
        Ok(watch.stop(bytes))
    })
}
