//! What to run, parsed once; whoever holds a [`TaskSpec`] need not check it again.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{id::TaskId, limits::Limits, profile::Profile};

/// Variables a task always has; a request may replace their values but not [`TASK_ID_VARIABLE`]'s.
const TASK_ID_VARIABLE: &str = "TASKMAN_TASK_ID";
/// Where programs are looked for inside.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// The kernel's own bound for arguments and environment together is a quarter of the stack limit; stay below it.
const MAX_ARGS_BYTES: usize = 1 << 20;
/// What the kernel counts for an argument besides its text: the end of it, and a pointer to it.
const ARGUMENT: usize = 1 + size_of::<usize>();
/// No program reads more, and each is compared with all the others.
const MAX_VARIABLES: usize = 1024;

/// A request that cannot be meant, with the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{field}: {message}")]
pub struct SpecError {
    /// The field, named as in the request.
    pub field: Cow<'static, str>,
    /// What is wrong and what to do.
    pub message: String,
}

impl SpecError {
    /// A fault in `field`.
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field: Cow::Borrowed(field), message: message.into() }
    }
}

/// A host path shown read-only inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRo {
    /// Absolute path on the host; no component may be a symlink.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
}

/// As it is written in a request.
impl std::fmt::Display for BindRo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.source.display(), self.target.display())
    }
}

impl std::str::FromStr for BindRo {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (source, target) = text.split_once(':').unwrap_or((text, text));
        if target.contains(':') {
            let more = "has more than one colon; it is SRC or SRC:DST, and always read-only";
            return Err(SpecError::new("bind_ro", format!("{text:?} {more}")));
        }
        let bind = Self { source: plain_path("bind_ro", source)?, target: plain_path("bind_ro", target)? };
        // The host's proc and sys tell of everyone on it; the task's own proc, devices and root are part of its containment.
        if ["/proc", "/sys"].iter().any(|top| bind.source.starts_with(top)) {
            return Err(SpecError::new(
                "bind_ro",
                format!("{source:?} is the host's own; a task is not shown any of it"),
            ));
        }
        let reserved = ["/proc", "/dev", "/sys"].iter().any(|top| bind.target.starts_with(top));
        if reserved || bind.target == Path::new("/") {
            return Err(SpecError::new(
                "bind_ro",
                format!("{target:?} is the sandbox's own; choose another place inside"),
            ));
        }
        Ok(bind)
    }
}

/// What a sandbox executes. It can be built without knowing any of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program: a path inside the sandbox, or a name looked up in the environment's PATH.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory inside.
    pub workdir: PathBuf,
}

impl Command {
    /// The longest that a sandbox which stands ready is told, encoded: what a socket takes in one go, so that nobody waits for
    /// anybody.
    pub const LONGEST: usize = 32 << 10;

    /// As such a sandbox reads it: the length of a text, and the text. None if it is too long for that.
    pub fn orders(&self) -> Option<Vec<u8>> {
        let text = serde_json::to_vec(self).ok()?;
        (text.len() <= Self::LONGEST).then(|| [&(text.len() as u32).to_ne_bytes(), text.as_slice()].concat())
    }

    /// Where a bare program name is looked up.
    pub fn search_path(&self) -> &str {
        self.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path)
    }
}

/// A validated request.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    /// The task's id.
    pub id: TaskId,
    /// Program: a path inside the sandbox, or a name looked up in the task's PATH.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its limits.
    pub limits: Limits,
    /// Shape of the inside view.
    pub profile: Profile,
    /// Host name inside.
    pub hostname: String,
    /// Working directory inside.
    pub workdir: PathBuf,
    /// Host paths shown read-only.
    pub binds: Vec<BindRo>,
    /// Refuse to start when a limit or defence cannot be enforced here.
    pub strict: bool,
    /// A pipe of its own for standard error; otherwise both outputs share one, in their true order.
    pub split_output: bool,
    /// Who asked for it, for incident reports; `taskman run` has nobody to name.
    pub owner: Option<String>,
    env: Vec<(String, String)>,
}

impl TaskSpec {
    /// A task with the default limits.
    pub fn new<S: Into<String>>(command: &str, args: impl IntoIterator<Item = S>) -> Result<Self, SpecError> {
        let args: Vec<String> = args.into_iter().map(Into::into).collect();
        if command.is_empty() {
            return Err(SpecError::new("command", "is empty; give the program to run after --"));
        }
        if std::iter::once(command).chain(args.iter().map(String::as_str)).any(|arg| arg.contains('\0')) {
            return Err(SpecError::new("args", "contain a NUL byte, which no program can receive"));
        }
        if command.len() + args.iter().map(|arg| arg.len() + ARGUMENT).sum::<usize>() > MAX_ARGS_BYTES {
            return Err(SpecError::new(
                "args",
                format!(
                    "are longer than {MAX_ARGS_BYTES} bytes, with {ARGUMENT} for each; pass the data on standard input"
                ),
            ));
        }
        Ok(Self {
            id: TaskId::random(),
            command: command.to_owned(),
            args,
            limits: Limits::default(),
            profile: Profile::default(),
            hostname: "taskman".to_owned(),
            workdir: PathBuf::from("/task"),
            binds: Vec::new(),
            strict: true,
            split_output: true,
            owner: None,
            env: Vec::new(),
        })
    }

    /// Names the task, instead of a fresh random id.
    #[must_use]
    pub fn with_id(mut self, id: TaskId) -> Self {
        self.id = id;
        self
    }

    /// Replaces the limits.
    pub fn with_limits(mut self, limits: Limits) -> Result<Self, SpecError> {
        limits.validate()?;
        self.limits = limits;
        Ok(self)
    }

    /// Adds an environment variable, replacing a default of that name.
    pub fn with_env(mut self, name: &str, value: &str) -> Result<Self, SpecError> {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            // Not quoted: whoever puts NAME=value into the name would find the value in the audit log.
            return Err(SpecError::new("env", "holds what is no variable; write NAME=value, without NUL bytes"));
        }
        if name == TASK_ID_VARIABLE {
            return Err(SpecError::new("env", format!("{TASK_ID_VARIABLE} is set by taskman")));
        }
        self.env.retain(|(known, _)| known != name);
        if self.env.len() >= MAX_VARIABLES {
            return Err(SpecError::new("env", format!("has more than {MAX_VARIABLES} variables")));
        }
        self.env.push((name.to_owned(), value.to_owned()));
        if self.env.iter().map(|(n, v)| n.len() + v.len() + 2).sum::<usize>() > MAX_ARGS_BYTES {
            return Err(SpecError::new("env", format!("is longer than {MAX_ARGS_BYTES} bytes")));
        }
        Ok(self)
    }

    /// Sets the host name inside.
    pub fn with_hostname(mut self, hostname: &str) -> Result<Self, SpecError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if hostname.is_empty()
            || hostname.len() > 63
            || !hostname.chars().all(plain)
            || hostname.starts_with(['-', '.'])
        {
            return Err(SpecError::new("hostname", "must be 1 to 63 letters, digits, dots and dashes"));
        }
        self.hostname = hostname.to_owned();
        Ok(self)
    }

    /// Sets the working directory inside.
    pub fn with_workdir(mut self, workdir: &str) -> Result<Self, SpecError> {
        let workdir = plain_path("workdir", workdir)?;
        // /proc/self/fd/N would name whatever the launcher had open.
        if workdir.starts_with("/proc") {
            return Err(SpecError::new("workdir", "cannot lie in /proc"));
        }
        self.workdir = workdir;
        Ok(self)
    }

    /// The whole environment the task gets; nothing of the caller's is in it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let defaults = [
            ("PATH", DEFAULT_PATH),
            ("HOME", "/task"),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
            ("USER", "task"),
            (TASK_ID_VARIABLE, &self.id.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let asked = |name: &str| self.env.iter().any(|(known, _)| known == name);
        defaults.into_iter().filter(|(name, _)| !asked(name)).chain(self.env.iter().cloned()).collect()
    }

    /// What is executed in the sandbox.
    pub fn command(&self) -> Command {
        Command {
            program: self.command.clone(),
            args: self.args.clone(),
            env: self.environment(),
            workdir: self.workdir.clone(),
        }
    }
}

/// An absolute path without `..`, so that what is written is what is meant.
fn plain_path(field: &'static str, text: &str) -> Result<PathBuf, SpecError> {
    let path = Path::new(text);
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || text.contains('\0') {
        return Err(SpecError::new(field, format!("{text:?} must be an absolute path without '..'")));
    }
    Ok(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_cannot_be_meant_name_their_field() {
        let field = |result: Result<TaskSpec, SpecError>| result.unwrap_err().field;
        let ok = || TaskSpec::new("true", [""; 0]).unwrap();
        assert_eq!(field(TaskSpec::new("", [""; 0])), "command");
        assert_eq!(field(TaskSpec::new("x", ["a\0b"])), "args");
        assert_eq!(field(TaskSpec::new("x", ["y".repeat(2 << 20)])), "args");
        assert_eq!(field(TaskSpec::new("x", vec![""; 120_000])), "args");
        assert_eq!(field(ok().with_env("A=B", "c")), "env");
        assert_eq!(field(ok().with_env("TASKMAN_TASK_ID", "c")), "env");
        assert_eq!(field(ok().with_hostname("a b")), "hostname");
        assert_eq!(field(ok().with_workdir("/proc/self/fd/3")), "workdir");
        assert_eq!(field(ok().with_workdir("/task/../etc")), "workdir");
        assert_eq!(field(ok().with_workdir("task")), "workdir");
    }

    #[test]
    fn binds_cannot_cover_what_contains_the_task() {
        assert_eq!("/opt/x:/usr/x".parse::<BindRo>().unwrap().target, Path::new("/usr/x"));
        assert_eq!("/opt/x".parse::<BindRo>().unwrap().target, Path::new("/opt/x"));
        for bad in [
            "/opt:/",
            "/opt:/a:ro",
            "/opt:/proc",
            "/opt:/dev/null",
            "/opt:/a/../proc",
            "opt",
            "/opt:",
            "",
            "/proc:/p",
            "/sys/class:/c",
        ] {
            assert!(bad.parse::<BindRo>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_second_colon_is_told_the_form_that_is_meant() {
        let refused = "/opt:/a:ro".parse::<BindRo>().unwrap_err();
        assert_eq!(
            refused.to_string(),
            r#"bind_ro: "/opt:/a:ro" has more than one colon; it is SRC or SRC:DST, and always read-only"#
        );
    }

    #[test]
    fn the_environment_is_the_documented_one_and_the_requests() {
        let spec =
            TaskSpec::new("true", [""; 0]).unwrap().with_env("LANG", "de_DE").unwrap().with_env("A", "1").unwrap();
        let names: Vec<_> = spec.environment().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["PATH", "HOME", "TERM", "USER", "TASKMAN_TASK_ID", "LANG", "A"]);
    }
}
