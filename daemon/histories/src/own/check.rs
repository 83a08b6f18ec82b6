//! The first pass over a file: everything that can be wrong with it is found before anything of it is given.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{Read, Seek};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcode_env::Timestamp;
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::run::{RunError, RunErrorKind, RunRecord, RunStatus};
use mcode_events::{Event, ThreadState, closing_events};
use mcode_ids::{RunId, Seq};

use super::held::Held;
use super::input::{Lines, Place};
use super::lines::{Beginning, End, Header, TailLine};
use super::named::{self, Hash};
use super::read::{Contents, decode};
use super::{AHEAD_MS_MAX, COST_USD_MAX, FORMAT, VERSION};
use crate::error::{Fault, ImportError};

/// Words of events that look like hashes and are remembered. A thread that has more of them is not asked any more
/// whether it names each body.
const WORDS_MAX: usize = 1_000_000;

/// The longest name of a kind, in bytes.
const KIND_BYTES_MAX: usize = 64;

/// The longest title, name of a model or mode, or tag, in bytes.
const NAME_BYTES_MAX: usize = 2_000;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 16 * 1024;

/// The most tags.
const TAGS_MAX: usize = 100;

/// How a file begins that mcode has written.
const BEGINNING: &[u8] = b"{\"format\":\"mcode-thread\"";

/// Said of what a thread left open.
const REASON: &str = "the thread was exported while it was at work";

/// What the second pass needs.
#[derive(Debug)]
pub(crate) struct Checked {
    /// Where events begin.
    pub(crate) events: Place,
    /// Where bodies begin.
    pub(crate) tail: Place,
    /// Events in the file.
    pub(crate) count: u64,
    /// What ends the rest.
    pub(crate) closing: Vec<NewEvent>,
}

pub(crate) fn file<R: Read + Seek>(lines: &mut Lines<R>, now: Timestamp) -> Result<(Contents, Checked), ImportError> {
    let mut line = Vec::new();
    let mut hasher = blake3::Hasher::new();
    let header = header(lines, &mut line)?;
    hasher.update(&line);
    // The thread itself, whenever and by whom it was exported.
    let mut content = blake3::Hasher::new();
    content.update(header.thread_id.to_string().as_bytes());
    let events_at = lines.place();
    let mut fold = Fold::new(&header, now, lines.limits().runs);
    if header.events == 0 {
        return Err(Fault::Event { seq: 1, why: "a thread has at least the event that makes it".to_owned() }.at(1));
    }
    for _ in 0..header.events {
        if !lines.read(&mut line)? {
            return Err(Fault::CutOff.at(lines.number() + 1));
        }
        let number = lines.number();
        let found = decode(&line, header.thread_id).and_then(|(event, payload)| fold.take(&event, &payload, number));
        found.map_err(|fault| fault.at(number))?;
        hasher.update(&line);
        content.update(&line);
    }
    let tail_at = lines.place();
    let mut bodies = Bodies::default();
    let end = loop {
        if !lines.read(&mut line)? {
            return Err(Fault::CutOff.at(lines.number() + 1));
        }
        let number = lines.number();
        let end = bodies.take(&line, &fold, lines.limits()).map_err(|fault| fault.at(number))?;
        if let Some(end) = end {
            break end;
        }
        hasher.update(&line);
        content.update(&line);
    };
    compare(&end, &header, &bodies, lines.number(), &hasher).map_err(|fault| fault.at(lines.number()))?;
    if lines.read(&mut line)? {
        return Err(Fault::AfterEnd.at(lines.number()));
    }
    fold.all_held(&bodies)?;
    let count = header.events;
    let closing = fold.close().map_err(|fault| fault.at(tail_at.lines))?;
    let contents = Contents {
        thread_id: header.thread_id,
        title: fold.state.title,
        cwd: fold.state.cwd,
        project_name: header.project.name,
        project_root: header.project.root,
        exported_at: header.exported_at,
        exported_by: header.exported_by,
        events: count + closing.len() as u64,
        was_at_work: !closing.is_empty(),
        blobs: bodies.whole.len() as u64,
        missing: bodies.missing.iter().map(named::digits).collect(),
        run_ids: fold.runs.into_keys().collect(),
        content: content.finalize().to_hex().to_string(),
    };
    Ok((contents, Checked { events: events_at, tail: tail_at, count, closing }))
}

fn header<R: Read + Seek>(lines: &mut Lines<R>, line: &mut Vec<u8>) -> Result<Header, ImportError> {
    match lines.read(line) {
        Ok(true) => {}
        // A file of another kind may have no lines at all.
        Err(error) if line.starts_with(BEGINNING) || matches!(error.fault, Fault::Io(_)) => return Err(error),
        Ok(false) | Err(_) => return Err(Fault::NotAThread.at(1)),
    }
    let beginning = serde_json::from_slice::<Beginning>(line).ok().filter(|beginning| beginning.format == FORMAT);
    let version = beginning.ok_or_else(|| Fault::NotAThread.at(1))?.version;
    if version > VERSION {
        return Err(Fault::Newer { version, known: VERSION }.at(1));
    }
    let header: Header = serde_json::from_slice(line).map_err(|error| malformed("a first line", &error).at(1))?;
    let most = lines.limits().events;
    if header.events > most {
        return Err(Fault::Limit { what: "the number of events", max: most }.at(1));
    }
    Ok(header)
}

fn malformed(wanted: &'static str, error: &serde_json::Error) -> Fault {
    Fault::Malformed { wanted, why: error.to_string() }
}

fn compare(end: &End, header: &Header, bodies: &Bodies, lines: u64, hasher: &blake3::Hasher) -> Result<(), Fault> {
    let whole = bodies.whole.len() as u64;
    let compared = [
        ("the number of lines", end.lines == lines),
        ("the number of events", end.events == header.events),
        ("the number of bodies", end.blobs == whole && end.missing == bodies.missing.len() as u64),
        ("the checksum", end.blake3 == hasher.finalize().to_hex().as_str()),
    ];
    match compared.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(Fault::Checksum { what }),
        None => Ok(()),
    }
}

/// The fold of the events, without what was said: that would be the whole thread in memory.
struct Fold {
    state: ThreadState,
    /// Latest time that an event may have.
    latest_ms: i64,
    /// Runs that have begun, and whether their end was there.
    runs: BTreeMap<RunId, bool>,
    runs_max: usize,
    held: Held,
    /// Runs that a fork left behind: they have no end in the log.
    left: Vec<RunRecord>,
    /// Bodies that are referred to, and the line of the first that does.
    referred: BTreeMap<Hash, u64>,
    words: HashSet<Hash>,
}

impl Fold {
    fn new(header: &Header, now: Timestamp, runs_max: usize) -> Self {
        Self {
            state: ThreadState::new(header.thread_id),
            latest_ms: now.plus_millis(AHEAD_MS_MAX).millis(),
            runs: BTreeMap::new(),
            runs_max,
            held: Held::default(),
            left: Vec::new(),
            referred: BTreeMap::new(),
            words: HashSet::new(),
        }
    }

    fn take(&mut self, event: &Event, payload: &str, number: u64) -> Result<(), Fault> {
        let expected = self.state.last_seq.next();
        if event.seq != expected {
            return Err(Fault::Gap { expected: expected.get(), found: event.seq.get() });
        }
        let wrong = |why: &str| Fault::Event { seq: event.seq.get(), why: why.to_owned() };
        self.check(event).map_err(wrong)?;
        if self.runs.len() > self.runs_max {
            return Err(Fault::Limit { what: "the number of runs", max: self.runs_max as u64 });
        }
        for blob in named::references(&event.body) {
            let hash = named::hash(&blob.hash).ok_or_else(|| Fault::Event {
                seq: event.seq.get(),
                why: "it refers to a body by something that is no hash".to_owned(),
            })?;
            self.referred.entry(hash).or_insert(number);
        }
        if self.words.len() < WORDS_MAX {
            self.words.extend(named::words(payload).filter_map(named::hash));
        }
        if matches!(event.body, EventBody::ThreadForked { .. }) {
            self.left.append(&mut self.state.runs.clone());
        }
        self.state.apply(event);
        self.state.history.clear();
        self.state.said_at.clear();
        self.state.files.clear();
        self.state.checkpoints.clear();
        self.state.runs.retain(|run| run.ended_at_ms.is_none());
        self.held.count(&self.state, event, payload).map_err(wrong)
    }

    fn check(&mut self, event: &Event) -> Result<(), &'static str> {
        let kind = event.body.kind();
        let named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if kind.is_empty() || kind.len() > KIND_BYTES_MAX || !kind.bytes().all(named) {
            return Err("it has no kind");
        }
        let first = event.seq == Seq::new(1);
        match (&event.body, first) {
            (EventBody::ThreadCreated { .. }, false) => return Err("a thread is made once"),
            (EventBody::ThreadCreated { .. }, true) => {}
            (_, true) => return Err("the first event has to make the thread"),
            (EventBody::RunStarted { .. }, false) => match event.run_id {
                Some(run_id) if self.runs.insert(run_id, false).is_none() => {}
                Some(_) => return Err("a run of this id has begun before"),
                None => return Err("it begins a run that has no id"),
            },
            (EventBody::RunFinished { .. }, false) => {
                match event.run_id.and_then(|run_id| self.runs.get_mut(&run_id)) {
                    Some(ended) if !*ended => *ended = true,
                    _ => return Err("it ends a run that has not begun or has ended before"),
                }
                self.left.retain(|run| Some(run.run_id) != event.run_id);
            }
            (EventBody::ThreadForked { parent_seq, .. }, false) if *parent_seq >= event.seq => {
                return Err("it shares what comes after it");
            }
            _ => {}
        }
        if !are_short(&event.body) {
            return Err("its title, tags, folders or names are too long");
        }
        if let EventBody::UsageRecorded { usage, .. } | EventBody::RunFinished { usage, .. } = &event.body
            && !(0.0..=COST_USD_MAX).contains(&usage.cost_usd)
        {
            return Err("its cost is beyond reason");
        }
        if event.at_ms < 0 || event.at_ms > self.latest_ms {
            return Err("its time is before 1970 or lies ahead");
        }
        Ok(())
    }

    /// Fails where an event refers to a body that the file neither holds nor says to be missing.
    fn all_held(&self, bodies: &Bodies) -> Result<(), ImportError> {
        let held = |hash: &Hash| bodies.whole.contains(hash) || bodies.missing.contains(hash);
        match self.referred.iter().find(|(hash, _)| !held(hash)) {
            Some((hash, line)) => {
                let why = "it is referred to here, and the file does not hold it";
                Err(Fault::Blob { hash: named::digits(hash), why }.at(*line))
            }
            None => Ok(()),
        }
    }

    /// Ends what is open; gives the events that do.
    fn close(&mut self) -> Result<Vec<NewEvent>, Fault> {
        let mut closing = closing_events(&self.state, RunStatus::Interrupted, REASON, true);
        for run in self.left.iter().chain(&self.state.runs) {
            let body = EventBody::RunFinished {
                status: RunStatus::Interrupted,
                error: Some(interrupted()),
                usage: run.usage,
                structured: None,
            };
            closing.push(NewEvent::of_run(run.run_id, None, body));
        }
        for input in &self.state.queue {
            let body = EventBody::InputTaken { input_id: input.input_id, delivered: false };
            closing.push(NewEvent::of_thread(body));
        }
        let (thread_id, at_ms) = (self.state.thread_id, self.state.updated_at_ms);
        for new in &closing {
            let seq = self.state.last_seq.next();
            let (run_id, turn_id, body) = (new.run_id, new.turn_id, new.body.clone());
            self.state.apply(&Event { thread_id, seq, at_ms, run_id, turn_id, body });
        }
        if self.state.open.is_empty() && self.state.runs.iter().all(|run| run.ended_at_ms.is_some()) {
            Ok(closing)
        } else {
            let seq = self.state.last_seq.get();
            Err(Fault::Event { seq, why: "what was begun in the thread can not be ended".to_owned() })
        }
    }
}

/// Whether what lists show is no longer than it can be.
fn are_short(body: &EventBody) -> bool {
    let name = |text: &String| text.len() <= NAME_BYTES_MAX;
    let path = |text: &String| text.len() <= PATH_BYTES_MAX;
    match body {
        EventBody::ThreadCreated { cwd, root, title, model, mode, .. } => {
            path(cwd) && path(root) && name(title) && name(model) && name(mode)
        }
        EventBody::TitleChanged { title } | EventBody::ThreadForked { title, .. } => name(title),
        EventBody::ModelChanged { model } => name(model),
        EventBody::ModeChanged { mode } => name(mode),
        EventBody::TagsChanged { tags } => tags.len() <= TAGS_MAX && tags.iter().all(name),
        _ => true,
    }
}

fn interrupted() -> RunError {
    RunError {
        kind: RunErrorKind::Interrupted,
        reason: "INTERRUPTED".to_owned(),
        message: REASON.to_owned(),
        hint: "go on with --thread".to_owned(),
    }
}

/// The bodies of a file.
#[derive(Debug, Default)]
struct Bodies {
    open: Option<Piece>,
    whole: BTreeSet<Hash>,
    missing: BTreeSet<Hash>,
}

/// A body of which some pieces were seen.
#[derive(Debug)]
struct Piece {
    hash: Hash,
    size: u64,
    chunks: u64,
    seen: u64,
    bytes: u64,
    hasher: blake3::Hasher,
}

/// A line after the events.
enum Tail {
    Missing(Hash),
    Piece { hash: Hash, media_type: String, size: u64, chunk: u64, chunks: u64, data: Vec<u8> },
    End(End),
}

impl Bodies {
    fn take(&mut self, line: &[u8], fold: &Fold, limits: &super::Limits) -> Result<Option<End>, Fault> {
        let (hash, data) = match tail(line)? {
            Tail::End(end) => return self.ended().map(|()| Some(end)),
            Tail::Missing(hash) => {
                self.ended()?;
                (hash, None)
            }
            Tail::Piece { hash, size, chunk, chunks, data, .. } => {
                let fault = move |why| Fault::Blob { hash: named::digits(&hash), why };
                if size > limits.blob_bytes {
                    return Err(Fault::Limit { what: "the size of a body in bytes", max: limits.blob_bytes });
                }
                let new = || Piece { hash, size, chunks, seen: 0, bytes: 0, hasher: blake3::Hasher::new() };
                let piece = self.open.get_or_insert_with(new);
                if piece.hash != hash || piece.size != size || piece.chunks != chunks || piece.seen + 1 != chunk {
                    return Err(fault("its pieces are not in order"));
                }
                (hash, Some(data))
            }
        };
        let fault = |why| Fault::Blob { hash: named::digits(&hash), why };
        let known = fold.referred.contains_key(&hash) || fold.words.contains(&hash) || fold.words.len() >= WORDS_MAX;
        if !known {
            return Err(fault("no event names it"));
        }
        if self.whole.contains(&hash) || self.missing.contains(&hash) {
            return Err(fault("it is told of twice"));
        }
        if self.whole.len() + self.missing.len() >= limits.blobs {
            return Err(Fault::Limit { what: "the number of bodies", max: limits.blobs as u64 });
        }
        match data {
            None => drop(self.missing.insert(hash)),
            Some(data) => self.add(&data)?,
        }
        Ok(None)
    }

    fn add(&mut self, data: &[u8]) -> Result<(), Fault> {
        let Some(piece) = &mut self.open else { return Ok(()) };
        let fault = |why| Fault::Blob { hash: named::digits(&piece.hash), why };
        piece.hasher.update(data);
        piece.bytes += data.len() as u64;
        piece.seen += 1;
        if piece.bytes > piece.size || (data.is_empty() && piece.size > 0) {
            return Err(fault("its pieces are not of its size"));
        }
        if piece.seen == piece.chunks {
            if piece.bytes != piece.size {
                return Err(fault("its pieces are not of its size"));
            }
            if piece.hasher.finalize().as_bytes() != &piece.hash {
                return Err(fault("its content does not match its hash"));
            }
            self.whole.insert(piece.hash);
            self.open = None;
        }
        Ok(())
    }

    fn ended(&self) -> Result<(), Fault> {
        match &self.open {
            Some(piece) => Err(Fault::Blob { hash: named::digits(&piece.hash), why: "its last pieces are missing" }),
            None => Ok(()),
        }
    }
}

fn tail(line: &[u8]) -> Result<Tail, Fault> {
    let wanted = "a body or the end";
    let line: TailLine<'_> = serde_json::from_slice(line).map_err(|error| malformed(wanted, &error))?;
    let wrong = || Fault::Malformed { wanted, why: "fields of it are missing, or there are too many".to_owned() };
    let hash = line.blob.as_deref().map(|digits| named::hash(digits).ok_or_else(wrong)).transpose()?;
    match line {
        TailLine {
            media_type: Some(media_type),
            size_bytes: Some(size),
            chunk: Some(chunk),
            chunks: Some(chunks),
            data: Some(data),
            missing: None,
            end: None,
            ..
        } => {
            let data = STANDARD.decode(data.as_bytes());
            let why = "its content is no base64".to_owned();
            let data = data.map_err(|_| Fault::Malformed { wanted, why })?;
            let media_type = media_type.into_owned();
            Ok(Tail::Piece { hash: hash.ok_or_else(wrong)?, media_type, size, chunk, chunks, data })
        }
        TailLine {
            media_type: None,
            size_bytes: None,
            chunk: None,
            chunks: None,
            data: None,
            missing: Some(_),
            end: None,
            ..
        } => hash.map(Tail::Missing).ok_or_else(wrong),
        TailLine {
            blob: None,
            media_type: None,
            size_bytes: None,
            chunk: None,
            chunks: None,
            data: None,
            missing: None,
            end: Some(end),
        } => Ok(Tail::End(end)),
        _ => Err(wrong()),
    }
}

/// The next whole body of a file that was checked; `None` at its end.
pub(crate) fn next_blob<R: Read + Seek>(
    lines: &mut Lines<R>,
    line: &mut Vec<u8>,
) -> Result<Option<(String, Vec<u8>)>, ImportError> {
    let mut content = Vec::new();
    loop {
        if !lines.read(line)? {
            return Err(Fault::CutOff.at(lines.number() + 1));
        }
        match tail(line).map_err(|fault| fault.at(lines.number()))? {
            Tail::End(_) => return Ok(None),
            Tail::Missing(_) => {}
            Tail::Piece { media_type, chunk, chunks, data, .. } => {
                content.extend(data);
                if content.len() as u64 > lines.limits().blob_bytes {
                    let max = lines.limits().blob_bytes;
                    return Err(Fault::Limit { what: "the size of a body in bytes", max }.at(lines.number()));
                }
                if chunk == chunks {
                    return Ok(Some((media_type, content)));
                }
            }
        }
    }
}
