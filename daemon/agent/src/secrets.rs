//! What a run must not write down: the values of its own keys.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mcode_events::tool::{ResultPart, ToolResult};
use mcode_models::{ModelError, Secret};
use mcode_text::Redactor;
pub use mcode_text::{looks_like_a_key, redact};

/// Ends of names whose values are places and no secrets, though commands do not get them.
const PLACES: [&str; 7] = ["_URL", "_BASE", "_ENDPOINT", "_HOST", "_REGION", "_PROJECT", "_ORG"];

/// Takes the values of a run's own keys out of what is recorded, and what looks like a key out of error texts.
#[derive(Debug, Clone, Default)]
pub struct RunSecrets(Redactor);

impl RunSecrets {
    /// Knows the variables that commands do not get, and these keys from elsewhere.
    #[must_use]
    pub fn of(client_env: &BTreeMap<String, String>, tool_env: &BTreeMap<String, String>, keys: &[String]) -> Self {
        let withheld = client_env.iter().filter(|(name, value)| {
            let place = name.starts_with("MCODE_") || PLACES.iter().any(|end| name.ends_with(end));
            !tool_env.contains_key(*name) && !place && !value.starts_with('/') && !value.starts_with("http")
        });
        Self(Redactor::knowing(withheld.map(|(_, value)| value.as_str()).chain(keys.iter().map(String::as_str))))
    }

    /// The text without the values of the run's keys.
    #[must_use]
    pub fn values<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.values(text)
    }

    /// The text also without what looks like a key.
    #[must_use]
    pub fn all<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.all(text)
    }

    /// What a tool gave back, as it may be recorded and told to a model. `also` is what became known while the run was at
    /// work: tokens that were renewed, keys that a command gave.
    pub(crate) fn result(&self, mut result: ToolResult, also: &[Secret]) -> ToolResult {
        let also = Redactor::knowing(also.iter().map(Secret::expose));
        let clean = |text: &mut String| {
            for redactor in [&self.0, &also] {
                if let Cow::Owned(clean) = redactor.values(text) {
                    *text = clean;
                }
            }
        };
        for part in &mut result.content {
            if let ResultPart::Text { text } = part {
                clean(text);
            }
        }
        clean(&mut result.preview);
        result.diff.iter_mut().for_each(clean);
        result
    }

    /// What a provider said, as it may be recorded.
    pub(crate) fn error(&self, mut error: ModelError) -> ModelError {
        for text in [&mut error.message, &mut error.hint] {
            if let Cow::Owned(clean) = self.0.all(text) {
                *text = clean;
            }
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_what_commands_do_not_get() {
        let env = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let client: BTreeMap<String, String> = env(&[
            ("PATH", "/usr/bin:/bin"),
            ("MY_TOKEN", "hunter2-hunter2"),
            ("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
            ("MCODE_HOME", "relative-home"),
            ("CREDENTIALS_FILE_TOKEN", "/home/me/token"),
        ]);
        let tool = env(&[("PATH", "/usr/bin:/bin")]);
        let secrets = RunSecrets::of(&client, &tool, &["literal-from-the-file".to_owned()]);
        assert_eq!(secrets.values("a hunter2-hunter2 b literal-from-the-file"), "a [redacted] b [redacted]");
        let plain = "/usr/bin:/bin http://127.0.0.1:8080/v1 relative-home /home/me/token";
        assert_eq!(secrets.values(plain), plain);
    }

    #[test]
    fn what_became_known_during_the_run_is_taken_out_of_results() {
        let secrets = RunSecrets::of(&BTreeMap::new(), &BTreeMap::new(), &["from-the-file".to_owned()]);
        let id = "tc_00000000000000000000000000000001".parse().unwrap();
        let status = mcode_events::ToolCallStatus::Done;
        let result = ToolResult::text(id, status, "from-the-file and renewed-token-1");
        let clean = secrets.result(result, &[Secret::new("renewed-token-1")]);
        assert_eq!(clean.joined_text(), "[redacted] and [redacted]");
        assert_eq!(clean.preview, "[redacted] and [redacted]");
    }
}
