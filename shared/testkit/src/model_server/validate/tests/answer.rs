//! The schema of an answer on every wire.

use super::*;

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})
}

const TEXT: &str = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false}"#;

#[test]
fn openai() {
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "response_format":
        {"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": schema()}}});
    check_all(
        Wire::Chat,
        "m",
        &chat,
        &Given::default(),
        &[
            ("no name", |b| drop_field(&mut b["response_format"]["json_schema"], "name"), "json_schema.name"),
            ("another type", |b| b["response_format"]["type"] = json!("xml"), "response_format.type"),
            (
                "no object",
                |b| b["response_format"]["json_schema"]["schema"] = json!({"type": "array"}),
                "got 'type: \"array\"'",
            ),
            (
                "an open object",
                |b| drop_field(&mut b["response_format"]["json_schema"]["schema"], "additionalProperties"),
                "'additionalProperties' is required",
            ),
            (
                "a field that may be missing",
                |b| b["response_format"]["json_schema"]["schema"]["required"] = json!([]),
                "Missing 'n'",
            ),
            (
                "an unknown keyword",
                |b| b["response_format"]["json_schema"]["schema"]["properties"]["n"]["not"] = json!({}),
                "'not' is not permitted",
            ),
        ],
    );
    let open = |b: &mut Value| {
        b["response_format"]["json_schema"]["strict"] = json!(false);
        b["response_format"]["json_schema"]["schema"] = json!({"type": "object", "not": {}});
    };
    take_all(Wire::Chat, "m", &chat, &Given::default(), &[("any schema where it is not strict", open)]);
    let responses = json!({"model": "m", "input": "a", "text": {"format":
        {"type": "json_schema", "name": "answer", "strict": true, "schema": schema()}}});
    check_all(
        Wire::Responses,
        "m",
        &responses,
        &Given::default(),
        &[
            ("no name", |b| drop_field(&mut b["text"]["format"], "name"), "text.format.name"),
            ("the field of the other wire", |b| b["response_format"] = json!({}), "moved to 'text.format'"),
            ("an open object", |b| b["text"]["format"]["schema"]["additionalProperties"] = json!(true), "to be false"),
        ],
    );
}

#[test]
fn claude() {
    let sound = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema()}}});
    check_all(
        Wire::Anthropic,
        "m",
        &sound,
        &Given::default(),
        &[
            ("another type", |b| b["output_config"]["format"]["type"] = json!("json"), "should be 'json_schema'"),
            ("another field", |b| b["output_config"]["x"] = json!(1), "output_config.x: Extra inputs"),
            (
                "an open object",
                |b| drop_field(&mut b["output_config"]["format"]["schema"], "additionalProperties"),
                "explicitly set to false",
            ),
            (
                "a bound",
                |b| b["output_config"]["format"]["schema"]["properties"]["n"]["minimum"] = json!(1),
                "property 'minimum' is not supported",
            ),
        ],
    );
    let sound = json!({"messages": [{"role": "user", "content": [{"text": "a"}]}], "outputConfig": {"textFormat":
        {"type": "json_schema", "structure": {"jsonSchema": {"name": "answer", "schema": TEXT}}}}});
    let structure = |b: &mut Value, schema: Value| {
        b["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"] = schema;
    };
    assert_eq!(refused(Wire::Bedrock, "m", &sound, &Given::default()), None);
    for (schema, words) in
        [(schema(), "JSON in a text"), (json!("{"), "JSON in a text"), (json!("{\"type\": \"object\"}"), "explicitly")]
    {
        let mut body = sound.clone();
        structure(&mut body, schema);
        let said = refused(Wire::Bedrock, "m", &body, &Given::default()).unwrap_or_default();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn gemini() {
    let sound = json!({"contents": [{"role": "user", "parts": [{"text": "a"}]}],
        "tools": [{"functionDeclarations": [{"name": "t"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema()}});
    check_all(
        Wire::Gemini,
        "gemini-3-pro",
        &sound,
        &Given::default(),
        &[
            ("no type", |b| drop_field(&mut b["generationConfig"], "responseMimeType"), "'application/json'"),
            ("both schemas", |b| b["generationConfig"]["responseSchema"] = json!({}), "Only one of"),
            (
                "an unknown keyword",
                |b| b["generationConfig"]["responseJsonSchema"]["properties"]["n"]["const"] = json!(1),
                "Unknown name \"const\"",
            ),
        ],
    );
    let said = refused(Wire::Gemini, "gemini-2.5-pro", &sound, &Given::default()).unwrap();
    assert!(said.contains("Function calling with a response mime type"), "{said}");
}

#[test]
fn thinking_by_family() {
    let claude = |model: &str, thinking: Value, effort: &str| {
        let mut body = json!({"model": model, "max_tokens": 4000, "messages": [{"role": "user", "content": "a"}],
            "thinking": thinking});
        if !effort.is_empty() {
            body["output_config"] = json!({ "effort": effort });
        }
        refused(Wire::Anthropic, model, &body, &Given::default()).unwrap_or_default()
    };
    let adaptive = json!({"type": "adaptive"});
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let off = json!({"type": "disabled"});
    for (model, thinking, effort, words) in [
        ("claude-sonnet-4-5", adaptive.clone(), "", "not supported"),
        ("claude-sonnet-4-5", budget(2000), "", ""),
        ("claude-sonnet-4-5", budget(1000), "", "1024"),
        ("claude-sonnet-4-5", budget(4000), "", "must be greater"),
        ("claude-sonnet-4-5", budget(2000), "low", "effort level"),
        ("claude-opus-4-8", budget(2000), "", "not supported"),
        ("claude-opus-4-6", adaptive.clone(), "xhigh", "effort level"),
        ("claude-opus-4-8", adaptive.clone(), "xhigh", ""),
        ("claude-fable-5", off.clone(), "", "not supported"),
        ("claude-opus-5", off.clone(), "max", "effort level"),
        ("claude-opus-5", off, "", ""),
        ("us.anthropic.claude-opus-4-8-v1:0", adaptive, "max", ""),
    ] {
        let said = claude(model, thinking.clone(), effort);
        assert!(
            if words.is_empty() { said.is_empty() } else { said.contains(words) },
            "{model} {thinking} {effort}: {said}"
        );
    }
    let effort = |model: &str, effort: &str| {
        let body = json!({"model": model, "input": "a", "reasoning": {"effort": effort}});
        refused(Wire::Responses, model, &body, &Given::default()).is_none()
    };
    assert!(effort("gpt-5", "minimal") && !effort("gpt-5", "none") && !effort("gpt-5", "xhigh"));
    assert!(effort("gpt-5.5", "none") && !effort("gpt-6.1-sol", "none") && effort("new", "max"));
    let gemini = |model: &str, config: Value| {
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "a"}]}],
            "generationConfig": {"thinkingConfig": config}});
        refused(Wire::Gemini, model, &body, &Given::default()).is_none()
    };
    assert!(
        gemini("gemini-2.5-flash", json!({"thinkingBudget": 0}))
            && !gemini("gemini-2.5-pro", json!({"thinkingBudget": 0}))
    );
    assert!(gemini("gemini-3-flash-preview", json!({"thinkingLevel": "minimal"})));
    assert!(!gemini("gemini-3.1-pro-preview", json!({"thinkingLevel": "minimal"})));
    assert!(!gemini("gemini-3.1-pro-preview", json!({"thinkingBudget": 5})));
}
