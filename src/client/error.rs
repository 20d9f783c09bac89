//! What went wrong between a client and its server: one line each, with what to do.

use std::error::Error;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError};
use tonic::{Code, Status, TimeoutExpired};

/// The metadata in which a refused start says what `taskman run` would have exited with: 126 or 127.
const EXIT_CODE: &str = "taskman-exit-code";

/// A request that failed, or could not be made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The user id cannot be the name of a certificate.
    #[error("user id {0:?} must be 1 to 64 letters, digits, and . _ - @, and begin with a letter or a digit")]
    UserId(String),
    /// The address has no host or no port.
    #[error("server address {0:?} is not HOST:PORT; write for example localhost:50051")]
    Address(String),
    /// A certificate or key does not exist.
    #[error("there is no {}; {hint}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What makes one.
        hint: String,
    },
    /// A certificate or key cannot be used.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The certificate and the key do not belong together, or are of a kind that is not supported.
    #[error("the certificate and key of {user} cannot be used: {why}; `taskman certs issue {user}` makes new ones")]
    Credentials {
        /// Whose.
        user: String,
        /// What is wrong.
        why: String,
    },
    /// Nobody answers at the address.
    #[error("cannot reach the server at {address}: {why}; is taskman-server running there?")]
    Unreachable {
        /// Where.
        address: String,
        /// What the kernel or the resolver said.
        why: String,
    },
    /// The server's certificate was not accepted here.
    #[error("the server at {address} is not trusted: {why}")]
    Untrusted {
        /// Where.
        address: String,
        /// What is wrong with its certificate, and what to do.
        why: String,
    },
    /// The certificate of this client was not accepted there.
    #[error("the server at {address} refused the certificate of {user}: {why}")]
    Refused {
        /// Where.
        address: String,
        /// Whose.
        user: String,
        /// Its reason, and what to do.
        why: String,
    },
    /// The connection broke before the answer was complete. Whether the request was carried out is not known.
    #[error("the connection to the server was lost: {0}")]
    Lost(String),
    /// The server answered, and the answer is no.
    #[error("{message}")]
    Status {
        /// Which kind of no.
        code: Code,
        /// The server's own words, on one line.
        message: String,
        /// For a start whose command cannot be executed (126) or does not exist (127).
        exit_code: Option<u8>,
    },
}

impl ClientError {
    /// Whether the same request may succeed a little later: the server is away, or on its way down or up.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Unreachable { .. } => true,
            Self::Status { code, .. } => *code == Code::Unavailable,
            _ => false,
        }
    }

    /// What `taskman` exits with for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Status { exit_code: Some(code), .. } => *code,
            _ => 125,
        }
    }

    /// From what tonic says of a connection that could not be made: ours, deep inside, or something unforeseen.
    pub(super) fn from_transport(error: &(dyn Error + 'static), address: &str) -> Self {
        own(error)
            .unwrap_or_else(|| Self::Unreachable { address: address.to_owned(), why: one_line(&innermost(error)) })
    }

    /// From the kind of failure of a TLS handshake, or of the first read after it.
    pub(super) fn from_tls(error: &std::io::Error, address: &str, user: &str) -> Self {
        let (address, user) = (address.to_owned(), user.to_owned());
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(fault)) => {
                Self::Untrusted { why: untrusted(fault, &address), address }
            }
            Some(rustls::Error::AlertReceived(alert)) => Self::Refused { why: refused(*alert, &user), address, user },
            Some(other) => Self::Untrusted { address, why: one_line(&other.to_string()) },
            None => {
                Self::Unreachable { address, why: format!("the TLS handshake failed: {}", one_line(&words(error))) }
            }
        }
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        if let Some(source) = status.source() {
            // What the server answered has no source; this happened on the way.
            return match own(source) {
                Some(error) => error,
                None if find::<TimeoutExpired>(source).is_some() => Self::Status {
                    code: Code::DeadlineExceeded,
                    message: "the server did not answer in time; try again".into(),
                    exit_code: None,
                },
                None => Self::Lost(one_line(&innermost(source))),
            };
        }
        let exit_code = status.metadata().get(EXIT_CODE).and_then(|value| value.to_str().ok());
        let exit_code = exit_code.and_then(|code| code.parse().ok()).filter(|code| [126, 127].contains(code));
        let message = match (status.code(), one_line(status.message())) {
            (code, empty) if empty.is_empty() => format!("the server refused: {}", code.description()),
            (_, message) => message,
        };
        Self::Status { code: status.code(), message, exit_code }
    }
}

/// The error this client's connector made, wherever the layers above have put it.
fn own(error: &(dyn Error + 'static)) -> Option<ClientError> {
    find::<ClientError>(error).cloned()
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref::<E>())
}

/// The layers say "transport error"; the last one says what happened.
fn innermost(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The kernel's words without "(os error 111)".
pub(super) fn words(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => nix::errno::Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string(),
    }
}

fn untrusted(fault: &CertificateError, address: &str) -> String {
    match fault {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not from the authority in ca.crt; give the directory of the right one with --certs"
                .into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is for another name; use the name it was made for in place of {address}")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; the operator renews it with `taskman certs`".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; compare the clocks of both machines".into()
        }
        other => one_line(&format!("{other:?}")),
    }
}

fn refused(alert: AlertDescription, user: &str) -> String {
    match alert {
        AlertDescription::CertificateExpired => {
            format!("it has expired, or is not valid yet; `taskman certs issue {user}` makes a new one")
        }
        AlertDescription::CertificateRevoked => {
            format!("it was revoked; `taskman certs issue {user}` makes a new one, if the operator agrees")
        }
        AlertDescription::UnknownCA => {
            "it is from another authority than the server's; give the directory of the right one with --certs".into()
        }
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3".into(),
        other => format!("{other:?}; `taskman certs list` shows what it is"),
    }
}

/// Whether a terminal, or whoever reads on it, is misled by this character: control characters (of which C1 has an escape sequence in
/// one), ends of lines, and what turns the direction of writing.
pub fn steers(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Text from the other side, for a terminal: one line, and nothing that a terminal obeys.
pub fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let safe = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    lines.join("; ").replace(":; - ", ": ").replace("; - ", "; ").chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataMap;

    use super::*;

    #[test]
    fn the_servers_words_reach_the_user_on_one_line_without_control_characters() {
        let said = "this host cannot contain the task:\n  - no cpu\n  - no \u{1b}[31mred\u{7}";
        let error = ClientError::from(Status::failed_precondition(said));
        assert_eq!(error.to_string(), "this host cannot contain the task: no cpu; no \\u{1b}[31mred\\u{7}");
        assert_eq!(error.exit_code(), 125);
        assert!(!error.is_passing());
        let error = ClientError::from(Status::not_found(""));
        assert_eq!(error.to_string(), "the server refused: Some requested entity was not found");
    }

    #[test]
    fn a_command_that_cannot_be_executed_brings_its_exit_code() {
        let with = |value: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(EXIT_CODE, value.parse().unwrap());
            ClientError::from(Status::with_metadata(Code::InvalidArgument, "cannot execute", metadata)).exit_code()
        };
        assert_eq!([with("126"), with("127"), with("0"), with("x")], [126, 127, 125, 125]);
    }

    #[test]
    fn what_broke_on_the_way_is_not_taken_for_an_answer() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = ClientError::from(Status::from_error(Box::new(broken)));
        assert_eq!(error.to_string(), "the connection to the server was lost: connection reset");
        assert!(error.is_passing());
        assert!(ClientError::from(Status::unavailable("draining")).is_passing());
        let error = ClientError::from(Status::from_error(Box::new(TimeoutExpired(()))));
        assert!(matches!(error, ClientError::Status { code: Code::DeadlineExceeded, .. }), "{error}");
    }

    #[test]
    fn a_refused_certificate_says_why_and_what_to_do() {
        let text = |error: rustls::Error| {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            ClientError::from_tls(&error, "h:1", "bob").to_string()
        };
        let expired = text(rustls::Error::AlertReceived(AlertDescription::CertificateExpired));
        let wanted = "the server at h:1 refused the certificate of bob: it has expired, or is not valid yet; \
            `taskman certs issue bob` makes a new one";
        assert_eq!(expired, wanted);
        assert!(text(rustls::Error::AlertReceived(AlertDescription::CertificateRevoked)).contains("was revoked"));
        assert!(text(rustls::Error::AlertReceived(AlertDescription::UnknownCA)).contains("another authority"));
        let stranger = text(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(stranger.starts_with("the server at h:1 is not trusted: "), "{stranger}");
    }
}
