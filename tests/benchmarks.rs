//! What a full run of scripts/bench wrote belongs together: the page, its plots and the baseline are of one run, everybody who
//! could take part is named, and the plots need nothing from elsewhere.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
#![allow(clippy::disallowed_methods)] // runs scripts/bench for its help

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page() -> String {
    read("docs/benchmarks.md")
}

fn baseline() -> serde_json::Value {
    serde_json::from_str(&read("benches/baseline.json")).unwrap()
}

/// The text below a heading of the page, up to the next.
fn part<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no part {heading:?}"));
    rest.split("\n## ").next().unwrap()
}

/// The rows of the first table in a text, its head and rule left out.
fn rows(part: &str) -> Vec<Vec<&str>> {
    let lines = part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    lines.skip(2).map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The names of the contestants, and the label of each on the page: the script's, up to the version in it.
fn contestants() -> BTreeMap<String, String> {
    let script = read("benches/start/contestants.sh");
    let names = script.lines().find_map(|line| line.strip_prefix("names=(")).unwrap().trim_end_matches(')');
    let label = |name: &str| {
        let line = script.lines().find_map(|line| line.strip_prefix(&format!("label[{name}]="))).unwrap();
        line.trim_matches(['\'', '"']).split(" $").next().unwrap().to_owned()
    };
    names.split(' ').map(|name| (name.to_owned(), label(name))).collect()
}

#[test]
fn the_page_is_of_a_full_run_and_of_the_same_as_the_baseline() {
    let (page, baseline) = (page(), baseline());
    assert!(page.contains("Written by `scripts/bench --full`; do not edit."), "another kind of run wrote it");
    let (date, commit) = (baseline["date"].as_str().unwrap(), baseline["commit"].as_str().unwrap());
    assert!(page.contains(&format!("{date}, commit {commit};")), "the baseline is of {date}, commit {commit}");
    for heading in
        ["Wanted", "One start", "To the first instruction", "Many at once", "Over the service", "Live tasks", "Output"]
    {
        assert!(!rows(part(&page, heading)).is_empty(), "{heading} has no numbers");
    }
}

#[test]
fn whoever_could_take_part_has_numbers_or_a_reason() {
    let page = page();
    let start = part(&page, "One start");
    let rows = rows(start);
    for (name, label) in contestants() {
        let taken = rows.iter().any(|row| row[0].starts_with(&label));
        let reason = start
            .lines()
            .any(|line| line.strip_prefix(&format!("- **{name}**: ")).is_some_and(|reason| reason.len() > 10));
        assert!(taken != reason, "{name}: has numbers: {taken}; has a reason why not: {reason}");
        let apart = ["plain", "taskman"].contains(&name.as_str());
        let lacks = start.lines().any(|line| line.starts_with(&format!("- **{label}")));
        assert!(!taken || apart || lacks, "what {name} does not do is not said");
    }
}

#[test]
fn the_baselines_ratios_are_those_of_the_page() {
    let (page, baseline) = (page(), baseline());
    let ratios = baseline["ratios"]["taskman run"].as_object().unwrap();
    let labels = contestants();
    let rows = rows(part(&page, "One start"));
    for (name, ratio) in ratios {
        let row = rows.iter().find(|row| row[0].starts_with(&labels[name])).unwrap();
        let shown: f64 = row[5].parse().unwrap();
        let kept = ratio.as_f64().unwrap();
        assert!((shown - kept).abs() < 0.01, "{name}: the page has {shown}, the baseline {kept}");
    }
    assert_eq!(ratios.len(), rows.len() - 1, "everybody on the page but taskman itself has a ratio in the baseline");
}

#[test]
fn every_plot_is_shown_and_stands_by_itself() {
    let page = page();
    let named: BTreeSet<&str> =
        page.split("](benchmarks/").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    let entries = fs::read_dir(root().join("docs/benchmarks")).unwrap();
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let there: BTreeSet<&str> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(named, there, "named on the page, and in docs/benchmarks/");
    assert!(named.len() >= 5, "only {named:?}");
    for path in &files {
        let svg = fs::read_to_string(path).unwrap();
        let outside = svg.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http") && !outside.contains("href"), "{} needs something else", path.display());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{} has a place that is no number", path.display());
        assert!(svg.contains("prefers-color-scheme: dark"), "{} cannot be read in the dark", path.display());
    }
}

#[test]
fn the_documents_name_only_options_that_the_script_has() {
    let help = Command::new(root().join("scripts/bench")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for path in ["docs/performance.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/benchmarks.md", "scripts/test"] {
        let text = read(path);
        // Those of `scripts/bench service` are the program's own.
        for rest in text.split("scripts/bench --").skip(1) {
            let option: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            assert!(help.contains(&format!("--{option}")), "{path} names --{option}, which scripts/bench has not");
        }
    }
}
