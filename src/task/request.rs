//! What to run, as a client asks for it: plain data that crosses the wire as it is. Server and launcher both check it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::id::TaskId;
use super::limits::Limits;
use super::name;
use super::spec::{BindRo, SpecError, TaskSpec};

/// A task to start, unchecked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // named as in proto/task.proto
pub struct TaskRequest {
    pub task: TaskId,
    /// Written on the task's cgroup, for incident reports; nothing is decided by it. Empty if there is nobody to name.
    pub owner: String,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub working_dir: Option<String>,
    pub hostname: Option<String>,
    /// A profile of the server's configuration; without one nobody looks it up.
    pub profile: String,
    pub limits: Limits,
    pub bind_ro: Vec<String>,
    pub split_output: bool,
}

impl TaskRequest {
    /// A task of nobody's, with the default limits.
    pub fn new<S: Into<String>>(command: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self {
            task: TaskId::random(),
            owner: String::new(),
            command: command.to_owned(),
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            working_dir: None,
            hostname: None,
            profile: "default".to_owned(),
            limits: Limits::default(),
            bind_ro: Vec::new(),
            split_output: false,
        }
    }

    /// The task, if everything in it can be meant.
    pub fn validate(&self) -> Result<TaskSpec, SpecError> {
        let mut spec = TaskSpec::new(&self.command, self.args.iter().cloned())?
            .with_id(self.task)
            .with_limits(self.limits.clone())?;
        for (name, value) in &self.env {
            spec = spec.with_env(name, value)?;
        }
        if let Some(directory) = &self.working_dir {
            spec = spec.with_workdir(directory)?;
        }
        if let Some(hostname) = &self.hostname {
            spec = spec.with_hostname(hostname)?;
        }
        spec.binds = self.bind_ro.iter().map(|bind| bind.parse()).collect::<Result<Vec<BindRo>, _>>()?;
        spec.split_output = self.split_output;
        if !self.owner.is_empty() {
            // It ends up in incident files and on terminals.
            name::check(&self.owner).map_err(|why| SpecError::new("owner", why))?;
            spec.owner = Some(self.owner.clone());
        }
        Ok(spec)
    }
}
