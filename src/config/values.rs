//! From a complete TOML table to typed values, with the checks that one value or two of them can fail.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Table;

use super::fit::STARTING;
use super::parse::ConfigError;
use super::table::Section;
use super::{Audit, AuditLog, Config, Connections, Fsync, Output, Profile, Quota, Retain, Stop, Tls, Warm};
use crate::place::UidRange;
use crate::task::limits::{LIMITS, Limits};
use crate::task::name;

/// Converts a complete table; the TLS files are left empty, because only a server needs them.
pub(super) fn typed(table: &Table) -> Result<Config, ConfigError> {
    let root = Section::root(table);
    let uid_range: UidRange = root.parsed("uid_range")?;
    Ok(Config {
        server_address: server_address(&root)?,
        metrics_address: metrics_address(&root)?,
        state_dir: root.path("state_dir")?.ok_or_else(|| root.refuse("state_dir", "must name a directory"))?,
        server_uid: server_uid(&root, uid_range)?,
        uid_range,
        strict: root.flag("strict")?,
        admins: root.texts("admins", |name| name::check(name).map_err(|why| format!("{name:?}: {why}")))?,
        tls: Tls {
            ca_cert: PathBuf::new(),
            server_cert: PathBuf::new(),
            server_key: PathBuf::new(),
            crl: None,
            handshake_timeout: root.section("tls")?.duration("handshake_timeout")?,
        },
        connections: connections(&root.section("connections")?)?,
        quota: quota(&root.section("quota")?)?,
        output: output(&root.section("output")?)?,
        retain: retain(&root.section("retain")?)?,
        stop: stop(&root.section("stop")?)?,
        warm: warm(&root.section("warm")?)?,
        audit_log: audit_log(&root.section("audit_log")?)?,
        audit: audit(&root.section("audit")?)?,
        profiles: profiles(&root.section("profiles")?)?,
    })
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn server_address(root: &Section<'_>) -> Result<String, ConfigError> {
    let text = root.text("server_address")?;
    let wrong = || root.refuse("server_address", "must be HOST:PORT, such as \"localhost:50051\" or \"[::1]:50051\"");
    is_address(text).then(|| text.to_owned()).ok_or_else(wrong)
}

/// A bare port is this host's own: whoever wants others to read the metrics says so.
fn metrics_address(root: &Section<'_>) -> Result<Option<String>, ConfigError> {
    match root.text("metrics_address")? {
        "" => Ok(None),
        port if port.parse::<u16>().is_ok() => Ok(Some(format!("localhost:{port}"))),
        text if is_address(text) => Ok(Some(text.to_owned())),
        _ => Err(root.refuse("metrics_address", "must be a port, such as \"9464\", or HOST:PORT, or empty for none")),
    }
}

fn server_uid(root: &Section<'_>, tasks: UidRange) -> Result<u32, ConfigError> {
    let uid = root.number("server_uid", 1, i64::from(u32::MAX) - 2)?;
    if uid < 65_536 {
        let why = "must be 65536 or above: accounts live below, and a process of the same uid could trace the server";
        return Err(root.refuse("server_uid", why));
    }
    if tasks.contains(uid) {
        let why = format!(
            "lies in uid_range ({}:{}): the sweep after that uid's task would kill the server; choose one outside",
            tasks.first, tasks.count
        );
        return Err(root.refuse("server_uid", why));
    }
    Ok(uid)
}

fn connections(section: &Section<'_>) -> Result<Connections, ConfigError> {
    Ok(Connections {
        total: section.number("total", 1, 1 << 20)?,
        per_address: section.number("per_address", 1, 1 << 20)?,
        per_user: section.number("per_user", 1, 1 << 20)?,
        handshakes: section.number("handshakes", 1, 1 << 16)?,
        streams: section.number("streams", 1, 1 << 20)?,
        message_bytes: section.bytes_of("message_bytes", 4 << 10, 64 << 20)?,
        header_bytes: section.bytes_of("header_bytes", 1 << 10, 1 << 20)?,
        keepalive: section.duration("keepalive")?,
        keepalive_timeout: section.duration("keepalive_timeout")?,
    })
}

fn quota(section: &Section<'_>) -> Result<Quota, ConfigError> {
    Ok(Quota {
        running: section.number("running", 1, 1 << 20)?,
        starting: STARTING,
        running_per_user: section.number("running_per_user", 1, 1 << 20)?,
        stored_output_per_user: section.bytes("stored_output_per_user", false)?,
        requests_per_second: section.number("requests_per_second", 1, 1 << 30)?,
        burst: section.number("burst", 1, 1 << 30)?,
        streams_per_user: section.number("streams_per_user", 1, 1 << 20)?,
    })
}

fn output(section: &Section<'_>) -> Result<Output, ConfigError> {
    // Head and tail are kept by whole segments of at least 64K: two for each is the least that means anything.
    let stored_per_task = section.bytes_of("stored_per_task", 256 << 10, 1 << 50)?;
    Ok(Output { stored_per_task, reserve: section.bytes("reserve", true)? })
}

fn retain(section: &Section<'_>) -> Result<Retain, ConfigError> {
    Ok(Retain {
        age: section.duration("age")?,
        count: section.number("count", 1, i64::from(u32::MAX))?,
        bytes: section.bytes("bytes", false)?,
    })
}

fn stop(section: &Section<'_>) -> Result<Stop, ConfigError> {
    Ok(Stop { grace: section.grace("grace")?, shutdown: section.grace("shutdown")? })
}

fn warm(section: &Section<'_>) -> Result<Warm, ConfigError> {
    let idle = section.duration("idle")?;
    // What it shows of the host, and how it was confined, is of when it was built.
    if idle > Duration::from_secs(600) {
        return Err(section.refuse("idle", "must be at most 10m"));
    }
    Ok(Warm { slots: section.number("slots", 0, 1024)?, idle })
}

fn audit_log(section: &Section<'_>) -> Result<AuditLog, ConfigError> {
    Ok(AuditLog {
        rotate: section.bytes_of("rotate", 4 << 10, 1 << 50)?,
        keep: section.number("keep", 0, 1000)?,
        fsync: match section.text("fsync")? {
            "always" => Fsync::Always,
            "interval" => Fsync::Interval,
            _ => return Err(section.refuse("fsync", "must be \"always\" or \"interval\"")),
        },
    })
}

fn audit(section: &Section<'_>) -> Result<Audit, ConfigError> {
    Ok(Audit {
        events: section.flag("events")?,
        scan: section.duration("scan")?,
        zombie: section.duration("zombie")?,
        cleanup_failures: section.number("cleanup_failures", 0, 1_000_000)?,
    })
}

fn profiles(section: &Section<'_>) -> Result<BTreeMap<String, Profile>, ConfigError> {
    let mut profiles = BTreeMap::new();
    for key in section.keys() {
        let sound = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if key.is_empty() || key.len() > 64 || !key.chars().all(sound) {
            return Err(section.refuse(key, "is no name of a profile; use 1 to 64 of A-Z a-z 0-9 _ -"));
        }
        profiles.insert(key.clone(), profile(&section.section(key)?)?);
    }
    Ok(profiles)
}

fn profile(section: &Section<'_>) -> Result<Profile, ConfigError> {
    let user =
        |name: &str| if name == "*" { Ok(()) } else { name::check(name).map_err(|why| format!("{name:?}: {why}")) };
    let shown = |path: &str| match path.starts_with('/') {
        true => Ok(()),
        false => Err(format!("{path:?} must be a path from the root")),
    };
    let mut limits = Limits::default();
    for limit in &LIMITS {
        limit.set(&mut limits, section.limit(limit)?);
    }
    limits.validate().map_err(|error| section.refuse(&error.field, error.message))?;
    Ok(Profile {
        inside: section.parsed("inside")?,
        users: section.texts("users", user)?,
        bind_ro: section.texts("bind_ro", shown)?.into_iter().map(PathBuf::from).collect(),
        limits,
    })
}
