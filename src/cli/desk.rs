//! Where questions of containment are put: to a server, as an administrator; or here, as root, where none needs to run.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::OutputFormat;
use super::connection::{Failure, Server};
use crate::audit::desk;
use crate::client::Client;
use crate::config::{Config, Overrides};
use crate::containment::{
    Answer, Audited, Health, HealthView, Incident, IncidentId, Journal, Leftover, Query, Setup, Summary, Swept,
};
use crate::error::{Context, SysError};
use crate::place::{self, HEALTH_SOCKET};

/// For so long a launcher may take to answer: as long as the server waits to hear from it.
const SILENCE: Duration = Duration::from_secs(5);
/// A line of the journal is in force when it is written. One that could not be written may be, or not.
const NOT_SURE: &str = "this worker may still take tasks; stop taskman-server to be sure that it does not";
/// Who a command on this host is, in the journal.
const ROOT: &str = "root";

// Flags of `health` and `audit`.
#[derive(Debug, Clone, clap::Args)]
pub struct Place {
    /// The administrator who asks (e.g., admin)
    #[arg(long, value_name = "user-id", env = "TASKMAN_USER_ID", hide_env_values = true)]
    user_id: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Look at this state directory itself, as root on its host; no server needs to run
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// With --state-dir: the configuration that the server runs with; otherwise the uids that it had last are looked at
    #[arg(long, value_name = "FILE", requires = "state_dir")]
    config: Option<PathBuf>,
    /// Text for people, or JSON with stable keys
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json")]
    pub output: OutputFormat,
}

impl Place {
    /// Finds out whom to ask, and connects.
    pub async fn open(&self) -> Result<Desk, Failure> {
        match (&self.state_dir, &self.user_id) {
            (Some(directory), _) => Ok(Desk::Here(Box::new(self.setup(directory)?))),
            (None, Some(user)) => Ok(Desk::There(Box::new(self.server.open(user).await?))),
            (None, None) => Err(Failure::Refused(
                "nobody to ask; give --user-id with an administrator's name to ask a server, or --state-dir as root on \
                 its host"
                    .to_owned(),
            )),
        }
    }

    fn setup(&self, directory: &Path) -> Result<Setup, Failure> {
        let directory = checked(directory)?;
        // Without certificates: nobody is served.
        let overrides = Overrides { state_dir: Some(directory.clone()), dev: true, ..Default::default() };
        let config =
            Config::load(self.config.as_deref(), &overrides).map_err(|error| Failure::Refused(error.to_string()))?;
        // Another range would find nothing, and so lift a quarantine that should stay.
        let last = if self.config.is_none() { place::uid_range_of(&directory)? } else { None };
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Setup {
            instance: place::instance_of(&directory)?,
            state_dir: directory,
            uid_range: last.unwrap_or(config.uid_range),
            launcher: None,
            events: config.audit.events,
            scan_ms: millis(config.audit.scan),
            zombie_ms: millis(config.audit.zombie),
        })
    }
}

/// A server's own directory that nobody else can write to: what is read there is believed, and processes are killed for it.
fn checked(directory: &Path) -> Result<PathBuf, SysError> {
    let path = std::path::absolute(directory).on("resolve", directory.display().to_string())?;
    let name = path.display().to_string();
    let refused = |errno, hint| Err(SysError::new("use", name.clone(), errno).hint(hint));
    if !nix::unistd::geteuid().is_root() {
        return refused(Errno::EPERM, "--state-dir is for root; an administrator asks the server, with --user-id");
    }
    let meta = std::fs::symlink_metadata(&path).ok().filter(|meta| meta.is_dir() && path.join("server").is_dir());
    let Some(meta) = meta else {
        return refused(Errno::ENOENT, "no taskman-server has used it; give the --state-dir that the server runs with");
    };
    if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        return refused(Errno::EPERM, "it must belong to root, and nobody else may write to it");
    }
    Ok(path)
}

/// Whoever answers. Both say the same things in the same types.
pub enum Desk {
    /// A server, over the network.
    There(Box<Client>),
    /// The same code as the auditor's, in this process.
    Here(Box<Setup>),
}

impl Desk {
    /// Whether tasks are taken.
    pub async fn health(&self) -> Result<HealthView, Failure> {
        match self {
            Self::There(client) => Ok(client.health().await?),
            Self::Here(setup) => {
                let journal = Journal::new(&setup.state_dir).health()?.view();
                if !server_runs(&setup.state_dir)? {
                    return Ok(journal);
                }
                let view = match launcher_says(&setup.state_dir).await {
                    Some(view) if !view.can_accept || journal.can_accept => view,
                    Some(HealthView { auditor, heartbeat_age_ms, .. }) => {
                        HealthView { auditor, heartbeat_age_ms, ..journal }
                    }
                    None => HealthView { auditor: "unknown".to_owned(), ..journal }
                        .stalled(&format!("the launcher has not answered for {} s", SILENCE.as_secs())),
                };
                Ok(view)
            }
        }
    }

    /// Has tasks refused.
    pub async fn quarantine(&self, reason: &str) -> Result<HealthView, Failure> {
        match self {
            Self::There(client) => Ok(client.quarantine(reason).await?),
            Self::Here(setup) => {
                let query = Query::Quarantine { by: ROOT.to_owned(), reason: reason.to_owned() };
                ask(setup, query, health).map_err(|why| Failure::Refused(format!("{NOT_SURE}: {why}")))?;
                self.health().await
            }
        }
    }

    /// Has tasks taken again, if nothing is left.
    pub async fn lift(&self, reason: &str, accept: &[String]) -> Result<HealthView, Failure> {
        match self {
            Self::There(client) => Ok(client.lift_quarantine(reason, accept).await?),
            Self::Here(setup) => {
                let (by, reason, accept) = (ROOT.to_owned(), reason.to_owned(), accept.to_vec());
                ask(setup, Query::Lift { by, reason, accept }, health)?;
                self.health().await
            }
        }
    }

    /// Whether a server runs that was not asked, and hears of what was done a moment later.
    pub fn is_beside_server(&self) -> Result<bool, Failure> {
        match self {
            Self::There(_) => Ok(false),
            Self::Here(setup) => Ok(server_runs(&setup.state_dir)?),
        }
    }

    /// A full audit.
    pub async fn audit(&self) -> Result<Audited, Failure> {
        match self {
            Self::There(client) => Ok(client.run_audit().await?),
            Self::Here(setup) => ask(setup, Query::Audit, |answer| match answer {
                Answer::Audited(audited) => Ok(audited),
                other => Err(other),
            }),
        }
    }

    /// The newest findings.
    pub async fn findings(&self, most: u32) -> Result<Vec<Summary>, Failure> {
        match self {
            Self::There(client) => Ok(client.findings(most).await?),
            Self::Here(setup) => ask(setup, Query::Findings { most }, |answer| match answer {
                Answer::Findings(findings) => Ok(findings),
                other => Err(other),
            }),
        }
    }

    /// One finding.
    pub async fn finding(&self, id: &IncidentId) -> Result<Incident, Failure> {
        match self {
            Self::There(client) => Ok(client.finding(id).await?),
            Self::Here(setup) => ask(setup, Query::Finding { id: id.clone() }, |answer| match answer {
                Answer::Finding(incident) => Ok(*incident),
                other => Err(other),
            }),
        }
    }

    /// What is left.
    pub async fn verify_clean(&self) -> Result<Vec<Leftover>, Failure> {
        match self {
            Self::There(client) => Ok(client.verify_clean().await?),
            Self::Here(setup) => ask(setup, Query::VerifyClean, |answer| match answer {
                Answer::Left(left) => Ok(left),
                other => Err(other),
            }),
        }
    }

    /// Sweeps it.
    pub async fn recover(&self) -> Result<Vec<Swept>, Failure> {
        match self {
            Self::There(client) => Ok(client.recover().await?),
            Self::Here(setup) => ask(setup, Query::Recover { by: ROOT.to_owned() }, |answer| match answer {
                Answer::Recovered(swept) => Ok(swept),
                other => Err(other),
            }),
        }
    }
}

fn ask<T>(setup: &Setup, query: Query, meant: impl FnOnce(Answer) -> Result<T, Answer>) -> Result<T, Failure> {
    meant(desk::answer(setup, query)).map_err(|answer| match answer {
        Answer::Refused(why) => Failure::Refused(why),
        Answer::Left(left) => Failure::Refused(format!("quarantine is not lifted: {} things are left", left.len())),
        _ => Failure::Refused("the auditor's answer is to another question; this is a bug".to_owned()),
    })
}

fn health(answer: Answer) -> Result<Health, Answer> {
    match answer {
        Answer::Health(health) => Ok(health),
        other => Err(other),
    }
}

/// What the running launcher says; nothing where it does not answer in time.
async fn launcher_says(state_dir: &Path) -> Option<HealthView> {
    // A socket's path has at most 107 bytes.
    let directory = File::open(state_dir).ok()?;
    let path = format!("/proc/self/fd/{}/{HEALTH_SOCKET}", directory.as_raw_fd());
    let answer = async {
        let mut text = Vec::new();
        UnixStream::connect(path).await?.read_to_end(&mut text).await?;
        std::io::Result::Ok(text)
    };
    let text = tokio::time::timeout(SILENCE, answer).await.ok()?.ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether a living server has the state directory locked.
fn server_runs(directory: &Path) -> Result<bool, SysError> {
    let directory = File::open(directory).on("open", directory.display().to_string())?;
    // Shared, and given back at once: only a server's own lock is in its way.
    Ok(directory.try_lock_shared().is_err())
}
