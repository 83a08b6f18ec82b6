//! What the issuer answers.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::http::{Incoming, read, write};
use super::{ACCOUNT, ACCOUNT_ID, Asked, CLIENT_ID, Device, Given, SECRET_MARK, Shared, State};

const JSON: &str = "content-type: application/json\r\n";

pub(super) fn serve(mut stream: TcpStream, shared: &Shared) {
    let Some(incoming) = read(&mut stream) else { return };
    let fields = fields(&incoming);
    let mut state = shared.lock();
    state.asked.push(Asked {
        path: incoming.path.clone(),
        fields: fields.clone(),
        headers: incoming.headers.clone(),
        at: Instant::now(),
    });
    if (incoming.method.as_str(), incoming.path.as_str()) == ("GET", "/authorize") {
        let location = authorize(&mut state, &fields);
        drop(state);
        return match location {
            Ok(location) => write(&mut stream, 302, &format!("location: {location}\r\n"), ""),
            Err(problem) => write(&mut stream, 400, "", &problem),
        };
    }
    let (status, answer) = answered(&mut state, &incoming, &fields, shared);
    let is_renewal = fields.get("grant_type").is_some_and(|grant| grant == "refresh_token");
    shared.changed.notify_all();
    while is_renewal && state.behaviour.holds && !shared.over.load(std::sync::atomic::Ordering::SeqCst) {
        state = shared.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    drop(state);
    let answer = if answer.is_null() { String::new() } else { answer.to_string() };
    write(&mut stream, status, JSON, &answer);
}

fn answered(
    state: &mut State,
    incoming: &Incoming,
    fields: &BTreeMap<String, String>,
    shared: &Shared,
) -> (u16, Value) {
    match (incoming.method.as_str(), incoming.path.as_str()) {
        ("POST", "/token") => token(state, fields),
        ("POST", "/revoke") => taken_back(state, fields),
        ("POST", "/device") => {
            state.count += 1;
            let url = format!("http://{}/activate", shared.address);
            (
                200,
                json!({"device_code": format!("{SECRET_MARK}-device-{}", state.count), "user_code": "ABCD-EFGH",
                "verification_uri": url, "expires_in": state.behaviour.device_lasts, "interval": state.behaviour.interval}),
            )
        }
        ("POST", "/api/accounts/deviceauth/usercode") => (
            200,
            json!({
            "device_auth_id": format!("{SECRET_MARK}-device-auth"), "user_code": "WXYZ-1234", "interval": "1"}),
        ),
        ("POST", "/api/accounts/deviceauth/token") => chatgpt_device(state, shared),
        ("GET", "/copilot_internal/v2/token") => copilot(state, incoming),
        _ => {
            state.problems.push(format!("{} {} is nothing of mine", incoming.method, incoming.path));
            (404, json!({"error": "not_found"}))
        }
    }
}

/// Takes a refresh token back with all that was made of it, as real ones do; a token that is none is no fault.
fn taken_back(state: &mut State, fields: &BTreeMap<String, String>) -> (u16, Value) {
    if let Some((status, code)) = state.behaviour.refuse.clone() {
        return (status, json!({"error": code}));
    }
    if field(fields, "client_id") != CLIENT_ID {
        return refused(state, "invalid_client", "the client is not known");
    }
    let token = Some(field(fields, "token").to_owned());
    if token == state.refresh || token == state.access.as_ref().map(|(access, _)| access.clone()) {
        (state.access, state.refresh, state.refresh_before) = (None, None, None);
    }
    (200, Value::Null)
}

fn fields(incoming: &Incoming) -> BTreeMap<String, String> {
    let kind = incoming.headers.get("content-type").map(String::as_str).unwrap_or_default();
    if kind.starts_with("application/json") {
        let value: Value = serde_json::from_slice(&incoming.body).unwrap_or_default();
        let entries = value.as_object().cloned().unwrap_or_default();
        return entries
            .into_iter()
            .map(|(name, value)| (name, value.as_str().unwrap_or_default().to_owned()))
            .collect();
    }
    let form = if incoming.method == "POST" { incoming.body.as_slice() } else { incoming.query.as_bytes() };
    url::form_urlencoded::parse(form).into_owned().collect()
}

fn field<'a>(fields: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    fields.get(name).map(String::as_str).unwrap_or_default()
}

/// Where the browser goes when the user has seen the page.
fn authorize(state: &mut State, fields: &BTreeMap<String, String>) -> Result<String, String> {
    let wanted = [("response_type", "code"), ("client_id", CLIENT_ID), ("code_challenge_method", "S256")];
    let mut faults: Vec<String> = wanted
        .iter()
        .filter(|(name, value)| field(fields, name) != *value)
        .map(|(name, _)| format!("{name} is '{}'", field(fields, name)))
        .collect();
    faults.extend(
        ["state", "redirect_uri", "code_challenge"]
            .iter()
            .filter(|name| field(fields, name).is_empty())
            .map(|name| format!("{name} is missing")),
    );
    if !faults.is_empty() {
        state.problems.extend(faults.clone());
        return Err(faults.join(", "));
    }
    let back = field(fields, "redirect_uri").to_owned();
    let returned = state.behaviour.wrong_state.clone().unwrap_or_else(|| field(fields, "state").to_owned());
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    match state.behaviour.denies.clone() {
        Some(word) => {
            query.append_pair("error", &word).append_pair("error_description", "the user said no");
        }
        None => {
            state.count += 1;
            let code = format!("{SECRET_MARK}-code-{}", state.count);
            let given = Given { challenge: field(fields, "code_challenge").to_owned(), redirect_uri: back.clone() };
            state.codes.insert(code.clone(), given);
            query.append_pair("code", &code);
        }
    }
    query.append_pair("state", &returned);
    Ok(format!("{back}?{}", query.finish()))
}

fn refused(state: &mut State, code: &str, problem: &str) -> (u16, Value) {
    if !problem.is_empty() {
        state.problems.push(problem.to_owned());
    }
    (400, json!({"error": code, "error_description": problem}))
}

fn token(state: &mut State, fields: &BTreeMap<String, String>) -> (u16, Value) {
    if field(fields, "client_id") != CLIENT_ID {
        return refused(state, "invalid_client", "the client is not known");
    }
    match field(fields, "grant_type") {
        "authorization_code" => exchange(state, fields),
        "refresh_token" => renewal(state, fields),
        "urn:ietf:params:oauth:grant-type:device_code" => device(state, fields),
        other => refused(state, "unsupported_grant_type", &format!("'{other}' is no grant")),
    }
}

fn exchange(state: &mut State, fields: &BTreeMap<String, String>) -> (u16, Value) {
    // A code is good once, whatever comes of it.
    let Some(given) = state.codes.remove(field(fields, "code")) else {
        return refused(state, "invalid_grant", "the code is not known");
    };
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(field(fields, "code_verifier")));
    if challenge != given.challenge {
        return refused(state, "invalid_grant", "the verifier does not fit");
    }
    if field(fields, "redirect_uri") != given.redirect_uri {
        return refused(state, "invalid_grant", "the redirect_uri is another one");
    }
    (200, fresh(state))
}

/// New tokens for somebody who has logged in.
fn fresh(state: &mut State) -> Value {
    state.count += 1;
    let refresh = state.behaviour.refreshable.then(|| format!("{SECRET_MARK}-refresh-{}", state.count));
    state.refresh.clone_from(&refresh);
    state.refresh_before = None;
    tokens(state, refresh)
}

fn tokens(state: &mut State, refresh: Option<String>) -> Value {
    let access = format!("{SECRET_MARK}-access-{}", state.count);
    state.access = Some((access.clone(), Instant::now()));
    let claims = json!({"email": ACCOUNT, "https://api.openai.com/auth": {"chatgpt_account_id": ACCOUNT_ID}});
    let id_token = format!("e30.{}.{SECRET_MARK}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let mut answer = json!({"access_token": access, "id_token": id_token, "token_type": "Bearer"});
    if let Some(refresh) = refresh {
        answer["refresh_token"] = json!(refresh);
    }
    if let Some(lasts) = state.behaviour.lasts {
        answer["expires_in"] = json!(lasts);
    }
    answer
}

fn renewal(state: &mut State, fields: &BTreeMap<String, String>) -> (u16, Value) {
    if let Some((status, code)) = state.behaviour.refuse.clone() {
        return (status, json!({"error": code}));
    }
    let given = Some(field(fields, "refresh_token").to_owned());
    let again = state.behaviour.lenient && given == state.refresh_before;
    if given != state.refresh && !again {
        return (
            400,
            json!({"error": "invalid_grant", "error_description": "the refresh token was used or taken back"}),
        );
    }
    state.renewals += 1;
    state.count += 1;
    if !state.behaviour.rotates {
        return (200, tokens(state, None));
    }
    let next = format!("{SECRET_MARK}-refresh-{}", state.count);
    state.refresh_before = given;
    state.refresh = Some(next.clone());
    (200, tokens(state, Some(next)))
}

fn next_device(state: &mut State) -> Device {
    if state.behaviour.device.is_empty() { Device::Pending } else { state.behaviour.device.remove(0) }
}

fn device(state: &mut State, fields: &BTreeMap<String, String>) -> (u16, Value) {
    if !field(fields, "device_code").starts_with(SECRET_MARK) {
        return refused(state, "invalid_grant", "the device code is not known");
    }
    match next_device(state) {
        Device::Agreed => (200, fresh(state)),
        // As GitHub does: an error with status 200.
        Device::Pending => (200, json!({"error": "authorization_pending"})),
        Device::SlowDown(interval) => (400, json!({"error": "slow_down", "interval": interval})),
        Device::Expired => (400, json!({"error": "expired_token"})),
        Device::Denied => (400, json!({"error": "access_denied"})),
    }
}

fn chatgpt_device(state: &mut State, shared: &Shared) -> (u16, Value) {
    if next_device(state) != Device::Agreed {
        return (403, json!({"error": {"message": "not yet", "code": "deviceauth_authorization_pending"}}));
    }
    state.count += 1;
    let (code, verifier) = (format!("{SECRET_MARK}-code-{}", state.count), format!("{SECRET_MARK}-verifier"));
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let redirect_uri = format!("http://{}/deviceauth/callback", shared.address);
    state.codes.insert(code.clone(), Given { challenge: challenge.clone(), redirect_uri });
    (200, json!({"authorization_code": code, "code_challenge": challenge, "code_verifier": verifier}))
}

/// A short-lived token for the one of a login, as GitHub gives it.
fn copilot(state: &mut State, incoming: &Incoming) -> (u16, Value) {
    let given = incoming.headers.get("authorization").map(String::as_str).unwrap_or_default();
    let good = state.access.as_ref().is_some_and(|(access, _)| given == format!("Bearer {access}"));
    if !good {
        return (401, json!({"message": "Bad credentials"}));
    }
    state.renewals += 1;
    let end =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970").as_secs() + 1800;
    (
        200,
        json!({"token": format!("{SECRET_MARK}-copilot-{};proxy-ep=proxy.example", state.renewals), "expires_at": end}),
    )
}
