//! Certificates without another tool: an authority, a server certificate, users, and the list of those revoked.
//!
//! A directory holds `ca.crt`, `ca.key`, `server.crt`, `server.key`, `crl.pem`, `<user>.crt` and `<user>.key` per user,
//! and `index.json`, the record of what was issued. A server needs ca.crt, server.crt, server.key and crl.pem; a user
//! needs ca.crt and the two files of that name. The authority's key signs; who holds it can be anybody, so it need not
//! (and for more than one machine should not) lie where the server runs.
//!
//! What was issued is never forgotten while it is valid: revoking goes by the index, not by the files.

mod authority;
mod directory;
mod index;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls_pki_types::ServerName;
use time::OffsetDateTime;

use crate::error::SysError;
use crate::task::name;
use authority::{Authority, Leaf, Usage};
use directory::Directory;
pub use index::{Entry, Kind};
use index::{Index, now};

/// Lifetimes. The authority outlives everything that it signs.
const CA_DAYS: u64 = 3650;
const SERVER_DAYS: u64 = 730;
const FIRST_USERS_DAYS: u64 = 365;
/// Past this date a server refuses everyone, so `list` and the server warn ahead of it.
const CRL_DAYS: u64 = 365;
/// How long ahead of an end people are warned.
pub const WARN_DAYS: i64 = 30;
/// Who exists after `init`: the administrator and a first user.
const FIRST_USERS: [&str; 2] = ["admin", "client001"];
/// What every server certificate is valid for.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Why a certificate was not made, found or revoked.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// The request cannot be met; says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// A file could not be read or written.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// A key or certificate could not be made or understood.
    #[error("{what}: {source}")]
    Crypto {
        /// Which.
        what: String,
        /// What the library said.
        source: rcgen::Error,
    },
}

impl CertsError {
    fn crypto(what: impl Into<String>) -> impl FnOnce(rcgen::Error) -> Self {
        move |source| Self::Crypto { what: what.into(), source }
    }
}

/// The kind of key in a new certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyType {
    /// ECDSA over P-256: every client library takes it
    #[default]
    P256,
    /// ECDSA over P-384
    P384,
    /// Ed25519: small and fast, but refused by some clients (Python's grpcio)
    Ed25519,
}

/// What `init` has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The directory.
    pub directory: PathBuf,
    /// Users with a certificate in it.
    pub users: Vec<String>,
    /// The names and addresses that the server certificate is valid for.
    pub hosts: Vec<String>,
}

/// What was issued.
#[derive(Debug, Clone)]
pub struct Issued {
    /// As recorded.
    pub entry: Entry,
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

/// Which certificates to revoke.
#[derive(Debug, Clone)]
pub enum Which {
    /// Every valid one of this user.
    User(String),
    /// The one with this serial number, in hexadecimal digits with or without colons.
    Serial(String),
}

/// The record of a directory.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Everything issued, oldest first.
    pub entries: Vec<Entry>,
    /// When a server starts to refuse everyone, unless the list is signed anew: in seconds since 1970.
    pub crl_next_update: i64,
    /// What needs attention soon, in sentences.
    pub warnings: Vec<String>,
}

/// Makes a directory with an authority, a server certificate for this machine and `hosts`, `admin` and `client001`.
pub fn init(dir: &Path, hosts: &[String]) -> Result<Created, CertsError> {
    let mut names: Vec<String> = LOCAL_NAMES.map(str::to_owned).to_vec();
    names.extend(hosts.iter().filter(|host| !LOCAL_NAMES.contains(&host.as_str())).cloned());
    check_hosts(hosts)?;
    let directory = Directory::create(dir)?;
    let shown = dir.display();
    if directory.exists("ca.crt") {
        return Err(CertsError::Refused(format!(
            "{shown} already holds an authority, which is never overwritten: add users with `taskman certs issue NAME \
             --certs {shown}`, or give another directory"
        )));
    }
    if directory.exists("ca.key") {
        return Err(CertsError::Refused(format!(
            "{shown} holds a ca.key without ca.crt: an earlier init did not finish; remove the directory and try again"
        )));
    }
    let authority = Authority::new(Duration::from_secs(CA_DAYS * 86400))?;
    directory.write_new("ca.key", &authority.key_pem(), true)?;
    let mut index = Index::new(names.clone());
    make_server(&directory, &authority, &mut index)?;
    for user in FIRST_USERS {
        let ttl = Duration::from_secs(FIRST_USERS_DAYS * 86400);
        make(&directory, &authority, &mut index, &Leaf::user(user, ttl, KeyType::default()))?;
    }
    sign_list(&directory, &authority, &mut index)?;
    // Last, so that a directory with a ca.crt is a whole one.
    directory.write_new("ca.crt", authority.certificate_pem(), false)?;
    Ok(Created { directory: dir.to_owned(), users: FIRST_USERS.map(str::to_owned).to_vec(), hosts: names })
}

/// Issues a certificate for `user`. One that is still valid is kept, unless `replace` says otherwise.
pub fn issue(dir: &Path, user: &str, ttl: Duration, key: KeyType, replace: bool) -> Result<Issued, CertsError> {
    name::check_issued(user).map_err(|why| CertsError::Refused(format!("user id {user:?}: {why}")))?;
    let (directory, authority, mut index) = open(dir)?;
    let valid = index.entries.iter().any(|entry| entry.user == user && entry.is_valid(now()));
    if valid && !replace {
        return Err(CertsError::Refused(format!(
            "{user} has a valid certificate: revoke it first with `taskman certs revoke {user}`, or give --replace, which \
             leaves the old one valid until it expires"
        )));
    }
    let entry = make(&directory, &authority, &mut index, &Leaf::user(user, ttl, key))?;
    index.save(&directory)?;
    let [certificate, key] = ["crt", "key"].map(|end| dir.join(format!("{user}.{end}")));
    Ok(Issued { entry, certificate, key })
}

/// Revokes certificates and signs a new `crl.pem`; running servers that watch the file cut their connections. What is
/// revoked already stays so and is returned too, so that repeating an interrupted call completes it.
pub fn revoke(dir: &Path, which: &Which) -> Result<Vec<Entry>, CertsError> {
    let (directory, authority, mut index) = open(dir)?;
    let now = now();
    let hex = |text: &str| text.replace(':', "").to_ascii_lowercase();
    let meant = |entry: &Entry| match which {
        Which::User(user) => entry.kind == Kind::User && entry.user == *user && now < entry.not_after,
        Which::Serial(serial) => entry.serial == hex(serial),
    };
    let mut revoked = Vec::new();
    for entry in index.entries.iter_mut().filter(|entry| meant(entry)) {
        entry.revoked_at.get_or_insert(now);
        revoked.push(entry.clone());
    }
    if revoked.is_empty() {
        let what = match which {
            Which::User(user) => format!("user {user:?}"),
            Which::Serial(serial) => format!("serial {serial:?}"),
        };
        return Err(CertsError::Refused(format!("{what} has no certificate left to revoke; see `taskman certs list`")));
    }
    sign_list(&directory, &authority, &mut index)?;
    Ok(revoked)
}

/// Signs the revocation list anew and issues a new server certificate for the same names and further `hosts`.
pub fn renew(dir: &Path, hosts: &[String]) -> Result<Entry, CertsError> {
    check_hosts(hosts)?;
    let (directory, authority, mut index) = open(dir)?;
    for host in hosts {
        if !index.hosts.contains(host) {
            index.hosts.push(host.clone());
        }
    }
    let entry = make_server(&directory, &authority, &mut index)?;
    sign_list(&directory, &authority, &mut index)?;
    Ok(entry)
}

/// What was issued, and what needs attention. Needs no key.
pub fn list(dir: &Path) -> Result<Listing, CertsError> {
    let index = Index::load(&Directory::open(dir)?)?;
    let warnings = index.warnings(now(), WARN_DAYS);
    Ok(Listing { crl_next_update: index.crl_next_update, warnings, entries: index.entries })
}

/// Before anything is written: a name that no client can ask for would only be noticed by clients.
fn check_hosts(hosts: &[String]) -> Result<(), CertsError> {
    match hosts.iter().find(|host| ServerName::try_from(host.as_str()).is_err()) {
        Some(host) => Err(CertsError::Refused(format!(
            "--host {host:?} is neither a DNS name nor an address; write for example build7.example.org or 10.1.2.3"
        ))),
        None => Ok(()),
    }
}

fn open(dir: &Path) -> Result<(Directory, Authority, Index), CertsError> {
    let directory = Directory::open(dir)?;
    let authority = Authority::load(&directory.read("ca.crt", false)?, &directory.read("ca.key", true)?)?;
    let index = Index::load(&directory)?;
    Ok((directory, authority, index))
}

fn make_server(directory: &Directory, authority: &Authority, index: &mut Index) -> Result<Entry, CertsError> {
    let leaf = Leaf {
        name: "server".into(),
        usage: Usage::Server { hosts: index.hosts.clone() },
        ttl: Duration::from_secs(SERVER_DAYS * 86400),
        key: KeyType::default(),
    };
    make(directory, authority, index, &leaf)
}

/// Makes one certificate. It stands in the index before its file exists: what was signed can always be revoked.
fn make(directory: &Directory, authority: &Authority, index: &mut Index, leaf: &Leaf) -> Result<Entry, CertsError> {
    let signed = authority.sign(leaf)?;
    let entry = Entry {
        user: leaf.name.clone(),
        kind: if matches!(leaf.usage, Usage::User) { Kind::User } else { Kind::Server },
        serial: signed.serial,
        not_before: signed.not_before.unix_timestamp(),
        not_after: signed.not_after.unix_timestamp(),
        revoked_at: None,
    };
    index.entries.push(entry.clone());
    index.save(directory)?;
    directory.replace(&format!("{}.key", leaf.name), &signed.key, true)?;
    directory.replace(&format!("{}.crt", leaf.name), &signed.certificate, false)?;
    Ok(entry)
}

fn sign_list(directory: &Directory, authority: &Authority, index: &mut Index) -> Result<(), CertsError> {
    let next_update = OffsetDateTime::now_utc() + Duration::from_secs(CRL_DAYS * 86400);
    index.crl_number += 1;
    index.crl_next_update = next_update.unix_timestamp();
    let pem = authority.sign_list(index, next_update)?;
    // The index first: every later list is made from it, and revoking again signs again.
    index.save(directory)?;
    directory.replace("crl.pem", &pem, false)
}
