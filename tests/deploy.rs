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

/// The values of a setting in a unit, one after the other.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn the_units_fit_the_program_and_their_page_explains_them() {
    let (unit, page) = (read("deploy/systemd/taskman.service"), read("docs/systemd.md"));
    let config = taskman::config::Config::print_default();
    let default = |key: &str| {
        let line = config.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_else(|| panic!("no {key}")).trim_matches('"').to_owned()
    };
    let account = read("deploy/systemd/taskman.sysusers");
    assert!(account.contains(&format!("\nu taskman {} ", default("server_uid"))), "{account}");
    let state = default("state_dir");
    assert_eq!(settings(&unit, "StateDirectory"), [state.strip_prefix("/var/lib/").unwrap()]);
    assert!(read("deploy/systemd/taskman.tmpfiles").contains(&format!("\nd {state} 0711 root root -\n")));
    let audit = read("deploy/systemd/taskman-audit.service");
    assert!(
        audit.contains(&format!("ConditionPathExists={state}/instance"))
            && audit.contains(&format!("--state-dir {state} "))
    );

    let granted = settings(&unit, "CapabilityBoundingSet").join(" ");
    let granted: BTreeSet<&str> = granted.split(' ').collect();
    for (name, _, what) in taskman::doctor::CAPABILITIES {
        assert!(granted.contains(name), "{name}, to {what}, is not granted by the unit");
    }

    // Who may not lower the value of others cannot fix that of a task either, and it could take its own back.
    assert!(granted.contains("CAP_SYS_RESOURCE"), "a task could lower its oom_score_adj to OOMScoreAdjust");
    // A handler behind a pipe heeds a limit of 1 alone; and a task's own could not be set above 0.
    assert_eq!(settings(&unit, "LimitCORE"), ["1"]);

    // The launcher's bounds one after the other: recording, a lost server's tasks, the auditor's farewell.
    let seconds = |text: &str| text.trim_end_matches('s').parse::<u64>().unwrap();
    let shutdown = seconds(&default("shutdown"));
    assert!(
        unit.contains(&format!("stop.shutdown ({shutdown}s) and 29s"))
            && page.contains("`stop.shutdown` and 29 seconds")
    );
    assert!(seconds(settings(&unit, "TimeoutStopSec")[0]) > shutdown + 29);

    let (set, left_out) = unit.split_once("# Left out, and why:").unwrap();
    let named = |text: &str| {
        let is_setting = |word: &&str| word.len() > 3 && word.chars().skip(1).any(char::is_uppercase);
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words
            .filter(is_setting)
            .filter(|word| word.chars().next().unwrap().is_uppercase() && !word.contains('_'))
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let left_out: BTreeSet<String> = left_out
        .lines()
        .filter(|line| line.starts_with("#   "))
        .flat_map(named)
        .filter(|word| word.contains(|c: char| c.is_lowercase()))
        .collect();
    assert!(left_out.len() >= 15, "only {left_out:?} were found");
    for setting in &left_out {
        assert!(page.contains(&format!("`{setting}`")), "docs/systemd.md does not explain why {setting} is left out");
        assert!(settings(set, setting).is_empty(), "{setting} is set, and said to be left out");
    }
}
