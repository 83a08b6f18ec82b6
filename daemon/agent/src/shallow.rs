//! Takes out of a model's message what nests deeper than the log takes: a thread that holds it could not be read again.

use mcode_events::depth::fits;
use mcode_events::message::{Opaque, Part};
use serde_json::Value;

/// The same parts, none of which nests too deep. Arguments that do are their text, which the call is refused for; what only
/// the provider understands is left out.
pub(crate) fn shallow(parts: Vec<Part>) -> Vec<Part> {
    let fitting = |opaque: Option<Opaque>| opaque.filter(|opaque| fits(&opaque.0));
    let kept = parts.into_iter().filter_map(|part| {
        Some(match part {
            Part::Text { text, opaque } => Part::Text { text, opaque: fitting(opaque) },
            Part::Thinking { text, opaque } => Part::Thinking { text, opaque: fitting(opaque) },
            Part::RedactedThinking { opaque } => Part::RedactedThinking { opaque: fitting(Some(opaque))? },
            Part::Provider { opaque } => Part::Provider { opaque: fitting(Some(opaque))? },
            Part::ToolCall { tool_call_id, provider_call_id, name, arguments, opaque } => {
                let arguments = if fits(&arguments) { arguments } else { Value::String(arguments.to_string()) };
                Part::ToolCall { tool_call_id, provider_call_id, name, arguments, opaque: fitting(opaque) }
            }
            media @ Part::Media { .. } => media,
        })
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use mcode_events::depth::JSON_DEPTH_MAX;
    use mcode_ids::ToolCallId;
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn what_nests_too_deep_becomes_text_or_goes() {
        let call = |arguments: Value| Part::ToolCall {
            tool_call_id: ToolCallId::from_uuid(mcode_env::IdGen::next(&mcode_env::SeededIds::new(1))),
            provider_call_id: "c".into(),
            name: "view".into(),
            arguments,
            opaque: None,
        };
        let (deepest, deeper) = (nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX + 1));
        let provider = |value: &Value| Part::Provider { opaque: Opaque(value.clone()) };
        let text = |opaque: Option<&Value>| Part::Text { text: "t".into(), opaque: opaque.cloned().map(Opaque) };
        let whole = vec![call(deepest.clone()), provider(&deepest), text(Some(&deepest))];
        assert_eq!(shallow(whole.clone()), whole);
        let parts = shallow(vec![call(deeper.clone()), provider(&deeper), text(Some(&deeper))]);
        assert_eq!(parts, [call(Value::String(deeper.to_string())), text(None)]);
    }
}
