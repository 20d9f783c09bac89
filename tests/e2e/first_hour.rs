//! `docs/first-hour.md`: every command of the page, run in order and in one shell, prints what stands below it.
//!
//! What differs from run to run (ids, times, pids, usage, paths) is made the same on both sides by [`Stable`]; everything else must
//! match to the letter. An id is its number among those of the page, so that one task has one id on it.
//! `UPDATE_DOCS=1 cargo test --test e2e first_hour` writes what one run printed into the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::port::Port;
use crate::support::run::TASKMAN;
use crate::support::server::TASKMAN_SERVER;
use crate::support::{GUARD, HostDir, Started};

const PROMPT: &str = "# ";
/// Where the page says that it was run.
const PLACE: &str = "/srv";

/// A piece of the page: text, or a command with what it printed.
enum Piece {
    Text(String),
    Command { line: usize, text: String, printed: String },
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/first-hour.md")
}

/// Commands stand in blocks of `console`, behind a prompt; there are no blocks of another kind, which would not be run.
fn pieces(page: &str) -> Vec<Piece> {
    let (mut pieces, mut inside) = (Vec::new(), false);
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), inside) {
            (Some("console"), false) => inside = true,
            (Some(""), true) => inside = false,
            (Some(other), _) => panic!("line {}: a block of {other:?} is not run", number + 1),
            (None, true) => match (line.strip_prefix(PROMPT), pieces.last_mut()) {
                (Some(text), _) => {
                    pieces.push(Piece::Command { line: number + 1, text: text.to_owned(), printed: String::new() });
                    continue;
                }
                (None, Some(Piece::Command { printed, .. })) => {
                    *printed += &format!("{line}\n");
                    continue;
                }
                (None, _) => panic!("line {}: printed by no command", number + 1),
            },
            (None, false) => {}
        }
        match pieces.last_mut() {
            Some(Piece::Text(text)) => *text += &format!("{line}\n"),
            _ => pieces.push(Piece::Text(format!("{line}\n"))),
        }
    }
    assert!(!inside, "a block is not closed");
    pieces
}

/// What each command prints, on both streams, in a shell as root has it that stands in `place`.
pub fn run(commands: &[&str], place: &HostDir) -> Vec<String> {
    let dir = HostDir::new();
    let mut script = String::new();
    for (number, command) in commands.iter().enumerate() {
        script += &format!("{{ {command}\n}} >{}/{number} 2>&1 </dev/null\n", dir.root().display());
    }
    // The worker's uids are its own, so that what other tests leave for a moment is not in the way of the lift.
    let first = 1_990_000_000 + std::process::id() % 10_000 * 1000;
    let config = dir.file("server.toml", format!("uid_range = \"{first}:1000\"\n"), 0o644);
    let server = format!("#!/bin/sh\nexec {TASKMAN_SERVER} --config {} \"$@\"\n", config.display());
    fs::create_dir(dir.path("bin")).unwrap();
    dir.file("bin/taskman-server", server, 0o755);
    let beside = Path::new(TASKMAN).parent().unwrap().display();
    let path = format!("{}:{beside}:{}", dir.path("bin").display(), std::env::var("PATH").unwrap());
    let port = Port::lease();

    let mut shell = Command::new("bash");
    shell.arg(dir.file("script", script, 0o644)).current_dir(place.root()).stdin(Stdio::null());
    shell.env("PATH", path).env("TASKMAN_SERVER_ADDRESS", format!("localhost:{}", port.number));
    for name in ["TASKMAN_USER_ID", "TASKMAN_CERTS", "TASKMAN_UID_RANGE"] {
        shell.env_remove(name);
    }
    let ended = Started::spawn(shell, HostDir::new(), 3 * GUARD).end();
    assert!(ended.status.success(), "{ended:?}");
    let printed = |number: usize| fs::read_to_string(dir.path(&number.to_string())).unwrap();
    let known = |text: String| {
        let text = text.replace(&place.root().display().to_string(), PLACE);
        text.replace(&format!(":{}", port.number), ":50051")
    };
    (0..commands.len()).map(|number| known(printed(number))).collect()
}

/// Makes what is printed the same for every run, and knows the ids that were printed so far.
#[derive(Default)]
pub struct Stable(Vec<String>);

impl Stable {
    /// `word` for each word that differs, and one width for every column.
    pub fn text(&mut self, text: &str) -> String {
        let mut lines = String::new();
        for line in text.lines() {
            let (mut words, mut before) = (Vec::new(), "");
            for word in line.split(' ').filter(|word| !word.is_empty()) {
                words.push(known(word, before, &mut self.0));
                before = word;
            }
            lines += &(words.join(" ") + "\n");
        }
        lines
    }
}

/// A word, or what kind of word it is.
fn known(word: &str, before: &str, ids: &mut Vec<String>) -> String {
    let bare = word.trim_matches(|c: char| ",;:.'\"()".contains(c));
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let shaped = |word: &str, shape: &str| {
        word.len() >= shape.len()
            && shape.chars().zip(word.chars()).all(|(s, c)| if s == '0' { c.is_ascii_digit() } else { s == c })
    };
    let time = |word: &str| ["0000-00-00", "00:00:00"].iter().any(|shape| shaped(word, shape));
    if uuid::Uuid::parse_str(bare).is_ok() {
        let number = ids.iter().position(|id| id == bare).unwrap_or_else(|| {
            ids.push(bare.to_owned());
            ids.len() - 1
        });
        return word.replace(bare, &format!("ID{number}"));
    }
    let kind = if time(bare) {
        "TIME"
    } else if bare.len() >= 4 && bare.chars().all(|c| c == '-') {
        "----"
    } else if digits(bare) && (before == "·" || before.ends_with("s,")) {
        "SECONDS" // of the summary: `· 0.07 s, 0.05 s cpu, 64M memory ·`
    } else if bare.contains('.') && bare.strip_suffix('s').is_some_and(digits) {
        "DURATION" // 0.14s
    } else if (before == "cpu," || before.contains('.') && before.ends_with('s')) && bare.ends_with(['K', 'M', 'G']) {
        "SIZE" // of memory, which stands behind the time in both
    } else if digits(bare) && (before == "heard" || time(before)) {
        "NUMBER" // milliseconds, and the PID, which stands behind the time of the start
    } else if before == "serial" {
        "SERIAL"
    } else {
        return word.to_owned();
    };
    word.replace(bare, kind)
}

#[test]
fn what_differs_is_made_the_same_and_nothing_else() {
    let same = |a: &str, b: &str| Stable::default().text(a) == Stable::default().text(b);
    let [a, b] = ["eb751e8d-cc30-4833-93e9-33248a7cee99", "a7da14c7-b47a-4535-a263-5bb26e503002"];
    assert!(same(&format!("{a} {b}\n{a}"), &format!("{b} {a}\n{b}")), "another run's ids");
    assert!(!same(&format!("{a} {b}\n{a}"), &format!("{a} {b}\n{b}")), "one task has one id");
    assert!(same("ID  eb751e8d-cc30-4833-93e9-33248a7cee99", "ID   a7da14c7-b47a-4535-a263-5bb26e503002"));
    assert!(same("x · 0.07 s, 0.05 s cpu, 64M memory · y", "x · 12.1 s, 1.05 s cpu, 952K memory · y"));
    assert!(same("heard 12 ms ago", "heard 480 ms ago") && same("at 2026-01-02 03:04:05", "at 2027-11-12 13:14:15"));
    assert!(
        same("05:06:07  31675  running", "05:06:08  7  running")
            && same("a  0.14s  0.01s  756K", "a  9.14s  0.10s  1.1M")
    );
    assert!(!same("a timeout of 1s", "a timeout of 2s") && !same("PIDS  2", "PIDS  3"));
    assert!(!same("its limit is 64M", "its limit is 32M") && !same("exited with code 3", "exited with code 4"));
    assert!(!same("left 1 processes", "left 2 processes") && !same("6 checks", "5 checks"));
}

#[test]
fn the_first_hour_runs_as_written() {
    let written = fs::read_to_string(page()).unwrap();
    let pieces = pieces(&written);
    let commands = pieces.iter().filter_map(|piece| match piece {
        Piece::Command { text, .. } => Some(text.as_str()),
        Piece::Text(_) => None,
    });
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() > 20, "only {} commands were found", commands.len());
    let mut outputs = run(&commands, &HostDir::new()).into_iter();
    let (mut current, mut faults) = (String::new(), String::new());
    let (mut before, mut after) = (Stable::default(), Stable::default());
    for piece in &pieces {
        match piece {
            Piece::Text(text) => current += text,
            Piece::Command { line, text, printed } => {
                let now = outputs.next().unwrap();
                current += &format!("{PROMPT}{text}\n{now}");
                if before.text(printed) != after.text(&now) {
                    faults += &format!("line {line}: {text}\nprints now:\n{now}\n");
                }
            }
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        // All of one run: its times and ids belong together.
        fs::write(page(), current).unwrap();
        return;
    }
    assert!(faults.is_empty(), "docs/first-hour.md is not current (UPDATE_DOCS=1 writes it):\n{faults}");
}
