//! Requests to domain: everything is checked here, at the border.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mcode_events::blob::Blobs;
use mcode_events::depth;
use mcode_events::message::Part;
use mcode_events::run::{ApprovalPolicy, RunLimits, ThinkingLevel};
use mcode_ids::{RequestId, Seq};
use mcode_proto::v1;
use mcode_threads::{Asker, GrantScope, Mode, NewRun, Resend, RunSurroundings};
use tonic::Status;

use crate::convert::value;
use crate::status::{bad_field, of_thread};

/// Most bytes of the words of one input.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most bytes of one picture or document.
const MEDIA_BYTES_MAX: usize = 20 * 1024 * 1024;

/// Most parts of one input.
const PARTS_MAX: usize = 100;

/// Most bytes of a schema that is given as text.
const SCHEMA_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes of a client's environment.
const ENV_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Parses an id of a request.
pub(crate) fn id<T: std::str::FromStr>(field: &'static str, text: &str) -> Result<T, Status>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| bad_field(field, error.to_string()))
}

/// Parses an id whose badness means that no such thing exists.
pub(crate) fn known_id<T: std::str::FromStr>(what: &'static str, text: &str) -> Result<T, Status> {
    text.parse().map_err(|_| {
        of_thread(mcode_threads::ThreadError::NotFound {
            what,
            id: format!("'{}'", text.chars().take(80).collect::<String>()),
        })
    })
}

/// The request id and the hash of what was asked.
pub(crate) fn idempotency<M: prost::Message>(text: &str, message: &M) -> Result<Option<(RequestId, String)>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let request_id = RequestId::parse(text)
        .ok_or_else(|| bad_field("request_id", format!("has to be 1 to {} printable bytes", RequestId::MAX_BYTES)))?;
    Ok(Some((request_id, fingerprint(&message.encode_to_vec()))))
}

/// FNV-1a over the encoded request: tells an honest retry from a reused id; no secret hangs on it.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}-{}", bytes.len())
}

/// The words and pictures of a request; pictures go to the blobs.
pub(crate) async fn parts(input: Vec<v1::InputPart>, blobs: Arc<dyn Blobs>) -> Result<Vec<Part>, Status> {
    if input.len() > PARTS_MAX {
        return Err(bad_field("input", format!("has {} parts; {PARTS_MAX} are allowed", input.len())));
    }
    let mut parts = Vec::with_capacity(input.len());
    for part in input {
        match part.part {
            Some(v1::input_part::Part::Text(text)) if text.len() > TEXT_BYTES_MAX => {
                return Err(bad_field(
                    "input",
                    format!("a text has {} bytes; {TEXT_BYTES_MAX} are allowed", text.len()),
                ));
            }
            Some(v1::input_part::Part::Text(text)) if text.trim().is_empty() => {}
            Some(v1::input_part::Part::Text(text)) => parts.push(Part::text(text)),
            Some(v1::input_part::Part::Media(media)) => parts.push(media_part(media, Arc::clone(&blobs)).await?),
            None => return Err(bad_field("input", "has a part of a kind that this daemon does not know")),
        }
    }
    if parts.is_empty() { Err(bad_field("input", "is empty")) } else { Ok(parts) }
}

async fn media_part(media: v1::Media, blobs: Arc<dyn Blobs>) -> Result<Part, Status> {
    if media.data.len() > MEDIA_BYTES_MAX {
        let text = format!("'{}' has {} bytes; {MEDIA_BYTES_MAX} are allowed", media.name, media.data.len());
        return Err(bad_field("input", text));
    }
    let blob = tokio::task::spawn_blocking(move || blobs.put(&media.data, &media.media_type))
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(|error| bad_field("input", error.to_string()))?;
    Ok(Part::Media { blob, name: media.name })
}

/// A client's environment, and the same without secrets; what is `passed` is let through.
pub(crate) fn surroundings(
    client_env: BTreeMap<String, String>,
    umask: u32,
    passed: &[String],
) -> Result<RunSurroundings, Status> {
    let bytes: usize = client_env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ENV_BYTES_MAX {
        return Err(bad_field("context.env", format!("has {bytes} bytes; {ENV_BYTES_MAX} are allowed")));
    }
    let tool_env = mcode_sandbox::tool_environment(&client_env, passed, &mcode_threads::looks_like_a_key);
    Ok(RunSurroundings { client_env: Arc::new(client_env), tool_env: Arc::new(tool_env), umask: umask & 0o777 })
}

/// Where a rule counts that is kept; the end of it in milliseconds since 1970 UTC.
pub(crate) fn scope(scope: i32, until: Option<&prost_types::Timestamp>) -> Result<(GrantScope, Option<i64>), Status> {
    let scope = match v1::RuleScope::try_from(scope) {
        Ok(v1::RuleScope::Unspecified) => GrantScope::User,
        Ok(v1::RuleScope::Thread) => GrantScope::Thread,
        Ok(v1::RuleScope::Project) => GrantScope::Project,
        Err(_) => return Err(bad_field("scope", format!("{scope} is not a scope"))),
    };
    Ok((scope, until.map(value::millis)))
}

/// A path of a request that has to be absolute.
pub(crate) fn absolute(field: &'static str, path: &str) -> Result<String, Status> {
    if Path::new(path).is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(bad_field(field, format!("'{path}' is not an absolute path")))
    }
}

/// Who does something, for people.
pub(crate) fn by(text: String) -> String {
    if text.is_empty() { "a client".to_owned() } else { text }
}

/// A mode, or `None` for an empty text.
pub(crate) fn mode(text: &str) -> Result<Option<Mode>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused = || bad_field("mode", format!("'{text}' is none of build, plan, explore"));
    Mode::parse(text).map(Some).ok_or_else(refused)
}

fn thinking(text: &str) -> Result<Option<ThinkingLevel>, Status> {
    Ok(Some(match text {
        "" => return Ok(None),
        "off" => ThinkingLevel::Off,
        "low" => ThinkingLevel::Low,
        "medium" => ThinkingLevel::Medium,
        "high" => ThinkingLevel::High,
        "xhigh" => ThinkingLevel::Xhigh,
        other => return Err(bad_field("thinking", format!("'{other}' is none of off, low, medium, high, xhigh"))),
    }))
}

fn limits(limits: Option<v1::RunLimits>) -> Result<RunLimits, Status> {
    let Some(limits) = limits else { return Ok(RunLimits::default()) };
    if !limits.max_cost_usd.is_finite() || limits.max_cost_usd < 0.0 {
        return Err(bad_field("limits.max_cost_usd", "has to be zero or more"));
    }
    let max_time_ms = match limits.timeout {
        None => None,
        Some(timeout) => {
            let millis = timeout.seconds.saturating_mul(1000).saturating_add(i64::from(timeout.nanos / 1_000_000));
            Some(u64::try_from(millis).map_err(|_| bad_field("limits.timeout", "has to be positive"))?)
                .filter(|ms| *ms > 0)
        }
    };
    Ok(RunLimits {
        max_steps: (limits.max_steps > 0).then_some(limits.max_steps),
        max_tokens: (limits.max_tokens > 0).then_some(limits.max_tokens),
        max_cost_usd: (limits.max_cost_usd > 0.0).then_some(limits.max_cost_usd),
        max_time_ms,
    })
}

/// What to do about calls that would be asked; `None` when the request does not say.
pub(crate) fn approval(policy: i32) -> Result<Option<ApprovalPolicy>, Status> {
    Ok(match v1::ApprovalPolicy::try_from(policy) {
        Ok(v1::ApprovalPolicy::Unspecified) => None,
        Ok(v1::ApprovalPolicy::Ask) => Some(ApprovalPolicy::Ask),
        Ok(v1::ApprovalPolicy::Deny) => Some(ApprovalPolicy::Deny),
        Ok(v1::ApprovalPolicy::All) => Some(ApprovalPolicy::All),
        Err(_) => return Err(bad_field("approve", format!("{policy} is not a policy"))),
    })
}

/// A run to be started, from its request.
pub(crate) async fn new_run(
    request: v1::StartRunRequest,
    asker: Asker,
    blobs: Arc<dyn Blobs>,
    passed: &[String],
) -> Result<NewRun, Status> {
    let idempotency = idempotency(&request.request_id, &without_surroundings(&request))?;
    let context = request.context.ok_or_else(|| bad_field("context", "is missing"))?;
    let approval = approval(request.approve)?;
    let add_dirs = request.add_dirs.iter().map(|dir| absolute("add_dirs", dir)).collect::<Result<_, _>>()?;
    Ok(NewRun {
        thread_id: if request.thread_id.is_empty() { None } else { Some(known_id("thread", &request.thread_id)?) },
        parts: parts(request.input, blobs).await?,
        model: (!request.model.is_empty()).then_some(request.model),
        mode: mode(&request.mode)?,
        thinking: thinking(&request.thinking)?,
        approval,
        asker,
        interactive: context.interactive,
        detached: context.detached,
        limits: limits(request.limits)?,
        cwd: absolute("context.cwd", &context.cwd)?,
        add_dirs,
        title: request.title,
        answer_schema: schema(request.answer_schema, &request.answer_schema_json)?,
        ephemeral: request.ephemeral,
        resend: request
            .resend
            .map(|resend| Resend { at: (resend.at_seq > 0).then(|| Seq::new(resend.at_seq)), in_fork: resend.fork }),
        surroundings: surroundings(context.env, context.umask, passed)?,
        request: idempotency,
    })
}

/// The schema of the answer, however it was given.
fn schema(fields: Option<prost_types::Struct>, text: &str) -> Result<Option<serde_json::Value>, Status> {
    const FIELD: &str = "answer_schema_json";
    match (fields, text) {
        (fields, "") => Ok(fields.map(value::from_struct)),
        (Some(_), _) => Err(bad_field(FIELD, "stands beside answer_schema; give one of them")),
        (None, text) if text.len() > SCHEMA_BYTES_MAX => {
            Err(bad_field(FIELD, format!("has more than {SCHEMA_BYTES_MAX} bytes")))
        }
        (None, text) => {
            let value: serde_json::Value =
                serde_json::from_str(text).map_err(|error| bad_field(FIELD, format!("is not JSON: {error}")))?;
            if !depth::fits(&value) {
                return Err(bad_field(FIELD, format!("nests deeper than {} levels", depth::JSON_DEPTH_MAX)));
            }
            if value.is_object() { Ok(Some(value)) } else { Err(bad_field(FIELD, "is not a JSON object")) }
        }
    }
}

/// What makes two requests the same: not the environment, whose order on the wire is not fixed.
fn without_surroundings(request: &v1::StartRunRequest) -> v1::StartRunRequest {
    let mut same = request.clone();
    same.context = None;
    same.answer_schema = None;
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_may_come_as_text_within_bounds() {
        let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let deepest = schema(None, &nested(depth::JSON_DEPTH_MAX)).unwrap().unwrap();
        assert!(deepest.is_object() && depth::fits(&deepest));
        assert_eq!(schema(None, "").unwrap(), None);
        assert!(schema(Some(prost_types::Struct::default()), "").unwrap().is_some());
        for (fields, text, words) in [
            (None, nested(depth::JSON_DEPTH_MAX + 1), "deeper than 100 levels"),
            (None, nested(5000), "is not JSON"),
            (None, "[1]".to_owned(), "object"),
            (None, format!("{{\"a\": \"{}\"}}", "x".repeat(SCHEMA_BYTES_MAX)), "bytes"),
            (Some(prost_types::Struct::default()), "{}".to_owned(), "one of them"),
        ] {
            let status = schema(fields, &text).unwrap_err();
            assert!(status.code() == tonic::Code::InvalidArgument && status.message().contains(words), "{status:?}");
        }
    }
}
