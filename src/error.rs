//! Errors a person can act on: which call, on what, why, and what to try.

use std::borrow::Cow;
use std::fmt;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::task::spec::SpecError;

/// A failed system call: the call, the object it was made on, the errno and, where there is one, a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysError {
    /// The call, as its manual page names it.
    pub call: Cow<'static, str>,
    /// What the call was made on: a path, a task, a process.
    pub object: String,
    /// The kernel's answer.
    pub errno: i32,
    /// What to try.
    pub hint: Option<Cow<'static, str>>,
}

impl SysError {
    /// A failure of `call` on `object`.
    pub fn new(call: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self { call: Cow::Borrowed(call), object: object.into(), errno: errno as i32, hint: None }
    }

    /// The same error, with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The errno as a type.
    pub fn errno(&self) -> Errno {
        Errno::from_raw(self.errno)
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = self.errno();
        write!(f, "{} {}: {errno:?}, {}", self.call, self.object, errno.desc().to_lowercase())?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SysError {}

/// Turns an errno or an I/O error into a [`SysError`] that names what was attempted.
pub trait Context<T> {
    /// Adds the call and its object.
    fn on(self, call: &'static str, object: impl Into<String>) -> Result<T, SysError>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn on(self, call: &'static str, object: impl Into<String>) -> Result<T, SysError> {
        self.map_err(|errno| SysError::new(call, object, errno))
    }
}

impl<T> Context<T> for std::io::Result<T> {
    fn on(self, call: &'static str, object: impl Into<String>) -> Result<T, SysError> {
        self.map_err(|e| SysError::new(call, object, Errno::from_raw(e.raw_os_error().unwrap_or(0))))
    }
}

/// Why a task did not start. Never an [`Outcome`](crate::Outcome): taskman's failures do not look like the task's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum StartError {
    /// The request itself is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// This host cannot enforce what the task asks for, and strict mode (the default) refuses to pretend.
    #[error("this host cannot contain the task in strict mode:\n{}", .0.iter().map(|m| format!("  - {m}")).collect::<Vec<_>>().join("\n"))]
    Host(Vec<String>),
    /// This worker takes no tasks just now; says why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// A named step of the start failed; nothing of the task ran.
    #[error("step {step}: {source}")]
    Step {
        /// The step, as ARCHITECTURE.md lists them.
        step: Cow<'static, str>,
        /// What the kernel said.
        source: SysError,
    },
    /// The sandbox was built, but the kernel would not execute the command in it.
    #[error("cannot execute {command:?}: {source}")]
    Exec {
        /// The command as it was asked for.
        command: String,
        /// True when no such file exists in the sandbox (exit code 127, not 126).
        not_found: bool,
        /// What the kernel said.
        source: SysError,
    },
}

impl StartError {
    /// Names the step in which `source` happened.
    pub fn step(step: &'static str) -> impl FnOnce(SysError) -> Self {
        move |source| Self::Step { step: Cow::Borrowed(step), source }
    }

    /// The exit code of `taskman run` for this failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exec { not_found: true, .. } => 127,
            Self::Exec { .. } => 126,
            _ => 125,
        }
    }
}
