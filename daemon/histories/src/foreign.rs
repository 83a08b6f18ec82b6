//! Histories of other coding agents, as threads of ours.
//!
//! [`discover`] lists what is on the disk, [`read`] makes of one of them the events that a thread of ours would have:
//! each input a run with one turn, each answer a step, each call with its result. Nothing in it stays open, times are
//! those of the original, and the fold takes it as it takes ours.
//!
//! - What has a tool of ours gets its name and arguments ([`tools`]); other tools keep their names.
//! - Signatures of thinking are kept where they may go back: to Anthropic, for the model that made them. What is
//!   encrypted for an account is left out, since no file says for which.
//! - Costs are told in the end of each run and are no [`UsageRecorded`](mcode_events::EventBody::UsageRecorded): what
//!   was paid elsewhere is in no budget of ours.
//! - Where a history branches, the branch that was written last is read. What is not understood is counted, damaged
//!   lines are named, and neither fails the whole.
//! - The originals are only read. Databases are opened so that nothing is written beside them and nobody waits for us.

mod bounds;
mod builder;
mod claude;
mod codex;
mod database;
mod json_lines;
mod mastra;
mod media;
mod model;
mod opencode;
mod places;
mod report;
mod runs;
mod tools;
mod value;

use std::path::{Path, PathBuf};

use mcode_env::{IdGen, Timestamp};
use mcode_events::event::NewEvent;
use mcode_events::{Blobs, Event, EventBody};
use mcode_ids::{Seq, ThreadId};
use mcode_text::{sanitize_line, truncate_width};

use crate::own::read::Place;

pub use self::places::Places;
pub use self::report::Report;

/// The most conversations of one maker that are listed; the newest are.
pub const FOUND_MAX: usize = 10_000;

/// Cells of a title.
const TITLE_CELLS: usize = 80;

/// The longest name of a conversation that stands in its key, in bytes.
const KEY_ID_BYTES_MAX: usize = 100;

/// Who made a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Maker {
    /// Claude Code: a file of JSON lines for each.
    ClaudeCode,
    /// Codex: a file of JSON lines for each.
    Codex,
    /// opencode: a database, or files of JSON in folders.
    Opencode,
    /// Mastra Code: a database.
    MastraCode,
}

impl Maker {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Opencode, Self::MastraCode];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::MastraCode => "mastra-code",
        }
    }

    /// Its name for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Opencode => "opencode",
            Self::MastraCode => "Mastra Code",
        }
    }

    /// The maker of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|maker| maker.as_str() == name)
    }
}

/// A conversation of another agent that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Who made it.
    pub maker: Maker,
    /// Its name there.
    pub id: String,
    /// What it is called, or what was asked first; one harmless line, may be empty.
    pub title: String,
    /// Where it worked; empty when that is not said.
    pub cwd: String,
    /// When it was changed last, milliseconds since 1970 UTC.
    pub updated_at_ms: i64,
    /// Its messages, where that is known without reading all of it.
    pub messages: Option<u64>,
    /// The file, folder or database that holds it.
    pub path: PathBuf,
}

impl Found {
    /// What a thread that was made of it is known by, so that it is not made twice: at most 128 bytes, no control
    /// characters.
    #[must_use]
    pub fn key(&self) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let id = if self.id.len() <= KEY_ID_BYTES_MAX && self.id.bytes().all(plain) {
            self.id.clone()
        } else {
            blake3::hash(self.id.as_bytes()).to_hex().to_string()
        };
        format!("import:{}:{id}", self.maker.as_str())
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// Conversations, the last changed first.
    pub found: Vec<Found>,
    /// What could not be looked at, in words.
    pub problems: Vec<String>,
}

/// What reading needs.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Makes ids.
    pub ids: &'a dyn IdGen,
    /// Keeps pictures and long outputs, before the events that name them are committed.
    pub blobs: &'a dyn Blobs,
    /// No event lies after this.
    pub now: Timestamp,
}

/// An event and its time, milliseconds since 1970 UTC.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// When it was.
    pub at_ms: i64,
    /// What happened.
    pub event: NewEvent,
}

/// A conversation as it would be in mcode, without the event that makes the thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// What it is known by ([`Found::key`]).
    pub key: String,
    /// Who made it.
    pub maker: Maker,
    /// Its name there.
    pub id: String,
    /// What it is called; one harmless line, may be empty.
    pub title: String,
    /// Where it worked there; empty when that is not said.
    pub cwd: String,
    /// The model that it used last, `provider/model`.
    pub model: Option<String>,
    /// When it began, milliseconds since 1970 UTC.
    pub created_at_ms: i64,
    /// What happened, in order.
    pub events: Vec<Timed>,
    /// What became of its records.
    pub report: Report,
}

impl Imported {
    /// All events of the thread, gapless from 1: with the one that makes it in this place (`stand_in`
    /// is the model where the history names none) and a notice that says where it comes from.
    #[must_use]
    pub fn into_events(self, thread_id: ThreadId, place: &Place, stand_in: &str) -> Vec<Event> {
        let known = |model: &String| if model.is_empty() { stand_in.to_owned() } else { model.clone() };
        let first = self.events.iter().find_map(|timed| match &timed.event.body {
            EventBody::RunStarted { options } => Some(known(&options.model)),
            _ => None,
        });
        let created = EventBody::ThreadCreated {
            project_id: place.project_id,
            cwd: place.cwd.clone(),
            root: place.root.clone(),
            title: self.title.clone(),
            model: first.unwrap_or_else(|| stand_in.to_owned()),
            mode: "build".to_owned(),
            ephemeral: false,
        };
        let notice = EventBody::Notice { level: "info".to_owned(), text: self.report.told(self.maker, &self.id) };
        let at_ms = self.created_at_ms;
        let own = [created, notice].map(|body| Timed { at_ms, event: NewEvent::of_thread(body) });
        let all = own.into_iter().chain(self.events);
        let mut seq = Seq::ZERO;
        all.map(|Timed { at_ms, mut event }| {
            seq = seq.next();
            match &mut event.body {
                EventBody::RunStarted { options } => options.model = known(&options.model),
                EventBody::StepStarted { model, .. } => *model = known(model),
                _ => {}
            }
            Event { thread_id, seq, at_ms, run_id: event.run_id, turn_id: event.turn_id, body: event.body }
        })
        .collect()
    }
}

/// A history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// The system refused.
    #[error("{} could not be read: {source}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is a folder, a pipe or the like.
    #[error("{} is no file", .0.display())]
    NotAFile(PathBuf),
    /// It is larger than what is taken.
    #[error("{} has {what}, more than is taken ({max})", path.display())]
    TooLarge {
        /// What.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
        /// The most that is taken.
        max: u64,
    },
    /// The database is none, or of a form that is not known.
    #[error("{} could not be read as a database of {maker}: {why}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// Whose.
        maker: &'static str,
        /// Why.
        why: String,
    },
    /// It is not there any more.
    #[error("there is no conversation '{id}' in {}", path.display())]
    Missing {
        /// Its name.
        id: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// Nothing in it is a message.
    #[error("{} holds no message that could be read ({told})", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What it holds instead.
        told: String,
    },
    /// A picture or output could not be kept.
    #[error("a picture or output could not be kept: {0}")]
    Blob(#[from] mcode_events::BlobError),
}

/// What other agents have left on this machine; of one maker, or of all. Blocking. Reads the beginnings of files only.
#[must_use]
pub fn discover(places: &Places, maker: Option<Maker>) -> Discovery {
    let mut discovery = Discovery::default();
    for maker in Maker::ALL.into_iter().filter(|known| maker.is_none_or(|wanted| wanted == *known)) {
        let mut part = match maker {
            Maker::ClaudeCode => claude::discover(places),
            Maker::Codex => codex::discover(places),
            Maker::Opencode => opencode::discover(places),
            Maker::MastraCode => mastra::discover(places),
        };
        part.found.sort_by(|one, other| other.updated_at_ms.cmp(&one.updated_at_ms).then(one.id.cmp(&other.id)));
        if part.found.len() > FOUND_MAX {
            let more = part.found.len() - FOUND_MAX;
            part.problems.push(format!("{}: {more} older conversations are not listed", maker.title()));
            part.found.truncate(FOUND_MAX);
        }
        discovery.found.append(&mut part.found);
        discovery.problems.append(&mut part.problems);
    }
    discovery.found.sort_by_key(|found| std::cmp::Reverse(found.updated_at_ms));
    discovery
}

/// Reads one that was found. Blocking. What is refused is the whole of it only where nothing of it can be had.
pub fn read(found: &Found, reading: Reading<'_>) -> Result<Imported, ForeignError> {
    let mut builder = builder::Builder::new(found, reading);
    match found.maker {
        Maker::ClaudeCode => claude::read(found, &mut builder)?,
        Maker::Codex => codex::read(found, &mut builder)?,
        Maker::Opencode => opencode::read(found, &mut builder)?,
        Maker::MastraCode => mastra::read(found, &mut builder)?,
    }
    builder.finish(found)
}

/// A text as a title: its first line, harmless and short.
fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    truncate_width(&sanitize_line(mcode_text::truncate_bytes(line, 1000)), TITLE_CELLS)
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> ForeignError + '_ {
    move |source| ForeignError::Io { path: path.to_path_buf(), source }
}
