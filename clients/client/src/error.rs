//! Why something did not work, in the words of the user, with the exit status that a script sees.

use mcode_endpoint::{ConnectError, EndpointError, StartError};
use mcode_env::DirsError;
use mcode_proto::reasons::{self, Reason};
use mcode_text::{chain, with_causes};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Who has to do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for does not make sense or does not exist.
    User,
    /// The configuration is broken or incomplete.
    Config,
    /// It is not permitted.
    Permission,
    /// The model or its provider refused or failed.
    Model,
    /// No daemon could be reached, or it is not compatible.
    Daemon,
    /// A budget or a limit was reached.
    Limit,
    /// A fault in mcode.
    Internal,
}

impl ErrorKind {
    /// The exit status of a command that ends because of it (interface.md section 3).
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::User => 2,
            Self::Config => 3,
            Self::Permission => 4,
            Self::Model => 5,
            Self::Daemon => 6,
            Self::Limit => 7,
            Self::Internal => 70,
        }
    }

    /// The word for it in `error.kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "usage",
            Self::Config => "config",
            Self::Permission => "permission",
            Self::Model => "model",
            Self::Daemon => "daemon",
            Self::Limit => "limit",
            Self::Internal => "internal",
        }
    }

    const fn of_exit_code(code: i32) -> Self {
        match code {
            2 => Self::User,
            3 => Self::Config,
            4 => Self::Permission,
            5 => Self::Model,
            6 => Self::Daemon,
            7 => Self::Limit,
            _ => Self::Internal,
        }
    }
}

/// A failure, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClientError {
    /// Who has to do something about it.
    pub kind: ErrorKind,
    /// A stable name for scripts, such as `THREAD_NOT_FOUND`.
    pub reason: String,
    /// What failed, on what.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Whether the same call may work in a moment, with a new connection.
    pub retryable: bool,
}

impl ClientError {
    /// A failure with a stable name.
    #[must_use]
    pub fn new(kind: ErrorKind, reason: &str, message: impl Into<String>) -> Self {
        Self { kind, reason: reason.to_owned(), message: message.into(), hint: None, retryable: false }
    }

    /// Something the user asked for does not make sense.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::User, Reason::InvalidArgument.as_str(), message)
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit status of a command that ends because of it.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// `{kind, reason, message, hint}` of interface.md section 3.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"kind": self.kind.as_str(), "reason": self.reason, "message": self.message, "hint": self.hint})
    }

    /// The daemon did not answer in time.
    #[must_use]
    pub(crate) fn deadline(call: &str, seconds: u64) -> Self {
        Self::new(
            ErrorKind::Daemon,
            "DEADLINE_EXCEEDED",
            format!("the daemon did not answer {call} within {seconds} s"),
        )
        .hint("look at its state with: mcode daemon status, and at its log with: mcode daemon logs")
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        if let Some(info) = status.get_details_error_info().filter(|info| info.domain == reasons::DOMAIN) {
            return of_reason(&status, &info.reason, info.metadata.get(reasons::HINT_KEY));
        }
        let (kind, reason) = match status.code() {
            Code::Unavailable | Code::Cancelled | Code::Unknown => (ErrorKind::Daemon, "DAEMON_UNAVAILABLE"),
            Code::Unimplemented => (ErrorKind::Daemon, "DAEMON_INCOMPATIBLE"),
            Code::DeadlineExceeded => (ErrorKind::Daemon, "DEADLINE_EXCEEDED"),
            Code::InvalidArgument | Code::OutOfRange => (ErrorKind::User, Reason::InvalidArgument.as_str()),
            Code::NotFound => (ErrorKind::User, "NOT_FOUND"),
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => (ErrorKind::User, "PRECONDITION_FAILED"),
            Code::ResourceExhausted => (ErrorKind::Daemon, "RESOURCE_EXHAUSTED"),
            Code::PermissionDenied | Code::Unauthenticated => (ErrorKind::Daemon, Reason::PeerRefused.as_str()),
            Code::Ok | Code::Internal | Code::DataLoss => (ErrorKind::Internal, Reason::Internal.as_str()),
        };
        let mut error = Self::new(kind, reason, transport_message(&status));
        error.retryable = matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown);
        error.hint = match status.code() {
            Code::Unimplemented => Some(
                "the daemon is of another version: end it with 'mcode daemon restart' when no run is at work"
                    .to_owned(),
            ),
            Code::Unavailable | Code::Cancelled | Code::Unknown => Some("see: mcode daemon status".to_owned()),
            Code::Internal | Code::DataLoss => Some(Reason::Internal.hint().to_owned()),
            _ => Reason::parse(reason).map(|reason| reason.hint().to_owned()),
        };
        error
    }
}

fn of_reason(status: &Status, name: &str, hint: Option<&String>) -> ClientError {
    let known = Reason::parse(name);
    let kind = known.map_or(ErrorKind::Internal, |reason| ErrorKind::of_exit_code(reason.exit_code()));
    let mut error = ClientError::new(kind, name, status.message());
    error.hint = hint.cloned().or_else(|| known.map(|reason| reason.hint().to_owned()));
    error.retryable = matches!(known, Some(Reason::ShuttingDown | Reason::ThreadBusy));
    error
}

/// tonic says "transport error" and keeps the reason in the chain of causes.
fn transport_message(status: &Status) -> String {
    let text = match status.code() {
        Code::Unavailable | Code::Cancelled | Code::Unknown => {
            format!("the connection to the daemon broke: {}", status.message())
        }
        Code::Unimplemented => format!("the daemon does not know this call: {}", status.message()),
        _ => status.message().to_owned(),
    };
    with_causes(text, status)
}

impl From<DirsError> for ClientError {
    fn from(error: DirsError) -> Self {
        Self::new(ErrorKind::Config, "NO_HOME", error.to_string()).hint(error.hint())
    }
}

impl From<EndpointError> for ClientError {
    fn from(error: EndpointError) -> Self {
        Self::new(ErrorKind::Daemon, "SOCKET_UNUSABLE", chain(&error))
            .hint("give another place with --socket or MCODE_SOCKET")
    }
}

impl From<ConnectError> for ClientError {
    fn from(error: ConnectError) -> Self {
        let hint = match &error {
            ConnectError::NotRunning(_) => "start it with: mcode daemon start",
            ConnectError::Timeout { .. } => "it may be stuck: look at its log with: mcode daemon logs",
            ConnectError::Refused { .. } | ConnectError::Permission { .. } | ConnectError::Endpoint(_) => {
                "give another place with --socket or MCODE_SOCKET"
            }
        };
        Self::new(ErrorKind::Daemon, "DAEMON_UNREACHABLE", chain(&error)).hint(hint)
    }
}

impl From<StartError> for ClientError {
    fn from(error: StartError) -> Self {
        let message = chain(&error);
        match error {
            StartError::Connect(error) => error.into(),
            StartError::Endpoint(error) => error.into(),
            StartError::ToolCall => Self::new(ErrorKind::Daemon, "DAEMON_UNREACHABLE", message)
                .hint("a person starts it, with: mcode daemon start"),
            StartError::NoProgram { .. } => Self::new(ErrorKind::Daemon, "DAEMON_NOT_FOUND", message)
                .hint("install mcoded beside mcode, or put its folder on PATH"),
            StartError::Ended { status, .. } => {
                let kind = status.code().map_or(ErrorKind::Daemon, |code| match code {
                    3 => ErrorKind::Config,
                    _ => ErrorKind::Daemon,
                });
                Self::new(kind, "DAEMON_START_FAILED", message).hint("try it in the foreground: mcoded --foreground")
            }
            StartError::Spawn { .. } | StartError::Timeout { .. } => {
                Self::new(ErrorKind::Daemon, "DAEMON_START_FAILED", message)
                    .hint("try it in the foreground: mcoded --foreground")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use tonic_types::ErrorDetails;

    #[test]
    fn a_known_reason_gives_kind_hint_and_status() {
        let details = ErrorDetails::with_error_info("THREAD_NOT_FOUND", reasons::DOMAIN, HashMap::new());
        let error = ClientError::from(Status::with_error_details(Code::NotFound, "no thread 'nope'", details));
        assert_eq!(error.exit_code(), 2);
        assert_eq!(
            error.to_json(),
            json!({"kind": "usage", "reason": "THREAD_NOT_FOUND", "message": "no thread 'nope'",
                "hint": "list the threads with: mcode threads list"})
        );
    }

    #[test]
    fn a_more_specific_hint_wins_and_unknown_reasons_are_kept() {
        let metadata = HashMap::from([(reasons::HINT_KEY.to_owned(), "do this".to_owned())]);
        let details = ErrorDetails::with_error_info("OF_A_NEWER_DAEMON", reasons::DOMAIN, metadata);
        let error = ClientError::from(Status::with_error_details(Code::Internal, "what", details));
        assert_eq!((error.reason.as_str(), error.hint.as_deref()), ("OF_A_NEWER_DAEMON", Some("do this")));
        assert_eq!(error.exit_code(), 70);
    }

    #[test]
    fn bare_statuses_are_told_apart() {
        for (code, exit, retryable) in [
            (Code::Unavailable, 6, true),
            (Code::Unimplemented, 6, false),
            (Code::InvalidArgument, 2, false),
            (Code::Internal, 70, false),
        ] {
            let error = ClientError::from(Status::new(code, "x"));
            assert_eq!((error.exit_code(), error.retryable), (exit, retryable), "{code:?}");
        }
    }
}
