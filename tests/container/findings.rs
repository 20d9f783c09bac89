//! What `taskman doctor` says in a container.

use serde_json::Value;

use crate::support::Ended;

/// The examination that a script printed as JSON.
pub struct Examination(Value);

impl Examination {
    /// From `taskman doctor --output json`.
    #[track_caller]
    pub fn of(ended: &Ended) -> Self {
        let from = ended.stdout.iter().position(|byte| *byte == b'{').unwrap_or(0);
        let mut values = serde_json::Deserializer::from_slice(&ended.stdout[from..]).into_iter::<Value>();
        Self(values.next().and_then(Result::ok).unwrap_or_else(|| panic!("no examination: {ended:?}")))
    }

    pub fn starts(&self) -> bool {
        self.0["strict_would_start"] == true
    }

    /// The finding of that name.
    #[track_caller]
    pub fn finding(&self, name: &str) -> &Value {
        let found = self.0["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name);
        found.unwrap_or_else(|| panic!("no finding {name}: {:#}", self.0))
    }

    /// Names of those with this status.
    pub fn with_status(&self, status: &str) -> Vec<&str> {
        let all = self.0["findings"].as_array().unwrap().iter().filter(|finding| finding["status"] == status);
        all.map(|finding| finding["name"].as_str().unwrap()).collect()
    }

    /// Those for which strict mode refuses.
    pub fn blocking(&self) -> Vec<&Value> {
        self.0["findings"].as_array().unwrap().iter().filter(|finding| finding["blocks"] == true).collect()
    }
}

/// The words of a finding, each of which a refusal repeats.
pub fn words(finding: &Value) -> [&str; 4] {
    ["name", "seen", "why", "fix"].map(|part| finding[part].as_str().unwrap())
}
