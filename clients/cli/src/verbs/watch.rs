//! `mcode watch`: a thread's events as they happen.

use std::collections::BTreeSet;

use clap::Args;
use mcode_client::lines::{event_line, frame_line};
use mcode_client::v1::event::Body;
use mcode_client::{Client, ClientError, Follow, Piece, v1};
use mcode_text::sanitize;

use crate::args::Form;
use crate::context::Context;
use crate::deltas::Deltas;
use crate::failure::Failure;
use crate::output::{json_line, stderr_line, stdout_line, stdout_text};
use crate::verbs::Outcome;

/// Print the events of a thread.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The thread: its id, the beginning of it, or latest
    pub(crate) thread: String,
    /// Begin after this seq, and not with the recent past; 0 is the beginning
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
    /// End as soon as no run is at work in the thread
    #[arg(long)]
    pub(crate) until_idle: bool,
}

pub(crate) async fn run(context: &Context, args: WatchArgs) -> Outcome {
    // A daemon that is there no more was stopped by somebody: whoever only looks does not bring it back, but waits some
    // time for it, as for a restart.
    drop(context.connect().await?);
    let client = context.connect_running().await?;
    let thread_id = client.thread_id(&args.thread).await?;
    let follow = Follow::new(client.clone(), &thread_id, args.after);
    let mut watch = Watch {
        client,
        thread_id,
        form: context.form,
        deltas: Deltas::default(),
        open: None,
        active: BTreeSet::new(),
        caught_up: false,
    };
    watch.run(follow, args.until_idle).await?;
    Ok(0)
}

struct Watch {
    client: Client,
    thread_id: String,
    form: Form,
    deltas: Deltas,
    /// The message whose line is being written.
    open: Option<String>,
    active: BTreeSet<String>,
    caught_up: bool,
}

impl Watch {
    async fn run(&mut self, mut follow: Follow, until_idle: bool) -> Result<(), Failure> {
        loop {
            let ends = match follow.next().await? {
                Piece::Snapshot(snapshot) => {
                    snapshot.recent.iter().try_for_each(|event| self.event(event))?;
                    false
                }
                Piece::Event(event) => {
                    self.event(&event)?;
                    matches!(event.body, Some(Body::RunFinished(_)))
                }
                Piece::Frame(frame) => {
                    self.frame(&frame)?;
                    false
                }
                Piece::CaughtUp(_) => {
                    self.caught_up = true;
                    true
                }
                Piece::Reconnecting(why) => {
                    stderr_line(&sanitize(&format!("{why}; connecting again")));
                    false
                }
            };
            if until_idle && ends && self.is_idle().await? {
                return Ok(());
            }
        }
    }

    /// Whether nothing is at work: all runs that were seen have ended, and the daemon knows of no other.
    async fn is_idle(&self) -> Result<bool, ClientError> {
        if !self.caught_up || !self.active.is_empty() {
            return Ok(false);
        }
        let request = v1::GetThreadRequest { thread_id: self.thread_id.clone() };
        let thread = self.client.get_thread(request).await?.thread.unwrap_or_default();
        Ok(thread.active_run_id.is_empty())
    }

    fn event(&mut self, event: &v1::Event) -> Result<(), Failure> {
        match &event.body {
            Some(Body::RunStarted(_)) => drop(self.active.insert(event.run_id.clone())),
            Some(Body::RunFinished(_)) => drop(self.active.remove(&event.run_id)),
            _ => {}
        }
        if self.form != Form::Text {
            return event_line(event)?.map_or(Ok(()), |line| json_line(&line));
        }
        match &event.body {
            Some(Body::MessageFinished(message)) if self.deltas.has_begun(&message.item_id) => {
                for frame in self.deltas.rest(event) {
                    self.write(&frame)?;
                }
                return self.end_line("");
            }
            Some(Body::MessageDiscarded(message)) if self.is_open(&message.item_id) => {
                return self.end_line(" (cut off)");
            }
            _ => {}
        }
        match text_line(event) {
            Some(text) => {
                self.end_line("")?;
                stdout_line(&text)
            }
            None => Ok(()),
        }
    }

    fn frame(&mut self, frame: &v1::Frame) -> Result<(), Failure> {
        if self.form != Form::Text {
            return frame_line(frame)?.map_or(Ok(()), |line| json_line(&line));
        }
        self.deltas.frame(frame);
        if let Some(v1::frame::Body::ItemReset(reset)) = &frame.body
            && self.is_open(&reset.item_id)
        {
            return self.end_line(" (cut off)");
        }
        self.write(frame)
    }

    fn is_open(&self, item_id: &str) -> bool {
        self.open.as_deref() == Some(item_id)
    }

    /// Words of a message as they come, on a line that is begun with the first of them.
    fn write(&mut self, frame: &v1::Frame) -> Result<(), Failure> {
        let Some(v1::frame::Body::TextDelta(delta)) = &frame.body else { return Ok(()) };
        if self.is_open(&delta.item_id) {
            return stdout_text(&sanitize(&delta.text));
        }
        let text = delta.text.trim_start();
        if text.is_empty() {
            return Ok(());
        }
        self.end_line("")?;
        self.open = Some(delta.item_id.clone());
        // Its seq is known only when it is complete.
        stdout_text(&format!("{:>5} message assistant: {}", "", sanitize(text)))
    }

    /// Ends the line that is being written, if one is.
    fn end_line(&mut self, why: &str) -> Result<(), Failure> {
        if self.open.take().is_some() { stdout_line(why) } else { Ok(()) }
    }
}

/// An event as a line for people: seq, kind, and what it is about.
fn text_line(event: &v1::Event) -> Option<String> {
    let (kind, about) = match event.body.as_ref()? {
        Body::RunStarted(run) if run.trigger == "background" => ("run_started", format!("{} (by itself)", run.model)),
        Body::RunStarted(run) => ("run_started", run.model.clone()),
        Body::RunResumed(_) => ("run_resumed", String::new()),
        Body::RunFinished(run) => {
            let why = run.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
            ("run_finished", format!("{}{why}", run.status))
        }
        Body::MessageFinished(message) if message.text.trim().is_empty() => return None,
        Body::MessageFinished(message) => ("message", format!("{}: {}", message.role, message.text.trim())),
        Body::MessageDiscarded(message) if message.text.trim().is_empty() => return None,
        Body::MessageDiscarded(message) => ("message", format!("assistant (cut off): {}", message.text.trim())),
        Body::ToolCallStarted(call) => {
            let value = call.arguments.as_ref().map(mcode_client::json::value_json).unwrap_or_default();
            ("tool_call", format!("{} {}", call.name, crate::activity::telling(&value)))
        }
        Body::ToolCallFinished(end) => {
            let more = crate::activity::beyond(&end.status, &end.result_preview);
            ("tool_call", format!("{} {}{more}", end.name, end.status))
        }
        Body::ApprovalRequested(asked) => {
            let approval = asked.approval.clone().unwrap_or_default();
            ("approval", format!("{} asked for {}", approval.approval_id, approval.tool))
        }
        Body::ApprovalResolved(resolved) => ("approval", format!("{} {}", resolved.approval_id, resolved.outcome)),
        Body::QuestionAsked(asked) => {
            let question = asked.question.clone().unwrap_or_default();
            ("question", format!("{} {}", question.question_id, question.question))
        }
        Body::QuestionAnswered(answered) => ("question", format!("{} {}", answered.question_id, answered.answer)),
        Body::InputQueued(input) => ("input", format!("{}: {}", input.delivery, input.text)),
        Body::TitleChanged(change) => ("title", change.title.clone()),
        Body::ModelChanged(change) => ("model", change.model.clone()),
        Body::ModeChanged(change) => ("mode", change.mode.clone()),
        Body::Notice(notice) => ("notice", format!("{}: {}", notice.level, notice.text)),
        Body::Opaque(it) if !it.damage.is_empty() => ("cannot be read:", it.damage.clone()),
        _ => return None,
    };
    Some(sanitize(&format!("{:>5} {kind} {about}", event.seq)).into_owned())
}
