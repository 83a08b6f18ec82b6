//! OpenAI's two wires.

use super::*;

#[test]
fn chat() {
    let sound = json!({"model": "m", "tools": [{"type": "function", "function": {"name": "t", "parameters": {}}}],
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "t", "arguments": "{}"}},
            {"id": "y", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "x", "content": "r"},
        {"role": "tool", "tool_call_id": "y", "content": "r"},
    ]});
    check_all(
        Wire::Chat,
        "m",
        &sound,
        &Given::default(),
        &[
            ("no model", |b| drop_field(b, "model"), "must provide a model"),
            ("no messages", |b| b["messages"] = json!([]), "empty array"),
            ("no result", |b| remove(&mut b["messages"], 4), "did not have response messages: y"),
            (
                "a result too late",
                |b| insert(&mut b["messages"], 4, json!({"role": "user", "content": "w"})),
                "did not have response messages: y",
            ),
            (
                "a stray result",
                |b| b["messages"][4]["tool_call_id"] = json!("z"),
                "preceeding message with 'tool_calls'",
            ),
            ("an empty result", |b| b["messages"][3]["content"] = json!(""), "must be non-empty"),
            ("empty text", |b| b["messages"][1]["content"] = json!(""), "must be non-empty"),
            ("nothing said", |b| b["messages"][1]["content"] = json!(null), "got null"),
            ("a long id", |b| b["messages"][2]["tool_calls"][0]["id"] = json!("x".repeat(41)), "maximum length 40"),
            ("one id twice", |b| b["messages"][2]["tool_calls"][1]["id"] = json!("x"), "duplicate id"),
            (
                "arguments as an object",
                |b| b["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!({}),
                "expected a string",
            ),
            (
                "a bad name of a call",
                |b| b["messages"][2]["tool_calls"][0]["function"]["name"] = json!("a b"),
                "does not match pattern",
            ),
            ("a bad name of a tool", |b| b["tools"][0]["function"]["name"] = json!("a.b"), "does not match pattern"),
            ("an unknown role", |b| b["messages"][0]["role"] = json!("model"), "Supported values"),
        ],
    );
}

fn given() -> Given {
    let mut given = Given::default();
    given.sign(Wire::Responses, "gpt", "E1", "rs_1");
    given.sign(Wire::Responses, "other", "E2", "rs_1");
    given.lead("rs_1", "fc_1");
    given
}

fn sound() -> Value {
    json!({"model": "gpt", "store": false, "include": ["reasoning.encrypted_content"], "instructions": "s",
    "tools": [{"type": "function", "name": "t", "parameters": {"type": "object"}, "strict": false}],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E1"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "t", "arguments": "{}"},
        {"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "t", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "r"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
            "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        {"role": "user", "content": "c"},
    ]})
}

#[test]
fn responses_items_and_fields() {
    check_all(
        Wire::Responses,
        "gpt",
        &sound(),
        &given(),
        &[
            ("no model", |b| drop_field(b, "model"), "Missing required parameter: 'model'"),
            ("no input", |b| b["input"] = json!([]), "One of 'input'"),
            ("a field of the other wire", |b| b["messages"] = json!([]), "moved to 'input'"),
            ("a limit of the other wire", |b| b["max_tokens"] = json!(1), "moved to 'max_output_tokens'"),
            (
                "a strict schema that is none",
                |b| drop_field(&mut b["tools"][0], "strict"),
                "'additionalProperties' is required",
            ),
            ("no schema", |b| b["tools"][0]["parameters"] = json!({}), "JSON Schema of 'type: \"object\"'"),
            ("a bad name of a tool", |b| b["tools"][0]["name"] = json!("a b"), "tools[0].name"),
            ("a bad name of a call", |b| b["input"][2]["name"] = json!("a.b"), "input[2].name"),
            ("arguments as an object", |b| b["input"][2]["arguments"] = json!({}), "expected a string"),
            ("empty text", |b| b["input"][0]["content"][0]["text"] = json!(""), "empty string"),
            ("an empty message", |b| b["input"][7]["content"] = json!(""), "content must be non-empty"),
            ("an empty output", |b| b["input"][4]["output"] = json!(""), "output': content must be non-empty"),
            (
                "the user's kind of text for the assistant",
                |b| b["input"][6]["content"][0]["type"] = json!("input_text"),
                "'output_text', 'refusal'",
            ),
            ("an unknown role", |b| b["input"][0]["role"] = json!("tool"), "Supported values"),
            ("no type", |b| b["input"][4] = json!({}), "input[4].type"),
            ("an id of a call with another prefix", |b| b["input"][3]["id"] = json!("call_2"), "begins with 'fc'"),
            ("an id of a message with another prefix", |b| b["input"][6]["id"] = json!("fc_7"), "begins with 'msg'"),
            ("an id of reasoning with another prefix", |b| b["input"][1]["id"] = json!("msg_9"), "begins with 'rs'"),
            ("a long id", |b| b["input"][3]["id"] = json!(format!("fc_{}", "x".repeat(62))), "maximum length 64"),
            ("an id of other characters", |b| b["input"][3]["id"] = json!("fc_a+/="), "additional characters"),
            ("one id twice", |b| b["input"][3]["id"] = json!("fc_1"), "Duplicate item found with id fc_1"),
            ("a long call id", |b| b["input"][3]["call_id"] = json!("x".repeat(65)), "length of 1 to 64"),
        ],
    );
}

#[test]
fn responses_pairs_and_reasoning() {
    check_all(
        Wire::Responses,
        "gpt",
        &sound(),
        &given(),
        &[
            ("no output", |b| remove(&mut b["input"], 5), "No tool output found for function call c2"),
            (
                "an output after the user's next words",
                |b| {
                    let output = b["input"][5].take();
                    remove(&mut b["input"], 5);
                    push(&mut b["input"], output);
                },
                "No tool output found for function call c2",
            ),
            (
                "a stray output",
                |b| b["input"][5]["call_id"] = json!("c9"),
                "No tool call found for function call output with call_id c9",
            ),
            (
                "two outputs",
                |b| b["input"][5]["call_id"] = json!("c1"),
                "No tool call found for function call output with call_id c1",
            ),
            ("one call id twice", |b| b["input"][3]["call_id"] = json!("c1"), "Duplicate call_id"),
            // The words of the recorded error err-04.
            (
                "reasoning without what it led to",
                |b| {
                    for _ in 0..4 {
                        remove(&mut b["input"], 2);
                    }
                    drop_field(&mut b["input"][2], "id");
                },
                "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
            ),
            (
                "reasoning before the user",
                |b| {
                    let reasoning = b["input"][1].take();
                    b["input"] = json!([reasoning, {"role": "user", "content": "x"}]);
                },
                "without its required following item",
            ),
            (
                "a call without its reasoning",
                |b| remove(&mut b["input"], 1),
                "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'",
            ),
            (
                "another model's encrypted content",
                |b| b["input"][1]["encrypted_content"] = json!("E2"),
                "could not be verified",
            ),
            (
                "edited encrypted content",
                |b| b["input"][1]["encrypted_content"] = json!("E1~unfinished"),
                "could not be verified",
            ),
            ("encrypted content of another item", |b| b["input"][1]["id"] = json!("rs_2"), "could not be verified"),
            (
                "reasoning by its id alone",
                |b| drop_field(&mut b["input"][1], "encrypted_content"),
                "Item with id 'rs_1' not found",
            ),
            (
                "a reference",
                |b| insert(&mut b["input"], 7, json!({"type": "item_reference", "id": "msg_9"})),
                "'msg_9' not found",
            ),
            ("ids, and stored", |b| drop_field(b, "store"), "not persisted"),
            ("ids, and stored by name", |b| b["store"] = json!(true), "not persisted"),
        ],
    );
    take_all(
        Wire::Responses,
        "gpt",
        &sound(),
        &given(),
        &[
            ("the input as a text", |b| b["input"] = json!("hi")),
            ("calls without ids or reasoning", |b| {
                drop_field(&mut b["input"][2], "id");
                remove(&mut b["input"], 1);
            }),
            ("nothing by id, and stored", |b| {
                drop_field(b, "store");
                b["input"] = json!([{"role": "user", "content": "x"}]);
            }),
            ("a strict schema", |b| {
                b["tools"][0] = json!({"type": "function", "name": "t", "strict": true,
            "parameters": {"type": "object", "additionalProperties": false}})
            }),
            ("a custom tool", |b| {
                b["input"][3] =
                    json!({"type": "custom_tool_call", "id": "ctc_2", "call_id": "c2", "name": "t", "input": "x"});
                b["input"][5]["type"] = json!("custom_tool_call_output");
            }),
        ],
    );
}
