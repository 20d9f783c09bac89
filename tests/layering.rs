//! The rules of the tree that no compiler keeps: who may name whom, where `unsafe` lives, how long a file may grow, and
//! that the documents name tests and flags that exist.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
#![allow(clippy::disallowed_methods)] // runs `taskman run --help`

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "adversarial/ids.rs"]
mod ids;

const LONGEST_FILE: usize = 500;
/// Written by tests/proto.rs, and not for people.
const GENERATED: &str = "src/proto/task_manager.rs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`, with its path from the root of the tree. A folder that does not exist has none.
fn rust_files(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && from_root(&path) != GENERATED {
                found.push((from_root(&path), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn from_root(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// The words of a source text that are code: comments, strings and character literals are left out.
fn words(source: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let mut rest = source;
    let mut line = 1;
    let mut skip = |rest: &mut &str, length: usize| {
        let (taken, left) = rest.split_at(length);
        line += taken.matches('\n').count();
        *rest = left;
        line
    };
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string_length(rest),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#") => raw_string_length(rest),
            '\'' => character_length(rest),
            c if c.is_alphanumeric() || c == '_' => {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let word = rest[..length].to_owned();
                let at = skip(&mut rest, length);
                words.push((at, word));
                // A string with a prefix of letters (b"", c"") is a word and then a string: nothing is lost.
                continue;
            }
            c => c.len_utf8(),
        };
        skip(&mut rest, length);
    }
    words
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 1 + hashes; // a raw identifier
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let from = 2 + hashes;
    text[from..].find(&close).map_or(text.len(), |end| from + end + close.len())
}

/// A character literal, or the one byte of a lifetime's apostrophe.
fn character_length(text: &str) -> usize {
    if text.starts_with("'\\") {
        return text[3..].find('\'').map_or(text.len(), |end| end + 4);
    }
    match text.chars().nth(2) {
        Some('\'') => 2 + text[1..].chars().next().map_or(0, char::len_utf8),
        _ => 1,
    }
}

/// `file:line: word` for each use of one of `names` in code.
fn uses(files: &[(String, String)], names: &[&str]) -> Vec<String> {
    let of_file = |(path, source): &(String, String)| {
        let named = words(source).into_iter().filter(|(_, word)| names.contains(&word.as_str()));
        named.map(|(line, word)| format!("{path}:{line}: {word}")).collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
}

#[test]
fn words_are_found_in_code_and_nowhere_else() {
    let source = "// unsafe\n/* unsafe */ let s = \"unsafe \\\" unsafe\"; let r = r#\"unsafe \" \"#; let c = '\"'; let e = '\\'';\n\
        fn f<'a>(x: &'a str) { unsafe { g(b\"unsafe\") } }\n#[allow(unsafe_code)]";
    let seen: Vec<_> = words(source).into_iter().filter(|(_, word)| word.starts_with("unsafe")).collect();
    assert_eq!(seen, [(3, "unsafe".to_owned()), (4, "unsafe_code".to_owned())]);
}

#[test]
fn the_privileged_side_has_no_async_runtime() {
    for folder in ["src/launch", "src/sandbox", "src/sys", "src/cgroup", "src/wire", "src/config", "src/task"] {
        let files = rust_files(folder);
        assert!(!files.is_empty(), "{folder} is empty");
        assert_eq!(uses(&files, &["tokio", "tonic", "async", "await"]), [""; 0]);
    }
}

#[test]
fn a_task_without_a_server_has_no_async_runtime() {
    let alone = ["run", "doctor", "limits", "streams", "summary"].map(|name| format!("src/cli/{name}.rs"));
    let files: Vec<_> = rust_files("src/cli").into_iter().filter(|(path, _)| alone.contains(path)).collect();
    assert_eq!(files.len(), alone.len());
    assert_eq!(uses(&files, &["tokio", "tonic", "async", "await", "connection"]), [""; 0]);
}

#[test]
fn the_launcher_and_sandbox_know_nothing_of_the_command_line() {
    for folder in ["src/launch", "src/sandbox", "src/sys", "src/cgroup", "src/task"] {
        assert_eq!(uses(&rust_files(folder), &["clap", "cli"]), [""; 0]);
    }
}

#[test]
fn data_does_not_touch_the_kernel() {
    assert_eq!(uses(&rust_files("src/task"), &["nix", "libc", "launch", "sandbox", "cgroup", "sys"]), [""; 0]);
}

#[test]
fn unsafe_code_lives_in_sys_alone() {
    let outside: Vec<_> = rust_files("src").into_iter().filter(|(path, _)| !path.starts_with("src/sys/")).collect();
    assert!(outside.len() > 10, "the tree was not found");
    // `#![deny(unsafe_code)]` at the root is the one place outside that may name the lint.
    let found: Vec<_> = uses(&outside, &["unsafe", "unsafe_code"])
        .into_iter()
        .filter(|found| !found.starts_with("src/lib.rs:"))
        .collect();
    assert_eq!(found, [""; 0]);
    let inside = uses(&rust_files("src/sys"), &["unsafe"]);
    assert!(!inside.is_empty(), "the search found no unsafe even in src/sys");
}

#[test]
fn the_auditor_trusts_nobodys_bookkeeping() {
    assert_eq!(uses(&rust_files("src/audit"), &["sandbox", "launch", "Launcher"]), [""; 0]);
}

#[test]
fn no_file_outgrows_its_reason() {
    let long = |(path, source): &(String, String)| {
        let lines = source.lines().count();
        (lines > LONGEST_FILE).then(|| format!("{path}: {lines} lines, at most {LONGEST_FILE}"))
    };
    assert_eq!(rust_files("src").iter().filter_map(long).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_module_opens_with_its_reason() {
    let bare = |(path, source): &(String, String)| (!source.starts_with("//!")).then(|| path.clone());
    let files: Vec<_> = rust_files("src").into_iter().chain(rust_files("tests")).collect();
    assert_eq!(files.iter().filter_map(bare).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn no_test_is_switched_off() {
    let files: Vec<_> = rust_files("src").into_iter().chain(rust_files("tests")).collect();
    let off = |(path, source): &(String, String)| {
        let switched = |line: &&str| line.starts_with(concat!("#[", "ignore")) || line.starts_with("#[should_panic]");
        source.lines().map(str::trim_start).find(switched).map(|line| format!("{path}: {line}"))
    };
    assert_eq!(files.iter().filter_map(off).collect::<Vec<_>>(), [""; 0]);
}

/// The scripts, what the package runs, and what a container begins with.
fn scripts() -> Vec<(String, String)> {
    let folders = ["scripts", "scripts/testing", "deploy/debian", "deploy/containers"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut files: Vec<_> = files.map(|path| (from_root(&path), fs::read_to_string(&path).unwrap())).collect();
    files.sort();
    files
}

/// `NAME: error: what is wrong`. A warning says so in the same place.
fn is_error(text: &str) -> bool {
    let (name, rest) = text.split_once(": ").unwrap_or((text, ""));
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    plain && (rest.starts_with("error: ") || rest.starts_with("warning: "))
}

#[test]
fn every_error_begins_with_a_name_and_says_that_it_is_one() {
    assert!(is_error("bench: error: no") && is_error("taskman: warning: x"));
    assert!(!is_error("bench: no") && !is_error("scripts/bench: error: no") && !is_error("usage: error"));
    // What scripts/bench says on its way, whole lines that are passed on, and an option of cargo's.
    let notices = ["bench: $*", "%s", "${flags"];
    let mut seen = 0;
    let mut faults = Vec::new();
    for (path, text) in scripts() {
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let to_stderr = line.contains(">&2") && (line.contains("echo ") || line.contains("printf "));
            let quoted = |after: &str| {
                let (_, rest) = line.split_once(after)?;
                rest.strip_prefix(['"', '\'']).map(str::to_owned)
            };
            let said = match to_stderr {
                true => quoted("echo ").or_else(|| quoted("printf ")),
                false => quoted("sys.exit(").or_else(|| quoted("what=")),
            };
            let Some(said) = said else { continue };
            seen += 1;
            if !is_error(&said) && !notices.iter().any(|notice| said.starts_with(notice)) {
                faults.push(format!("{path}: {line}"));
            }
        }
        // The shell would begin it with the script's path and a line number.
        let parameters = text.lines().filter(|line| line.contains(":?")).map(|line| format!("{path}: {line}"));
        faults.extend(parameters);
    }
    assert!(seen > 10, "only {seen} lines were found");
    let said = |(path, source): &(String, String)| {
        let lines = source.split("eprintln!(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
        let lines = lines.filter(|text| text.split(' ').next().is_some_and(|word| word.ends_with(':')));
        lines.filter(|text| !is_error(text)).map(|text| format!("{path}: {text:.60}")).collect::<Vec<_>>()
    };
    faults.extend(rust_files("src").iter().chain(&rust_files("examples")).flat_map(said));
    assert_eq!(faults, [""; 0]);
}

/// A numbered promise: its number and its text, over all its lines.
fn promises(specification: &str) -> Vec<(String, String)> {
    let mut promises: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in specification.lines() {
        let bare = line.trim_start_matches([' ', '-', '*', '|', '>']);
        let number: String = bare.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        if number.contains('.') && number.starts_with(|c: char| c.is_ascii_digit()) {
            promises.push((number.trim_end_matches('.').to_owned(), line.to_owned()));
            open = true;
        } else if line.trim().is_empty() || line.starts_with('#') {
            open = false;
        } else if open {
            let (_, text) = promises.last_mut().unwrap();
            text.push('\n');
            text.push_str(line);
        }
    }
    promises
}

/// The tests a promise names: what stands in backticks as `tests/…::name` or `src/…::name`.
fn named_tests(promise: &str) -> Vec<(PathBuf, String)> {
    let quoted = promise.split('`').skip(1).step_by(2);
    let tests = quoted.filter(|text| text.starts_with("tests/") || text.starts_with("src/"));
    tests
        .filter_map(|text| text.split_once("::"))
        .map(|(file, name)| (file.into(), name.rsplit("::").next().unwrap().to_owned()))
        .collect()
}

/// Whether a file (or any below a folder) holds a test function or a case of that name.
fn holds(place: &Path, name: &str) -> bool {
    let place = root().join(place);
    let files = if place.is_dir() {
        rust_files(&from_root(&place))
    } else {
        fs::read_to_string(&place).map(|text| (String::new(), text)).into_iter().collect()
    };
    files.iter().any(|(_, text)| text.contains(&format!("fn {name}(")) || text.contains(&format!("\"{name}\"")))
}

#[test]
fn promises_are_read_as_they_are_written() {
    let text = "# 1. Heading\n\n1.1 One, `tests/a.rs::x`\n    and `src/b.rs::tests::y`.\n- **2.3** Two.\n\n3.1. Three\nplain 4.4\n";
    let seen = promises(text);
    assert_eq!(seen.iter().map(|(number, _)| number.as_str()).collect::<Vec<_>>(), ["1.1", "2.3", "3.1"]);
    assert_eq!(named_tests(&seen[0].1), [("tests/a.rs".into(), "x".into()), ("src/b.rs".into(), "y".into())]);
    assert!(holds(Path::new("tests/layering.rs"), "promises_are_read_as_they_are_written"));
    assert!(!holds(Path::new("tests/layering.rs"), &["no", "such", "test"].join("_")));
}

#[test]
fn every_promise_names_tests_that_exist() {
    let specification = fs::read_to_string(root().join("SPECIFICATION.md")).expect("SPECIFICATION.md");
    let promises = promises(&specification);
    assert!(promises.len() >= 10, "only {} numbered promises were found", promises.len());
    let mut faults = Vec::new();
    let mut numbers = BTreeSet::new();
    for (number, text) in &promises {
        if !numbers.insert(number) {
            faults.push(format!("{number} stands twice"));
        }
        let tests = named_tests(text);
        if tests.is_empty() {
            faults.push(format!("{number} names no test: {text}"));
        }
        // What `scripts/test` runs of tests/vm.
        let is_deep = |(file, _): &(PathBuf, String)| file.starts_with("tests/vm") && !file.ends_with("slice.rs");
        if tests.iter().all(is_deep) && !text.contains("**(deep)**") {
            faults.push(format!("{number} is checked by the deep run alone, and is not marked **(deep)**"));
        }
        let missing = tests.iter().filter(|(file, name)| !holds(file, name));
        faults.extend(
            missing.map(|(file, name)| format!("{number} names {}::{name}, which does not exist", file.display())),
        );
    }
    assert_eq!(faults, [""; 0]);
}

#[test]
fn every_tier_1_case_of_containment_is_shown_where_the_list_says() {
    let suite: String = rust_files("tests/adversarial").into_iter().map(|(_, text)| text).collect();
    let in_suite = |id: &str| suite.contains(&format!("id: \"{id}\","));
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (id, tested) in ids::TIER_1 {
        if !seen.insert(id) {
            faults.push(format!("{id} stands twice"));
        }
        match tested {
            ids::Tested::Suite if !in_suite(id) => faults.push(format!("{id} is no case of the suite")),
            ids::Tested::By(tests) => {
                let exists =
                    |test: &str| test.split_once("::").is_some_and(|(file, name)| holds(Path::new(file), name));
                faults.extend(tests.iter().filter(|test| !exists(test)).map(|test| format!("{id}: no {test}")));
            }
            _ => {}
        }
    }
    assert_eq!(faults, [""; 0]);
}

/// The other way round: a case that nobody lists can be removed unnoticed.
#[test]
fn every_tier_1_case_of_the_suite_is_in_the_list() {
    let listed: BTreeSet<&str> = ids::TIER_1.iter().map(|(id, _)| *id).collect();
    let suite = rust_files("tests/adversarial");
    let cases = suite.iter().flat_map(|(_, text)| text.split("id: \"").skip(1));
    let tier_1 = cases.filter_map(|case| {
        let (id, rest) = case.split_once("\",")?;
        rest.trim_start().starts_with("tier: 1,").then_some(id)
    });
    // The example of a case in the harness.
    let unlisted: Vec<&str> = tier_1.filter(|id| !listed.contains(id) && *id != "K99").collect();
    assert_eq!(unlisted, [""; 0]);
}

/// What stands between backticks on the lines of a page that name kinds as R30 does, in order.
fn kinds_in(page: &str) -> Vec<&str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("As R30 names them: "));
    let mut kinds: Vec<&str> = lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    kinds.sort_unstable();
    kinds
}

/// The first string of each row of a table, in order.
fn first_strings<'a>(source: &'a str, from: &str, to: &str, row: &str) -> Vec<&'a str> {
    let table = source.split_once(from).and_then(|(_, table)| Some(table.split_once(to)?.0)).unwrap();
    let mut found: Vec<&str> = table.split(row).skip(1).filter_map(|row| row.split('"').next()).collect();
    found.sort_unstable();
    found
}

#[test]
fn the_page_of_kernel_objects_has_the_kinds_that_are_measured() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (payload, case) =
        (read("tests/adversarial/payloads/r_objects.c"), read("tests/adversarial/resource/objects.rs"));
    let (page, security) = (read("docs/kernel-objects.md"), read("SECURITY.md"));
    let kinds = first_strings(&payload, "kinds[] = {", "\n};", "{ \"");
    assert_eq!(kinds_in(&page), kinds, "each kind once");
    let known = first_strings(&case, "const KNOWN: ", "];", "(\"");
    let charged_for_less = page.split("\n## ").find(|part| part.starts_with("Charged for less")).unwrap();
    assert_eq!(kinds_in(charged_for_less), known, "what R30 lets pass");
    let count = format!("{} kinds", kinds.len());
    assert!(page.contains(&count) && security.contains(&count), "{count}");
}

/// The options in a program's help.
fn flags(program: &str, args: &[&str]) -> BTreeSet<String> {
    let help = Command::new(program).args(args).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    options
        .filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")))
        .map(|flag| flag.trim_end_matches("...").to_owned())
        .filter(|flag| !["--help", "--version"].contains(&flag.as_str()))
        .collect()
}

fn not_mentioned(flags: &BTreeSet<String>, pages: &[&str]) -> Vec<String> {
    let text: String = pages.iter().map(|page| fs::read_to_string(root().join(page)).unwrap()).collect();
    flags.iter().filter(|flag| !mentions(&text, flag)).cloned().collect()
}

#[test]
fn every_flag_of_run_stands_on_its_page() {
    let flags = flags(env!("CARGO_BIN_EXE_taskman"), &["run"]);
    assert!(flags.len() >= 20, "only {flags:?} were found");
    assert_eq!(not_mentioned(&flags, &["docs/run.md"]), [""; 0], "docs/run.md does not mention them");
}

#[test]
fn every_flag_of_the_service_stands_on_its_page() {
    let mut all = flags(env!("CARGO_BIN_EXE_taskman-server"), &[]);
    for command in ["start", "get-status", "stop", "stream", "list", "wait", "signal", "health", "completions"] {
        all.extend(flags(env!("CARGO_BIN_EXE_taskman"), &[command]));
    }
    for command in ["init", "issue", "revoke", "renew", "list"] {
        all.extend(flags(env!("CARGO_BIN_EXE_taskman"), &["certs", command]));
    }
    for command in ["run", "findings", "show"] {
        all.extend(flags(env!("CARGO_BIN_EXE_taskman"), &["audit", command]));
    }
    assert!(all.len() >= 40, "only {all:?} were found");
    assert_eq!(
        not_mentioned(&all, &["docs/service.md", "docs/run.md"]),
        [""; 0],
        "docs/service.md does not mention them"
    );
}

/// `--cpus` is not mentioned by `--cpus-max`.
fn mentions(text: &str, flag: &str) -> bool {
    text.match_indices(flag)
        .any(|(at, _)| !text[at + flag.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '-'))
}
