//! TLS 1.3 with client certificates, reloaded while connections live.
//!
//! tonic's own TLS has no revocation list, no choice of versions and no reload, hence this. Three things would fail open
//! and are refused here: a list file with no list in it (rustls takes that for "no revocation"), a list of another
//! authority, and resumed sessions, which skip the client's certificate and so the list: no ticket is ever sent.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{CertificateRevocationList, FromDer, Validity, X509Certificate};

use super::live::Live;
use crate::certs::WARN_DAYS;
use crate::config;
use crate::error::Context;

/// The one protocol that is spoken inside.
pub const ALPN: &[u8] = b"h2";
/// A connection outlives its certificate by at most this.
const MINUTE: Duration = Duration::from_secs(60);
/// More than any file of them needs; a list of a million certificates has about 40 MiB.
const LARGEST: u64 = 64 << 20;

/// The files' bytes, in PEM. Without `Debug`: one of them is a key.
pub struct TlsFiles {
    /// The authorities whose users may connect.
    pub ca: Vec<u8>,
    /// The server's certificate, and what leads to its authority.
    pub cert: Vec<u8>,
    /// The server's key.
    pub key: Vec<u8>,
    /// What is revoked; None when no list is configured, and then nothing is.
    pub crl: Option<Vec<u8>>,
    /// What each is called where something is wrong with it.
    pub names: Names,
}

/// What each file is, and where: this process has only descriptors of them, but whoever mends one needs its path.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Names {
    pub ca: String,
    pub cert: String,
    pub key: String,
    pub crl: String,
}

impl Names {
    /// Of the configured files.
    pub fn of(tls: &config::Tls) -> Self {
        // The launcher takes it from there when none is configured.
        let usual = tls.ca_cert.with_file_name("crl.pem");
        Self {
            ca: format!("the CA file {}", tls.ca_cert.display()),
            cert: format!("the certificate file {}", tls.server_cert.display()),
            key: format!("the key file {}", tls.server_key.display()),
            crl: format!("the revocation list {}", tls.crl.as_ref().unwrap_or(&usual).display()),
        }
    }
}

/// Why TLS files are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct TlsError {
    what: String,
    why: String,
}

impl TlsError {
    fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

impl TlsFiles {
    /// Reads open files, in the order of the launcher's message: CA, certificate, key and, if there is one, the list.
    pub fn from_descriptors(files: Vec<OwnedFd>, names: Names) -> Result<Self, TlsError> {
        let in_order = [&names.ca, &names.cert, &names.key, &names.crl];
        if !(3..=in_order.len()).contains(&files.len()) {
            return Err(TlsError::new("the TLS files", format!("{} descriptors came instead of 3 or 4", files.len())));
        }
        let mut contents = Vec::new();
        for (name, file) in in_order.into_iter().zip(files) {
            let mut bytes = Vec::new();
            let read = File::from(file).take(LARGEST + 1).read_to_end(&mut bytes).on("read", name.as_str());
            read.map_err(|error| TlsError::new(name, error.to_string()))?;
            if bytes.len() as u64 > LARGEST {
                return Err(TlsError::new(name, "is larger than 64 MiB"));
            }
            contents.push(bytes);
        }
        let mut contents = contents.into_iter();
        let mut next = || contents.next().unwrap_or_default();
        Ok(Self { ca: next(), cert: next(), key: next(), crl: contents.next(), names })
    }
}

/// What is in force now.
pub(super) struct Loaded {
    pub config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    has_list: bool,
    ends: Vec<(&'static str, i64)>,
}

impl Loaded {
    /// Whether a client with this chain could connect now.
    pub fn accepts(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (leaf, intermediates) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).map(|_| ())
    }
}

/// The TLS of a server: what new connections meet, and the connections that live.
pub struct Tls {
    loaded: ArcSwap<Loaded>,
    pub(super) live: Live,
}

impl Tls {
    /// Takes the files into force, and logs what ends soon.
    pub fn new(files: &TlsFiles) -> Result<Self, TlsError> {
        let tls = Self { loaded: ArcSwap::from_pointee(load(files)?), live: Live::default() };
        tls.warn();
        Ok(tls)
    }

    /// Takes changed files into force for new connections, and cuts the open ones of those who could not connect anew:
    /// whose certificate is revoked or expired, or whose authority is gone. Returns how many were cut. After an error
    /// the previous files stay in force and no connection is touched.
    pub fn reload(&self, files: &TlsFiles) -> Result<usize, TlsError> {
        if files.crl.is_none() && self.loaded.load().has_list {
            return Err(TlsError::new(&files.names.crl, "is gone, and without it nobody would be revoked"));
        }
        let loaded = Arc::new(load(files)?);
        let cut = self.live.judge_again(&loaded, || self.loaded.store(loaded.clone()));
        self.warn();
        Ok(cut)
    }

    /// For as long as the server lives: cuts connections whose certificate has expired meanwhile, and says daily what ends soon.
    pub async fn keep_watch(&self) {
        for minute in 1u64.. {
            tokio::time::sleep(MINUTE).await;
            self.live.judge_again(&self.loaded.load_full(), || {});
            if minute.is_multiple_of(24 * 60) {
                self.warn();
            }
        }
    }

    /// What ends within 30 days and stops the server from admitting anyone then. Logged at each load, and daily.
    pub fn warnings(&self) -> Vec<String> {
        let now = UnixTime::now().as_secs() as i64;
        let soon = |(_, end): &&(&str, i64)| end - now < WARN_DAYS * 86400;
        let loaded = self.loaded.load();
        let sentence = |(what, end): &(&str, i64)| match (end - now) / 86400 {
            _ if *end <= now => format!("{what} has expired: nobody can connect; renew it now (taskman certs renew)"),
            days => format!("{what} expires in {days}d, and then nobody can connect; renew it (taskman certs renew)"),
        };
        loaded.ends.iter().filter(soon).map(sentence).collect()
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    fn warn(&self) {
        for warning in self.warnings() {
            tracing::warn!("{warning}");
        }
    }
}

/// ring, with the key exchanges that are allowed. Every rustls builder names it: the process-wide default is nobody's.
pub fn provider() -> Arc<CryptoProvider> {
    let kx_groups = vec![ring::kx_group::X25519, ring::kx_group::SECP256R1, ring::kx_group::SECP384R1];
    Arc::new(CryptoProvider { kx_groups, ..ring::default_provider() })
}

fn load(files: &TlsFiles) -> Result<Loaded, TlsError> {
    let provider = provider();
    let names = &files.names;
    let authorities = certificates(&names.ca, &files.ca)?;
    let chain = certificates(&names.cert, &files.cert)?;
    let mut ends = vec![("the server's certificate", check_server(&names.cert, &chain)?)];
    let roots = roots(&names.ca, &authorities)?;
    let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    if let Some(crl) = &files.crl {
        let lists = lists(&names.crl, crl)?;
        ends.push(("the revocation list", check_lists(&names.crl, &lists, &authorities)?));
        verifier = verifier.with_crls(lists).enforce_revocation_expiration();
    }
    let either = |error: rustls::server::VerifierBuilderError| {
        TlsError::new(format!("{} or {}", names.ca, names.crl), error.to_string())
    };
    let verifier = verifier.build().map_err(either)?;
    let key = PrivateKeyDer::from_pem_slice(&files.key)
        .map_err(|_| TlsError::new(&names.key, "holds no private key in PEM"))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| TlsError::new("TLS 1.3", error.to_string()))?
        .with_client_cert_verifier(verifier.clone())
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::new(format!("{} and {}", names.cert, names.key), error.to_string()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would skip the client's certificate, and so the revocation list.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Loaded { config: Arc::new(config), verifier, has_list: files.crl.is_some(), ends })
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|error| TlsError::new(what, format!("is damaged: {error}")))?;
    if parsed.is_empty() {
        return Err(TlsError::new(what, "holds no certificate in PEM"));
    }
    Ok(parsed)
}

/// Only authorities: rustls trusts whatever is put here, so a user's certificate would become one.
fn roots(what: &str, authorities: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let wrong = |why: &str| TlsError::new(what, why);
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let parsed = parse(authority).ok_or_else(|| wrong("holds a certificate that is not understood"))?;
        if !parsed.is_ca() {
            return Err(wrong("holds a certificate that is no authority's (basic constraints say so)"));
        }
        roots.add(authority.clone()).map_err(|error| wrong(&error.to_string()))?;
    }
    Ok(roots)
}

fn check_server(what: &str, chain: &[CertificateDer<'_>]) -> Result<i64, TlsError> {
    let wrong = |why: &str| TlsError::new(what, why);
    let parsed = chain.first().and_then(parse).ok_or_else(|| wrong("is not understood"))?;
    let Validity { not_before, not_after } = parsed.validity();
    let now = UnixTime::now().as_secs() as i64;
    match now {
        _ if now < not_before.timestamp() => Err(wrong("is not yet valid; check the clock")),
        _ if now >= not_after.timestamp() => Err(wrong("has expired; renew it (taskman certs renew)")),
        _ => Ok(not_after.timestamp()),
    }
}

/// A file without a list is an error here: rustls would take an empty set for "nothing is revoked".
fn lists(what: &str, pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::new(what, why);
    let parsed: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|error| wrong(format!("is damaged: {error}")))?;
    if parsed.is_empty() {
        return Err(wrong("holds no list in PEM: it is empty, cut short or another file".into()));
    }
    Ok(parsed)
}

/// Every authority needs a list of its own that is in date; without it rustls would refuse everybody. Returns the first
/// end among them.
fn check_lists(
    what: &str,
    lists: &[CertificateRevocationListDer<'_>],
    authorities: &[CertificateDer<'_>],
) -> Result<i64, TlsError> {
    let wrong = |why: &str| TlsError::new(what, why);
    let mut lists_of = Vec::new();
    for list in lists {
        lists_of.push(CertificateRevocationList::from_der(list).map_err(|_| wrong("is not understood"))?.1);
    }
    let mut first_end = i64::MAX;
    for authority in authorities.iter().filter_map(parse) {
        let signed_by = |list: &&CertificateRevocationList<'_>| {
            list.issuer() == authority.subject() && list.verify_signature(authority.public_key()).is_ok()
        };
        let list = lists_of.iter().find(signed_by).ok_or_else(|| {
            wrong(&format!("has none signed by {}, an authority of the CA file", authority.subject()))
        })?;
        let end = list.next_update().ok_or_else(|| wrong("does not say when the next one is due"))?.timestamp();
        first_end = first_end.min(end);
    }
    if first_end <= UnixTime::now().as_secs() as i64 {
        return Err(wrong("has expired, and with it in force nobody could connect; renew it (taskman certs renew)"));
    }
    Ok(first_end)
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().map(|(_, parsed)| parsed)
}
