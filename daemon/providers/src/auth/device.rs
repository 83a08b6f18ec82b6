//! Logging in with a code that is typed in on another device: RFC 8628, and the dialect of ChatGPT.

use std::time::Duration;

use mcode_models::Secret;
use reqwest::{Client, Url};
use serde_json::{Value, json};

use super::data::{DeviceDialect, LoginData};
use super::token::{self, Grant, Refused, whole};

/// Pause between two questions where the issuer names none, in seconds.
const INTERVAL: u64 = 5;
/// Longest pause that is believed, in seconds.
const INTERVAL_MAX: u64 = 60;
/// By so much the pause grows when the issuer says that it is too short.
const SLOWER_BY: u64 = 5;
/// Longest code that is shown, in characters.
const CODE_MAX: usize = 64;
/// Times in a row that the issuer may be out of reach.
const UNREACHABLE_MAX: u32 = 10;

/// What the issuer gave to begin with.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    /// What to type in.
    pub(crate) user_code: String,
    /// Where.
    pub(crate) url: String,
    /// How long it is good for.
    pub(crate) lasts: Option<Duration>,
    device_code: Secret,
    interval: u64,
}

/// Why there will be no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The code is too old.
    Expired,
    /// Somebody said no.
    Denied,
    /// Something else.
    Refused(Refused),
}

/// Asks for a code.
pub(crate) async fn begin(client: &Client, data: &LoginData) -> Result<Begun, Refused> {
    let url = data.device_url.as_deref().unwrap_or_default();
    match data.device_dialect {
        DeviceDialect::Standard => {
            let scope = data.scopes.join(" ");
            let fields: &[(&str, &str)] = if scope.is_empty() { &[] } else { &[("scope", &scope)] };
            let answer = token::ask(client, data, url, fields).await?;
            begun(&answer, url, "device_code", None)
        }
        DeviceDialect::ChatGpt => {
            let body = json!({"client_id": data.client_id});
            let answer = token::answer(client.post(url).json(&body), &[]).await.map_err(|refused| match refused {
                Refused::Said { status: 404, host, .. } => Refused::Said {
                    host,
                    code: "not_enabled".to_owned(),
                    words: "logging in with a code is not turned on for this account".to_owned(),
                    interval: None,
                    status: 404,
                },
                other => other,
            })?;
            begun(&answer, url, "device_auth_id", origin(url).map(|origin| format!("{origin}/codex/device")))
        }
    }
}

fn begun(answer: &Value, asked: &str, device_code: &str, shown_at: Option<String>) -> Result<Begun, Refused> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let missing = |what: &str| Refused::Unreachable(format!("the answer of {} holds no {what}", token::host_of(asked)));
    let user_code = text("user_code").or_else(|| text("usercode")).ok_or_else(|| missing("code to type in"))?;
    let given =
        text("verification_uri_complete").or_else(|| text("verification_uri")).or_else(|| text("verification_url"));
    let url = shown_at.or_else(|| given.map(str::to_owned)).ok_or_else(|| missing("address"))?;
    let url = super::data::checked_url(&url).map_err(Refused::Unreachable)?;
    let seconds = |name: &str| answer.get(name).and_then(whole).and_then(|value| u64::try_from(value).ok());
    Ok(Begun {
        user_code: user_code.chars().filter(|c| !c.is_control()).take(CODE_MAX).collect(),
        url,
        lasts: seconds("expires_in").filter(|seconds| *seconds > 0).map(Duration::from_secs),
        device_code: Secret::new(text(device_code).ok_or_else(|| missing("device code"))?),
        interval: seconds("interval").unwrap_or(INTERVAL).clamp(1, INTERVAL_MAX),
    })
}

/// The pause after an answer: as the issuer says, or longer.
fn slower(interval: u64, said: Option<u64>) -> u64 {
    said.unwrap_or(interval + SLOWER_BY).clamp(interval, INTERVAL_MAX)
}

/// Asks until somebody has typed in the code, or it is too old.
pub(crate) async fn wait(
    client: &Client,
    data: &LoginData,
    begun: &Begun,
    now_ms: impl Fn() -> i64,
) -> Result<Grant, Ended> {
    let (mut interval, mut unreachable) = (begun.interval, 0);
    loop {
        tokio::time::sleep(Duration::from_secs(interval)).await;
        let refused = match poll(client, data, begun, now_ms()).await {
            Ok(grant) => return Ok(grant),
            Err(refused) => refused,
        };
        if refused.is_passing() {
            unreachable += 1;
            if unreachable > UNREACHABLE_MAX {
                return Err(Ended::Refused(refused));
            }
            continue;
        }
        unreachable = 0;
        let Refused::Said { code, interval: said, status, .. } = &refused else { return Err(Ended::Refused(refused)) };
        let pending = data.device_dialect == DeviceDialect::ChatGpt && matches!(status, 403 | 404);
        match code.as_str() {
            "slow_down" => interval = slower(interval, *said),
            "authorization_pending" => {}
            "expired_token" => return Err(Ended::Expired),
            "access_denied" => return Err(Ended::Denied),
            _ if pending => {}
            _ => return Err(Ended::Refused(refused)),
        }
    }
}

async fn poll(client: &Client, data: &LoginData, begun: &Begun, now_ms: i64) -> Result<Grant, Refused> {
    match data.device_dialect {
        DeviceDialect::Standard => {
            let fields = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", begun.device_code.expose()),
            ];
            token::grant(&token::ask(client, data, &data.token_url, &fields).await?, &data.token_url, now_ms)
        }
        DeviceDialect::ChatGpt => {
            let url = data.device_url.as_deref().unwrap_or_default();
            let poll_url = url.rsplit_once('/').map(|(folder, _)| format!("{folder}/token")).unwrap_or_default();
            let body = json!({"device_auth_id": begun.device_code.expose(), "user_code": begun.user_code});
            let hidden = [begun.device_code.expose().to_owned()];
            let answer = token::answer(client.post(poll_url).json(&body), &hidden).await?;
            let text = |name: &str| {
                let found = answer.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
                found.map(Secret::new).ok_or_else(|| {
                    Refused::Unreachable(format!("the answer of {} holds no {name}", token::host_of(url)))
                })
            };
            let (code, verifier) = (text("authorization_code")?, text("code_verifier")?);
            let back = origin(url).map(|origin| format!("{origin}/deviceauth/callback")).unwrap_or_default();
            token::exchange(client, data, &code, &verifier, &back, now_ms).await
        }
    }
}

fn origin(url: &str) -> Option<String> {
    Url::parse(url).ok().map(|url| url.origin().ascii_serialization())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_read_and_grows() {
        let answer = |interval: Value| json!({"device_code": "d", "user_code": "U", "verification_uri": "https://h/device", "interval": interval});
        for (given, interval) in
            [(json!(7), 7), (json!("5"), 5), (json!(null), INTERVAL), (json!(0), 1), (json!(9_999), INTERVAL_MAX)]
        {
            assert_eq!(begun(&answer(given), "https://h", "device_code", None).unwrap().interval, interval);
        }
        assert_eq!((slower(5, None), slower(5, Some(9)), slower(5, Some(1)), slower(58, None)), (10, 9, 5, 60));
    }

    #[test]
    fn an_answer_that_can_not_be_shown_is_refused() {
        for answer in [
            json!({"user_code": "U", "verification_uri": "https://h"}),
            json!({"device_code": "d", "verification_uri": "https://h"}),
            json!({"device_code": "d", "user_code": "U"}),
            json!({"device_code": "d", "user_code": "U", "verification_uri": "file:///etc/passwd"}),
        ] {
            assert!(begun(&answer, "https://h", "device_code", None).is_err(), "{answer}");
        }
        assert!(
            !format!(
                "{:?}",
                begun(
                    &json!({"device_code": "SECRET", "user_code": "U", "verification_uri": "https://h"}),
                    "https://h",
                    "device_code",
                    None
                )
            )
            .contains("SECRET")
        );
    }
}
