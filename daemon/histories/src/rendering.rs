//! What both formats for people share: secrets taken out, and a tally of what was paid.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mcode_events::{EventBody, Usage};
use serde_json::{Map, Value};

/// Models whose figures are told apart; those of further ones are summed.
const MODELS_MAX: usize = 64;

/// The name of the further ones.
const OTHERS: &str = "others";

/// How a thread is shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rendering {
    /// Whether what looks like a key, a token or a password is taken out of all texts.
    pub redact: bool,
}

impl Rendering {
    /// A text, as it may be shown.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.redact { mcode_text::redact(text) } else { Cow::Borrowed(text) }
    }

    /// A text that stands under a name, which may tell that it is a secret.
    pub(crate) fn named<'a>(&self, name: &str, text: &'a str) -> Cow<'a, str> {
        if !self.redact {
            return Cow::Borrowed(text);
        }
        let line = format!("{name}={text}");
        match mcode_text::redact(&line) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(clean) => {
                let value = clean.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
                Cow::Owned(value.unwrap_or("[redacted]").to_owned())
            }
        }
    }

    /// The value with all its texts as they may be shown.
    pub(crate) fn value(&self, value: &Value) -> Value {
        self.value_of("", value)
    }

    fn value_of(&self, name: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.named(name, text).into_owned()),
            Value::Array(values) => Value::Array(values.iter().map(|value| self.value_of(name, value)).collect()),
            Value::Object(fields) => {
                let clean =
                    |(name, value): (&String, &Value)| (self.text(name).into_owned(), self.value_of(name, value));
                Value::Object(fields.iter().map(clean).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

/// What requests to one model took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Paid {
    pub(crate) requests: u64,
    pub(crate) usage: Usage,
    /// Whether a price was known for all of them.
    pub(crate) priced: bool,
}

/// What was paid, by model.
#[derive(Debug, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<String, Paid>);

impl Tally {
    pub(crate) fn add(&mut self, body: &EventBody) {
        // What the other thread has paid is its own.
        if matches!(body, EventBody::ThreadForked { .. }) {
            self.0.clear();
        }
        let EventBody::UsageRecorded { model, usage, priced, .. } = body else { return };
        let known = self.0.contains_key(model) || self.0.len() < MODELS_MAX;
        let key = if known { model.as_str() } else { OTHERS };
        let paid = self.0.entry(key.to_owned()).or_insert(Paid { priced: true, ..Paid::default() });
        paid.requests += 1;
        paid.usage.add(usage);
        paid.priced &= *priced || usage.cost_usd > 0.0;
    }

    pub(crate) fn sum(&self) -> Paid {
        let mut sum = Paid { priced: true, ..Paid::default() };
        for paid in self.0.values() {
            sum.requests += paid.requests;
            sum.usage.add(&paid.usage);
            sum.priced &= paid.priced;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_tell_what_is_secret() {
        let redacting = Rendering { redact: true };
        let value =
            json!({"password": "hunter2hunter2", "path": "a.rs", "n": [1, "sk-ant-api03-abcdefghijklmnopqrstuvwx"]});
        let clean = redacting.value(&value).to_string();
        assert!(!clean.contains("hunter2") && !clean.contains("abcdefghijkl") && clean.contains("a.rs"), "{clean}");
        assert_eq!(Rendering::default().value(&value), value);
    }

    #[test]
    fn models_beyond_the_limit_are_summed() {
        let mut tally = Tally::default();
        for number in 0..MODELS_MAX + 10 {
            tally.add(&EventBody::UsageRecorded {
                model: format!("p/m{number:03}"),
                usage: Usage { input_tokens: 1, ..Usage::default() },
                purpose: Default::default(),
                priced: false,
                goal_id: None,
            });
        }
        assert_eq!((tally.0.len(), tally.0[OTHERS].requests), (MODELS_MAX + 1, 10));
        assert_eq!(tally.sum().usage.input_tokens, MODELS_MAX as u64 + 10);
        assert!(!tally.sum().priced);
    }
}
