//! Writes the man pages and shell completions of `taskman` and `taskman-server` below a share directory, such as
//! `/usr/local/share`: `cargo run --example pages -- DIR`. `scripts/package` calls it.
//!
//! An example and not a command: what makes the pages has no place in the shipped programs.

mod page;
mod share;

use std::io;
use std::process::ExitCode;

use time::OffsetDateTime;

fn main() -> ExitCode {
    let Some(share) = std::env::args_os().nth(1) else {
        eprintln!("pages: error: no directory is named; usage: pages DIR");
        return ExitCode::from(2);
    };
    match moment().and_then(|moment| share::write(share.as_ref(), moment)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pages: error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Of the sources, if SOURCE_DATE_EPOCH says it, so that the same sources are the same pages; else now.
fn moment() -> io::Result<i64> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => {
            seconds.parse().map_err(|error| io::Error::other(format!("SOURCE_DATE_EPOCH={seconds}: {error}")))
        }
        Err(_) => Ok(OffsetDateTime::now_utc().unix_timestamp()),
    }
}
