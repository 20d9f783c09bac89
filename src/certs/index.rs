//! The record of what an authority has issued: revoking needs serial numbers, and a lost file must not lose one.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::CertsError;
use super::directory::Directory;

const FILE: &str = "index.json";
const VERSION: u32 = 1;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// To connect as a user.
    User,
    /// To be the server.
    Server,
}

/// One certificate. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub user: String,
    /// What it is for.
    pub kind: Kind,
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// Valid from.
    pub not_before: i64,
    /// Valid until.
    pub not_after: i64,
    /// Revoked at, if it is.
    pub revoked_at: Option<i64>,
}

impl Entry {
    /// Neither expired nor revoked.
    pub fn is_valid(&self, now: i64) -> bool {
        self.revoked_at.is_none() && now < self.not_after
    }
}

/// The file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    version: u32,
    /// Names and addresses of the server certificate.
    pub hosts: Vec<String>,
    /// Counts the signed lists, as RFC 5280 wants.
    pub crl_number: u64,
    pub crl_next_update: i64,
    #[serde(rename = "certificates")]
    pub entries: Vec<Entry>,
}

impl Index {
    pub fn new(hosts: Vec<String>) -> Self {
        Self { version: VERSION, hosts, crl_number: 0, crl_next_update: 0, entries: Vec::new() }
    }

    pub fn load(directory: &Directory) -> Result<Self, CertsError> {
        let refused = |why: String| CertsError::Refused(format!("{FILE} of the certificates directory {why}"));
        let index: Self = serde_json::from_str(&directory.read(FILE, false)?)
            .map_err(|error| refused(format!("is not understood: {error}; restore it from a copy")))?;
        if index.version != VERSION {
            return Err(refused(format!("has version {}; this taskman knows {VERSION}", index.version)));
        }
        Ok(index)
    }

    pub fn save(&self, directory: &Directory) -> Result<(), CertsError> {
        let text = serde_json::to_string_pretty(self).expect("strings and numbers are always JSON");
        directory.replace(FILE, &(text + "\n"), true)
    }

    /// What ends within `days` or the last quarter of its life, or has ended. Of one name, only the newest certificate counts.
    pub fn warnings(&self, now: i64, days: i64) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.crl_next_update - now < days * 86400 {
            warnings.push(format!(
                "the revocation list {}: from then on a server refuses everyone; run `taskman certs renew`",
                ends(self.crl_next_update, now)
            ));
        }
        for (at, entry) in self.entries.iter().enumerate() {
            let newest =
                !self.entries[at + 1..].iter().any(|later| later.user == entry.user && later.kind == entry.kind);
            // A short-lived certificate is not old from its first day.
            let soon = (days * 86400).min((entry.not_after - entry.not_before) / 4);
            if newest && entry.revoked_at.is_none() && entry.not_after - now < soon {
                let (what, cure) = match entry.kind {
                    Kind::Server => ("the server".to_owned(), "renew".to_owned()),
                    Kind::User => (entry.user.clone(), format!("issue {} --replace", entry.user)),
                };
                let end = ends(entry.not_after, now);
                warnings.push(format!("the certificate of {what} {end}; run `taskman certs {cure}`"));
            }
        }
        warnings
    }
}

fn ends(at: i64, now: i64) -> String {
    match at - now {
        left if left <= 0 => "has expired".to_owned(),
        left => format!("expires in {}d", left / 86400),
    }
}

/// The present, in seconds since 1970.
pub(super) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}
