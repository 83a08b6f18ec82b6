//! The shapes of a chat frame, as lenient as the servers are loose. Text that is not needed is not copied, and what is
//! rare and large is kept apart: a frame is moved several times while it is read.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::usage::RawUsage;
use crate::decode::Words;

/// One frame, or a whole body.
#[derive(Deserialize)]
pub(crate) struct Frame<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) choices: Option<SmallVec<[Choice<'a>; 1]>>,
    #[serde(default)]
    pub(crate) usage: Option<Box<RawUsage>>,
    #[serde(default)]
    pub(crate) x_groq: Option<Groq>,
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct Groq {
    #[serde(default)]
    pub(crate) usage: Option<Box<RawUsage>>,
}

#[derive(Deserialize)]
pub(crate) struct Choice<'a> {
    #[serde(default)]
    pub(crate) index: Option<i64>,
    /// A body that is no stream has `message` instead.
    #[serde(borrow, default, alias = "message")]
    pub(crate) delta: Option<Delta<'a>>,
    #[serde(default)]
    pub(crate) finish_reason: Option<String>,
    #[serde(default)]
    pub(crate) usage: Option<Box<RawUsage>>,
}

#[derive(Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(crate) content: Content<'a>,
    #[serde(borrow, default)]
    pub(crate) refusal: Option<Words<'a>>,
    #[serde(borrow, default)]
    pub(crate) reasoning_content: Option<Words<'a>>,
    #[serde(borrow, default)]
    pub(crate) reasoning: Option<Words<'a>>,
    #[serde(borrow, default)]
    pub(crate) reasoning_text: Option<Words<'a>>,
    #[serde(default)]
    pub(crate) reasoning_details: Option<Vec<Value>>,
    #[serde(borrow, default)]
    pub(crate) tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
pub(crate) struct CallDelta<'a> {
    #[serde(default)]
    pub(crate) index: Option<i64>,
    #[serde(default)]
    pub(crate) id: Option<String>,
    #[serde(borrow, default)]
    pub(crate) function: Option<FunctionDelta<'a>>,
    /// Google's compatible server keeps its signature here.
    #[serde(default)]
    pub(crate) extra_content: Option<Value>,
}

#[derive(Deserialize)]
pub(crate) struct FunctionDelta<'a> {
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// A string, or an object from sloppy servers.
    #[serde(borrow, default)]
    pub(crate) arguments: Option<&'a RawValue>,
}

/// `content` in its forms: nothing, text, or parts (Mistral).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Content<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) thinking: String,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, parts or null")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
        Ok(Content { text: Cow::Borrowed(text), thinking: String::new() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
        Ok(Content { text: Cow::Owned(text.to_owned()), thinking: String::new() })
    }

    fn visit_unit<E>(self) -> Result<Content<'de>, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Content<'de>, A::Error> {
        let mut content = Content::default();
        while let Some(part) = parts.next_element::<Value>()? {
            match part.get("type").and_then(Value::as_str) {
                Some("thinking") => gather(&part["thinking"], &mut content.thinking),
                Some("text") | None => gather(&part, content.text.to_mut()),
                // References, pictures and what this version does not know.
                Some(_) => {}
            }
        }
        Ok(content)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Content::default())
    }
}

/// Adds the text of a string, of a `{text}` object, or of a list of them.
fn gather(value: &Value, text: &mut String) {
    match value {
        Value::String(words) => text.push_str(words),
        Value::Array(parts) => parts.iter().for_each(|part| gather(part, text)),
        Value::Object(part) => {
            if let Some(Value::String(words)) = part.get("text") {
                text.push_str(words);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_read_in_all_its_forms() {
        let read = |text: &str| {
            let content: Content<'_> = serde_json::from_str(text).unwrap();
            (content.text.into_owned(), content.thinking)
        };
        let pair = |text: &str, thinking: &str| (text.to_owned(), thinking.to_owned());
        assert_eq!(read("null"), pair("", ""));
        assert_eq!(read("\"a\\u00e9\""), pair("aé", ""));
        let parts = r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"},"b",{"type":"reference"}]"#;
        assert_eq!(read(parts), pair("ab", "hm"));
        assert_eq!(read("{}"), pair("", ""));
    }
}
