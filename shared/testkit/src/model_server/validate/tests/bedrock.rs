//! The Converse wire.

use super::*;

const CLAUDE: &str = "us.anthropic.claude-opus-4-8-v1:0";

fn given() -> Given {
    let mut given = Given::default();
    given.sign(Wire::Bedrock, CLAUDE, "S1", "hm");
    given.sign(Wire::Bedrock, "anthropic.other", "S2", "hm");
    given.sign(Wire::Bedrock, CLAUDE, "UjE=", "");
    given
}

fn sound() -> Value {
    json!({
    "system": [{"text": "s"}, {"cachePoint": {"type": "default"}}],
    "toolConfig": {"tools": [
        {"toolSpec": {"name": "t", "description": "d", "inputSchema": {"json": {"type": "object"}}}},
        {"cachePoint": {"type": "default"}}]},
    "messages": [
        {"role": "user", "content": [{"text": "a"}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "S1"}}},
            {"reasoningContent": {"redactedContent": "UjE="}},
            {"toolUse": {"toolUseId": "x", "name": "t", "input": {}}},
            {"toolUse": {"toolUseId": "y", "name": "t", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "x", "status": "success", "content": [{"text": "r"}]}},
            {"toolResult": {"toolUseId": "y", "status": "error", "content": [{"text": "r"}]}},
            {"text": "and"}, {"cachePoint": {"type": "default"}}]},
    ]})
}

#[test]
fn shapes_and_pairs() {
    check_all(
        Wire::Bedrock,
        CLAUDE,
        &sound(),
        &given(),
        &[
            ("no messages", |b| b["messages"] = json!([]), "messages field is empty"),
            ("assistant first", |b| remove(&mut b["messages"], 0), "must start with a user message"),
            (
                "two of a role",
                |b| insert(&mut b["messages"], 1, json!({"role": "user", "content": [{"text": "x"}]})),
                "must alternate",
            ),
            (
                "a trailing assistant",
                |b| push(&mut b["messages"], json!({"role": "assistant", "content": [{"text": "x"}]})),
                "must end with a user message",
            ),
            ("another role", |b| b["messages"][0]["role"] = json!("system"), "enum value set: [user, assistant]"),
            ("no content", |b| b["messages"][0]["content"] = json!([]), "messages.0 is empty"),
            ("empty text", |b| b["messages"][0]["content"][0]["text"] = json!(""), "messages.0.content.0 is blank"),
            ("blank system text", |b| b["system"][0]["text"] = json!(" "), "system.0 is blank"),
            ("no result", |b| remove(&mut b["messages"][2]["content"], 1), "for the following Ids: y"),
            (
                "a stray result",
                |b| b["messages"][2]["content"][1]["toolResult"]["toolUseId"] = json!("z"),
                "exceeds the number of toolUse blocks",
            ),
            (
                "two results",
                |b| b["messages"][2]["content"][1]["toolResult"]["toolUseId"] = json!("x"),
                "duplicate Ids",
            ),
            (
                "an empty result",
                |b| b["messages"][2]["content"][0]["toolResult"]["content"] = json!([]),
                "ToolResultBlock",
            ),
            (
                "an unknown status",
                |b| b["messages"][2]["content"][0]["toolResult"]["status"] = json!("ok"),
                "[success, error]",
            ),
            (
                "a bad id",
                |b| b["messages"][1]["content"][2]["toolUse"]["toolUseId"] = json!("a.b"),
                "toolUse.toolUseId",
            ),
            (
                "a long id",
                |b| b["messages"][1]["content"][2]["toolUse"]["toolUseId"] = json!("x".repeat(65)),
                "toolUse.toolUseId",
            ),
            (
                "one id twice",
                |b| b["messages"][1]["content"][3]["toolUse"]["toolUseId"] = json!("x"),
                "duplicate Ids: x",
            ),
            (
                "a bad name of a call",
                |b| b["messages"][1]["content"][2]["toolUse"]["name"] = json!("a b"),
                "toolUse.name",
            ),
            (
                "input as text",
                |b| b["messages"][1]["content"][2]["toolUse"]["input"] = json!("{}"),
                "Provide a json object",
            ),
            (
                "a call of the user's",
                |b| b["messages"][0]["content"][0] = json!({"toolUse": {"toolUseId": "q", "name": "t", "input": {}}}),
                "not allowed in a message of the role user",
            ),
            ("no tools", |b| drop_field(b, "toolConfig"), "toolConfig field must be defined"),
            (
                "no description",
                |b| b["toolConfig"]["tools"][0]["toolSpec"]["description"] = json!(""),
                "length greater than or equal to 1",
            ),
            ("a bad name", |b| b["toolConfig"]["tools"][0]["toolSpec"]["name"] = json!("a.b"), "toolSpec.name"),
            (
                "a name twice",
                |b| {
                    let tool = b["toolConfig"]["tools"][0].clone();
                    push(&mut b["toolConfig"]["tools"], tool)
                },
                "duplicate tool names",
            ),
            (
                "no schema",
                |b| drop_field(&mut b["toolConfig"]["tools"][0]["toolSpec"], "inputSchema"),
                "must be one of the following: object",
            ),
            (
                "five marks",
                |b| b["messages"][0]["content"] = json!([{"text": "a"}, {"cachePoint": {}}, {"cachePoint": {}}]),
                "Found 5",
            ),
        ],
    );
    let mistral = json!({
    "toolConfig": {"tools": [{"toolSpec": {"name": "t", "inputSchema": {"json": {"type": "object"}}}}]},
    "messages": [
        {"role": "user", "content": [{"text": "a"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "abcDEF123", "name": "t", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "abcDEF123", "content": [{"text": "r"}]}}]},
    ]});
    check_all(
        Wire::Bedrock,
        "mistral.large",
        &mistral,
        &given(),
        &[(
            "an id of another length",
            |b| b["messages"][1]["content"][0]["toolUse"]["toolUseId"] = json!("tooluse_1"),
            "length of 9",
        )],
    );
}

#[test]
fn reasoning() {
    check_all(
        Wire::Bedrock,
        CLAUDE,
        &sound(),
        &given(),
        &[
            (
                "another model's signature",
                |b| b["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] = json!("S2"),
                "Invalid `signature`",
            ),
            (
                "no signature",
                |b| drop_field(&mut b["messages"][1]["content"][0]["reasoningContent"]["reasoningText"], "signature"),
                "Invalid `signature`",
            ),
            (
                "an edited thought",
                |b| b["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["text"] = json!("ho"),
                "cannot be modified",
            ),
            (
                "a foreign redacted thought",
                |b| b["messages"][1]["content"][1]["reasoningContent"]["redactedContent"] = json!("UjI="),
                "Invalid `data`",
            ),
            (
                "reasoning of the user's",
                |b| {
                    insert(
                        &mut b["messages"][0]["content"],
                        0,
                        json!({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "S1"}}}),
                    )
                },
                "not allowed in a message of the role user",
            ),
        ],
    );
    let unsigned = json!({"messages": [
        {"role": "user", "content": [{"text": "a"}]},
        {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "b"}]},
        {"role": "user", "content": [{"text": "c"}]}]});
    check_all(
        Wire::Bedrock,
        "openai.gpt-oss-120b-1:0",
        &unsigned,
        &given(),
        &[(
            "a signature where none is known",
            |b| b["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] = json!("S1"),
            "doesn't support the reasoningContent.reasoningText.signature field",
        )],
    );
}
