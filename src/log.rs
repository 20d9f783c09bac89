//! One plain line on standard error. Where that leads to systemd's journal, its level stands in front, as sd-daemon(3) has it: the
//! journal takes it off again, and `journalctl --priority warning` shows what matters.

use std::sync::OnceLock;

use crate::stderr;

/// The journal ends a line after 48 KiB, and would take what then comes first for a level.
const LONGEST: usize = 8192;

/// How grave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong, and somebody should know.
    Error,
    /// Something is odd.
    Warning,
    /// A change that matters.
    Notice,
    /// What is going on.
    Info,
    /// For whoever looks for a fault.
    Debug,
}

/// Writes it. Not with `eprintln!`, which panics when nobody reads; and on one line, whatever is in the text.
pub fn line(level: Level, who: &str, text: &str) {
    // In one piece: a journal that reads the lines of several processes ends one where another begins to write.
    stderr::write(format!("{}{}", prefix(level), words(level, who, text)).as_bytes());
}

/// An error says that it is one, as those of the command line do.
fn words(level: Level, who: &str, text: &str) -> String {
    let error = if level == Level::Error { "error: " } else { "" };
    format!("{who}: {error}{}\n", plain(text))
}

/// On one line that is not too long, whatever is in it: nobody whose words are told can begin a line, and so choose its level.
pub fn plain(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What stands before a line of this level: nothing, unless the journal reads it.
pub fn prefix(level: Level) -> &'static str {
    static TO_JOURNAL: OnceLock<bool> = OnceLock::new();
    let to_journal = || {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        // Set by a parent, it may be meant for a stream that was replaced since.
        nix::sys::stat::fstat(std::io::stderr()).is_ok_and(|stat| is_stream(&stream, stat.st_dev, stat.st_ino))
    };
    if *TO_JOURNAL.get_or_init(to_journal) { mark(level) } else { "" }
}

fn is_stream(text: &str, device: u64, inode: u64) -> bool {
    text.split_once(':').is_some_and(|(dev, ino)| dev.parse() == Ok(device) && ino.parse() == Ok(inode))
}

fn mark(level: Level) -> &'static str {
    match level {
        Level::Error => "<3>",
        Level::Warning => "<4>",
        Level::Notice => "<5>",
        Level::Info => "<6>",
        Level::Debug => "<7>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_begins_as_everywhere() {
        assert_eq!(words(Level::Error, "taskman-server", "a\nb"), "taskman-server: error: a b\n");
        assert_eq!(words(Level::Notice, "taskman-launcher", "told to stop"), "taskman-launcher: told to stop\n");
    }

    #[test]
    fn no_word_of_others_begins_a_line() {
        assert_eq!(plain("a\n<0>b\r\0<1>c\u{85}"), "a <0>b  <1>c ");
        let long = plain(&format!("{}<0>", "\u{10348}".repeat(LONGEST)));
        assert!(long.len() < 48 << 10 && !long.contains('<'));
    }

    #[test]
    fn only_the_very_stream_that_the_journal_reads_is_marked() {
        assert!(is_stream("8:4711", 8, 4711));
        for other in ["", "8", "8:", ":4711", "8:4712", "9:4711", "8:4711:1", "x:y"] {
            assert!(!is_stream(other, 8, 4711), "{other}");
        }
        assert_eq!([Level::Error, Level::Warning, Level::Info].map(mark), ["<3>", "<4>", "<6>"]);
    }
}
