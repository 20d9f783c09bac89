//! What operators load into Prometheus and Grafana asks for metrics that exist, and leads to pages that exist. Whether the
//! rules are sound and fire is promtool's to say: `scripts/test deploy`.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every word that names a metric of ours. A histogram's parts are named after it.
fn metrics(text: &str) -> BTreeSet<String> {
    let words =
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("taskman_"));
    let part = |word: &str| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part));
        family.unwrap_or(word).to_owned()
    };
    words.map(part).collect()
}

/// As the code names them, in quotes.
fn existing() -> BTreeSet<String> {
    let code = read("src/server/metrics/mod.rs");
    let code = code.split("mod tests").next().unwrap();
    let existing: BTreeSet<String> =
        code.split('"').filter(|text| metrics(text).contains(*text)).map(str::to_owned).collect();
    assert!(existing.len() >= 15, "only {existing:?} were found");
    existing
}

#[test]
fn alerts_their_tests_and_the_dashboard_name_metrics_that_exist() {
    let existing = existing();
    for file in ["deploy/alerts.yml", "deploy/alerts_test.yml", "deploy/grafana-dashboard.json"] {
        let named = metrics(&read(file));
        assert!(named.len() >= 5, "only {named:?} in {file}");
        assert_eq!(named.difference(&existing).collect::<Vec<_>>(), [""; 0], "{file} names what does not exist");
    }
}

#[test]
fn every_metric_is_documented_and_shown() {
    let existing = existing();
    assert_eq!(metrics(&read("docs/service.md")), existing, "the table of docs/service.md");
    assert_eq!(metrics(&read("deploy/grafana-dashboard.json")), existing, "the panels of the dashboard");
}

#[test]
fn every_alert_has_a_severity_a_test_and_a_runbook_that_exists() {
    let (alerts, tests) = (read("deploy/alerts.yml"), read("deploy/alerts_test.yml"));
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 8, "only {} alerts were found", rules.len());
    for rule in rules {
        let name = rule.lines().next().unwrap();
        let value = |key: &str| rule.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap_or_default().trim();
        assert!(["critical", "warning"].contains(&value("severity:")), "{name} has no severity");
        assert!(tests.contains(name), "{name} is not made to fire by deploy/alerts_test.yml");
        let runbook = value("runbook:");
        assert!(runbook.starts_with("runbooks/") && !read(runbook).is_empty(), "{name}: {runbook:?} is no runbook");
    }
}
