//! Errors as gRPC statuses: canonical code, stable reason, plain message; the inner chain goes to the log alone.

use std::error::Error;

use mcode_env::{IdGen, SystemIds};
use mcode_ids::ErrorId;
use mcode_models::{ModelError, ModelErrorKind};
use mcode_proto::reasons::{DOMAIN, ERROR_ID_KEY, HINT_KEY, Reason};
use mcode_text::chain;
use mcode_threads::{ThreadError, redact};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// How long a client should wait before it tries a busy thread again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(200);

/// A status with a reason.
pub(crate) fn refuse(code: Code, reason: Reason, message: impl Into<String>, hint: Option<&str>) -> Status {
    let mut metadata = std::collections::HashMap::new();
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        metadata.insert(HINT_KEY.to_owned(), hint.to_owned());
    }
    let mut details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, metadata);
    if code == Code::Unavailable {
        details.set_retry_info(Some(RETRY_AFTER));
    }
    Status::with_error_details(code, redact(&message.into()), details)
}

/// A field that does not fit.
pub(crate) fn bad_field(field: &'static str, message: impl Into<String>) -> Status {
    let message = redact(&message.into()).into_owned();
    let mut details = ErrorDetails::with_bad_request_violation(field, message.clone());
    details.set_error_info(Reason::InvalidArgument.as_str(), DOMAIN, std::collections::HashMap::new());
    Status::with_error_details(Code::InvalidArgument, format!("{field}: {message}"), details)
}

/// A fault of ours: the user gets an id, the log gets the chain.
fn internal(reason: Reason, error: &dyn Error) -> Status {
    let error_id = ErrorId::from_uuid(SystemIds.next()).to_string();
    tracing::error!(%error_id, chain = chain(error), "a call failed");
    let metadata = std::collections::HashMap::from([(ERROR_ID_KEY.to_owned(), error_id.clone())]);
    let details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, metadata);
    Status::with_error_details(Code::Internal, format!("{error} ({error_id})"), details)
}

/// What a client is told about a thread's refusal.
pub(crate) fn of_thread(error: ThreadError) -> Status {
    let text = error.to_string();
    match &error {
        ThreadError::NotFound { what, .. } => {
            let reason = match *what {
                "run" => Reason::RunNotFound,
                "thread" => Reason::ThreadNotFound,
                "grant" => Reason::GrantNotFound,
                "history" => Reason::HistoryNotFound,
                _ => Reason::ApprovalNotFound,
            };
            refuse(Code::NotFound, reason, text, None)
        }
        ThreadError::RunActive { .. } => refuse(Code::FailedPrecondition, Reason::RunActive, text, None),
        ThreadError::NoActiveRun(_) => refuse(Code::FailedPrecondition, Reason::NoActiveRun, text, None),
        ThreadError::MovedOn { .. } => refuse(Code::Aborted, Reason::ThreadMovedOn, text, None),
        ThreadError::NotExported { .. } => refuse(Code::DataLoss, Reason::ThreadDamaged, text, None),
        ThreadError::NotImported { .. } => refuse(Code::InvalidArgument, Reason::ImportRefused, text, None),
        ThreadError::TooManyImports => refuse(Code::ResourceExhausted, Reason::ThreadBusy, text, None),
        ThreadError::BodiesAbsent(_) => refuse(Code::FailedPrecondition, Reason::BodiesAbsent, text, None),
        ThreadError::Damaged(_) => refuse(Code::DataLoss, Reason::ThreadDamaged, text, None),
        ThreadError::Busy(_) | ThreadError::RequestInFlight(_) | ThreadError::Closed => {
            refuse(Code::Unavailable, Reason::ThreadBusy, text, None)
        }
        ThreadError::TooManySubscribers(_) => refuse(Code::ResourceExhausted, Reason::TooManySubscribers, text, None),
        ThreadError::RequestIdReused(_) => refuse(Code::AlreadyExists, Reason::RequestIdReused, text, None),
        ThreadError::AlreadyResolved(_) => refuse(Code::FailedPrecondition, Reason::AlreadyResolved, text, None),
        ThreadError::InvalidArgument { field: "model", message } => {
            refuse(Code::FailedPrecondition, Reason::ModelNotSet, message.clone(), None)
        }
        ThreadError::InvalidArgument { field: "cwd", message } => {
            refuse(Code::InvalidArgument, Reason::CwdUnusable, format!("cwd: {message}"), None)
        }
        ThreadError::InvalidArgument { field, message } => bad_field(field, message.clone()),
        ThreadError::ProjectConfig(_) => refuse(Code::FailedPrecondition, Reason::ConfigBroken, text, None),
        ThreadError::NotForTools(_) => refuse(Code::PermissionDenied, Reason::NotForTools, text, None),
        ThreadError::Model(model) => of_model(model),
        ThreadError::Limit { .. } => refuse(Code::ResourceExhausted, Reason::LimitReached, text, None),
        ThreadError::ShuttingDown => refuse(Code::Unavailable, Reason::ShuttingDown, text, None),
        ThreadError::DiskFull => refuse(Code::ResourceExhausted, Reason::DiskFull, text, None),
        ThreadError::Store(_) | ThreadError::NotLoaded { .. } | ThreadError::NotDeleted { .. } => {
            internal(Reason::StoreUnavailable, &error)
        }
    }
}

/// What a client is told about a model that can not be asked.
pub(crate) fn of_model(error: &ModelError) -> Status {
    let reason = match error.kind {
        ModelErrorKind::UnknownModel => Reason::ModelUnknown,
        ModelErrorKind::Auth => Reason::ModelNoKey,
        ModelErrorKind::LoginExpired => Reason::LoginExpired,
        ModelErrorKind::LoginRevoked => Reason::LoginRevoked,
        _ => Reason::ConfigBroken,
    };
    refuse(Code::FailedPrecondition, reason, error.message.clone(), Some(&error.hint))
}
