//! Who is at the other end: the certificate that the handshake accepted, turned into a name.

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::task::name;

/// The peer of a connection, in the extensions of each of its requests.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Where it connects from.
    pub address: SocketAddr,
    /// Its name, or why the certificate has none that can be used.
    pub identity: Result<String, String>,
    /// The certificate's serial number in hexadecimal digits, as `taskman certs list` shows it.
    pub serial: String,
}

impl Peer {
    /// Under what name it is counted. Without one of its own it shares one with those at its address, which is no user's.
    pub fn holder(&self) -> String {
        self.identity.clone().unwrap_or_else(|_| format!("[{}]", self.address.ip()))
    }

    /// The holder of `certificate`, which the handshake has verified.
    pub fn new(address: SocketAddr, certificate: &CertificateDer<'_>) -> Self {
        match X509Certificate::from_der(certificate) {
            Ok((_, parsed)) => Self { address, identity: identity(&parsed), serial: serial(parsed.raw_serial()) },
            Err(_) => {
                Self { address, identity: Err("the certificate is not understood".into()), serial: String::new() }
            }
        }
    }
}

/// Exactly one common name, of the characters that user ids have: two names would leave open which of them counts.
fn identity(certificate: &X509Certificate<'_>) -> Result<String, String> {
    let mut names = certificate.subject().iter_common_name();
    let first = names.next().ok_or("the certificate has no common name (CN)")?;
    if names.next().is_some() {
        return Err("the certificate has more than one common name (CN)".into());
    }
    let text = first.as_str().map_err(|_| "the common name (CN) of the certificate is not plain text")?;
    name::check(text).map_err(|why| format!("the common name (CN) of the certificate cannot be used: {why}"))?;
    Ok(text.to_owned())
}

/// Serial numbers are compared as numbers: the zero in front that keeps one positive is not part of it.
pub(super) fn serial(raw: &[u8]) -> String {
    let zeros = raw.iter().take_while(|byte| **byte == 0).count().min(raw.len().saturating_sub(1));
    raw[zeros..].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn of(names: &[DnValue]) -> Result<String, String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (at, name) in names.iter().enumerate() {
            // One object identifier can stand in the name once; others spell the same attribute in another way.
            let kind = if at == 0 { DnType::CommonName } else { DnType::CustomDnType(vec![2, 5, 4, 3]) };
            params.distinguished_name.push(kind, name.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Peer::new("127.0.0.1:1".parse().unwrap(), certificate.der()).identity
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn an_identity_is_exactly_one_plain_common_name() {
        assert_eq!(of(&[utf8("ann@example.org")]).as_deref(), Ok("ann@example.org"));
        assert!(of(&[]).unwrap_err().contains("no common name"));
        assert!(of(&[utf8("ann"), utf8("admin")]).unwrap_err().contains("more than one"));
        for bad in ["", " ", "ann ", "a\nb", "\u{1b}[2J", "admin\0", "аdmin", "a/b", "..", &"n".repeat(65)] {
            assert!(of(&[utf8(bad)]).is_err(), "{bad:?}");
        }
        let wide = rcgen::string::BmpString::try_from("admin").unwrap();
        assert!(of(&[DnValue::BmpString(wide)]).is_err(), "another encoding is another spelling");
    }

    #[test]
    fn what_is_no_certificate_has_no_identity() {
        assert!(Peer::new("[::1]:1".parse().unwrap(), &CertificateDer::from(vec![1, 2, 3])).identity.is_err());
    }

    #[test]
    fn serial_numbers_are_numbers() {
        assert_eq!(serial(&[0, 0x80, 1]), "8001");
        assert_eq!(serial(&[0x40, 0]), "4000");
        assert_eq!(serial(&[0]), "00");
    }
}
