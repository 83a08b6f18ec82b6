//! Writing a thread to a file.

use std::borrow::Cow;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcode_env::Timestamp;
use mcode_events::blob::Blobs;
use mcode_events::{Event, EventBody};
use mcode_ids::Seq;
use serde::Serialize;

use super::lines::{End, EventLine, Header, Project, TailLine, stands_in_a_line};
use super::named::{Hash, Named, UNKNOWN_MEDIA_TYPE, digits};
use super::{BLOB_BYTES_MAX, BLOBS_MAX, FORMAT, LINE_BYTES_MAX, PIECE_BYTES, ThreadInfo, VERSION};
use crate::error::ExportError;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Events.
    pub events: u64,
    /// Bodies.
    pub blobs: u64,
    /// Bodies that an event names and that the store could not give, with the reason. The file says so too.
    pub missing: Vec<(String, String)>,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes the events up to `info.last_seq`, which have to be there without a gap, and every body they name.
///
/// Blocking. The same thread gives the same bytes, but for the time in the first line and the checksum in the last.
pub fn write_thread<E>(
    info: &ThreadInfo,
    events: impl Iterator<Item = Result<Event, E>>,
    blobs: &dyn Blobs,
    exported_at: Timestamp,
    out: &mut dyn Write,
) -> Result<Written, ExportError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut file = Sealed { out, hasher: blake3::Hasher::new(), lines: 0, bytes: 0 };
    file.line(
        "the first line",
        &Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            thread_id: info.thread_id,
            title: info.title.clone(),
            project: Project { id: info.project_id, name: info.project_name.clone(), root: info.project_root.clone() },
            exported_at: exported_at.to_string(),
            exported_by: concat!("mcode ", env!("CARGO_PKG_VERSION")).to_owned(),
            events: info.last_seq.get(),
        },
    )?;
    let mut named = Named::default();
    each_event(info.last_seq, events, |event| {
        let (kept, payload) = payload(event)?;
        named.look(kept.as_ref().unwrap_or(&event.body), &payload, blobs);
        if named.0.len() > BLOBS_MAX {
            return Err(ExportError::TooMany { max: BLOBS_MAX });
        }
        write_event(&mut file, event, &payload)
    })?;
    let mut missing = Vec::new();
    for (hash, media_type) in &named.0 {
        if let Some(why) = write_blob(&mut file, hash, media_type.as_deref(), blobs)? {
            missing.push((digits(hash), why));
        }
    }
    let end = End {
        lines: file.lines + 1,
        events: info.last_seq.get(),
        blobs: (named.0.len() - missing.len()) as u64,
        missing: missing.len() as u64,
        blake3: file.hasher.finalize().to_hex().to_string(),
    };
    let written = (end.events, end.blobs);
    file.line("the last line", &TailLine { end: Some(end), ..TailLine::default() })?;
    file.out.flush()?;
    Ok(Written { events: written.0, blobs: written.1, missing, bytes: file.bytes })
}

/// Gives the events up to `last` to `with`; they have to come in order, without a gap, and reach `last`.
pub(crate) fn each_event<E>(
    last: Seq,
    events: impl Iterator<Item = Result<Event, E>>,
    mut with: impl FnMut(&Event) -> Result<(), ExportError>,
) -> Result<(), ExportError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut expected = Seq::ZERO.next();
    for event in events {
        if expected > last {
            break;
        }
        let event = event.map_err(|error| ExportError::Events(error.into()))?;
        if event.seq != expected {
            return Err(ExportError::Gap { expected });
        }
        with(&event)?;
        expected = expected.next();
    }
    if expected <= last { Err(ExportError::Gap { expected }) } else { Ok(()) }
}

/// The stored form of an event, and the event itself where something is left out of it.
fn payload(event: &Event) -> Result<(Option<EventBody>, String), ExportError> {
    let kept = without_kept(&event.body);
    let body = kept.as_ref().unwrap_or(&event.body);
    let payload = body.encode().map_err(|source| ExportError::Encode { seq: event.seq, source })?;
    Ok((kept, payload))
}

/// The event without the environment of a run.
pub(crate) fn without_kept(body: &EventBody) -> Option<EventBody> {
    match body {
        EventBody::RunStarted { options } if options.kept.is_some() => {
            let mut options = options.clone();
            options.kept = None;
            Some(EventBody::RunStarted { options })
        }
        _ => None,
    }
}

fn write_event(file: &mut Sealed<'_>, event: &Event, payload: &str) -> Result<(), ExportError> {
    let raw = stands_in_a_line(payload);
    let line = EventLine {
        seq: event.seq.get(),
        at: event.at_ms,
        kind: Cow::Borrowed(event.body.kind()),
        version: event.body.version(),
        run_id: event.run_id,
        turn_id: event.turn_id,
        payload: raw.as_deref(),
        payload_text: raw.is_none().then_some(Cow::Borrowed(payload)),
    };
    file.line(&format!("event {}", event.seq), &line)
}

/// Writes a body in pieces; tells why it could not be had.
fn write_blob(
    file: &mut Sealed<'_>,
    hash: &Hash,
    media_type: Option<&str>,
    blobs: &dyn Blobs,
) -> Result<Option<String>, ExportError> {
    let hash = digits(hash);
    let content = match blobs.get(&hash) {
        Ok(content) => content,
        Err(error) => {
            let why = error.to_string();
            let (blob, missing) = (Some(Cow::Borrowed(hash.as_str())), Some(Cow::Borrowed(why.as_str())));
            file.line("a body", &TailLine { blob, missing, ..TailLine::default() })?;
            return Ok(Some(why));
        }
    };
    let bytes = content.len() as u64;
    if bytes > BLOB_BYTES_MAX {
        return Err(ExportError::TooLarge { what: format!("the body {hash}"), bytes, max: BLOB_BYTES_MAX });
    }
    // A body of nothing has one piece too.
    let pieces = content.len().div_ceil(PIECE_BYTES).max(1);
    for piece in 0..pieces {
        let from = piece * PIECE_BYTES;
        let data = STANDARD.encode(&content[from..content.len().min(from + PIECE_BYTES)]);
        let line = TailLine {
            blob: Some(Cow::Borrowed(&hash)),
            media_type: Some(Cow::Borrowed(media_type.unwrap_or(UNKNOWN_MEDIA_TYPE))),
            size_bytes: Some(bytes),
            chunk: Some(piece as u64 + 1),
            chunks: Some(pieces as u64),
            data: Some(Cow::Owned(data)),
            ..TailLine::default()
        };
        file.line("a body", &line)?;
    }
    Ok(None)
}

/// Lines, counted and hashed on their way.
struct Sealed<'a> {
    out: &'a mut dyn Write,
    hasher: blake3::Hasher,
    lines: u64,
    bytes: u64,
}

impl Sealed<'_> {
    fn line(&mut self, what: &str, line: &impl Serialize) -> Result<(), ExportError> {
        let mut bytes = serde_json::to_vec(line).map_err(|error| ExportError::Write(error.into()))?;
        bytes.push(b'\n');
        let length = bytes.len() as u64;
        if length > LINE_BYTES_MAX {
            return Err(ExportError::TooLarge { what: what.to_owned(), bytes: length, max: LINE_BYTES_MAX });
        }
        self.hasher.update(&bytes);
        self.lines += 1;
        self.bytes += length;
        Ok(self.out.write_all(&bytes)?)
    }
}
