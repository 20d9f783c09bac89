//! The server's log, on standard error: text for people, JSON for machines.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::log::{Level, plain, prefix};

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
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(StandardError);
    match format {
        LogFormat::Text => log.with_target(false).with_ansi(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_target(false).try_init(),
    }
}

/// Standard error, with the level in front of each line where the journal reads it.
struct StandardError;

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = Marked;

    fn make_writer(&'a self) -> Marked {
        Marked("")
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Marked {
        Marked(prefix(match *meta.level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warning,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        }))
    }
}

/// One record, which comes in one piece.
struct Marked(&'static str);

impl Write for Marked {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        // One write for both, so that no other process's line comes between.
        io::stderr().write_all(one_line(self.0, record).as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record is one line. An error's own words, which may be a client's, come into a text as they are.
fn one_line(mark: &str, record: &[u8]) -> String {
    format!("{mark}{}\n", plain(String::from_utf8_lossy(record).trim_end_matches('\n')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_with_one_mark() {
        assert_eq!(
            one_line("<6>", b"ended error=x\n<0>taskman-launcher: y\n"),
            "<6>ended error=x <0>taskman-launcher: y\n"
        );
        assert_eq!(one_line("", b"{\"a\":\"b\\n\"}\n"), "{\"a\":\"b\\n\"}\n");
    }
}
