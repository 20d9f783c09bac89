//! The man pages and completions that the package ships: every command has a page with what its help says, man(1) finds
//! no fault with any, and a shell completes with what is there.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
#![allow(clippy::disallowed_methods)] // runs man, bash, and the programs for their help

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "../examples/pages/page.rs"]
mod page;
#[path = "../examples/pages/share.rs"]
mod share;

const TASKMAN: &str = env!("CARGO_BIN_EXE_taskman");
const SERVER: &str = env!("CARGO_BIN_EXE_taskman-server");

struct Share {
    _directory: tempfile::TempDir,
    path: PathBuf,
    files: Vec<PathBuf>,
}

fn written() -> Share {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let files = share::write(&path, 86400).unwrap();
    Share { _directory: directory, path, files }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn help(program: &str, words: &[&str]) -> String {
    said(&Command::new(program).args(words).arg("--help").output().unwrap())
}

/// The commands below another one, as its help lists them.
fn below(words: &[&str]) -> Vec<String> {
    let help = help(TASKMAN, words);
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let names = list.lines().take_while(|line| !line.trim().is_empty()).filter(|line| line.starts_with("  "));
    let names = names.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every program and command, as words, with the section of its page.
fn commands() -> Vec<(Vec<String>, &'static str)> {
    let mut all = vec![(vec!["taskman".to_owned()], "1"), (vec!["taskman-server".to_owned()], "8")];
    for command in below(&[]) {
        let inner = below(&[&command]);
        all.push((vec!["taskman".into(), command.clone()], "1"));
        all.extend(inner.into_iter().map(|verb| (vec!["taskman".into(), command.clone(), verb], "1")));
    }
    assert!(all.len() >= 20, "only {all:?} were found");
    all
}

fn file_of(share: &Path, words: &[String], section: &str) -> PathBuf {
    share.join(format!("man/man{section}/{}.{section}", words.join("-")))
}

/// As a reader sees it, without line breaks of its own.
fn shown(page: &Path) -> String {
    // Wide, and without hyphens: an option must be found in one piece.
    let mut man = Command::new("man");
    man.env("MANWIDTH", "1000").env("LC_ALL", "C.UTF-8").args(["--no-hyphenation", "--no-justification", "-P", "cat"]);
    let output = man.arg("-l").arg(page).output().expect("man, of man-db");
    assert!(output.status.success(), "{}: {}", page.display(), said(&output));
    said(&output)
}

fn flags(help: &str) -> BTreeSet<String> {
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    options
        .filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_a_page_with_what_its_help_says() {
    let share = written();
    let mut faults = Vec::new();
    for (words, section) in commands() {
        let program = if words[0] == "taskman" { TASKMAN } else { SERVER };
        let help = help(program, &words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        let name = words.join("-");
        let page = file_of(&share.path, &words, section);
        if !page.exists() {
            faults.push(format!("{name} has no page"));
            continue;
        }
        let text = shown(&page);
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"];
        let missing = sections.iter().filter(|section| !text.contains(&format!("\n{section}\n")));
        faults.extend(missing.map(|section| format!("{name} has no {section}")));
        faults
            .extend(flags(&help).iter().filter(|flag| !text.contains(*flag)).map(|flag| format!("{name}: no {flag}")));
        let example = help.split("Example").nth(1).and_then(|text| text.lines().nth(1)).unwrap_or("no example").trim();
        if !text.contains(example) {
            faults.push(format!("{name}: {example:?} is not in its examples"));
        }
        let variables = help.split("[env: ").skip(1).filter_map(|text| text.split([']', '=']).next());
        let missing = variables.filter(|name| !text.contains(&format!("\n       {name}\n")));
        faults.extend(missing.map(|variable| format!("{name} does not explain {variable}")));
    }
    assert_eq!(faults, [""; 0]);
}

#[test]
fn man_finds_no_fault_with_any_page() {
    let share = written();
    let pages: Vec<_> = share.files.iter().filter(|file| file.starts_with(share.path.join("man"))).collect();
    assert_eq!(pages.len(), commands().len());
    for page in pages {
        // As Debian's lintian asks it.
        let mut man = Command::new("man");
        man.env("MANROFFSEQ", "").env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let output = man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(page).output();
        let output = output.expect("man, of man-db");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.is_empty(), "{}: {told}", page.display());
    }
}

#[test]
fn the_same_moment_gives_the_same_bytes_and_stands_on_the_page() {
    let (first, second) = (written(), written());
    let read =
        |share: &Share| share.files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<Vec<_>>();
    assert_eq!(read(&first), read(&second));
    let page = std::fs::read_to_string(first.path.join("man/man1/taskman.1")).unwrap();
    assert!(page.contains("\n.TH taskman 1 1970-01-02 \"taskman "), "{page}");
}

#[test]
fn bash_completes_commands_and_options() {
    let share = written();
    let completed = |program: &str, words: &str| {
        let script = share.path.join("bash-completion/completions").join(program);
        // As the shell itself calls it: the function that `complete -p` names, with command, word and the word before.
        let ask = format!(
            "set -eu; source {}; set +eu; set -- $(complete -p {program}); while [[ $1 != -F ]]; do shift; done
            COMP_WORDS=({program} {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            $2 {program} \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
        said(&output).trim().to_owned()
    };
    assert_eq!(completed("taskman", "get-s"), "get-status");
    assert_eq!(completed("taskman", "certs re"), "revoke renew");
    assert_eq!(completed("taskman", "run --io-w"), "--io-write-bps");
    assert_eq!(completed("taskman-server", "--print"), "--print-config");
}

#[test]
fn every_shell_has_a_script_for_either_program() {
    let share = written();
    for file in [
        "bash-completion/completions/taskman",
        "bash-completion/completions/taskman-server",
        "zsh/vendor-completions/_taskman",
        "zsh/vendor-completions/_taskman-server",
        "fish/vendor_completions.d/taskman.fish",
        "fish/vendor_completions.d/taskman-server.fish",
    ] {
        let text = std::fs::read_to_string(share.path.join(file)).unwrap();
        assert!(text.contains("taskman") && share.files.contains(&share.path.join(file)), "{file}");
    }
}
