//! Answers requests: records, validates, takes from the script, delivers.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::connection::{Connection, Head, Sent};
use super::recorded::{RecordedRequest, Wire};
use super::render::{self, Asked};
use super::reply::{Content, End, Reply, Usage};
use super::server::{Shared, State};
use super::validate;

/// Takes connections until the future is dropped.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Owns the connections: they end with the server.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                shared.lock().open += 1;
                shared.touch();
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    if let Ok(connection) = Connection::new(stream) {
                        serve(connection, &shared).await;
                    }
                    shared.lock().open -= 1;
                    shared.touch();
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: Connection, shared: &Shared) {
    while let Ok(Some(head)) = connection.request().await {
        if !answer(&mut connection, head, shared).await {
            return;
        }
    }
}

fn json_headers() -> BTreeMap<String, String> {
    BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())])
}

/// Answers one request. `false` = the connection is done.
async fn answer(connection: &mut Connection, head: Head, shared: &Shared) -> bool {
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let Some((wire, path_model)) = Wire::of_path(path).filter(|_| head.method == "POST") else {
        return answer_aside(connection, &head, path, shared).await;
    };
    let request = RecordedRequest {
        number: 0,
        wire,
        path: path.to_owned(),
        query: query.to_owned(),
        headers: head.headers.clone(),
        body: serde_json::from_slice(&head.body).unwrap_or(Value::Null),
        body_bytes: head.body.len(),
        at: shared.started.elapsed(),
        replied_at: None,
        client_left: false,
        refused: None,
        usage: None,
        path_model,
    };
    let (request, reply) = decide(request, shared);
    shared.touch();
    let sent = deliver(connection, &request, &reply).await;
    {
        let mut state = shared.lock();
        let at = shared.started.elapsed();
        if let Some(recorded) = state.requests.get_mut(request.number - 1) {
            recorded.replied_at = Some(at);
            recorded.client_left = sent == Sent::ClientLeft;
            recorded.usage = match told(&reply) {
                Some(usage) if sent == Sent::Whole => Some(render::told(usage, request.wire)),
                _ => told_in_part(&request, &reply),
            };
        }
        log(
            &mut state,
            &json!({"event": "replied", "number": request.number, "at_us": at.as_micros() as u64,
            "client_left": sent == Sent::ClientLeft}),
        );
    }
    shared.touch();
    sent == Sent::Whole
}

/// Requests that are not for a model's turn: the model list, token counting, and mistakes.
async fn answer_aside(connection: &mut Connection, head: &Head, path: &str, shared: &Shared) -> bool {
    let (code, body) = match (head.method.as_str(), path) {
        ("GET", _) if path.ends_with("/models") => (
            200,
            json!({"object": "list", "has_more": false, "data": [
                {"id": "fake-model", "object": "model", "type": "model", "display_name": "Fake model"}]}),
        ),
        ("POST", _) if path.ends_with("/v1/messages/count_tokens") => {
            (200, json!({"input_tokens": head.body.len() / 4}))
        }
        _ => {
            shared.lock().strays.push(head.target.clone());
            (404, render::error(Wire::Anthropic, 404, &format!("no such path: {} {}", head.method, head.target), 0))
        }
    };
    connection.send_whole(code, &json_headers(), body.to_string().as_bytes()).await.is_ok()
}

/// The figures of a turn that is told to its end.
fn told(reply: &Reply) -> Option<Usage> {
    let ends = reply.end == End::Normal && !reply.bad_frame && matches!(reply.content, Content::Turn(_));
    ends.then_some(reply.usage)
}

/// The figures of a stream that was cut, fell silent or failed, as far as they were told.
fn told_in_part(request: &RecordedRequest, reply: &Reply) -> Option<Usage> {
    let Content::Turn(blocks) = &reply.content else { return None };
    if reply.delivery.hang_up || !request.wants_stream() {
        return None;
    }
    let body = render::stream(reply, blocks, &Asked::by(request));
    let delivery = &reply.delivery;
    let sent = delivery.stall_after.into_iter().chain(delivery.cut_after).min().unwrap_or(body.len()).min(body.len());
    render::told_in_part(&body[..sent], reply.usage, request.wire)
}

/// Records the request and takes the reply that is due.
fn decide(mut request: RecordedRequest, shared: &Shared) -> (RecordedRequest, Reply) {
    let mut state = shared.lock();
    request.number = state.requests.len() + 1;
    let refused = refusal(&state, &request);
    if let Some(reason) = &refused {
        let note = format!("request {} was refused: {reason}", request.number);
        state.problems.push(note);
    }
    request.refused = refused.clone();
    state.requests.push(request.clone());
    log_request(&mut state, &request);
    let reply = match refused {
        Some(reason) => Reply::status(400).message(reason),
        None => take_reply(&mut state, &request),
    };
    drop(state);
    // A closure of the test may look at the server: it must not run under the lock.
    let reply = resolve(reply, &request);
    if let Content::Turn(blocks) = &reply.content {
        render::remember(blocks, &Asked::by(&request), &mut shared.lock().given);
    }
    (request, reply)
}

fn refusal(state: &State, request: &RecordedRequest) -> Option<String> {
    if request.body.is_null() {
        return Some("We could not parse the JSON body of your request.".to_owned());
    }
    let refused = state.script.refused_fields.iter().find(|field| request.body.get(field.as_str()).is_some());
    if let Some(field) = refused {
        return Some(format!("Unrecognized request argument supplied: {field}"));
    }
    state.script.validate.then(|| validate::refusal(request, &state.given)).flatten()
}

fn take_reply(state: &mut State, request: &RecordedRequest) -> Reply {
    if let Some((_, reply)) = state.script.rules.iter().find(|(matches, _)| matches(request)) {
        return reply.clone();
    }
    if let Some(reply) = state.script.replies.pop_front() {
        return reply;
    }
    state.script.fallback.clone().unwrap_or_else(|| {
        let note = format!("request {} came when the script was used up", request.number);
        state.problems.push(note.clone());
        Reply::status(400).message(note)
    })
}

fn resolve(mut reply: Reply, request: &RecordedRequest) -> Reply {
    while let Content::From(make) = &reply.content {
        reply = make(request);
    }
    reply
}

async fn deliver(connection: &mut Connection, request: &RecordedRequest, reply: &Reply) -> Sent {
    if !connection.pause(reply.delivery.delay_before).await {
        return Sent::ClientLeft;
    }
    if reply.delivery.hang_up {
        return Sent::Cut;
    }
    let asked = Asked::by(request);
    let whole = |sent: std::io::Result<()>| if sent.is_ok() { Sent::Whole } else { Sent::ClientLeft };
    match &reply.content {
        Content::Turn(blocks) if request.wants_stream() => {
            let body = render::stream(reply, blocks, &asked);
            connection.send_stream(render::stream_type(&asked), &reply.headers, &body, &reply.delivery).await
        }
        Content::Turn(blocks) => {
            let mut headers = json_headers();
            headers.extend(reply.headers.clone());
            let body = render::whole(reply, blocks, &asked).to_string();
            whole(connection.send_whole(200, &headers, body.as_bytes()).await)
        }
        Content::Raw(body) => {
            connection.send_stream("text/event-stream; charset=utf-8", &reply.headers, body, &reply.delivery).await
        }
        Content::Status { code, headers, body, message } => {
            let mut all = json_headers();
            all.extend(render::error_headers(request.wire, *code).map(|(name, value)| (name.to_owned(), value)));
            all.extend(headers.clone());
            let body = body.clone().unwrap_or_else(|| render::error(request.wire, *code, message, request.number));
            whole(connection.send_whole(*code, &all, body.to_string().as_bytes()).await)
        }
        Content::From(_) => unreachable!("resolved before delivery"),
    }
}

fn log_request(state: &mut State, request: &RecordedRequest) {
    if state.log.is_none() {
        return;
    }
    let line = json!({
        "event": "request",
        "number": request.number,
        "at_us": request.at.as_micros() as u64,
        "wire": request.wire.name(),
        "path": request.path,
        "query": request.query,
        "headers": request.headers,
        "body_bytes": request.body_bytes,
        "refused": request.refused,
        "body": request.body,
    });
    log(state, &line);
}

fn log(state: &mut State, line: &Value) {
    if let Some(file) = &mut state.log {
        // A full disk must not change what the client sees; the reader of the log notices the missing line.
        writeln!(file, "{line}").ok();
    }
}
