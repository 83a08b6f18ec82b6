//! JSON lines: one event or live update a line, `{"type", "seq"?, "thread_id", …}`.
//!
//! The type is the name of the event's field in the proto, and the fields of its message stand beside it, so an event
//! that is added to the proto needs nothing here.

use mcode_proto::v1;
use mcode_proto::v1::event::Body;
use serde_json::{Map, Value, json};

use crate::error::ClientError;
use crate::json::message_json;

/// Fields of [`v1::Event`] and [`v1::Frame`] that are not the body.
const ENVELOPE: [&str; 5] = ["thread_id", "seq", "at", "run_id", "turn_id"];

/// A durable event as a line; `None` for those that only repeat what the deltas said.
///
/// # Errors
/// Of kind internal, when the descriptors do not fit the code.
pub fn event_line(event: &v1::Event) -> Result<Option<Value>, ClientError> {
    if matches!(event.body, None | Some(Body::MessageCheckpointed(_))) {
        return Ok(None);
    }
    Ok(line(message_json("Event", event)?))
}

/// A live update as a line; `None` for one of a newer daemon.
///
/// # Errors
/// Of kind internal, when the descriptors do not fit the code.
pub fn frame_line(frame: &v1::Frame) -> Result<Option<Value>, ClientError> {
    if frame.body.is_none() {
        return Ok(None);
    }
    Ok(line(message_json("Frame", frame)?))
}

/// The last line of a run: its result.
#[must_use]
pub fn result_line(result: Value) -> Value {
    let mut line = Map::new();
    line.insert("type".to_owned(), json!("result"));
    if let Value::Object(fields) = result {
        line.extend(fields);
    }
    Value::Object(line)
}

fn line(message: Value) -> Option<Value> {
    let Value::Object(mut fields) = message else { return None };
    let mut line = Map::new();
    line.insert("type".to_owned(), Value::Null);
    for name in ENVELOPE {
        if let Some(value) = fields.remove(name).filter(|value| value != "") {
            line.insert(name.to_owned(), value);
        }
    }
    let (name, body) = fields.into_iter().next()?;
    let Value::Object(body) = body else { return None };
    for (key, value) in body {
        // What is asked stands in a message of its own; its names are wanted at the top too.
        if let (true, Value::Object(inner)) = (matches!(key.as_str(), "approval" | "question"), &value) {
            for (key, value) in inner.iter().filter(|(key, _)| key.as_str() != "question") {
                line.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        line.entry(key).or_insert(value);
    }
    line.insert("type".to_owned(), Value::String(name));
    Some(Value::Object(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: Body) -> v1::Event {
        v1::Event {
            thread_id: "thr_1".into(),
            seq: 4,
            run_id: "run_1".into(),
            at: Some(prost_types::Timestamp { seconds: 978_307_200, nanos: 0 }),
            body: Some(body),
            ..Default::default()
        }
    }

    #[test]
    fn a_tool_call_has_the_fields_of_the_contract() {
        let line = event_line(&event(Body::ToolCallFinished(v1::ToolCallFinished {
            tool_call_id: "tc_1".into(),
            name: "shell".into(),
            status: "failed".into(),
            result_preview: "exit 1".into(),
            exit_code: Some(1),
            ..Default::default()
        })))
        .unwrap()
        .unwrap();
        assert_eq!(
            line,
            json!({"type": "tool_call_finished", "thread_id": "thr_1", "seq": 4, "at": "2001-01-01T00:00:00Z",
                "run_id": "run_1", "tool_call_id": "tc_1", "name": "shell", "status": "failed",
                "result_preview": "exit 1", "text": "", "diff": "", "exit_code": 1})
        );
        assert!(line.to_string().starts_with(r#"{"type":"tool_call_finished","thread_id":"thr_1","seq":4"#));
    }

    #[test]
    fn deltas_have_place_and_text() {
        let delta = v1::Delta { item_id: "itm_1".into(), offset: 5, text: "abc".into() };
        let frame = v1::Frame {
            thread_id: "thr_1".into(),
            run_id: "run_1".into(),
            body: Some(v1::frame::Body::TextDelta(delta)),
        };
        assert_eq!(
            frame_line(&frame).unwrap().unwrap(),
            json!({"type": "text_delta", "thread_id": "thr_1", "run_id": "run_1", "item_id": "itm_1", "offset": 5,
                "text": "abc"})
        );
    }

    #[test]
    fn an_approval_is_named_at_the_top() {
        let approval = v1::Approval { approval_id: "apr_1".into(), tool: "shell".into(), ..Default::default() };
        let body = Body::ApprovalRequested(v1::ApprovalRequested { approval: Some(approval) });
        let line = event_line(&event(body)).unwrap().unwrap();
        assert_eq!((&line["type"], &line["approval_id"]), (&json!("approval_requested"), &json!("apr_1")));
        assert_eq!(line["approval"]["tool"], "shell");
        let question = v1::Question { question_id: "qst_1".into(), question: "which?".into(), ..Default::default() };
        let body = Body::QuestionAsked(v1::QuestionAsked { question: Some(question) });
        let line = event_line(&event(body)).unwrap().unwrap();
        assert_eq!((&line["question_id"], &line["question"]["question"]), (&json!("qst_1"), &json!("which?")));
    }

    #[test]
    fn repeats_and_unknown_events_are_left_out() {
        assert_eq!(event_line(&event(Body::MessageCheckpointed(v1::MessageCheckpointed::default()))).unwrap(), None);
        assert_eq!(event_line(&v1::Event::default()).unwrap(), None);
        assert_eq!(frame_line(&v1::Frame::default()).unwrap(), None);
    }

    #[test]
    fn the_result_is_named_first() {
        assert_eq!(result_line(json!({"exit_code": 0})).to_string(), r#"{"type":"result","exit_code":0}"#);
    }
}
