//! What the tests of `taskman health` and `taskman audit` share.

use serde_json::{Value, json};

use super::{Ended, Server};

impl Server {
    /// Whose tasks have uids of their own, so that no other test's auditor looks at what is planted here.
    #[track_caller]
    pub fn of_uids(first: u32) -> Self {
        Self::configured(&format!("uid_range = \"{first}:1000\"\n"))
    }

    /// `taskman words…` as root on the worker, who need not know the server's configuration. The environment names a user and a server
    /// all the same: --state-dir wins.
    #[track_caller]
    pub fn here(&self, words: &[&str]) -> Ended {
        let state = self.state();
        self.taskman("nobody", &[words, &["--state-dir", state.to_str().unwrap()]].concat())
    }

    /// The journal's lines in the audit log: number, verb, who, outcome and reason.
    pub fn journalled(&self) -> Vec<Value> {
        let lines = self.audit().into_iter().map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
        let lines = lines.filter(|line| line.get("journal").is_some());
        lines
            .map(|line| {
                assert_eq!(line["peer"], Value::Null, "{line}");
                json!([line["journal"], line["verb"], line["identity"], line["outcome"], line["reason"]])
            })
            .collect()
    }
}

impl Ended {
    /// Standard output as JSON, after an end with this code.
    #[track_caller]
    pub fn json(&self, code: i32) -> Value {
        serde_json::from_str(&self.said(code)).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Standard output, after an end with this code.
    #[track_caller]
    pub fn said(&self, code: i32) -> String {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self.text()
    }
}
