//! What people rely on in a certificates directory: what is in the certificates, who can read the keys, what stays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::*;

use super::*;

const DAY: Duration = Duration::from_secs(86400);

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn der(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&fs::read(path).unwrap()).unwrap()
}

fn revoked_serials(dir: &Path) -> Vec<String> {
    let der = CertificateRevocationListDer::from_pem_slice(&fs::read(dir.join("crl.pem")).unwrap()).unwrap();
    let (_, list) = parse_x509_crl(&der).unwrap();
    list.iter_revoked_certificates().map(|one| authority::hex(one.raw_serial())).collect()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, CertsError>) -> String {
    result.unwrap_err().to_string()
}

/// A directory that `init` has filled, in a temporary one.
fn made() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("certs");
    init(&dir, &["build7.example.org".into(), "10.1.2.3".into()]).unwrap();
    (parent, dir)
}

#[test]
fn keys_are_private_and_certificates_are_not() {
    let (_parent, dir) = made();
    issue(&dir, "ann", DAY, KeyType::Ed25519, false).unwrap();
    assert_eq!(mode(&dir), 0o700);
    for file in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
        let private = file.extension().unwrap() == "key" || file.ends_with("index.json");
        assert_eq!(mode(&file), if private { 0o600 } else { 0o644 }, "{}", file.display());
    }
    for file in ["ca.crt", "ca.key", "server.crt", "server.key", "admin.crt", "client001.key", "crl.pem", "ann.key"] {
        assert!(dir.join(file).exists(), "{file}");
    }
}

#[test]
fn certificates_say_what_they_are_for_and_no_more() {
    let (_parent, dir) = made();
    let (ca, server, user) = (der(&dir.join("ca.crt")), der(&dir.join("server.crt")), der(&dir.join("admin.crt")));
    let [ca, server, user] = [&ca, &server, &user].map(|der| parse_x509_certificate(der).unwrap().1);
    let constraints = ca.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca && constraints.value.path_len_constraint == Some(0));
    let usage = ca.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    let names = server.subject_alternative_name().unwrap().unwrap().value.general_names.len();
    assert_eq!(names, 5, "localhost, two loopback addresses and the two that were given");
    for (leaf, client, name) in [(&server, false, "server"), (&user, true, "admin")] {
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert_eq!((usage.client_auth, usage.server_auth), (client, !client));
        assert!(leaf.key_usage().unwrap().unwrap().value.digital_signature());
        assert!(!leaf.is_ca() && leaf.serial.bits() == 127 && leaf.raw_serial().len() == 16);
        let common: Vec<_> = leaf.subject().iter_common_name().map(|cn| cn.as_str().unwrap()).collect();
        assert_eq!(common, [name]);
        let now = now();
        let (from, until) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        assert!((60..1000).contains(&(now - from)) && until > now + 300 * 86400 && until < now + 1000 * 86400);
        let has = |oid| leaf.extensions().iter().any(|extension| extension.oid == oid);
        assert!(has(oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER));
        assert!(has(oid_registry::OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER));
        assert!(leaf.verify_signature(Some(ca.public_key())).is_ok());
    }
    assert_ne!(server.raw_serial(), user.raw_serial());
}

#[test]
fn an_authority_is_never_overwritten() {
    let (_parent, dir) = made();
    let before = fs::read(dir.join("ca.key")).unwrap();
    let told = refusal(init(&dir, &[]));
    assert!(told.contains("already holds an authority") && told.contains("taskman certs issue"), "{told}");
    fs::remove_file(dir.join("ca.crt")).unwrap();
    assert!(refusal(init(&dir, &[])).contains("did not finish"));
    assert_eq!(fs::read(dir.join("ca.key")).unwrap(), before);
    let told = refusal(Directory::open(&dir).unwrap().write_new("ca.key", "another", true));
    assert!(told.contains("not overwritten"), "{told}");
    assert_eq!(fs::read(dir.join("ca.key")).unwrap(), before);
}

#[test]
fn a_host_that_nobody_can_ask_for_is_refused_before_anything_is_made() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("certs");
    for bad in ["", "two words", "host:50051", "http://host", "*"] {
        assert!(refusal(init(&dir, &[bad.into()])).contains("--host"), "{bad:?}");
    }
    assert!(!dir.exists());
}

#[test]
fn no_user_id_reaches_another_file() {
    let (_parent, dir) = made();
    for bad in ["../ann", "a/b", "", ".hidden", "-rf", "ca", "server", "a\nb", "crl", "index"] {
        assert!(refusal(issue(&dir, bad, DAY, KeyType::P256, false)).contains("user id"), "{bad:?}");
    }
    // A link in place of a user's file is replaced, not followed.
    let outside = dir.parent().unwrap().join("outside");
    fs::write(&outside, "mine").unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("eve.key")).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join(".eve.crt.new")).unwrap();
    issue(&dir, "eve", DAY, KeyType::P256, false).unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
    assert_eq!(mode(&dir.join("eve.key")), 0o600);
}

#[test]
fn a_directory_or_key_that_others_can_change_is_refused() {
    let (_parent, dir) = made();
    let ca_key = dir.join("ca.key");
    fs::set_permissions(&ca_key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(refusal(issue(&dir, "ann", DAY, KeyType::P256, false)).contains("chmod 600"));
    fs::set_permissions(&ca_key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(refusal(issue(&dir, "ann", DAY, KeyType::P256, false)).contains("writable by others"));
}

#[test]
fn a_valid_certificate_is_kept_unless_told() {
    let (_parent, dir) = made();
    let first = issue(&dir, "ann", DAY, KeyType::P256, false).unwrap();
    let key = fs::read(&first.key).unwrap();
    assert!(refusal(issue(&dir, "ann", DAY, KeyType::P256, false)).contains("--replace"));
    assert_eq!(fs::read(&first.key).unwrap(), key);
    let second = issue(&dir, "ann", DAY, KeyType::P384, true).unwrap();
    assert_ne!(second.entry.serial, first.entry.serial);
    assert!(refusal(issue(&dir, "bob", DAY * 4000, KeyType::P256, false)).contains("shorter --ttl"));
}

#[test]
fn revoking_a_user_revokes_every_certificate_of_that_name() {
    let (_parent, dir) = made();
    assert_eq!(revoked_serials(&dir), [""; 0]);
    let first = issue(&dir, "ann", DAY, KeyType::P256, false).unwrap().entry.serial;
    let second = issue(&dir, "ann", DAY, KeyType::P256, true).unwrap().entry.serial;
    fs::remove_file(dir.join("ann.crt")).unwrap();
    assert_eq!(revoke(&dir, &Which::User("ann".into())).unwrap().len(), 2);
    assert_eq!(revoked_serials(&dir), [first.clone(), second]);
    // Another one joins the list, by serial, as openssl writes it.
    let admin = list(&dir).unwrap().entries.into_iter().find(|entry| entry.user == "admin").unwrap().serial;
    let colons =
        admin.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap()).collect::<Vec<_>>().join(":");
    revoke(&dir, &Which::Serial(colons.to_uppercase())).unwrap();
    assert!(revoked_serials(&dir).len() == 3 && revoked_serials(&dir).contains(&admin));
    assert!(refusal(revoke(&dir, &Which::User("nobody".into()))).contains("taskman certs list"));
    // After it, the same name can have a new one.
    issue(&dir, "ann", DAY, KeyType::P256, false).unwrap();
    assert_eq!(revoked_serials(&dir).len(), 3);
}

#[test]
fn renewing_keeps_the_names_and_what_is_revoked() {
    let (_parent, dir) = made();
    revoke(&dir, &Which::User("client001".into())).unwrap();
    let old = der(&dir.join("server.crt"));
    renew(&dir, &["new.example.org".into()]).unwrap();
    let new = der(&dir.join("server.crt"));
    let names = |der: &CertificateDer<'_>| {
        let (_, certificate) = parse_x509_certificate(der).unwrap();
        certificate.subject_alternative_name().unwrap().unwrap().value.general_names.len()
    };
    assert_eq!((names(&old), names(&new)), (5, 6));
    assert_eq!(revoked_serials(&dir).len(), 1);
}

#[test]
fn people_are_warned_before_something_ends() {
    let (_parent, dir) = made();
    assert_eq!(list(&dir).unwrap().warnings, [""; 0]);
    issue(&dir, "ann", DAY * 28, KeyType::P256, false).unwrap();
    let mut index = Index::load(&Directory::open(&dir).unwrap()).unwrap();
    assert_eq!(index.warnings(now(), WARN_DAYS), [""; 0], "a new certificate is not about to end");
    let warnings = index.warnings(now() + 24 * 86400 - 3600, WARN_DAYS);
    assert!(warnings.len() == 1 && warnings[0].contains("ann expires in 4d"), "{warnings:?}");
    index.crl_next_update = now() - 1;
    let warnings = index.warnings(now(), WARN_DAYS);
    assert!(warnings[0].contains("revocation list has expired") && warnings[0].contains("certs renew"), "{warnings:?}");
}
