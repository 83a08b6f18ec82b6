//! The lines of a file, as they are written and read.

use std::borrow::Cow;

use mcode_ids::{ProjectId, RunId, ThreadId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The first line, as far as every version has it.
#[derive(Debug, Deserialize)]
pub(crate) struct Beginning {
    pub(crate) format: String,
    pub(crate) version: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) format: String,
    pub(crate) version: u32,
    pub(crate) thread_id: ThreadId,
    pub(crate) title: String,
    pub(crate) project: Project,
    pub(crate) exported_at: String,
    pub(crate) exported_by: String,
    pub(crate) events: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Project {
    pub(crate) id: ProjectId,
    pub(crate) name: String,
    pub(crate) root: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventLine<'a> {
    pub(crate) seq: u64,
    pub(crate) at: i64,
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
    pub(crate) version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turn_id: Option<TurnId>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload_text: Option<Cow<'a, str>>,
}

/// A line after the events: a piece of a body, a body that is missing, or the end.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TailLine<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) blob: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chunk: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chunks: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    /// With this one.
    pub(crate) lines: u64,
    pub(crate) events: u64,
    pub(crate) blobs: u64,
    pub(crate) missing: u64,
    pub(crate) blake3: String,
}

/// Whether a text can stand as it is where a line has JSON, and is read back byte for byte.
pub(crate) fn stands_in_a_line(payload: &str) -> Option<Box<RawValue>> {
    if payload.contains(['\n', '\r']) {
        return None;
    }
    RawValue::from_string(payload.to_owned()).ok().filter(|raw| raw.get() == payload)
}
