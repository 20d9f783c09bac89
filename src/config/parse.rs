//! From text to [`Config`]: the default, overlaid by a file, overlaid by the command line.
//!
//! The overlay is made on TOML tables, so the default's own keys are the list of known keys, and there is one conversion
//! to typed values for all three sources.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::table::{Section, overlay};
use super::values::typed;
use super::{Config, DEFAULT, Tls};
use crate::task::limits::least_io_bps;
use crate::task::units;

/// What the command line says, over the file. None leaves the file's value.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)] // named as the flags
pub struct Overrides {
    pub server_address: Option<String>,
    pub metrics_address: Option<String>,
    pub state_dir: Option<PathBuf>,
    /// Replaces every TLS file of the configuration.
    pub certs: Option<PathBuf>,
    /// These three replace `certs` of the configuration.
    pub ca_cert: Option<PathBuf>,
    pub server_cert: Option<PathBuf>,
    pub server_key: Option<PathBuf>,
    pub crl: Option<PathBuf>,
    /// Any of `age=7d,count=1000,bytes=10G`.
    pub retain: Option<String>,
    /// Without any TLS file named, use the directory `certs` of the state directory, which the caller makes.
    pub dev: bool,
}

/// A configuration that is refused: the key, what was given, what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{at}{}{why}", if file.is_empty() { String::new() } else { format!("configuration {file}: ") }, if at.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    file: String,
    at: String,
    why: String,
}

impl ConfigError {
    pub(super) fn at(at: impl Into<String>, why: impl Into<String>) -> Self {
        Self { file: String::new(), at: at.into(), why: why.into() }
    }

    fn in_file(mut self, file: &Path) -> Self {
        self.file = file.display().to_string();
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        merged("").and_then(|table| typed(&table)).expect("the default configuration parses: a test reads it")
    }
}

impl Config {
    /// Reads the configuration: the default, then `file`, then `overrides`. The TLS files must be named by one of them.
    pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        match file {
            None => Self::parse("", overrides),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    ConfigError::at("", format!("cannot be read: {error} (taskman-server --print-config prints one)"))
                        .in_file(path)
                })?;
                Self::parse(&text, overrides).map_err(|error| error.in_file(path))
            }
        }
    }

    /// The same, from the text of a file.
    pub fn parse(text: &str, overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut table = merged(text)?;
        lay_overrides(&mut table, overrides)?;
        let mut config = typed(&table)?;
        config.tls = Tls { handshake_timeout: config.tls.handshake_timeout, ..tls_files(&table, overrides, &config)? };
        Ok(config)
    }

    /// What `--print-config` prints.
    pub fn print_default() -> &'static str {
        DEFAULT
    }
}

/// The default, overlaid by a file's text.
fn merged(text: &str) -> Result<Table, ConfigError> {
    let given: Table = text.parse().map_err(|error: toml::de::Error| not_toml(text, &error))?;
    let mut table: Table = DEFAULT.parse().map_err(|error: toml::de::Error| not_toml(DEFAULT, &error))?;
    lay_file(&mut table, given)?;
    Ok(table)
}

fn not_toml(text: &str, error: &toml::de::Error) -> ConfigError {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    ConfigError::at(format!("line {line}"), format!("is not TOML: {}", error.message().replace('\n', ", ")))
}

/// Profiles are the one table whose keys are free: each is laid on what it inherits.
fn lay_file(table: &mut Table, mut given: Table) -> Result<(), ConfigError> {
    let profiles = match given.remove("profiles") {
        Some(Value::Table(profiles)) => profiles,
        Some(_) => return Err(ConfigError::at("profiles", "is a table; write [profiles.NAME] and its keys below")),
        None => Table::new(),
    };
    overlay(table, &given, "")?;
    let mut shipped = match table.remove("profiles") {
        Some(Value::Table(shipped)) => shipped,
        _ => Table::new(),
    };
    let mut base = match shipped.remove("default") {
        Some(Value::Table(base)) => base,
        _ => Table::new(),
    };
    if let Some(given) = profiles.get("default") {
        lay_profile(&mut base, "default", given)?;
    }
    let mut done = Table::new();
    // Who may use a profile and what it may show are granted by name, never inherited.
    let mut inherited = base.clone();
    inherited.insert("users".into(), Value::Array(Vec::new()));
    inherited.insert("bind_ro".into(), Value::Array(Vec::new()));
    for name in shipped.keys().chain(profiles.keys()).filter(|name| *name != "default") {
        let mut profile = inherited.clone();
        for source in [&shipped, &profiles] {
            if let Some(over) = source.get(name) {
                lay_profile(&mut profile, name, over)?;
            }
        }
        done.insert(name.clone(), Value::Table(profile));
    }
    done.insert("default".into(), Value::Table(base));
    table.insert("profiles".into(), Value::Table(done));
    Ok(())
}

fn lay_profile(profile: &mut Table, name: &str, given: &Value) -> Result<(), ConfigError> {
    let path = format!("profiles.{name}");
    let Some(given) = given.as_table() else {
        return Err(ConfigError::at(&path, format!("is a table; write [{path}] and its keys below")));
    };
    overlay(profile, given, &path)?;
    // Whoever gives a profile much memory, and says nothing of io, is not told of a floor.
    let bytes = |table: &Table, key| units::bytes(table.get(key)?.as_str()?).ok();
    let least = bytes(given, "memory").map_or(0, least_io_bps);
    for key in ["io_read_bps", "io_write_bps"] {
        if !given.contains_key(key) && bytes(profile, key).is_some_and(|inherited| inherited < least) {
            profile.insert(key.into(), Value::String(units::exact_bytes(least)));
        }
    }
    Ok(())
}

fn lay_overrides(table: &mut Table, overrides: &Overrides) -> Result<(), ConfigError> {
    if let Some(address) = &overrides.server_address {
        table.insert("server_address".into(), Value::String(address.clone()));
    }
    if let Some(address) = &overrides.metrics_address {
        table.insert("metrics_address".into(), Value::String(address.clone()));
    }
    if let Some(dir) = &overrides.state_dir {
        table.insert("state_dir".into(), path_value("--state-dir", dir)?);
    }
    if let Some(retain) = &overrides.retain {
        lay_retain(table, retain)?;
    }
    let tls = section_mut(table, "tls");
    let files = [
        ("ca_cert", "--ca-cert", &overrides.ca_cert),
        ("server_cert", "--server-cert", &overrides.server_cert),
        ("server_key", "--server-key", &overrides.server_key),
        ("crl", "--crl", &overrides.crl),
    ];
    if let Some(dir) = &overrides.certs {
        if let Some((_, flag, _)) = files.iter().find(|(_, _, given)| given.is_some()) {
            return Err(ConfigError::at(*flag, "does not go with --certs; give the directory or each file by itself"));
        }
        for (key, _, _) in files {
            tls.insert(key.into(), Value::String(String::new()));
        }
        tls.insert("certs".into(), path_value("--certs", dir)?);
    }
    if files[..3].iter().any(|(_, _, given)| given.is_some()) {
        tls.insert("certs".into(), Value::String(String::new()));
    }
    for (key, flag, given) in files {
        if let Some(path) = given {
            tls.insert(key.into(), path_value(flag, path)?);
        }
    }
    Ok(())
}

fn lay_retain(table: &mut Table, text: &str) -> Result<(), ConfigError> {
    let retain = section_mut(table, "retain");
    for item in text.split(',') {
        let (key, value) = item.trim().split_once('=').unwrap_or((item, ""));
        let value = match key {
            "age" | "bytes" => Value::String(value.to_owned()),
            "count" => value.parse().map(Value::Integer).unwrap_or(Value::String(value.to_owned())),
            _ => {
                let why = format!("{text:?} is not understood; write any of age=7d,count=1000,bytes=10G");
                return Err(ConfigError::at("--retain", why));
            }
        };
        retain.insert(key.to_owned(), value);
    }
    Ok(())
}

fn section_mut<'a>(table: &'a mut Table, key: &str) -> &'a mut Table {
    let section = table.get_mut(key).and_then(Value::as_table_mut);
    section.expect("the default has the table, and an overlay leaves tables tables")
}

/// Paths of the command line start where the command was given.
fn path_value(flag: &str, path: &Path) -> Result<Value, ConfigError> {
    let absolute = std::path::absolute(path).map_err(|error| ConfigError::at(flag, error.to_string()))?;
    let text = absolute.into_os_string().into_string();
    text.map(Value::String).map_err(|_| ConfigError::at(flag, "must be valid UTF-8"))
}

/// A directory or the files, never both: with both, which of them is in force would be a guess.
fn tls_files(table: &Table, overrides: &Overrides, config: &Config) -> Result<Tls, ConfigError> {
    let section = Section::root(table).section("tls")?;
    let files = ["ca_cert", "server_cert", "server_key", "crl"];
    let [ca_cert, server_cert, server_key, crl] = files.map(|key| section.path(key));
    let (ca_cert, server_cert, server_key, crl) = (ca_cert?, server_cert?, server_key?, crl?);
    let handshake_timeout = config.tls.handshake_timeout;
    let directory = section.path("certs")?;
    let any = [&ca_cert, &server_cert, &server_key, &crl].iter().any(|file| file.is_some());
    match (directory, any) {
        (Some(_), true) => {
            Err(section
                .refuse("certs", "does not go with ca_cert, server_cert, server_key or crl; empty one or the other"))
        }
        (Some(dir), false) => {
            let crl = Some(dir.join("crl.pem")).filter(|path| path.exists());
            Ok(in_directory(&dir, crl, handshake_timeout))
        }
        (None, true) => {
            let need = |file: Option<PathBuf>, key: &str| {
                file.ok_or_else(|| {
                    section.refuse(key, "must be given too: ca_cert, server_cert and server_key go together")
                })
            };
            Ok(Tls {
                ca_cert: need(ca_cert, "ca_cert")?,
                server_cert: need(server_cert, "server_cert")?,
                server_key: need(server_key, "server_key")?,
                crl,
                handshake_timeout,
            })
        }
        (None, false) if overrides.dev => {
            let dir = config.state_dir.join("certs");
            Ok(in_directory(&dir, Some(dir.join("crl.pem")), handshake_timeout))
        }
        (None, false) => Err(ConfigError::at(
            "tls.certs",
            "names no certificates; make some with `taskman certs init --certs DIR` and give --certs DIR, or use --dev",
        )),
    }
}

fn in_directory(dir: &Path, crl: Option<PathBuf>, handshake_timeout: Duration) -> Tls {
    Tls {
        ca_cert: dir.join("ca.crt"),
        server_cert: dir.join("server.crt"),
        server_key: dir.join("server.key"),
        crl,
        handshake_timeout,
    }
}
