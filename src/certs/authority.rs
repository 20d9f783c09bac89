//! The authority: a key, its certificate, and what it signs.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams,
    SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use time::OffsetDateTime;

use super::index::Index;
use super::{CertsError, KeyType};

/// Clocks differ; a certificate is valid on a machine that is a little behind.
const BACKDATED: Duration = Duration::from_secs(300);

/// Signs certificates and revocation lists.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    not_after: OffsetDateTime,
}

/// What a certificate is for.
pub(super) enum Usage {
    User,
    Server { hosts: Vec<String> },
}

/// A certificate to sign.
pub(super) struct Leaf {
    pub name: String,
    pub usage: Usage,
    pub ttl: Duration,
    pub key: KeyType,
}

impl Leaf {
    pub fn user(name: &str, ttl: Duration, key: KeyType) -> Self {
        Self { name: name.to_owned(), usage: Usage::User, ttl, key }
    }
}

/// A new certificate and its key, in PEM.
pub(super) struct Signed {
    pub certificate: String,
    pub key: String,
    pub serial: String,
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

impl Authority {
    /// A new one, with a name of its own, so that two of them are never taken for each other.
    pub fn new(ttl: Duration) -> Result<Self, CertsError> {
        let serial = random_serial()?;
        let mut params = params(&format!("taskman CA {}", &hex(&serial)[..8]), &serial, ttl);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let not_after = params.not_after;
        let key = new_key(KeyType::default())?;
        let certificate = params.self_signed(&key).map_err(CertsError::crypto("sign ca.crt"))?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, not_after })
    }

    /// The one whose certificate and key are given.
    pub fn load(certificate: &str, key: &str) -> Result<Self, CertsError> {
        let wrong = |why: &str| CertsError::Refused(format!("ca.crt {why}; restore it from a copy"));
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| wrong("is no certificate"))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|_| wrong("is no certificate"))?;
        let key = KeyPair::from_pem(key).map_err(CertsError::crypto("read ca.key"))?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(wrong("does not belong to ca.key"));
        }
        let not_after = parsed.validity().not_after.to_datetime();
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(CertsError::crypto("read ca.crt"))?;
        Ok(Self { issuer, certificate: certificate.to_owned(), not_after })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate with a key of its own.
    pub fn sign(&self, leaf: &Leaf) -> Result<Signed, CertsError> {
        let serial = random_serial()?;
        let mut params = params(&leaf.name, &serial, leaf.ttl);
        if params.not_after > self.not_after {
            let left = (self.not_after - OffsetDateTime::now_utc()).whole_days().max(0);
            return Err(CertsError::Refused(format!("the authority itself expires in {left}d; give a shorter --ttl")));
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match &leaf.usage {
            Usage::User => ExtendedKeyUsagePurpose::ClientAuth,
            Usage::Server { hosts } => {
                let names = CertificateParams::new(hosts.clone()).map_err(CertsError::crypto("sign server.crt"))?;
                params.subject_alt_names = names.subject_alt_names;
                ExtendedKeyUsagePurpose::ServerAuth
            }
        }];
        let key = new_key(leaf.key)?;
        let certificate =
            params.signed_by(&key, &self.issuer).map_err(CertsError::crypto(format!("sign {}.crt", leaf.name)))?;
        Ok(Signed {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            serial: hex(&serial),
            not_before: params.not_before,
            not_after: params.not_after,
        })
    }

    /// The list of everything revoked.
    pub fn sign_list(&self, index: &Index, next_update: OffsetDateTime) -> Result<String, CertsError> {
        let revoked = index.entries.iter().filter_map(|entry| {
            let at = OffsetDateTime::from_unix_timestamp(entry.revoked_at?).ok()?;
            Some(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&unhex(&entry.serial)?),
                revocation_time: at,
                reason_code: Some(RevocationReason::PrivilegeWithdrawn),
                invalidity_date: None,
            })
        });
        let revoked_certs: Vec<_> = revoked.collect();
        // An entry that is not understood must not leave the list silently.
        if revoked_certs.len() != index.entries.iter().filter(|entry| entry.revoked_at.is_some()).count() {
            return Err(CertsError::Refused("index.json holds a serial number that is not hexadecimal".into()));
        }
        let list = CertificateRevocationListParams {
            this_update: OffsetDateTime::now_utc() - BACKDATED,
            next_update,
            crl_number: SerialNumber::from(index.crl_number),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(CertsError::crypto("sign crl.pem"))
    }
}

fn params(name: &str, serial: &[u8], ttl: Duration) -> CertificateParams {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).expect("0 is a nanosecond");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(serial));
    params.not_before = now - BACKDATED;
    params.not_after = now + ttl;
    params
}

fn new_key(key: KeyType) -> Result<KeyPair, CertsError> {
    let algorithm = match key {
        KeyType::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyType::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        KeyType::Ed25519 => &rcgen::PKCS_ED25519,
    };
    KeyPair::generate_for(algorithm).map_err(CertsError::crypto("make a key"))
}

/// 16 random bytes. The first lies between 0x40 and 0x7f: the number is positive and its encoding has no zero in front.
fn random_serial() -> Result<[u8; 16], CertsError> {
    let mut serial = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut serial).map_err(|_| CertsError::Refused("the kernel gave no random numbers".into()))?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

/// Bytes as hexadecimal digits, as serial numbers are written everywhere in taskman.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.is_ascii() && text.len().is_multiple_of(2);
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    if digits { pairs.collect() } else { None }
}
