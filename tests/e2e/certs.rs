//! Certificates from the user's side: what is missing, refused, expired or revoked is said in one line with what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{HostDir, Server, wait_until};

#[track_caller]
fn refused(server: &Server, user: &str, parts: &[&str]) {
    let ended = server.taskman(user, &["list"]);
    ended.assert_refused(125, parts);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn a_new_user_needs_one_command() {
    let server = Server::start();
    let certs = server.certs();
    refused(&server, "bob", &["there is no", "bob.crt", "taskman certs issue bob --certs"]);
    server.text("bob", &["certs", "issue", "bob", "--certs", certs.to_str().unwrap()]);
    assert_eq!(server.text("bob", &["list", "--output", "json"]), "{\"tasks\":[]}\n");
    let task = server.task_of("bob", &["--", "true"]);
    assert_eq!(server.ended(&task)["owner"], "bob");
    let key = fs::metadata(certs.join("bob.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_user_id_cannot_be_a_path() {
    let server = Server::start();
    for bad in ["../certs/admin", "a/b", ""] {
        refused(&server, bad, &["user id"]);
    }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let server = Server::start();
    let key = server.certs().join("client001.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&server, "client001", &["others can read this key", "chmod 600"]);
}

#[test]
fn another_authority_is_not_trusted_on_either_side() {
    let (server, other) = (Server::start(), Server::start());
    let mixed = HostDir::new();
    let copy = |from: &Server, file: &str| fs::copy(from.certs().join(file), mixed.path(file)).unwrap();
    let list = || server.taskman("client001", &["list", "--certs", mixed.root().to_str().unwrap()]);
    copy(&server, "ca.crt");
    copy(&other, "client001.crt");
    copy(&other, "client001.key");
    list().assert_refused(125, &["refused the certificate of client001", "authority"]);
    copy(&other, "ca.crt");
    list().assert_refused(125, &["is not trusted", "ca.crt"]);
    copy(&server, "client001.crt");
    list().assert_refused(125, &["the certificate and key of client001 cannot be used"]);
}

#[test]
fn an_expired_certificate_says_so_and_names_the_cure() {
    let server = Server::start();
    let certs = server.certs();
    server.text("bob", &["certs", "issue", "bob", "--ttl", "1s", "--certs", certs.to_str().unwrap()]);
    let error = wait_until("the certificate has expired", || {
        let ended = server.taskman("bob", &["list"]);
        (ended.status.code() == Some(125)).then_some(ended.stderr)
    });
    assert!(error.contains("expired") && error.contains("taskman certs issue bob"), "{error}");
}

#[test]
fn a_revoked_certificate_is_refused_without_a_restart() {
    let server = Server::start();
    let certs = server.certs();
    let certs = certs.to_str().unwrap();
    server.text("bob", &["certs", "issue", "bob", "--certs", certs]);
    server.text("bob", &["list"]);
    server.text("bob", &["certs", "revoke", "bob", "--certs", certs]);
    // The request that meets the change itself is cut; the next one is told why.
    wait_until("the revocation is in force, and told", || {
        let ended = server.taskman("bob", &["list"]);
        (ended.status.code() == Some(125) && ended.stderr.contains("revoked")).then_some(())
    });
    server.text("client001", &["list"]);
}
