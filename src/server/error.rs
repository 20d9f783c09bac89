//! Why a request was not served: the one place that maps errors to status codes.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::containment::Leftover;
use crate::error::{StartError, SysError};
use crate::store::StoreError;
use crate::task::spec::SpecError;

/// The metadata key under which a start that could not execute its command says what a shell would exit with.
pub const EXIT_CODE_KEY: &str = "taskman-exit-code";

/// Leftovers that a message names: it travels in a header, which is small. VerifyClean tells all.
const NAMED: usize = 8;

/// Longer texts are cut.
const LONGEST_TEXT: usize = 1024;

/// A refusal, or a failure.
#[derive(Debug)]
pub enum ApiError {
    /// The certificate names nobody.
    Unauthenticated(String),
    /// No such task, or none that the caller may see: the two are the same, to the byte.
    NotFound,
    /// No such finding, or none that can be read.
    NoFinding(String),
    /// Quarantine is not lifted while these are there.
    Left(Vec<Leftover>),
    /// Not for this caller.
    Denied(String),
    /// The request cannot be meant.
    Invalid(SpecError),
    /// The same token, another request.
    AlreadyExists(String),
    /// A quota is used up.
    Exhausted(String),
    /// More requests than allowed: the first refusal of a second is for the audit log, so that a flood does not wash it out.
    TooOften {
        /// What the caller is told.
        message: String,
        /// Whether it stands in the log already.
        told: bool,
    },
    /// The state of the server or the task does not allow it.
    Precondition(String),
    /// The server is shutting down.
    Unavailable(String),
    /// The task was not started.
    Start(StartError),
    /// Something of the server's own failed.
    Internal(String),
}

impl ApiError {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::NotFound | Self::NoFinding(_) => Code::NotFound,
            Self::Denied(_) => Code::PermissionDenied,
            Self::Invalid(_) | Self::Start(StartError::Spec(_) | StartError::Exec { .. }) => Code::InvalidArgument,
            Self::AlreadyExists(_) => Code::AlreadyExists,
            Self::Exhausted(_) | Self::TooOften { .. } => Code::ResourceExhausted,
            Self::Precondition(_) | Self::Left(_) | Self::Start(StartError::Host(_) | StartError::Refused(_)) => {
                Code::FailedPrecondition
            }
            Self::Unavailable(_) => Code::Unavailable,
            // Descriptors, processes, uids: what a host can run out of, and later have again.
            Self::Start(StartError::Step { source, .. }) if is_exhaustion(source) => Code::ResourceExhausted,
            // Given up because the server is stopping, which the launcher may know first.
            Self::Start(StartError::Step { source, .. }) if source.errno == libc::ECANCELED => Code::Unavailable,
            // The one step that takes the caller's word for something that only the sandbox knows.
            Self::Start(StartError::Step { step, .. }) if step == "workdir" => Code::InvalidArgument,
            Self::Start(StartError::Step { .. }) | Self::Internal(_) => Code::Internal,
        }
    }

    /// What the caller is told.
    pub fn message(&self) -> String {
        match self {
            Self::NotFound => "task not found; `taskman list` shows your tasks".to_owned(),
            Self::Invalid(error) => error.to_string(),
            Self::Start(error) => error.to_string(),
            Self::Left(things) => left(things),
            Self::TooOften { message: text, .. }
            | Self::Unauthenticated(text)
            | Self::NoFinding(text)
            | Self::Denied(text)
            | Self::AlreadyExists(text)
            | Self::Exhausted(text)
            | Self::Precondition(text)
            | Self::Unavailable(text)
            | Self::Internal(text) => text.clone(),
        }
    }
}

fn left(things: &[Leftover]) -> String {
    let named = things.iter().take(NAMED).map(|thing| format!("{} {}", thing.kind, thing.name)).collect::<Vec<_>>();
    let more = things.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (count, named) = (things.len(), named.join(", "));
    format!("quarantine is not lifted: {count} things are left ({named}{more}); `taskman health --recover` sweeps them")
}

fn is_exhaustion(error: &SysError) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM, libc::ENOSPC].contains(&error.errno)
}

/// What is told of a request may repeat it: a client must fill neither the disk with reasons nor the memory with headers, which
/// nobody paces.
pub fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let mut status = Self::new(error.code(), cut(&error.message()));
        if let ApiError::Start(start @ StartError::Exec { .. }) = &error
            && let Ok(code) = MetadataValue::try_from(start.exit_code().to_string())
        {
            status.metadata_mut().insert(EXIT_CODE_KEY, code);
        }
        status
    }
}

impl From<SpecError> for ApiError {
    fn from(error: SpecError) -> Self {
        Self::Invalid(error)
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Exhausted(format!("{error}; try again when there is room")),
            error => Self::Internal(format!("the task store: {error}")),
        }
    }
}

impl From<SysError> for ApiError {
    fn from(error: SysError) -> Self {
        if is_exhaustion(&error) { Self::Exhausted(error.to_string()) } else { Self::Internal(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_own_words_come_back_shortened() {
        let name = "\u{1}".repeat(4 << 20);
        let status = Status::from(ApiError::from(SpecError::new("profile", format!("{name:?} does not exist"))));
        assert!(status.message().len() <= 1024 && status.message().contains("profile"), "{}", status.message().len());
    }
}
