//! The `ask_user` tool.

use futures::future::BoxFuture;
use mcode_permissions::access::{Access, Category};
use serde_json::{Value, json};

use crate::port::AskOutcome;
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Most characters of a question.
pub const QUESTION_CHARS_MAX: usize = 4000;
/// Most options.
pub const OPTIONS_MAX: usize = 20;
/// Most characters of an option.
pub const OPTION_CHARS_MAX: usize = 500;

/// Asks the user and waits for the answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct AskTool;

struct Question {
    text: String,
    options: Vec<String>,
    multiple: bool,
}

fn parse(arguments: &Value) -> Result<Question, ToolFailure> {
    let bad = |text: String| Err(ToolFailure::BadArguments(text));
    let text = arguments["question"].as_str().unwrap_or_default().trim();
    if text.is_empty() {
        return bad("question: give the question to ask".into());
    }
    if text.chars().count() > QUESTION_CHARS_MAX {
        return bad(format!("question: at most {QUESTION_CHARS_MAX} characters; ask something shorter"));
    }
    let given = arguments["options"].as_array().map_or(&[][..], Vec::as_slice);
    let options: Vec<String> = given.iter().filter_map(|option| Some(option.as_str()?.trim().to_owned())).collect();
    if options.len() > OPTIONS_MAX {
        return bad(format!("options: {} are given, at most {OPTIONS_MAX} are possible", options.len()));
    }
    if let Some(at) = options.iter().position(|it| it.is_empty() || it.chars().count() > OPTION_CHARS_MAX) {
        return bad(format!("options[{at}]: give a text of 1 to {OPTION_CHARS_MAX} characters"));
    }
    Ok(Question { text: text.to_owned(), options, multiple: arguments["multiple"].as_bool().unwrap_or(false) })
}

impl Tool for AskTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "ask_user",
            description: "Asks the user a question and waits for the answer. Use it only when you can not find out or \
                          decide yourself and a wrong guess would be costly. The user may pick one of `options` (or \
                          several, with multiple: true) or answer in words of their own."
                .into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "question": {"type": "string", "description": "One clear question"},
                    "options": {"type": "array", "items": {"type": "string"}, "maxItems": OPTIONS_MAX, "description": "Answers to choose from"},
                    "multiple": {"type": "boolean", "description": "Several options may be chosen"}
                },
                "required": ["question"],
                "additionalProperties": false
            }),
            category: Category::Internal,
        }
    }

    fn plan(&self, arguments: &Value, _context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let question = parse(arguments)?;
        Ok(CallPlan { access: vec![Access::Internal], preview: question.text, parallel: false })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let Question { text, options, multiple } = parse(&arguments)?;
            let outcome = tokio::select! {
                outcome = context.port.ask(text, options, multiple) => outcome,
                () = context.cancel.cancelled() => AskOutcome::Cancelled,
            };
            match outcome {
                AskOutcome::Answered(answer) => {
                    let preview: String = answer.lines().next().unwrap_or_default().chars().take(80).collect();
                    Ok(ToolOutput::text(format!("The user answered:\n{answer}"), preview))
                }
                AskOutcome::NobodyThere => Ok(ToolOutput::text(
                    "Nobody is there to answer. Do not ask again: decide by yourself if a sensible choice is safe and \
                     say in your final answer what you assumed, or else stop and say what you need to know.",
                    "nobody there",
                )),
                AskOutcome::Cancelled => Err(ToolFailure::Cancelled),
            }
        })
    }
}
