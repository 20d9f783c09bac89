//! The server's log, on standard error: text for people, JSON for machines.

use std::io::{self, Write};

use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::log::{Level, plain, prefix};
use crate::stderr;

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
    let filter = Targets::new().with_default(LevelFilter::WARN).with_target("taskman", level.parse::<LevelFilter>()?);
    let lines = fmt::layer().with_writer(StandardError).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()?)
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
        stderr::write(one_line(self.0, record).as_bytes());
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
