//! What every client command has in common: who asks, whom, with which certificates, and how it fails.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::limits::as_typed;
use super::{FAILURE, OutputFormat};
use crate::client::{Client, ClientError, Credentials};
use crate::error::SysError;
use crate::sys::{memory, names};
use crate::task::spec::SpecError;

const DEFAULT_ADDRESS: &str = "localhost:50051";

/// The machine's certificates.
const SYSTEM_CERTS: &str = "/etc/taskman/certs";

// Flags of every client command.
#[derive(Debug, Clone, clap::Args)]
pub struct Connection {
    /// The user or client ID issuing the request (e.g., client001). This flag is required
    #[arg(long, value_name = "user-id", env = "TASKMAN_USER_ID", hide_env_values = true)]
    user_id: String,
    #[command(flatten)]
    server: Server,
    /// Text for people, or JSON with stable keys
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "table|json")]
    pub output: OutputFormat,
}

// Where the server is, and what to show it.
#[derive(Debug, Clone, clap::Args)]
pub struct Server {
    /// The gRPC server address to connect to
    #[arg(
        long,
        value_name = "host:port",
        env = "TASKMAN_SERVER_ADDRESS",
        hide_env_values = true,
        default_value = DEFAULT_ADDRESS
    )]
    server_address: String,
    /// Directory with ca.crt, <user-id>.crt and <user-id>.key [default: ~/.config/taskman/certs if it exists, else
    /// /etc/taskman/certs]
    #[arg(long, value_name = "DIR", env = "TASKMAN_CERTS", hide_env_values = true)]
    certs: Option<PathBuf>,
}

impl Server {
    /// Connects as `user`.
    pub async fn open(&self, user: &str) -> Result<Client, ClientError> {
        let certs = self.certs.clone().unwrap_or_else(default_certs);
        let credentials = Credentials::from_dir(&certs, user)?;
        Client::connect(&self.server_address, &credentials).await
    }
}

impl Connection {
    /// Connects.
    pub async fn open(&self) -> Result<Client, ClientError> {
        self.server.open(&self.user_id).await
    }

    /// The flags another command needs to reach the same server as the same user, where the environment does not say it.
    pub fn flags(&self) -> String {
        let certs = self.server.certs.as_ref().map(|certs| certs.display().to_string()).unwrap_or_default();
        let given = [
            ("--user-id", "TASKMAN_USER_ID", self.user_id.as_str(), ""),
            ("--server-address", "TASKMAN_SERVER_ADDRESS", &self.server.server_address, DEFAULT_ADDRESS),
            ("--certs", "TASKMAN_CERTS", &certs, ""),
        ];
        let needed = given.iter().filter(|(_, variable, value, default)| {
            std::env::var(variable).unwrap_or_else(|_| (*default).to_owned()) != **value
        });
        needed.map(|(flag, _, value, _)| format!(" {flag} {}", quoted(value))).collect()
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@[]".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The user's own, if there are any; else the machine's.
fn default_certs() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    config.map(|config| config.join("taskman/certs")).filter(|certs| certs.is_dir()).unwrap_or(SYSTEM_CERTS.into())
}

/// Why a client command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Between client and server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// In what was asked for.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// On this host, without a server.
    #[error(transparent)]
    Host(#[from] SysError),
    /// The same: what was asked for was not done.
    #[error("{0}")]
    Refused(String),
    /// On this side.
    #[error("{0}: {1}")]
    Local(&'static str, std::io::Error),
}

/// Runs a client command: the only place where `taskman` has an async runtime, of one thread.
pub fn execute(command: impl Future<Output = Result<ExitCode, Failure>>) -> ExitCode {
    memory::keep_freed();
    if let Err(errno) = names::use_builtin_lookups() {
        return failed(&Failure::Local("names cannot be looked up", errno.into()));
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Failure::Local("the client cannot run", error)),
    };
    let result = runtime.block_on(command);
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    result.unwrap_or_else(|failure| failed(&failure))
}

fn failed(failure: &Failure) -> ExitCode {
    match failure {
        // A reader that went away has seen what it wanted.
        Failure::Local(_, error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Failure::Client(error) => {
            tell(&format!("error: {}", as_typed(&error.to_string())));
            ExitCode::from(error.exit_code())
        }
        other => {
            tell(&format!("error: {}", as_typed(&other.to_string())));
            ExitCode::from(FAILURE)
        }
    }
}

/// A line on standard error; a closed one leaves nobody to tell.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "taskman: {line}");
}

/// Text on standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|e| Failure::Local("standard output", e))
}

/// Pauses before a request is made again after a passing failure: a restart of the server is waited for, not more.
#[derive(Debug, Default)]
pub struct Patience(usize);

const PAUSES_MS: [u64; 8] = [250, 500, 1000, 2000, 4000, 5000, 5000, 5000];

impl Patience {
    /// Says what happened and waits; gives the error back when it does not pass, or has lasted too long.
    pub async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        let Some(pause) = PAUSES_MS.get(self.0).filter(|_| error.is_passing()) else { return Err(error) };
        self.0 += 1;
        let pause = Duration::from_millis(*pause);
        tell(&format!("{error}; trying again in {pause:?}"));
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_a_shell_as_they_were() {
        assert_eq!(quoted("/etc/taskman/certs"), "/etc/taskman/certs");
        assert_eq!(quoted("my certs"), "'my certs'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[tokio::test]
    async fn only_what_passes_is_tried_again_and_not_for_ever() {
        let lost = || ClientError::Lost("reset".into());
        Patience::default().after(lost()).await.unwrap();
        assert!(Patience(PAUSES_MS.len()).after(lost()).await.is_err());
        assert!(Patience::default().after(ClientError::UserId("x".into())).await.is_err());
    }
}
