//! Reading a thread from a file: first all of it is checked, then it is given.

use std::borrow::Cow;
use std::io::{Read, Seek};

use mcode_env::Timestamp;
use mcode_events::event::NewEvent;
use mcode_events::{Event, EventBody};
use mcode_ids::{ProjectId, RunId, Seq, ThreadId};

use super::Limits;
use super::check::{self, Checked};
use super::input::Lines;
use super::lines::EventLine;
use super::renamed::Renamed;
use super::write::without_kept;
use crate::error::{Fault, ImportError};

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The thread that it was made from.
    pub thread_id: ThreadId,
    /// What that was called.
    pub title: String,
    /// Where it worked.
    pub cwd: String,
    /// The project's name there.
    pub project_name: String,
    /// The project's root there.
    pub project_root: String,
    /// When it was exported, RFC 3339 as the file says it.
    pub exported_at: String,
    /// What exported it.
    pub exported_by: String,
    /// Events that it gives, with those that end what was open.
    pub events: u64,
    /// Whether something was open, and is ended.
    pub was_at_work: bool,
    /// Bodies that it gives.
    pub blobs: u64,
    /// Hashes of bodies that were missing already when it was exported.
    pub missing: Vec<String>,
    /// The runs in it. With [`Identity::Kept`] none of them may be in the store.
    pub run_ids: Vec<RunId>,
    /// The hash of the thread and of all that it holds, the same whenever and by whom it was exported.
    pub content: String,
}

/// As which thread a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// As the one that it was made from, with all its ids. Only for a file that is trusted, and only where neither that
    /// thread nor one of its runs is: a file that was made by hand can name runs, calls and questions of other threads.
    Kept,
    /// As this new one; everything in it gets new ids too, which the file can not choose.
    Fresh(ThreadId),
}

/// As what a file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Importing {
    /// As which thread.
    pub identity: Identity,
    /// Where it works here; `None` leaves what the file says.
    pub place: Option<Place>,
}

/// Where a thread works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The project.
    pub project_id: ProjectId,
    /// The folder: an absolute path.
    pub cwd: String,
    /// The root of the work tree that it is in.
    pub root: String,
}

/// A file that was checked from its first line to its last.
#[derive(Debug)]
pub struct ThreadFile<R> {
    lines: Lines<R>,
    contents: Contents,
    checked: Checked,
}

impl<R: Read + Seek> ThreadFile<R> {
    /// Reads all of `input` and fails at the first thing that is wrong; nothing was given to anybody then. Needs the
    /// memory of the longest line, and some 100 bytes for each body and run. Blocking.
    pub fn open(input: R, limits: Limits, now: Timestamp) -> Result<Self, ImportError> {
        let mut lines = Lines::new(input, limits)?;
        let (contents, checked) = check::file(&mut lines, now)?;
        Ok(Self { lines, contents, checked })
    }

    /// What it holds.
    pub const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Its bodies, each with its media type, for [`Blobs::put`](mcode_events::Blobs::put): before the events that name
    /// them are committed. An error ends them.
    pub fn blobs(&mut self) -> Result<impl Iterator<Item = Result<(String, Vec<u8>), ImportError>> + '_, ImportError> {
        self.lines.go_to(self.checked.tail)?;
        let lines = &mut self.lines;
        let mut buffer = Vec::new();
        let mut ended = false;
        Ok(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let next = check::next_blob(lines, &mut buffer).transpose();
            ended = !matches!(next, Some(Ok(_)));
            next
        }))
    }

    /// Its events in order, gapless from 1, and after them those that end what was open. An error ends them: then
    /// nothing of what was given may be kept.
    pub fn events(&mut self, importing: &Importing) -> Result<Events<'_, R>, ImportError> {
        self.lines.go_to(self.checked.events)?;
        let (thread_id, renamed) = match importing.identity {
            Identity::Kept => (self.contents.thread_id, None),
            Identity::Fresh(new) => (new, Some(Renamed::new(self.contents.thread_id, new))),
        };
        Ok(Events {
            lines: &mut self.lines,
            buffer: Vec::new(),
            left: self.checked.count,
            closing: self.checked.closing.iter(),
            reader: Reader { thread_id, renamed, place: importing.place.clone() },
            seq: Seq::ZERO,
            at_ms: 0,
        })
    }
}

/// The events of a file; see [`ThreadFile::events`].
#[derive(Debug)]
pub struct Events<'a, R> {
    lines: &'a mut Lines<R>,
    buffer: Vec<u8>,
    left: u64,
    closing: std::slice::Iter<'a, NewEvent>,
    reader: Reader,
    seq: Seq,
    at_ms: i64,
}

impl<R: Read + Seek> Iterator for Events<'_, R> {
    type Item = Result<Event, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left > 0 {
            self.left -= 1;
            let event = self.stored();
            match &event {
                Ok(event) => (self.seq, self.at_ms) = (event.seq, event.at_ms),
                Err(_) => (self.left, self.closing) = (0, [].iter()),
            }
            return Some(event);
        }
        let new = self.closing.next()?.clone();
        self.seq = self.seq.next();
        let event = Event {
            thread_id: self.reader.thread_id,
            seq: self.seq,
            at_ms: self.at_ms,
            run_id: new.run_id,
            turn_id: new.turn_id,
            body: new.body,
        };
        Some(self.reader.as_wanted(event).map_err(|fault| fault.at(self.lines.number())))
    }
}

impl<R: Read + Seek> Events<'_, R> {
    fn stored(&mut self) -> Result<Event, ImportError> {
        if !self.lines.read(&mut self.buffer)? {
            return Err(Fault::CutOff.at(self.lines.number() + 1));
        }
        let number = self.lines.number();
        let (event, _) = decode(&self.buffer, self.reader.thread_id).map_err(|fault| fault.at(number))?;
        self.reader.as_wanted(event).map_err(|fault| fault.at(number))
    }
}

/// Makes of an event of the file what it is here.
#[derive(Debug)]
struct Reader {
    thread_id: ThreadId,
    renamed: Option<Renamed>,
    place: Option<Place>,
}

impl Reader {
    fn as_wanted(&self, mut event: Event) -> Result<Event, Fault> {
        if let Some(renamed) = &self.renamed {
            event = rename(renamed, event)?;
        }
        if let Some(body) = without_kept(&event.body) {
            event.body = body;
        }
        if let EventBody::ThreadCreated { project_id, cwd, root, ephemeral, .. } = &mut event.body {
            if let Some(here) = &self.place {
                *project_id = here.project_id;
                cwd.clone_from(&here.cwd);
                root.clone_from(&here.root);
            }
            *ephemeral = false;
        }
        Ok(event)
    }
}

fn rename(renamed: &Renamed, event: Event) -> Result<Event, Fault> {
    let seq = event.seq.get();
    let wrong = move |why: String| Fault::Event { seq, why };
    // Encoded anew, so that no id hides behind an escape.
    let payload = event.body.encode().map_err(|error| wrong(error.to_string()))?;
    let body = EventBody::decode(event.body.kind(), event.body.version(), &renamed.text(&payload))
        .map_err(|error| wrong(error.to_string()))?;
    let run_id = event.run_id.map(|id| renamed.text(&id.to_string()).parse()).transpose();
    let turn_id = event.turn_id.map(|id| renamed.text(&id.to_string()).parse()).transpose();
    Ok(Event {
        body,
        run_id: run_id.map_err(|error: mcode_ids::ParseIdError| wrong(error.to_string()))?,
        turn_id: turn_id.map_err(|error: mcode_ids::ParseIdError| wrong(error.to_string()))?,
        ..event
    })
}

/// The event of a line, and its payload as it is stored.
pub(crate) fn decode(line: &[u8], thread_id: ThreadId) -> Result<(Event, Cow<'_, str>), Fault> {
    let wanted = "an event";
    let line: EventLine<'_> =
        serde_json::from_slice(line).map_err(|error| Fault::Malformed { wanted, why: error.to_string() })?;
    let payload = match (line.payload, line.payload_text) {
        (Some(raw), None) => Cow::Borrowed(raw.get()),
        (None, Some(text)) => text,
        _ => return Err(Fault::Malformed { wanted, why: "it has to have one payload".to_owned() }),
    };
    let body = EventBody::decode(&line.kind, line.version, &payload).map_err(|error| Fault::Event {
        seq: line.seq,
        why: format!("its payload does not read as {}: {error}", line.kind.escape_debug()),
    })?;
    let (seq, run_id, turn_id) = (Seq::new(line.seq), line.run_id, line.turn_id);
    Ok((Event { thread_id, seq, at_ms: line.at, run_id, turn_id, body }, payload))
}
