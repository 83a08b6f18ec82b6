//! The fold of a run's events into what its user asked for.

use mcode_proto::v1;
use mcode_proto::v1::event::Body;
use serde_json::{Value, json};

use crate::json::{usage_json, value_json};

/// A tool call of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCallView {
    /// `tc_…`.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments.
    pub arguments: Value,
    /// `running`, then done, failed, denied, cancelled or interrupted.
    pub status: String,
    /// One line for people.
    pub result_preview: String,
}

/// A run as far as its events have been seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunView {
    /// The thread.
    pub thread_id: String,
    /// The run.
    pub run_id: String,
    /// running, waiting, done, failed, cancelled or interrupted.
    pub status: String,
    /// The final answer: the last words of the assistant.
    pub text: String,
    /// The answer that satisfies the schema, if there is one.
    pub structured: Value,
    /// What it cost.
    pub usage: v1::Usage,
    /// The tool calls in the order they were started.
    pub tool_calls: Vec<ToolCallView>,
    /// Why it did not end well.
    pub error: Option<v1::RunError>,
    /// The exit status, once it has ended.
    pub exit_code: Option<i32>,
}

impl RunView {
    /// A run that has just been started.
    #[must_use]
    pub fn new(thread_id: &str, run_id: &str) -> Self {
        Self {
            thread_id: thread_id.to_owned(),
            run_id: run_id.to_owned(),
            status: "running".to_owned(),
            ..Self::default()
        }
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.exit_code.is_some()
    }

    /// Takes an event in; those of other runs are ignored.
    pub fn apply(&mut self, event: &v1::Event) {
        if event.run_id != self.run_id {
            return;
        }
        match &event.body {
            Some(Body::RunStatusChanged(change)) => self.status.clone_from(&change.status),
            Some(Body::MessageFinished(message)) if message.role == "assistant" && !message.text.trim().is_empty() => {
                self.text.clone_from(&message.text);
            }
            Some(Body::ToolCallStarted(call)) => self.tool_calls.push(ToolCallView {
                id: call.tool_call_id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.as_ref().map_or(Value::Null, value_json),
                status: "running".to_owned(),
                result_preview: String::new(),
            }),
            Some(Body::ToolCallFinished(end)) => self.end_call(end),
            Some(Body::UsageRecorded(record)) => {
                if let Some(usage) = &record.usage {
                    add(&mut self.usage, usage);
                }
            }
            Some(Body::RunFinished(end)) => self.end(end),
            _ => {}
        }
    }

    fn end_call(&mut self, end: &v1::ToolCallFinished) {
        let known = self.tool_calls.iter_mut().find(|call| call.id == end.tool_call_id);
        if let Some(call) = known {
            call.status.clone_from(&end.status);
            call.result_preview.clone_from(&end.result_preview);
            return;
        }
        self.tool_calls.push(ToolCallView {
            id: end.tool_call_id.clone(),
            name: end.name.clone(),
            arguments: Value::Null,
            status: end.status.clone(),
            result_preview: end.result_preview.clone(),
        });
    }

    fn end(&mut self, end: &v1::RunFinished) {
        self.status.clone_from(&end.status);
        self.error.clone_from(&end.error);
        let told = || end.structured.as_ref().map_or(Value::Null, value_json);
        self.structured = serde_json::from_str(&end.structured_json).unwrap_or_else(|_| told());
        if let Some(usage) = &end.usage {
            self.usage = *usage;
        }
        self.exit_code = Some(end.exit_code);
    }

    /// The one object of `--output json`.
    #[must_use]
    pub fn result(&self) -> Value {
        let calls: Vec<Value> = self
            .tool_calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "name": call.name, "arguments": call.arguments, "status": call.status,
                    "result_preview": call.result_preview})
            })
            .collect();
        let error = self.error.as_ref().map(|error| {
            let hint = (!error.hint.is_empty()).then_some(&error.hint);
            json!({"kind": error.kind, "reason": error.reason, "message": error.message, "hint": hint})
        });
        json!({
            "thread_id": self.thread_id,
            "run_id": self.run_id,
            "status": self.status,
            "text": self.text,
            "structured": self.structured,
            "usage": usage_json(&self.usage),
            "tool_calls": calls,
            "error": error,
            "exit_code": self.exit_code,
        })
    }
}

fn add(sum: &mut v1::Usage, more: &v1::Usage) {
    sum.input_tokens = sum.input_tokens.saturating_add(more.input_tokens);
    sum.output_tokens = sum.output_tokens.saturating_add(more.output_tokens);
    sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(more.cache_read_tokens);
    sum.cache_write_tokens = sum.cache_write_tokens.saturating_add(more.cache_write_tokens);
    sum.reasoning_tokens = sum.reasoning_tokens.saturating_add(more.reasoning_tokens);
    sum.cost_usd += more.cost_usd;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(run_id: &str, body: Body) -> v1::Event {
        v1::Event { run_id: run_id.into(), body: Some(body), ..Default::default() }
    }

    fn said(role: &str, text: &str) -> Body {
        Body::MessageFinished(v1::MessageFinished { role: role.into(), text: text.into(), ..Default::default() })
    }

    #[test]
    fn a_run_folds_into_its_result() {
        let mut view = RunView::new("thr_1", "run_1");
        let arguments = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(5.0)) };
        for body in [
            said("user", "do it"),
            said("assistant", "first"),
            Body::ToolCallStarted(v1::ToolCallStarted {
                tool_call_id: "tc_1".into(),
                name: "view".into(),
                arguments: Some(arguments),
                ..Default::default()
            }),
            Body::ToolCallFinished(v1::ToolCallFinished {
                tool_call_id: "tc_1".into(),
                name: "view".into(),
                status: "done".into(),
                result_preview: "3 lines".into(),
                ..Default::default()
            }),
            said("assistant", "last"),
            said("assistant", " \n"),
        ] {
            view.apply(&event("run_1", body));
        }
        view.apply(&event("run_2", said("assistant", "of another run")));
        assert!(!view.is_finished());
        let usage = v1::Usage { input_tokens: 7, cost_usd: 0.5, ..Default::default() };
        view.apply(&event(
            "run_1",
            Body::UsageRecorded(v1::UsageRecorded { usage: Some(usage), ..Default::default() }),
        ));
        let end = v1::RunFinished { status: "done".into(), usage: Some(usage), ..Default::default() };
        view.apply(&event("run_1", Body::RunFinished(end)));
        assert!(view.is_finished());
        assert_eq!(
            view.result(),
            json!({
                "thread_id": "thr_1", "run_id": "run_1", "status": "done", "text": "last", "structured": null,
                "usage": {"input_tokens": 7, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0,
                    "reasoning_tokens": 0, "cost_usd": 0.5},
                "tool_calls": [{"id": "tc_1", "name": "view", "arguments": 5, "status": "done",
                    "result_preview": "3 lines"}],
                "error": null, "exit_code": 0
            })
        );
    }
}
