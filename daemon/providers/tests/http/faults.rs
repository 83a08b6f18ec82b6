//! What goes wrong on the wires of Responses, Gemini and Bedrock, over HTTP: cuts, silence, errors in streams and as
//! statuses, each told as what it is and nothing of a broken answer taken for one.

use std::time::Duration;

use mcode_models::{ModelErrorKind as K, StopReason};
use mcode_testkit::{ModelServer, Reply, Script, Wire};
use serde_json::{Value, json};

use super::{ask, resolve, words};

/// The wires and their names in a configuration.
const WIRES: &[(Wire, &str)] =
    &[(Wire::Responses, "openai-responses"), (Wire::Gemini, "gemini"), (Wire::Bedrock, "bedrock")];

/// One reply, what kind of failure it is, and the wait that the server asks for in milliseconds.
type Case = (Reply, K, Option<u64>);

fn name(wire: Wire) -> &'static str {
    WIRES.iter().find(|(known, _)| *known == wire).unwrap().1
}

async fn check_all(wire: Wire, cases: Vec<Case>) {
    let script = cases.iter().fold(Script::new(), |script, (reply, _, _)| script.reply(reply.clone()));
    let server = ModelServer::start(script).await;
    let model = resolve(&server.base_url(wire), name(wire), &[], |_| {});
    for (at, (_, kind, delay)) in cases.iter().enumerate() {
        let error = ask(&model).await.unwrap_err();
        let case = format!("{wire:?}, case {}: {error:?}", at + 1);
        assert_eq!(error.kind, *kind, "{case}");
        assert_eq!(error.retry_after, delay.map(Duration::from_millis), "{case}");
        assert!(!error.message.contains("verysecretkey"), "{case}");
    }
    server.finish();
}

fn turn() -> Reply {
    Reply::thinking("hm", "c2ln").then_text("some words").then_tool_calls([("shell", json!({"command": "rm f"}))])
}

#[tokio::test]
async fn an_answer_that_is_cut_anywhere_is_none() {
    for (wire, wire_name) in WIRES {
        // How long it is, in bytes of this wire.
        let server = ModelServer::start(Script::new().fallback(|_| turn())).await;
        let model = resolve(&server.base_url(*wire), wire_name, &[], |_| {});
        let whole = ask(&model).await.unwrap();
        assert_eq!((words(&whole).as_str(), whole.stop), ("some words", StopReason::ToolUse), "{wire:?}");
        server.finish();

        // The shortest of the three turns has about 1,000 bytes, and their ends take fewer than 200.
        let cuts = [0, 1, 50, 200, 333, 500, 700];
        let script = cuts.iter().fold(Script::new(), |script, cut| script.reply(turn().cut_after(*cut)));
        let server = ModelServer::start(script.reply(turn().without_end())).await;
        let model = resolve(&server.base_url(*wire), wire_name, &[], |_| {});
        for at in 0..=cuts.len() {
            let error = ask(&model).await.unwrap_err();
            assert!(matches!(error.kind, K::Transport | K::Protocol), "{wire:?}, cut {at}: {error:?}");
            assert!(error.is_retryable());
        }
        server.finish();
    }
}

#[tokio::test]
async fn a_bad_frame_spoils_an_answer_and_splits_do_not() {
    for (wire, wire_name) in WIRES {
        let script = Script::new().reply(turn().bad_frame()).reply(turn().split(1)).reply(turn().split(7));
        let server = ModelServer::start(script).await;
        let model = resolve(&server.base_url(*wire), wire_name, &[], |_| {});
        assert_eq!(ask(&model).await.unwrap_err().kind, K::Protocol, "{wire:?}");
        let (first, second) = (ask(&model).await.unwrap(), ask(&model).await.unwrap());
        assert_eq!(words(&first), "some words", "{wire:?}");
        assert_eq!((first.parts.len(), second.parts.len()), (3, 3), "{wire:?}");
        server.finish();
    }
}

#[tokio::test]
async fn silence_in_the_middle_ends_an_answer() {
    for (wire, wire_name) in WIRES {
        let server = ModelServer::start(Script::new().reply(turn().stall_after(300))).await;
        let model = resolve(&server.base_url(*wire), wire_name, &[], |entry| {
            entry.idle_timeout = Some(Duration::from_secs(1));
        });
        let error = ask(&model).await.unwrap_err();
        assert_eq!(error.kind, K::Transport, "{wire:?}");
        assert!(error.message.contains("for 1 s"), "{wire:?}: {error:?}");
        server.wait_until("the line is let go", |server| server.open_connections() == 0).await;
        server.finish();
    }
}

#[tokio::test]
async fn a_filtered_answer_and_a_full_one_are_told_apart() {
    for (wire, wire_name) in WIRES {
        let script = Script::new()
            .reply(Reply::text("Par").stop_reason("refusal"))
            .reply(Reply::text("Par").stop_reason("max_tokens"));
        let server = ModelServer::start(script).await;
        let model = resolve(&server.base_url(*wire), wire_name, &[], |_| {});
        assert_eq!(ask(&model).await.unwrap().stop, StopReason::Refusal, "{wire:?}");
        assert_eq!(ask(&model).await.unwrap().stop, StopReason::Length, "{wire:?}");
        server.finish();
    }
}

fn midstream(kind: &str, message: &str) -> Reply {
    Reply::error_midstream("Par", kind, message)
}

fn status(code: u16, message: &str) -> Reply {
    Reply::status(code).message(message)
}

#[tokio::test]
async fn errors_in_a_stream_of_responses() {
    let alone = |event: Value| Reply::raw_sse(format!("data: {event}\n\n"));
    check_all(
        Wire::Responses,
        vec![
            (midstream("overloaded_error", "busy"), K::Overloaded, None),
            (midstream("slow_down", "busy"), K::Overloaded, None),
            (midstream("rate_limit_error", "Rate limit reached. Please try again in 4s."), K::RateLimited, Some(4_000)),
            (midstream("rate_limit_error", "Please try again in 250ms."), K::RateLimited, Some(250)),
            (midstream("billing_error", "You exceeded your current quota"), K::Quota, None),
            (midstream("usage_not_included", "not in your plan"), K::Quota, None),
            (midstream("request_too_large", "Your input exceeds the context window of this model"), K::Overflow, None),
            (midstream("invalid_request_error", "Invalid prompt"), K::InvalidRequest, None),
            (midstream("api_error", "The server had an error"), K::Server, None),
            // The flat form, and a failure that no event of its own came before.
            (
                alone(json!({"type": "error", "code": "server_is_overloaded", "message": "m", "param": null})),
                K::Overloaded,
                None,
            ),
            (
                alone(json!({"type": "response.failed", "response": {"status": "failed",
                    "error": {"code": "context_length_exceeded", "message": "m"}}})),
                K::Overflow,
                None,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn errors_in_a_stream_of_gemini() {
    let raw = |error: Value| Reply::raw_sse(format!("data: {}\r\n\r\n", json!({ "error": error })));
    let day = json!([{"@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]);
    check_all(
        Wire::Gemini,
        vec![
            (midstream("overloaded_error", "The model is overloaded. Please try again later."), K::Overloaded, None),
            (midstream("rate_limit_error", "Please retry in 4.5s."), K::RateLimited, Some(4_500)),
            (midstream("api_error", "An internal error has occurred."), K::Server, None),
            (midstream("authentication_error", "expired"), K::Auth, None),
            (
                midstream(
                    "invalid_request_error",
                    "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                ),
                K::Overflow,
                None,
            ),
            (raw(json!({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": day})), K::Quota, None),
        ],
    )
    .await;
}

#[tokio::test]
async fn exceptions_in_a_stream_of_bedrock() {
    check_all(
        Wire::Bedrock,
        vec![
            (midstream("overloaded_error", "The service is unavailable"), K::Overloaded, None),
            (
                midstream("rate_limit_error", "Too many requests, please wait before trying again."),
                K::RateLimited,
                None,
            ),
            (midstream("rate_limit_error", "Too many tokens, please wait before trying again."), K::RateLimited, None),
            (
                midstream("rate_limit_error", "Too many tokens per day, please wait before trying again."),
                K::Quota,
                None,
            ),
            (midstream("invalid_request_error", "Input is too long for requested model."), K::Overflow, None),
            (midstream("invalid_request_error", "The text field is blank"), K::InvalidRequest, None),
            (midstream("timeout_error", "The model took too long"), K::Server, None),
            (midstream("model_stream_error", "The model broke off"), K::Server, None),
            (midstream("api_error", "The service failed"), K::Server, None),
        ],
    )
    .await;
}

#[tokio::test]
async fn statuses_of_responses() {
    let coded = |code: &str| json!({"error": {"message": "m", "type": "t", "param": null, "code": code}});
    check_all(
        Wire::Responses,
        vec![
            (status(401, "Incorrect API key provided: verysecretkey"), K::Auth, None),
            (status(403, "You are not allowed to sample from this model"), K::Auth, None),
            (status(404, "The model 'm' does not exist or you do not have access to it."), K::UnknownModel, None),
            (status(413, "too large"), K::Overflow, None),
            (status(429, "slow down").header("retry-after", "3"), K::RateLimited, Some(3_000)),
            (status(429, "slow down").header("retry-after-ms", "1500"), K::RateLimited, Some(1_500)),
            (status(429, "Please try again in 6m0s."), K::RateLimited, Some(360_000)),
            (Reply::status(429).json(coded("insufficient_quota")), K::Quota, None),
            (
                Reply::status(429).json(json!({"error": {"type": "usage_limit_reached", "plan_type": "plus"}})),
                K::Quota,
                None,
            ),
            (Reply::status(400).json(coded("context_length_exceeded")), K::Overflow, None),
            (status(400, "Invalid schema for function 'x'"), K::InvalidRequest, None),
            (status(500, "oops"), K::Server, None),
            (status(503, "busy"), K::Overloaded, None),
        ],
    )
    .await;
}

#[tokio::test]
async fn statuses_of_gemini() {
    let limited = |details: Value| {
        Reply::status(429).json(json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
            "message": "You exceeded your current quota", "details": details}}))
    };
    let retry = |delay: &str| json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay});
    let quota =
        |id: &str| json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]});
    check_all(
        Wire::Gemini,
        vec![
            (status(400, "API key not valid. Please pass a valid API key."), K::Auth, None),
            (status(401, "Request had invalid authentication credentials."), K::Auth, None),
            (status(403, "The caller does not have permission"), K::Auth, None),
            (status(404, "models/m is not found for API version v1beta"), K::UnknownModel, None),
            (status(413, "too large"), K::Overflow, None),
            (
                status(400, "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
                K::Overflow,
                None,
            ),
            (status(400, "Please use a valid role: user, model."), K::InvalidRequest, None),
            (
                limited(json!([quota("GenerateRequestsPerMinutePerProject"), retry("34.07s")])),
                K::RateLimited,
                Some(34_070),
            ),
            (limited(json!([quota("GenerateRequestsPerDayPerProject"), retry("34s")])), K::Quota, None),
            (status(429, "slow down").header("retry-after", "3"), K::RateLimited, Some(3_000)),
            (status(500, "An internal error has occurred."), K::Server, None),
            (status(503, "The model is overloaded. Please try again later."), K::Overloaded, None),
            (status(504, "Deadline expired"), K::Server, None),
            // A list, as it comes where no stream of events was asked for.
            (
                Reply::status(404)
                    .json(json!([{"error": {"code": 404, "message": "models/m is not found", "status": "NOT_FOUND"}}])),
                K::UnknownModel,
                None,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn statuses_of_bedrock() {
    check_all(
        Wire::Bedrock,
        vec![
            (status(403, "The security token included in the request is expired"), K::Auth, None),
            (status(401, "no"), K::Auth, None),
            (
                status(404, "Could not resolve the foundation model from the provided model identifier."),
                K::UnknownModel,
                None,
            ),
            (status(400, "The provided model identifier is invalid."), K::UnknownModel, None),
            (
                status(400, "Invocation of model ID m with on-demand throughput isn\u{2019}t supported."),
                K::UnknownModel,
                None,
            ),
            (status(400, "Input is too long for requested model."), K::Overflow, None),
            (status(413, "too large"), K::Overflow, None),
            (status(400, "The toolConfig field must be defined"), K::InvalidRequest, None),
            (status(408, "The model took too long"), K::Server, None),
            (status(424, "The model failed"), K::Server, None),
            (status(429, "Too many requests, please wait before trying again."), K::RateLimited, None),
            (status(429, "Too many tokens, please wait before trying again."), K::RateLimited, None),
            (status(429, "Too many tokens per day, please wait before trying again."), K::Quota, None),
            (status(429, "Model is not ready for inference.").header("retry-after", "2"), K::RateLimited, Some(2_000)),
            (status(500, "oops"), K::Server, None),
            (status(503, "busy"), K::Overloaded, None),
        ],
    )
    .await;
}
