//! The command line of `taskman-server`. What stands here overrides the configuration file.

use std::path::PathBuf;

use clap::CommandFactory;

use super::logging::LogFormat;
use crate::config::Overrides;

/// Runs tasks for whoever holds a certificate
#[derive(Debug, clap::Parser)]
#[command(name = "taskman-server", version)]
#[command(after_help = "\
Signals:
  SIGTERM and SIGINT stop every task in order, and end the server; a second one kills the tasks
  SIGHUP reads the certificates anew, which a change of their files does too

Exit codes:
  0 when it was told to stop; 1 when it could not start or go on; 2 when the command line is wrong

Examples:
  taskman-server --dev --server-address localhost:50051
  taskman-server --config /etc/taskman/server.toml")]
pub struct Args {
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", env = "TASKMAN_SERVER_ADDRESS")]
    pub server_address: Option<String>,
    /// Where GET /metrics is answered, for Prometheus: a port of localhost, or HOST:PORT; nowhere by default
    #[arg(long, value_name = "HOST:PORT", env = "TASKMAN_METRICS_ADDRESS")]
    pub metrics_address: Option<String>,
    /// Directory with ca.crt, server.crt, server.key and crl.pem, as `taskman certs init` makes it
    #[arg(long, value_name = "DIR", env = "TASKMAN_CERTS", conflicts_with_all = ["ca_cert", "server_cert", "server_key"])]
    pub certs: Option<PathBuf>,
    /// Certificate of the authority that signs clients' certificates
    #[arg(long, value_name = "FILE", requires_all = ["server_cert", "server_key"])]
    pub ca_cert: Option<PathBuf>,
    /// The server's certificate, followed by those that lead to its authority
    #[arg(long, value_name = "FILE", requires = "ca_cert")]
    pub server_cert: Option<PathBuf>,
    /// The server's key; nobody but root may read it
    #[arg(long, value_name = "FILE", requires = "ca_cert")]
    pub server_key: Option<PathBuf>,
    /// Certificates that are revoked
    #[arg(long, value_name = "FILE")]
    pub crl: Option<PathBuf>,
    /// Records, output and the audit log; one server at a time
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration; --print-config prints one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to forget of ended tasks, oldest first: any of age=7d,count=100000,bytes=64G
    #[arg(long, value_name = "BOUNDS")]
    pub retain: Option<String>,
    /// Make certificates in the state directory, if there are none, and say how to use them
    #[arg(long)]
    pub dev: bool,
    /// How much to log: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: String,
    /// How to log
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Print the default configuration, with comments
    #[arg(long)]
    pub print_config: bool,
}

/// The whole command line; the man page and completions are made of it too.
pub fn command() -> clap::Command {
    Args::command()
}

impl Args {
    /// What overrides the configuration file.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            server_address: self.server_address.clone(),
            metrics_address: self.metrics_address.clone(),
            state_dir: self.state_dir.clone(),
            certs: self.certs.clone(),
            ca_cert: self.ca_cert.clone(),
            server_cert: self.server_cert.clone(),
            server_key: self.server_key.clone(),
            crl: self.crl.clone(),
            retain: self.retain.clone(),
            dev: self.dev,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
        assert!(Args::try_parse_from(["taskman-server", "--certs", "c", "--ca-cert", "f"]).is_err());
        assert!(Args::try_parse_from(["taskman-server", "--ca-cert", "f"]).is_err());
        let args = Args::try_parse_from(["taskman-server", "--server-address", "[::1]:0", "--dev"]).unwrap();
        assert_eq!(args.overrides().server_address.as_deref(), Some("[::1]:0"));
        assert!(args.overrides().dev);
    }
}
