//! Makes of what was said, in order, the events that a thread of ours would have.
//!
//! What a maker's reader says here is held until it is complete: a step until the next one begins, since answers come
//! in pieces and their results between them; a run until its first step, since only that tells the model.

use mcode_events::depth;
use mcode_events::event::{EventBody, NewEvent};
use mcode_events::message::{Message, Opaque, Part, Role};
use mcode_events::run::RunStatus;
use mcode_events::tool::{ResultPart, ToolCall, ToolCallStatus, ToolResult};
use mcode_events::{BlobError, Usage};
use mcode_ids::{ItemId, RunId, StepId, ToolCallId, TurnId};
use mcode_text::{truncate_bytes, truncate_middle};
use serde_json::Value;

use super::bounds::{RESULT_BYTES_MAX, TEXT_BYTES_MAX, bounded_result, is_empty, weight};
use super::model::Model;
use super::report::Report;
use super::runs::{interruption, options};
use super::{ForeignError, Found, Imported, Reading, Timed, media, title_of, tools};

/// The longest arguments of a call, in bytes.
const ARGUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most events of a thread.
pub(crate) const EVENTS_MAX: usize = 1_000_000;

/// The most bytes of text in a thread.
pub(crate) const THREAD_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The most parts of a message, and calls of a step.
const PARTS_MAX: usize = 2_000;

/// Said of a call without a result.
const NO_RESULT: &str = "This call has no result in the history that it was imported from.";

/// What a tool gave, as a maker's reader found it.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) failed: bool,
    pub(crate) text: String,
    pub(crate) media: Vec<Part>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) diff: Option<String>,
}

struct Run {
    run_id: RunId,
    turn_id: TurnId,
    usage: Usage,
    interrupted: bool,
    /// Where its events begin, and what was counted before.
    from: usize,
    before: Report,
}

struct Call {
    provider_call_id: String,
    call: ToolCall,
    result: Option<(i64, ToolResult)>,
}

struct Step {
    key: Option<String>,
    at_ms: i64,
    last_ms: i64,
    model: Option<Model>,
    parts: Vec<Part>,
    calls: Vec<Call>,
    usage: Usage,
    stop: String,
}

/// Gathers a thread.
pub(crate) struct Builder<'a> {
    reading: Reading<'a>,
    pub(crate) report: Report,
    pub(crate) title: Option<String>,
    pub(crate) cwd: String,
    /// The most events and bytes of text.
    pub(crate) most: (usize, u64),
    first_words: Option<String>,
    events: Vec<Timed>,
    bytes: u64,
    last_ms: i64,
    created_ms: Option<i64>,
    model: Option<Model>,
    waiting: Vec<(i64, Vec<Part>)>,
    run: Option<Run>,
    step: Option<Step>,
    /// Where runs that ended begin, and what was counted before each.
    begun: Vec<(usize, Report)>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(found: &Found, reading: Reading<'a>) -> Self {
        Self {
            reading,
            report: Report::default(),
            title: None,
            cwd: found.cwd.clone(),
            most: (EVENTS_MAX, THREAD_BYTES_MAX),
            first_words: None,
            events: Vec::new(),
            bytes: 0,
            last_ms: 0,
            created_ms: None,
            model: None,
            waiting: Vec::new(),
            run: None,
            step: None,
            begun: Vec::new(),
        }
    }

    /// Somebody said something. After an answer that begins a run; before one it belongs to what was said last.
    pub(crate) fn user(&mut self, at_ms: Option<i64>, parts: Vec<Part>) {
        let parts: Vec<Part> = parts.into_iter().take(PARTS_MAX).filter(|part| !is_empty(part)).collect();
        if parts.is_empty() {
            return;
        }
        self.end_run();
        let at_ms = self.moment(at_ms);
        if self.first_words.is_none() {
            let words =
                parts.iter().find_map(|part| if let Part::Text { text, .. } = part { Some(text) } else { None });
            self.first_words = words.map(|text| title_of(text)).filter(|title| !title.is_empty());
        }
        self.waiting.push((at_ms, parts));
    }

    /// The step that an answer belongs to: with the same key the same; without keys the one that has no results yet.
    pub(crate) fn answer(&mut self, at_ms: Option<i64>, key: Option<&str>, model: Option<Model>) {
        let at_ms = self.moment(at_ms);
        let same = self.step.as_ref().is_some_and(|step| match (key, &step.key) {
            (Some(key), Some(known)) => key == known,
            (None, None) => step.calls.iter().all(|call| call.result.is_none()),
            _ => false,
        });
        if !same {
            self.end_step();
            self.step = Some(Step {
                key: key.map(str::to_owned),
                at_ms,
                last_ms: at_ms,
                model: None,
                parts: Vec::new(),
                calls: Vec::new(),
                usage: Usage::default(),
                stop: "stop".to_owned(),
            });
        }
        if let Some(step) = &mut self.step {
            step.last_ms = at_ms;
            step.model = model.or(step.model.take());
        }
    }

    /// A part of the answer that [`Self::answer`] has named.
    pub(crate) fn part(&mut self, part: Part) {
        let full = self.step.as_ref().is_none_or(|step| step.parts.len() >= PARTS_MAX);
        if full {
            self.report.leave_out("parts of an answer beyond the limit");
        } else if let Some(step) = self.step.as_mut().filter(|_| !is_empty(&part)) {
            step.parts.push(part);
        }
    }

    /// Thinking, with its signature where that may go back.
    pub(crate) fn thinking(&mut self, text: &str, signature: Option<&str>) {
        let signed = signature.filter(|_| self.is_signed());
        if signature.is_some() && signed.is_none() {
            self.report.leave_out("signatures of thinking");
        }
        let text = match signed {
            // Cut thinking does not match its signature.
            Some(_) if text.len() <= TEXT_BYTES_MAX => text.to_owned(),
            _ => self.text(text),
        };
        let opaque = signed.map(|signature| Opaque(serde_json::json!({ "signature": signature })));
        self.part(Part::Thinking { text, opaque });
    }

    /// Whether what the answer at work signs may go back.
    pub(crate) fn is_signed(&self) -> bool {
        self.step.as_ref().and_then(|step| step.model.as_ref()).is_some_and(|model| model.signs)
    }

    /// A call of the answer that [`Self::answer`] has named.
    pub(crate) fn call(&mut self, provider_call_id: &str, name: &str, arguments: Value) {
        let arguments = match arguments {
            // What nests deeper than an event takes could not be read again, and its thread neither.
            arguments if depth::fits(&arguments) && arguments.to_string().len() <= ARGUMENT_BYTES_MAX => arguments,
            _ => {
                self.report.leave_out("arguments beyond the limit");
                serde_json::json!({"left_out": "the arguments were too long or nested too deep to be imported"})
            }
        };
        let full = self.step.as_ref().is_none_or(|step| step.calls.len() >= PARTS_MAX);
        if full {
            return self.report.leave_out("tool calls beyond the limit");
        }
        let (name, arguments) = tools::ours(name, arguments);
        let tool_call_id = ToolCallId::from_uuid(self.reading.ids.next());
        let provider_call_id = truncate_bytes(provider_call_id, 256).to_owned();
        let Some(step) = &mut self.step else { return };
        step.parts.push(Part::ToolCall {
            tool_call_id,
            provider_call_id: provider_call_id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
            opaque: None,
        });
        let call = ToolCall { tool_call_id, name, arguments };
        step.calls.push(Call { provider_call_id, call, result: None });
    }

    /// What a call gave.
    pub(crate) fn result(&mut self, at_ms: Option<i64>, call_id: &str, given: Given) -> Result<(), ForeignError> {
        let at_ms = self.moment(at_ms);
        let call_id = truncate_bytes(call_id, 256);
        let open = |call: &&mut Call| call.result.is_none() && call.provider_call_id == call_id;
        let call = self.step.as_mut().and_then(|step| step.calls.iter_mut().find(open));
        let Some(tool_call_id) = call.as_ref().map(|call| call.call.tool_call_id) else {
            self.report.leave_out("results without a call");
            return Ok(());
        };
        let text = bounded_result(&given.text, self.reading)?;
        let status = if given.failed { ToolCallStatus::Failed } else { ToolCallStatus::Done };
        let mut result = ToolResult::text(tool_call_id, status, text);
        if result.joined_text().trim().is_empty() {
            result.content.clear();
        }
        result.content.extend(given.media.into_iter().filter_map(|part| match part {
            Part::Media { blob, name } => Some(ResultPart::Media { blob, name }),
            Part::Text { text, .. } => Some(ResultPart::Text { text }),
            _ => None,
        }));
        if result.content.is_empty() {
            result.content.push(ResultPart::Text { text: "(no output)".to_owned() });
        }
        result.exit_code = given.exit_code;
        result.diff = given.diff.map(|diff| truncate_middle(&diff, RESULT_BYTES_MAX));
        if let Some(call) = call {
            call.result = Some((at_ms, result));
        }
        Ok(())
    }

    /// A picture or document in base64; words in its place where it can not be taken.
    pub(crate) fn media(&mut self, data: &str, name: &str) -> Result<Part, BlobError> {
        let name: String = title_of(name);
        let name = if name.is_empty() { "picture".to_owned() } else { name };
        Ok(match media::keep(data, self.reading.blobs)? {
            Ok(blob) => Part::Media { blob, name },
            Err(why) => {
                self.report.leave_out("pictures and documents");
                Part::text(format!("[{name} was attached here and was not imported: {why}]"))
            }
        })
    }

    /// A text of a bounded length.
    pub(crate) fn text(&mut self, text: &str) -> String {
        if text.len() > TEXT_BYTES_MAX {
            self.report.leave_out("middles of texts beyond the limit");
        }
        truncate_middle(text, TEXT_BYTES_MAX)
    }

    /// What the answer at work took, each figure once.
    pub(crate) fn usage(&mut self, usage: Usage) {
        match (&mut self.step, &mut self.run) {
            (Some(step), _) => step.usage = usage,
            (None, Some(run)) => run.usage.add(&usage),
            (None, None) => {}
        }
    }

    /// Why the answer at work ended, in the maker's word.
    pub(crate) fn stop(&mut self, word: &str) {
        let word = match word {
            "end_turn" | "stop" | "stop_sequence" => "stop",
            "tool_use" | "tool-calls" | "tool_calls" => "tool_use",
            "max_tokens" | "length" => "length",
            "refusal" | "content-filter" => "refusal",
            "pause_turn" => "pause",
            _ => "other",
        };
        if let Some(step) = &mut self.step {
            step.stop = word.to_owned();
        }
    }

    /// The user stopped what was at work.
    pub(crate) fn interrupted(&mut self) {
        self.end_step();
        if !self.waiting.is_empty() {
            self.begin_run(None);
        }
        if let Some(run) = &mut self.run {
            run.interrupted = true;
        }
        self.end_run();
    }

    /// Something that people should know and models are not told.
    pub(crate) fn notice(&mut self, at_ms: Option<i64>, level: &str, text: &str) {
        let at_ms = self.moment(at_ms);
        self.end_step();
        if !self.waiting.is_empty() {
            self.begin_run(None);
        }
        let body = EventBody::Notice { level: level.to_owned(), text: truncate_middle(text, RESULT_BYTES_MAX) };
        let ids = self.run.as_ref().map(|run| (run.run_id, run.turn_id));
        let event = match ids {
            Some((run_id, turn_id)) => NewEvent::of_run(run_id, Some(turn_id), body),
            None => NewEvent::of_thread(body),
        };
        self.push(at_ms, event);
    }

    /// Takes back the last runs.
    pub(crate) fn roll_back(&mut self, runs: u64) {
        self.end_run();
        for _ in 0..runs {
            // What waits is a run that has no step yet.
            if !self.waiting.is_empty() {
                self.waiting.clear();
            } else if let Some((from, before)) = self.begun.pop() {
                self.events.truncate(from);
                (self.report.runs, self.report.messages) = (before.runs, before.messages);
                self.report.tool_calls = before.tool_calls;
                self.report.interrupted_calls = before.interrupted_calls;
            }
            self.report.leave_out("turns that were taken back");
        }
    }

    /// The thread.
    pub(crate) fn finish(mut self, found: &Found) -> Result<Imported, ForeignError> {
        self.end_run();
        if !self.waiting.is_empty() {
            self.begin_run(None);
            self.end_run();
        }
        let path = || found.path.clone();
        if self.report.messages == 0 {
            return Err(ForeignError::Empty { path: path(), told: self.report.told(found.maker, &found.id) });
        }
        let too_large = |what, max| Err(ForeignError::TooLarge { path: path(), what, max });
        if self.events.len() >= self.most.0 {
            return too_large("too many messages and calls", self.most.0 as u64);
        }
        if self.bytes > self.most.1 {
            return too_large("too many bytes of text", self.most.1);
        }
        // A history without any time was at the time of its file.
        if self.created_ms.is_none() {
            let at_ms = found.updated_at_ms.clamp(0, self.reading.now.millis());
            self.events.iter_mut().for_each(|event| event.at_ms = at_ms);
            self.last_ms = at_ms;
        }
        let given = self.title.filter(|title| !title.is_empty()).or(Some(found.title.clone()));
        let title = given.filter(|title| !title.is_empty()).or(self.first_words).unwrap_or_default();
        Ok(Imported {
            key: found.key(),
            maker: found.maker,
            id: found.id.clone(),
            title,
            cwd: self.cwd,
            model: self.model.as_ref().map(Model::name),
            created_at_ms: self.created_ms.unwrap_or(self.last_ms),
            events: self.events,
            report: self.report,
        })
    }

    /// What follows is not before this.
    pub(crate) fn begins(&mut self, at_ms: Option<i64>) {
        if at_ms.is_some() {
            self.moment(at_ms);
        }
    }

    /// A time within the thread: not before what was there, and not ahead.
    fn moment(&mut self, at_ms: Option<i64>) -> i64 {
        let now = self.reading.now.millis();
        let at_ms = at_ms.unwrap_or(self.last_ms).clamp(self.last_ms.min(now), now).max(0);
        if at_ms > 0 {
            self.created_ms.get_or_insert(at_ms);
        }
        self.last_ms = at_ms;
        at_ms
    }

    fn push(&mut self, at_ms: i64, event: NewEvent) {
        if self.events.len() < self.most.0 && self.bytes <= self.most.1 {
            self.bytes += weight(&event.body);
            self.events.push(Timed { at_ms, event });
        }
    }

    fn push_of_run(&mut self, at_ms: i64, body: EventBody) {
        if let Some((run_id, turn_id)) = self.run.as_ref().map(|run| (run.run_id, run.turn_id)) {
            self.push(at_ms, NewEvent::of_run(run_id, Some(turn_id), body));
        }
    }

    fn begin_run(&mut self, model: Option<&Model>) {
        if self.run.is_some() {
            return;
        }
        let (from, before) = (self.events.len(), self.report.clone());
        let at_ms = self.waiting.first().map_or(self.last_ms, |(at_ms, _)| *at_ms);
        let model = model.or(self.model.as_ref()).cloned();
        if let (Some(old), Some(new)) = (&self.model, &model)
            && old.name() != new.name()
        {
            let body = EventBody::ModelChanged { model: new.name() };
            self.push(at_ms, NewEvent::of_thread(body));
        }
        self.model = model;
        let run_id = RunId::from_uuid(self.reading.ids.next());
        let turn_id = TurnId::from_uuid(self.reading.ids.next());
        self.run = Some(Run { run_id, turn_id, usage: Usage::default(), interrupted: false, from, before });
        self.report.runs += 1;
        let options = options(self.model.as_ref().map(Model::name).unwrap_or_default(), self.cwd.clone());
        self.push_of_run(at_ms, EventBody::RunStarted { options });
        self.push_of_run(at_ms, EventBody::TurnStarted { turn_id });
        for (at_ms, parts) in std::mem::take(&mut self.waiting) {
            let item_id = ItemId::from_uuid(self.reading.ids.next());
            self.report.messages += 1;
            let message = Message { item_id, role: Role::User, parts, origin: None };
            self.push_of_run(at_ms, EventBody::MessageFinished { message });
        }
    }

    fn end_step(&mut self) {
        let Some(step) = self.step.take() else { return };
        if step.parts.is_empty() {
            return;
        }
        self.begin_run(step.model.as_ref());
        let model = step.model.or_else(|| self.model.clone());
        let name = model.as_ref().map(Model::name).unwrap_or_default();
        let step_id = StepId::from_uuid(self.reading.ids.next());
        let item_id = ItemId::from_uuid(self.reading.ids.next());
        self.report.messages += 1;
        self.push_of_run(step.at_ms, EventBody::StepStarted { step_id, model: name });
        self.push_of_run(step.at_ms, EventBody::MessageStarted { item_id, role: Role::Assistant });
        // Results that came between the pieces of an answer are told behind it.
        let at_ms = step.last_ms.max(step.at_ms);
        let origin = model.as_ref().map(Model::origin);
        let message = Message { item_id, role: Role::Assistant, parts: step.parts, origin };
        self.push_of_run(at_ms, EventBody::MessageFinished { message });
        for call in &step.calls {
            self.push_of_run(at_ms, EventBody::ToolCallStarted { call: call.call.clone(), item_id });
        }
        let (mut last_ms, mut lost, called) = (at_ms, false, !step.calls.is_empty());
        for Call { call, result, .. } in step.calls {
            self.report.tool_calls += 1;
            lost |= result.is_none();
            self.report.interrupted_calls += u64::from(result.is_none());
            let (at_ms, result) = result.unwrap_or_else(|| {
                (last_ms, ToolResult::text(call.tool_call_id, ToolCallStatus::Interrupted, NO_RESULT))
            });
            last_ms = last_ms.max(at_ms);
            self.push_of_run(last_ms, EventBody::ToolCallFinished { name: call.name, result });
        }
        let status = if lost { RunStatus::Interrupted } else { RunStatus::Done };
        let stop_reason = if called && step.stop == "stop" { "tool_use".to_owned() } else { step.stop };
        self.push_of_run(last_ms, EventBody::StepFinished { step_id, status, stop_reason });
        if let Some(run) = &mut self.run {
            run.usage.add(&step.usage);
            run.interrupted = lost;
        }
    }

    fn end_run(&mut self) {
        self.end_step();
        let Some(Run { turn_id, usage, interrupted, from, before, .. }) = &self.run else { return };
        let status = if *interrupted { RunStatus::Interrupted } else { RunStatus::Done };
        let (turn_id, usage) = (*turn_id, *usage);
        self.begun.push((*from, before.clone()));
        let at_ms = self.events.last().map_or(self.last_ms, |event| event.at_ms);
        self.push_of_run(at_ms, EventBody::TurnFinished { turn_id, status });
        let error = (status == RunStatus::Interrupted).then(interruption);
        self.push_of_run(at_ms, EventBody::RunFinished { status, error, usage, structured: None });
        self.run = None;
    }
}

#[cfg(test)]
mod tests;
