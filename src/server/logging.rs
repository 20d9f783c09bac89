//! The server's log, on standard error: text for people, JSON for machines.

use tracing_subscriber::EnvFilter;

/// How a line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Begins to log at `level`.
pub fn init(level: &str, format: LogFormat) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // The libraries below speak only when something is wrong.
    let filter = EnvFilter::try_new(format!("warn,taskman={level}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).with_ansi(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_target(false).try_init(),
    }
}
