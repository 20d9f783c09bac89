//! The server's configuration: one TOML file, parsed once into typed values.
//!
//! The commented default is the file [`DEFAULT`], and parsing it *is* the default: what is documented cannot drift from
//! what is in force. Both the launcher and the server hold a copy, made before they part; neither trusts the other's.

mod admit;
mod fit;
mod parse;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::place::UidRange;
use crate::task::limits::Limits;
use crate::task::profile::Profile as Inside;

pub use fit::METRICS_CONNECTIONS;
pub use parse::{ConfigError, Overrides};

/// The default configuration, with comments.
pub const DEFAULT: &str = include_str!("default.toml");

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each is described in default.toml
pub struct Config {
    pub server_address: String,
    /// None when metrics are off.
    pub metrics_address: Option<String>,
    pub state_dir: PathBuf,
    pub server_uid: u32,
    pub uid_range: UidRange,
    pub strict: bool,
    pub admins: Vec<String>,
    pub tls: Tls,
    pub connections: Connections,
    pub quota: Quota,
    pub output: Output,
    pub retain: Retain,
    pub stop: Stop,
    pub warm: Warm,
    pub audit_log: AuditLog,
    pub audit: Audit,
    pub profiles: BTreeMap<String, Profile>,
}

/// The files are resolved: `certs` has been turned into its four paths.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Tls {
    pub ca_cert: PathBuf,
    pub server_cert: PathBuf,
    pub server_key: PathBuf,
    /// None when no revocation list is configured (in a `certs` directory: when there is no crl.pem).
    pub crl: Option<PathBuf>,
    pub handshake_timeout: Duration,
}

/// Limits that hold before anybody is authorized.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Connections {
    pub total: usize,
    pub per_address: usize,
    pub per_user: usize,
    pub handshakes: usize,
    pub streams: u32,
    pub message_bytes: usize,
    pub header_bytes: u32,
    pub keepalive: Duration,
    pub keepalive_timeout: Duration,
}

/// What one user, and all together, may have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Quota {
    pub running: usize,
    /// Tasks that are started at once; not asked for, but as many as there are descriptors for.
    pub starting: usize,
    pub running_per_user: usize,
    pub stored_output_per_user: u64,
    pub requests_per_second: u32,
    pub burst: u32,
    pub streams_per_user: usize,
}

/// How much output is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Output {
    pub stored_per_task: u64,
    pub reserve: u64,
}

/// Until when ended tasks are remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Retain {
    pub age: Duration,
    pub count: u64,
    pub bytes: u64,
}

/// How long a task has to end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stop {
    pub grace: Duration,
    pub shutdown: Duration,
}

/// Sandboxes that are built ahead of need.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Warm {
    pub slots: usize,
    pub idle: Duration,
}

/// How the audit log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AuditLog {
    pub rotate: u64,
    pub keep: usize,
    pub fsync: Fsync,
}

/// How the auditor looks, and when it has seen enough.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Audit {
    pub events: bool,
    pub scan: Duration,
    pub zombie: Duration,
    pub cleanup_failures: u64,
}

/// When an audit record is on disk for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before the request is answered.
    Always,
    /// Within a second.
    Interval,
}

/// What tasks of one profile may be and use.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Profile {
    pub inside: Inside,
    pub users: Vec<String>,
    pub bind_ro: Vec<PathBuf>,
    /// The default and the ceiling at once.
    pub limits: Limits,
}
