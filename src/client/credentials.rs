//! Who a client is: the authority it trusts, its certificate, and its key.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::error::{ClientError, words};

/// Larger than any chain; a device or a log given by mistake ends here.
const LARGEST_FILE: u64 = 1 << 20;

/// A client's certificate and key, checked and ready to use.
#[derive(Clone)]
pub struct Credentials {
    pub(super) user: String,
    pub(super) tls: Arc<ClientConfig>,
}

/// The key stays out of logs.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// From a directory that `taskman certs` made: `ca.crt`, `<user-id>.crt`, `<user-id>.key`.
    pub fn from_dir(certs: &Path, user_id: &str) -> Result<Self, ClientError> {
        check_user_id(user_id)?;
        let dir = certs.display();
        let init = format!("`taskman certs init --certs {dir}` makes one, or give the right directory with --certs");
        let issue = format!(
            "`taskman certs issue {user_id} --certs {dir}` makes one, or give the right directory with --certs"
        );
        let ca_path = certs.join("ca.crt");
        let cert_path = certs.join(format!("{user_id}.crt"));
        let key_path = certs.join(format!("{user_id}.key"));
        let ca = certificates(&ca_path, &read(&ca_path, &init, false)?)?;
        let chain = certificates(&cert_path, &read(&cert_path, &issue, false)?)?;
        let key = key(&key_path, &read(&key_path, &issue, true)?)?;
        Self::new(user_id, ca, chain, key)
    }

    /// From PEM text, for callers that keep it elsewhere. `user_id` is only used in messages.
    pub fn from_pem(user_id: &str, ca: &[u8], certificate: &[u8], private_key: &[u8]) -> Result<Self, ClientError> {
        check_user_id(user_id)?;
        Self::new(
            user_id,
            certificates(Path::new("CA"), ca)?,
            certificates(Path::new("certificate"), certificate)?,
            key(Path::new("key"), private_key)?,
        )
    }

    fn new(
        user: &str,
        ca: Vec<CertificateDer<'static>>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, ClientError> {
        let fault = |error: rustls::Error| ClientError::Credentials { user: user.into(), why: error.to_string() };
        let mut roots = RootCertStore::empty();
        for certificate in ca {
            roots.add(certificate).map_err(fault)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(fault)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(fault)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { user: user.to_owned(), tls: Arc::new(tls) })
    }
}

/// The id is part of a file name, and stands in messages and commands.
fn check_user_id(user_id: &str) -> Result<(), ClientError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let sane = user_id.starts_with(|c: char| c.is_ascii_alphanumeric()) && user_id.chars().all(plain);
    if sane && user_id.len() <= 64 { Ok(()) } else { Err(ClientError::UserId(user_id.to_owned())) }
}

fn read(path: &Path, hint: &str, secret: bool) -> Result<Vec<u8>, ClientError> {
    let fault = |why: String| ClientError::File { path: path.to_owned(), why };
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => ClientError::Missing { path: path.to_owned(), hint: hint.to_owned() },
        _ => fault(words(&error)),
    };
    let mut file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(fault("is not a regular file".into()));
    }
    if secret && meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        return Err(fault(format!("others can read this key (mode {mode:o}); run `chmod 600 {}`", path.display())));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(LARGEST_FILE).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let fault = |why: String| ClientError::File { path: path.to_owned(), why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(fault("holds no certificate in PEM form".into())),
        Err(error) => Err(fault(format!("is not PEM: {error}"))),
    }
}

fn key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, ClientError> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|error| ClientError::File { path: path.to_owned(), why: format!("holds no key in PEM form: {error}") })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::client::testing;

    #[test]
    fn a_user_id_cannot_name_another_file() {
        for bad in ["", "../admin", "a/b", ".hidden", "-x", "a b", "a\0", "a\n", &"x".repeat(65)] {
            let error = Credentials::from_dir(Path::new("/nowhere"), bad).unwrap_err();
            assert!(matches!(error, ClientError::UserId(_)), "{bad:?}: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = || Credentials::from_dir(dir.path(), "client001").unwrap_err().to_string();
        let at = dir.path().display();
        let wanted = format!("there is no {at}/ca.crt; `taskman certs init --certs {at}` makes one");
        assert!(error().starts_with(&wanted), "{}", error());
        let pki = testing::Pki::new();
        fs::write(dir.path().join("ca.crt"), &pki.ca).unwrap();
        let wanted = format!("there is no {at}/client001.crt; `taskman certs issue client001 --certs {at}` makes one");
        assert!(error().starts_with(&wanted), "{}", error());
        fs::write(dir.path().join("client001.crt"), "no PEM").unwrap();
        assert_eq!(error(), format!("{at}/client001.crt: holds no certificate in PEM form"));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let pki = testing::Pki::new();
        let dir = pki.client_dir();
        let key = dir.path().join("client001.key");
        Credentials::from_dir(dir.path(), "client001").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Credentials::from_dir(dir.path(), "client001").unwrap_err().to_string();
        let key = key.display();
        assert_eq!(error, format!("{key}: others can read this key (mode 640); run `chmod 600 {key}`"));
    }

    #[test]
    fn a_key_of_another_certificate_is_found_out_before_anything_is_sent() {
        let pki = testing::Pki::new();
        let (dir, other) = (pki.client_dir(), pki.client_dir());
        fs::copy(other.path().join("client001.key"), dir.path().join("client001.key")).unwrap();
        let error = Credentials::from_dir(dir.path(), "client001").unwrap_err().to_string();
        assert!(error.starts_with("the certificate and key of client001 cannot be used: "), "{error}");
        assert!(error.ends_with("; `taskman certs issue client001` makes new ones"), "{error}");
    }
}
