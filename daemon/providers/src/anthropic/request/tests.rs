//! What is sent over the Messages wire.

use mcode_events::blob::BlobRef;
use mcode_events::message::{Opaque, Origin, Part};
use mcode_events::run::ThinkingLevel;
use mcode_models::{Catalogue, ModelRequest, PromptMessage, ThinkingForm};
use serde_json::{Value, json};

use super::{MAX_CACHE_MARKS, body};
use crate::media::PreparedMedia;
use crate::testing::{call, call_id, origin, request, text, tool_answer};

fn sent(request: &ModelRequest) -> Value {
    body(request, &PreparedMedia::new(), &[])
}

fn signed(origin: Option<Origin>) -> PromptMessage {
    let parts = vec![
        Part::Thinking { text: "hm".into(), opaque: Some(Opaque(json!({"signature": "S1"}))) },
        Part::RedactedThinking { opaque: Opaque(json!({"data": "R1"})) },
        Part::Thinking { text: "unsigned".into(), opaque: None },
        text("words"),
        call(1, "toolu_1"),
    ];
    PromptMessage::Assistant { parts, origin }
}

#[test]
fn opaque_data_goes_back_to_its_maker_only() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    let maker = origin(&request);
    let messages = |origin| {
        vec![
            PromptMessage::User(vec![text("go")]),
            signed(origin),
            PromptMessage::Tools(vec![tool_answer(1, "toolu_1", "out")]),
        ]
    };
    request.messages = messages(Some(maker.clone()));
    let own = sent(&request)["messages"][1]["content"].clone();
    assert_eq!(own[0], json!({"type": "thinking", "thinking": "hm", "signature": "S1"}));
    assert_eq!(own[1], json!({"type": "redacted_thinking", "data": "R1"}));
    assert_eq!(own[2], json!({"type": "text", "text": "words"}));
    let others = [
        None,
        Some(Origin { model: "claude-opus-5".into(), ..maker.clone() }),
        Some(Origin { provider: "kimi-for-coding".into(), ..maker.clone() }),
        Some(Origin { wire: "openai-chat".into(), ..maker }),
    ];
    for other in others {
        request.messages = messages(other);
        let text = sent(&request).to_string();
        assert!(!text.contains("S1") && !text.contains("R1") && !text.contains("unsigned"), "{text}");
        assert!(text.contains("toolu_1"));
    }
}

#[test]
fn at_most_four_marks_at_the_ends_of_the_stable_parts() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    request.messages = vec![PromptMessage::User(vec![text("one")])];
    for number in 1..8 {
        let parts = vec![text("a"), call(number, &format!("toolu_{number}"))];
        request.messages.push(PromptMessage::Assistant { parts, origin: None });
        request.messages.push(PromptMessage::Tools(vec![tool_answer(number, &format!("toolu_{number}"), "out")]));
    }
    let body = sent(&request);
    assert_eq!(body.to_string().matches("cache_control").count(), MAX_CACHE_MARKS);
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body["tools"].as_array().unwrap().last().unwrap()["cache_control"], mark);
    assert_eq!(body["system"].as_array().unwrap().last().unwrap()["cache_control"], mark);
    let messages = body["messages"].as_array().unwrap();
    for back in [1, 3] {
        assert_eq!(messages[messages.len() - back]["content"][0]["cache_control"], mark);
    }
}

#[test]
fn the_prefix_stays_the_same_when_the_conversation_grows() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    let before = sent(&request);
    request.messages.push(PromptMessage::Assistant { parts: vec![call(1, "a b")], origin: None });
    request.messages.push(PromptMessage::Tools(vec![tool_answer(1, "a b", "out")]));
    let after = sent(&request);
    assert_eq!(before["system"], after["system"]);
    assert_eq!(before["tools"], after["tools"]);
    let ids = |body: &Value| {
        (body["messages"][1]["content"][0]["id"].clone(), body["messages"][2]["content"][0]["tool_use_id"].clone())
    };
    assert_eq!(ids(&after).0, ids(&after).1, "call and answer have the same id");
    assert_eq!(ids(&after), ids(&sent(&request)));
}

#[test]
fn same_roles_are_joined_and_the_model_never_begins() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    request.messages = vec![
        PromptMessage::Assistant { parts: vec![call(1, "toolu_1")], origin: None },
        PromptMessage::Tools(vec![tool_answer(1, "toolu_1", "out")]),
        PromptMessage::User(vec![text("more")]),
        PromptMessage::Assistant { parts: vec![text("end  \n")], origin: None },
    ];
    let body = sent(&request);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!(messages[2]["content"].as_array().unwrap().len(), 2);
    assert_eq!(messages[3]["content"][0]["text"], "end");
}

#[test]
fn words_after_a_call_go_before_it() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    let parts = vec![call(1, "toolu_1"), text("after")];
    request.messages = vec![
        PromptMessage::User(vec![text("go")]),
        PromptMessage::Assistant { parts, origin: None },
        PromptMessage::Tools(vec![tool_answer(1, "toolu_1", "out")]),
    ];
    let body = sent(&request);
    assert_eq!(body["messages"][1]["content"][0]["text"], "after");
    assert_eq!(body["messages"][1]["content"][1]["type"], "tool_use");
}

#[test]
fn thinking_is_asked_for_as_the_model_wants_it() {
    let ask = |model: &str, level| {
        let mut request = request(model);
        request.thinking = level;
        let body = sent(&request);
        (body["thinking"].clone(), body["output_config"]["effort"].clone(), body["max_tokens"].as_u64().unwrap())
    };
    let (thinking, effort, max) = ask("anthropic/claude-sonnet-4-5", Some(ThinkingLevel::High));
    assert_eq!((thinking["type"].as_str(), effort), (Some("enabled"), Value::Null));
    let budget = thinking["budget_tokens"].as_u64().unwrap();
    assert!(budget >= 1_024 && budget < max);
    let (thinking, effort, _) = ask("anthropic/claude-opus-4-6", Some(ThinkingLevel::Xhigh));
    assert_eq!((thinking, effort), (json!({"type": "adaptive"}), json!("max")));
    let (thinking, effort, _) = ask("anthropic/claude-opus-4-7", Some(ThinkingLevel::Xhigh));
    assert_eq!((thinking["display"].as_str(), effort), (Some("summarized"), json!("xhigh")));
    assert_eq!(ask("anthropic/claude-sonnet-5", Some(ThinkingLevel::Off)).0, json!({"type": "disabled"}));
    let (thinking, effort, _) = ask("anthropic/claude-fable-5", Some(ThinkingLevel::Off));
    assert_eq!((thinking["type"].as_str(), effort), (Some("adaptive"), json!("low")), "it can not be switched off");
    assert_eq!(ask("anthropic/claude-sonnet-4-5", None).0, Value::Null);
    assert_eq!(Catalogue::bundled().info(&"anthropic/claude-next-9".parse().unwrap()).thinking, ThinkingForm::Adaptive);
}

#[test]
fn a_history_with_calls_declares_tools() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    request.tools.clear();
    request.messages.push(PromptMessage::Assistant { parts: vec![call(1, "toolu_1")], origin: None });
    request.messages.push(PromptMessage::Tools(vec![tool_answer(1, "toolu_1", "out")]));
    assert_eq!(sent(&request)["tools"][0]["name"], "shell");
    assert_eq!(body(&request, &PreparedMedia::new(), &["tools".to_owned()])["tools"], Value::Null);
}

#[test]
fn a_missing_picture_is_a_note() {
    let mut request = request("anthropic/claude-sonnet-4-5");
    let mut answer = tool_answer(1, "toolu_1", "");
    let gone = BlobRef { hash: "gone".into(), size_bytes: 1, media_type: "image/png".into() };
    answer.media.push((gone, "shot.png".into()));
    let parts = vec![Part::ToolCall {
        tool_call_id: call_id(1),
        provider_call_id: "toolu_1".into(),
        name: "view".into(),
        arguments: Value::String("{\"broken".into()),
        opaque: None,
    }];
    request.messages.push(PromptMessage::Assistant { parts, origin: None });
    request.messages.push(PromptMessage::Tools(vec![answer]));
    let body = sent(&request);
    assert!(body["messages"][2]["content"][0]["content"][0]["text"].as_str().unwrap().contains("shot.png left out"));
    assert_eq!(body["messages"][1]["content"][0]["input"], json!({"invalid_arguments": "{\"broken"}));
}
