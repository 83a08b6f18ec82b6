//! What was said in a thread: `mcode threads show`.

use std::collections::BTreeMap;

use mcode_client::json::{message_json, value_json};
use mcode_client::v1::event::Body;
use mcode_client::{Client, ClientError, v1};
use mcode_text::{sanitize, sanitize_line, truncate_middle};
use serde_json::Value;

use crate::activity::telling;
use crate::args::Form;
use crate::context::Context;
use crate::output::{json_line, json_pretty, stdout_line};
use crate::style::Style;
use crate::times::local;
use crate::verbs::Outcome;
use crate::verbs::runs::{process_line, usage_text};

/// Events of one page; the daemon's limit.
const PAGE_EVENTS: u32 = 500;

/// Most bytes of one tool result in the text form.
const RESULT_BYTES_MAX: usize = 2048;

pub(super) async fn show(context: &Context, id: &str) -> Outcome {
    let client = context.connect().await?;
    let thread_id = client.thread_id(id).await?;
    let response = client.get_thread(v1::GetThreadRequest { thread_id: thread_id.clone() }).await?;
    match context.form {
        Form::Text => {
            let style = Style::of_stdout(context.global.color);
            stdout_line(&header(&response))?;
            let mut after = 0;
            let mut inputs = Inputs::default();
            while let Some(page) = next_page(&client, &thread_id, &mut after).await? {
                for event in &page.events {
                    inputs.event(event);
                    said(event, style).map_or(Ok(()), |text| stdout_line(&text))?;
                }
            }
            inputs.left(style).iter().try_for_each(|text| stdout_line(text))?;
        }
        Form::Json | Form::Jsonl => {
            let mut value = message_json("GetThreadResponse", &response)?;
            let mut events = Vec::new();
            let mut after = 0;
            while let Some(page) = next_page(&client, &thread_id, &mut after).await? {
                for event in &page.events {
                    events.extend(mcode_client::lines::event_line(event)?);
                }
            }
            value["events"] = Value::Array(events);
            if context.form == Form::Json { json_pretty(&value)? } else { json_line(&value)? }
        }
    }
    Ok(0)
}

/// The page after `after`, which is moved to its end; `None` at the end of the thread.
pub(super) async fn next_page(
    client: &Client,
    thread_id: &str,
    after: &mut u64,
) -> Result<Option<v1::ListEventsResponse>, ClientError> {
    let request = v1::ListEventsRequest { thread_id: thread_id.to_owned(), after_seq: *after, page_size: PAGE_EVENTS };
    let page = client.list_events(request).await?;
    match page.events.last() {
        Some(last) if last.seq > *after => {
            *after = last.seq;
            Ok(Some(page))
        }
        _ => Ok(None),
    }
}

fn header(response: &v1::GetThreadResponse) -> String {
    let mut lines = Vec::new();
    if let Some(thread) = &response.thread {
        lines.push(format!("thread  {}", thread.thread_id));
        lines.push(format!("title   {}", thread.title));
        if !thread.tags.is_empty() {
            lines.push(format!("tags    {}", thread.tags.join(", ")));
        }
        if !thread.parent_thread_id.is_empty() {
            lines.push(format!("fork of {} after event {}", thread.parent_thread_id, thread.parent_seq));
        }
        lines.push(format!("folder  {}", thread.cwd));
        lines.push(format!("model   {} ({})", thread.model, thread.mode));
        lines.push(format!("state   {}, {} events", thread.state, thread.last_seq));
        lines.push(format!("time    {} to {}", local(thread.created_at.as_ref()), local(thread.updated_at.as_ref())));
        if let Some(usage) = &thread.usage {
            lines.push(format!("usage   {}", usage_text(usage)));
        }
    }
    for run in &response.runs {
        lines.push(format!("run     {} {} {}", run.run_id, run.status, local(run.started_at.as_ref())));
    }
    lines.extend(response.processes.iter().map(process_line));
    lines.extend(
        response
            .forks
            .iter()
            .map(|fork| format!("fork    {} after event {}: {}", fork.thread_id, fork.parent_seq, fork.title)),
    );
    for task in &response.tasks {
        lines.push(format!("task    {}: {}", task.status, task.content));
    }
    sanitize(&lines.join("\n")).into_owned()
}

/// What was said while a run was at work; what was taken up is a message of its own.
#[derive(Debug, Default)]
struct Inputs {
    open: BTreeMap<String, v1::InputQueued>,
    dropped: Vec<v1::InputQueued>,
}

impl Inputs {
    fn event(&mut self, event: &v1::Event) {
        match &event.body {
            Some(Body::InputQueued(input)) => drop(self.open.insert(input.input_id.clone(), input.clone())),
            Some(Body::InputTaken(taken)) => {
                self.dropped.extend(self.open.remove(&taken.input_id).filter(|_| !taken.delivered));
            }
            _ => {}
        }
    }

    /// What never reached the model, or has not yet.
    fn left(&self, style: Style) -> Vec<String> {
        let text = |input: &v1::InputQueued, what: &str| {
            let heading = style.bold(&sanitize_line(&format!("user ({}, {what})", input.delivery)));
            format!("\n{heading}\n{}", sanitize(input.text.trim()))
        };
        let dropped = self.dropped.iter().map(|input| text(input, "never reached the model"));
        dropped.chain(self.open.values().map(|input| text(input, "not taken up yet"))).collect()
    }
}

fn unreadable(seq: u64, what: &str, style: Style) -> String {
    style.red(&sanitize_line(&format!("(event {seq} cannot be read: {what})")))
}

/// A message, under the name of the event where one can go back to, or fork; `None` when nothing of it is shown.
fn spoken(seq: u64, message: &v1::MessageFinished, style: Style) -> Option<String> {
    if message.text.trim().is_empty() && message.media.is_empty() {
        return None;
    }
    let media = message.media.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>().join(" ");
    let body = [message.text.trim(), media.as_str()].into_iter().filter(|part| !part.is_empty());
    let body = body.collect::<Vec<_>>().join("\n");
    let place = style.dim(&format!("event {seq}"));
    Some(format!("\n{}  {place}\n{}", style.bold(&sanitize_line(&message.role)), sanitize(&body)))
}

/// An event as part of the conversation; `None` when it is not part of it.
fn said(event: &v1::Event, style: Style) -> Option<String> {
    Some(match event.body.as_ref()? {
        Body::MessageFinished(message) => return spoken(event.seq, message, style),
        Body::MessageDiscarded(message) if !message.text.trim().is_empty() => {
            format!("\n{}\n{}", style.bold("assistant (not finished)"), sanitize(message.text.trim()))
        }
        Body::ToolCallStarted(call) => {
            let about = call.arguments.as_ref().map(value_json).map(|value| telling(&value)).unwrap_or_default();
            format!("\n{}", style.dim(&sanitize(&format!("· {} {about}", call.name))))
        }
        Body::ToolCallFinished(end) => {
            let body = if end.text.trim().is_empty() { &end.result_preview } else { &end.text };
            let body = truncate_middle(body.trim_end(), RESULT_BYTES_MAX).replace('\n', "\n    ");
            sanitize(&format!("  {} {}:\n    {body}", end.name, end.status)).into_owned()
        }
        Body::ApprovalRequested(asked) => {
            let approval = asked.approval.as_ref()?;
            let until = approval.deadline.as_ref().map(|it| format!(", until {}", local(Some(it)))).unwrap_or_default();
            sanitize(&format!("  {} asks for {}{until}", approval.approval_id, approval.tool)).into_owned()
        }
        Body::ApprovalResolved(resolved) => {
            sanitize(&format!("  {} {} {}", resolved.outcome, resolved.by, resolved.reason)).trim_end().to_owned()
        }
        Body::QuestionAsked(asked) => {
            let question = asked.question.as_ref()?;
            format!("\n{} {}", style.bold("question"), sanitize(&question.question))
        }
        Body::QuestionAnswered(answered) => format!("{} {}", style.bold("answer"), sanitize(&answered.answer)),
        Body::Notice(notice) => style.yellow(&sanitize(&format!("{}: {}", notice.level, notice.text))),
        Body::RunStarted(run) if run.trigger == "background" => {
            format!("\n{}", style.dim("— goes on by itself: a command in the background has ended"))
        }
        Body::CheckpointTaken(taken) => {
            let checkpoint = taken.checkpoint.as_ref()?;
            let count = checkpoint.added + checkpoint.modified + checkpoint.deleted;
            if checkpoint.tool_call_id.is_empty() || count == 0 {
                return None;
            }
            style.dim(&format!("  {} files changed (checkpoint {})", count, checkpoint.checkpoint_id))
        }
        Body::PlanSubmitted(plan) => {
            let text = format!("  plan {}: {} ({})", plan.plan_id, plan.title, plan.path);
            sanitize(&text).into_owned()
        }
        Body::PlanSettled(end) => {
            let said = if end.comment.is_empty() { String::new() } else { format!(": {}", end.comment) };
            sanitize(&format!("  plan {}{said}", end.status)).into_owned()
        }
        Body::FilesRestored(back) => {
            let left = if back.left > 0 { format!(", {} left alone", back.left) } else { String::new() };
            let text = format!("— brought back: {}{left}", back.files.join(", "));
            format!("\n{}", style.dim(&sanitize(&text)))
        }
        Body::ThreadForked(fork) => {
            let from =
                format!("— until here it is {}; from here on this thread goes its own way", fork.parent_thread_id);
            format!("\n{}", style.dim(&sanitize(&from)))
        }
        Body::Rewound(back) => {
            format!("\n{}", style.dim(&format!("— gone back to event {}: what is between does not count", back.to_seq)))
        }
        Body::Opaque(it) if !it.damage.is_empty() => unreadable(event.seq, &it.damage, style),
        Body::RunResumed(_) => format!("\n{}", style.dim("— gone on with by another daemon")),
        Body::RunFinished(end) => {
            let why = end.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
            format!("\n{}", style.dim(&sanitize(&format!("— {}{why}", end.status))))
        }
        _ => return None,
    })
}
