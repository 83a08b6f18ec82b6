//! Waiting for a run: its events, its questions, Ctrl+C, and its result in the form that was asked for.

use std::time::Duration;

use mcode_client::{Client, ClientError, Follow, Piece, RunView, v1};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::activity::{Activity, TICK};
use crate::answer::Answers;
use crate::args::Form;
use crate::context::Context;
use crate::deltas::Deltas;
use crate::failure::{self, Failure, STDOUT_UNUSABLE, tell_message};
use crate::interrupt::{INTERRUPTED, Interrupts};
use crate::output::{foreign_text, json_line, json_pretty};
use crate::terminal::Typed;
use crate::verbs::Outcome;

/// How long Ctrl+C waits for the run to end.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// Exit status of a run that was not permitted what it needed.
const REFUSED: u8 = 4;

/// Waiting for a run.
pub(super) struct Wait {
    client: Client,
    follow: Follow,
    view: RunView,
    form: Form,
    activity: Activity,
    answers: Option<Answers>,
    deltas: Deltas,
    /// Until when Ctrl+C waits for the end.
    cancelled: Option<Instant>,
}

impl Wait {
    /// Waits for the run that was just started; asks the user when `interactive`.
    pub(super) fn new(context: &Context, client: Client, started: &v1::StartRunResponse, interactive: bool) -> Self {
        Self {
            view: RunView::new(&started.thread_id, &started.run_id),
            follow: Follow::new(client.clone(), &started.thread_id, Some(started.seq)),
            client,
            form: context.form,
            activity: Activity::new(context.stderr, context.global.verbose > 0),
            answers: interactive.then(|| Answers::new(context.stderr)),
            deltas: Deltas::default(),
            cancelled: None,
        }
    }

    /// Shows what happens until the run has ended, and then its result.
    pub(super) async fn until_end(mut self, mut interrupts: Interrupts) -> Outcome {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let live = self.activity.is_live() && self.form == Form::Text;
        while !self.view.is_finished() {
            let asking = self.answers.as_ref().is_some_and(Answers::is_asking);
            let deadline = self.cancelled;
            tokio::select! {
                piece = self.follow.next() => {
                    if let Err(error) = piece.map_err(Failure::from).and_then(|piece| self.take(piece)) {
                        self.activity.clear();
                        return self.lost(error);
                    }
                    if live && !self.answers.as_ref().is_some_and(Answers::is_asking) {
                        self.activity.draw_soon();
                    }
                }
                () = interrupts.next() => {
                    if self.cancelled.is_some() {
                        return self.interrupted();
                    }
                    self.cancelled = Some(Instant::now() + CANCEL_WAIT);
                    self.activity.note("cancelling the run; Ctrl+C again leaves at once");
                    // On its own, so that events and a second Ctrl+C are seen meanwhile; its answer is the run's end.
                    let (client, run_id) = (self.client.clone(), self.view.run_id.clone());
                    drop(tokio::spawn(async move { client.cancel_run(v1::CancelRunRequest { run_id }).await }));
                }
                () = until(deadline) => return self.interrupted(),
                typed = typed(self.answers.as_mut()), if asking => self.answer(&typed).await?,
                _ = tick.tick(), if live && !asking => self.activity.draw(),
            }
        }
        self.finish()
    }

    fn take(&mut self, piece: Piece) -> Result<(), Failure> {
        match piece {
            Piece::Event(event) => {
                self.view.apply(&event);
                for frame in self.deltas.rest(&event) {
                    self.print_line(mcode_client::lines::frame_line(&frame))?;
                }
                self.print_line(mcode_client::lines::event_line(&event))?;
                if event.run_id == self.view.run_id {
                    self.activity.event(&event);
                    if let Some(answers) = &mut self.answers {
                        answers.event(&event, &mut self.activity);
                    }
                }
            }
            Piece::Frame(frame) => {
                self.deltas.frame(&frame);
                self.print_line(mcode_client::lines::frame_line(&frame))?;
                self.activity.frame(&frame);
            }
            Piece::Reconnecting(why) => self.activity.note(&format!("{why}; connecting again")),
            Piece::Snapshot(_) | Piece::CaughtUp(_) => {}
        }
        Ok(())
    }

    fn print_line(&self, line: Result<Option<Value>, ClientError>) -> Result<(), Failure> {
        if self.form != Form::Jsonl {
            return Ok(());
        }
        match line? {
            Some(line) => json_line(&line),
            None => Ok(()),
        }
    }

    async fn answer(&mut self, typed: &Typed) -> Result<(), Failure> {
        if let Some(answers) = &mut self.answers {
            answers.settle(&self.client, typed, &mut self.activity).await?;
        }
        Ok(())
    }

    /// The run goes on, but we can not see it any more.
    fn lost(&mut self, failure: Failure) -> Outcome {
        let Failure::Error(mut error) = failure else { return Err(failure) };
        if error.reason == STDOUT_UNUSABLE {
            // No result can be printed either; it is told once, at the end.
            return Err(Failure::Error(error));
        }
        if error.hint.is_none() {
            error.hint = Some(format!("see how it ends with: mcode watch {}", self.view.thread_id));
        }
        failure::tell(&error);
        let mut result = self.view.result();
        result["error"] = error.to_json();
        result["exit_code"] = json!(error.exit_code());
        print_result(self.form, &result)?;
        Err(Failure::Told(error.exit_code()))
    }

    fn interrupted(mut self) -> Outcome {
        self.activity.clear();
        tell_message("left before the run had ended", Some(&format!("see: mcode runs show {}", self.view.run_id)));
        let mut result = self.view.result();
        result["exit_code"] = json!(INTERRUPTED);
        print_result(self.form, &result)?;
        Ok(INTERRUPTED)
    }

    fn finish(mut self) -> Outcome {
        self.activity.clear();
        let code = self.view.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(70);
        if code == REFUSED {
            // The daemon names all ways; which of them would have helped is seen from the refusals.
            let hint = refusal_hint(&self.view).unwrap_or_default().to_owned();
            if let Some(error) = &mut self.view.error {
                error.hint = hint;
            }
        }
        if code != 0 {
            // What was said last is no answer.
            self.activity.release();
            self.tell_end();
        }
        if self.form != Form::Text {
            print_result(self.form, &self.view.result())?;
            return Ok(code);
        }
        if code == 0 {
            let text = answer_text(self.view.text, &self.view.structured);
            if text.trim().is_empty() {
                let hint = format!("ask for it: mcode ask --thread {}", self.view.thread_id);
                tell_message("the model ended without an answer", Some(&hint));
            } else {
                foreign_text(&text)?;
            }
        }
        Ok(code)
    }

    /// Why the run did not end well, and which calls were refused.
    fn tell_end(&self) {
        if self.view.status == "cancelled" && self.view.exit_code == Some(INTERRUPTED.into()) {
            let hint = format!("go on with: mcode ask --thread {} PROMPT", self.view.thread_id);
            return tell_message("the run was cancelled", Some(&hint));
        }
        let refused: Vec<&str> =
            self.view.tool_calls.iter().filter(|call| call.status == "denied").map(|call| call.name.as_str()).collect();
        let refused = match refused.as_slice() {
            [] => String::new(),
            names => format!("; refused: {}", names.join(", ")),
        };
        match &self.view.error {
            // It names the call itself.
            Some(error) if error.message.contains("refused") => tell_message(&error.message, Some(&error.hint)),
            Some(error) => tell_message(&format!("{}{refused}", error.message), Some(&error.hint)),
            None if refused.is_empty() => tell_message(&format!("the run ended as {}", self.view.status), None),
            None => tell_message(&format!("the run could not do its work{refused}"), refusal_hint(&self.view)),
        }
    }
}

/// What would get a call through that was refused: nothing that would not help.
fn refusal_hint(view: &RunView) -> Option<&'static str> {
    let why =
        |text: &str| view.tool_calls.iter().any(|call| call.status == "denied" && call.result_preview.contains(text));
    if why("nobody is there to answer") {
        Some(
            "run it at a terminal, or with --detach --approve ask and answer with: mcode approvals; \
             or allow it with a rule in permissions.allow, or all with --approve all",
        )
    } else if why("nobody answered in time") {
        Some("answer sooner, at the terminal or with: mcode approvals list")
    } else if why("plan mode") || why("explore mode") {
        Some("these modes change nothing: go on with --mode build")
    } else {
        // A deny rule, --approve deny or the user said no, and each of them was meant.
        None
    }
}

/// Ends at the deadline; never without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn typed(answers: Option<&mut Answers>) -> Typed {
    match answers {
        Some(answers) => answers.typed().await,
        None => std::future::pending().await,
    }
}

/// What is printed as the answer: the model's words, or the JSON that was asked for where those are more than that.
fn answer_text(text: String, structured: &Value) -> String {
    let is_answer = !text.trim().is_empty() && (structured.is_null() || serde_json::from_str::<Value>(&text).is_ok());
    if is_answer || structured.is_null() { text } else { format!("{structured:#}") }
}

/// The result of a run, as `json` and `jsonl` have it.
pub(super) fn print_result(form: Form, result: &Value) -> Result<(), Failure> {
    match form {
        Form::Text => Ok(()),
        Form::Json => {
            let mut result = result.clone();
            if let Value::Object(fields) = &mut result {
                fields.shift_remove("type");
            }
            json_pretty(&result)
        }
        Form::Jsonl => json_line(&mcode_client::lines::result_line(result.clone())),
    }
}

#[cfg(test)]
mod tests {
    use mcode_client::ToolCallView;

    use super::*;

    fn refused(why: &str) -> Option<&'static str> {
        let call = ToolCallView {
            id: "tc_1".into(),
            name: "shell".into(),
            arguments: Value::Null,
            status: "denied".into(),
            result_preview: why.into(),
        };
        refusal_hint(&RunView { tool_calls: vec![call], ..RunView::default() })
    }

    #[test]
    fn an_answer_by_schema_is_printed_as_json_alone() {
        let value = serde_json::json!({"n": 1});
        assert_eq!(answer_text("{\"n\":1}".into(), &value), "{\"n\":1}");
        assert_eq!(answer_text("So: {\"n\": 1}".into(), &value), "{\n  \"n\": 1\n}");
        assert_eq!(answer_text(String::new(), &value), "{\n  \"n\": 1\n}");
        assert_eq!(answer_text("words".into(), &Value::Null), "words");
    }

    #[test]
    fn only_what_helps_is_hinted_at() {
        assert!(
            refused("the default: commands are asked for, and nobody is there to answer")
                .unwrap()
                .contains("--approve all")
        );
        assert!(refused("plan mode changes nothing").unwrap().contains("--mode build"));
        for meant in ["the deny rule shell(rm *)", "the user said no", "this run refuses what would be asked"] {
            assert_eq!(refused(meant), None);
        }
    }
}
