//! Logins as `mcode.v1` tells them.

use std::time::Duration;

use mcode_models::{
    LoginDesk, LoginError, LoginErrorKind, LoginFlow, LoginOffer, LoginStart, Logins, Secret, StoredLogin,
};
use mcode_proto::reasons::Reason;
use mcode_proto::v1;
use tonic::{Code, Status};

use crate::convert::value::time;
use crate::status::{bad_field, refuse};

/// How long a call waits for the end of a login when it does not say.
const WAIT: Duration = Duration::from_secs(20);
/// The longest that one waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) async fn start(
    desk: &dyn LoginDesk,
    request: v1::StartLoginRequest,
) -> Result<v1::StartLoginResponse, Status> {
    let flow = match request.flow.as_str() {
        "" => None,
        word => Some(
            LoginFlow::parse(word)
                .ok_or_else(|| bad_field("flow", format!("'{word}' is not one of loopback, paste, device, key")))?,
        ),
    };
    let key = Some(request.api_key).filter(|key| !key.is_empty()).map(Secret::new);
    let begun = desk.start(LoginStart { provider: request.provider, flow, key, env: request.env }).await;
    let begun = begun.map_err(refused)?;
    let verification_uri = if begun.flow == LoginFlow::Device { begun.url.clone() } else { String::new() };
    Ok(v1::StartLoginResponse {
        login_id: begun.login_id,
        flow: begun.flow.as_str().to_owned(),
        url: begun.url,
        user_code: begun.user_code,
        verification_uri,
        expires_at: (begun.expires_at_ms > 0).then(|| time(begun.expires_at_ms)),
        instructions: begun.instructions,
        login: begun.done.map(row),
    })
}

pub(super) async fn complete(
    desk: &dyn LoginDesk,
    request: v1::CompleteLoginRequest,
) -> Result<v1::CompleteLoginResponse, Status> {
    let wait = match request.wait {
        None => WAIT,
        Some(wait) => {
            Duration::try_from(wait).map_err(|_| bad_field("wait", "it is not a span of time"))?.min(WAIT_MAX)
        }
    };
    let code = Some(request.code).filter(|code| !code.is_empty()).map(Secret::new);
    let login = desk.complete(&request.login_id, code, wait).await.map_err(refused)?;
    Ok(v1::CompleteLoginResponse { done: login.is_some(), login: login.map(row) })
}

pub(super) fn list(logins: Logins) -> v1::ListLoginsResponse {
    v1::ListLoginsResponse {
        logins: logins.stored.into_iter().map(row).collect(),
        next_page_token: String::new(),
        offers: logins.offers.into_iter().map(offer).collect(),
        problem: logins.problem,
    }
}

fn row(login: StoredLogin) -> v1::Login {
    v1::Login {
        provider: login.provider,
        account: login.account,
        kind: login.kind.to_owned(),
        kept_in: login.kept_in,
        expires_at: login.expires_at_ms.map(time),
        renewable: login.renewable,
        problem: login.problem,
    }
}

fn offer(offer: LoginOffer) -> v1::LoginOffer {
    v1::LoginOffer {
        provider: offer.provider,
        title: offer.title,
        flows: offer.flows.into_iter().map(|flow| flow.as_str().to_owned()).collect(),
        note: offer.note,
    }
}

pub(super) fn refused(error: LoginError) -> Status {
    let (code, reason) = match error.kind {
        LoginErrorKind::UnknownProvider => (Code::NotFound, Reason::ProviderNotFound),
        LoginErrorKind::Unsupported => (Code::FailedPrecondition, Reason::LoginUnsupported),
        LoginErrorKind::Invalid => (Code::InvalidArgument, Reason::InvalidArgument),
        LoginErrorKind::NotFound => (Code::NotFound, Reason::LoginNotFound),
        LoginErrorKind::TooMany => (Code::ResourceExhausted, Reason::TooManyLogins),
        LoginErrorKind::Expired => (Code::FailedPrecondition, Reason::LoginTimedOut),
        LoginErrorKind::Denied => (Code::FailedPrecondition, Reason::LoginDenied),
        LoginErrorKind::Cancelled => (Code::FailedPrecondition, Reason::LoginCancelled),
        LoginErrorKind::Cut => (Code::Aborted, Reason::LoginCut),
        LoginErrorKind::WrongState => (Code::FailedPrecondition, Reason::LoginWrongState),
        LoginErrorKind::Provider => (Code::FailedPrecondition, Reason::LoginFailed),
        LoginErrorKind::Storage => (Code::FailedPrecondition, Reason::LoginStoreBroken),
    };
    refuse(code, reason, error.message, Some(&error.hint))
}
