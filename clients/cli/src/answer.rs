//! Asking the user on the terminal: whether a tool call may run, and what the model wants to know.

use std::collections::VecDeque;
use std::io::BufRead;
use std::thread;

use mcode_client::json::value_json;
use mcode_client::{Client, ClientError, v1};
use mcode_text::{sanitize, truncate_middle};
use tokio::sync::mpsc;

use crate::activity::{Activity, telling};
use crate::output::stderr_text;
use crate::style::Style;

/// Most bytes of a preview on the terminal: above what the daemon sends, which says itself what it left out.
const PREVIEW_BYTES_MAX: usize = 20 * 1024;

/// Typed lines on their way.
const LINES_MAX: usize = 8;

/// What waits for the user.
#[derive(Debug, Clone)]
enum Waiting {
    Approval(Box<v1::Approval>),
    Question(Box<v1::Question>),
}

impl Waiting {
    fn id(&self) -> &str {
        match self {
            Self::Approval(approval) => &approval.approval_id,
            Self::Question(question) => &question.question_id,
        }
    }
}

/// What the user typed at an approval.
#[derive(Debug, PartialEq, Eq)]
enum Said<'a> {
    Yes,
    Always,
    InThread,
    No(&'a str),
    Unclear,
}

/// The user at the terminal.
#[derive(Debug)]
pub(crate) struct Answers {
    style: Style,
    lines: Option<mpsc::Receiver<String>>,
    waiting: VecDeque<Waiting>,
}

impl Answers {
    pub(crate) fn new(style: Style) -> Self {
        Self { style, lines: None, waiting: VecDeque::new() }
    }

    /// Whether somebody is being asked.
    pub(crate) fn is_asking(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes note of what is asked and what is settled, here or elsewhere.
    pub(crate) fn event(&mut self, event: &v1::Event, activity: &mut Activity) {
        use v1::event::Body;
        let settled = match &event.body {
            Some(Body::ApprovalRequested(v1::ApprovalRequested { approval: Some(approval) })) => {
                return self.ask(Waiting::Approval(Box::new(approval.clone())), activity);
            }
            Some(Body::QuestionAsked(v1::QuestionAsked { question: Some(question) })) => {
                return self.ask(Waiting::Question(Box::new(question.clone())), activity);
            }
            Some(Body::ApprovalResolved(resolved)) => &resolved.approval_id,
            Some(Body::QuestionAnswered(answered)) => &answered.question_id,
            _ => return,
        };
        let was_shown = self.waiting.front().is_some_and(|first| first.id() == settled);
        self.waiting.retain(|waiting| waiting.id() != settled);
        if was_shown {
            activity.note("settled elsewhere");
            self.show(activity);
        }
    }

    fn ask(&mut self, waiting: Waiting, activity: &mut Activity) {
        if self.waiting.iter().any(|other| other.id() == waiting.id()) {
            return;
        }
        self.waiting.push_back(waiting);
        if self.waiting.len() == 1 {
            self.show(activity);
        }
    }

    fn show(&self, activity: &mut Activity) {
        let Some(first) = self.waiting.front() else { return };
        activity.release();
        activity.clear();
        let prompt = match first {
            Waiting::Approval(approval) => self.show_approval(approval, activity),
            Waiting::Question(question) => self.show_question(question, activity),
        };
        stderr_text(&prompt);
    }

    fn show_approval(&self, approval: &v1::Approval, activity: &mut Activity) -> String {
        let about = approval.arguments.as_ref().map(value_json).map(|value| telling(&value)).unwrap_or_default();
        let preview = if approval.preview.is_empty() { &about } else { &approval.preview };
        let title = format!("May {} run?", sanitize(&approval.tool));
        activity.line(&self.style.bold(&title));
        activity.line(&sanitize(&truncate_middle(preview.trim_end(), PREVIEW_BYTES_MAX)));
        if !approval.why.is_empty() {
            activity.line(&self.style.dim(&sanitize(&approval.why)));
        }
        let always = match approval.proposed_rule.as_str() {
            "" => String::new(),
            rule => format!(", t: yes and in this thread, a: yes and always for {}", sanitize(rule)),
        };
        format!("y: yes, n: no{always}, or a reason why not > ")
    }

    fn show_question(&self, question: &v1::Question, activity: &mut Activity) -> String {
        activity.line(&self.style.bold(&sanitize(&question.question)));
        for (number, option) in question.options.iter().enumerate() {
            activity.line(&format!("  {}: {}", number + 1, sanitize(option)));
        }
        match (question.options.is_empty(), question.multiple) {
            (true, _) => "your answer > ".to_owned(),
            (false, false) => "a number, or an answer of your own > ".to_owned(),
            (false, true) => "numbers with commas between them, or an answer of your own > ".to_owned(),
        }
    }

    /// A line that the user typed; never returns once the terminal is closed. May be dropped while it waits.
    pub(crate) async fn line(&mut self) -> String {
        let lines = self.lines.get_or_insert_with(read_lines);
        match lines.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }

    /// Settles what was asked with what the user typed.
    pub(crate) async fn settle(
        &mut self,
        client: &Client,
        line: &str,
        activity: &mut Activity,
    ) -> Result<(), ClientError> {
        let Some(first) = self.waiting.front().cloned() else { return Ok(()) };
        let outcome = match &first {
            Waiting::Approval(approval) => {
                let mut scope = v1::RuleScope::Unspecified;
                let (decision, reason) = match said(line, !approval.proposed_rule.is_empty()) {
                    Said::Yes => (v1::Decision::Allow, ""),
                    Said::Always => (v1::Decision::AllowAlways, ""),
                    Said::InThread => {
                        scope = v1::RuleScope::Thread;
                        (v1::Decision::AllowAlways, "")
                    }
                    Said::No(reason) => (v1::Decision::Deny, reason),
                    Said::Unclear => {
                        self.show(activity);
                        return Ok(());
                    }
                };
                let request = v1::ResolveApprovalRequest {
                    approval_id: approval.approval_id.clone(),
                    decision: decision.into(),
                    reason: reason.to_owned(),
                    by: "mcode ask".to_owned(),
                    scope: scope.into(),
                    until: None,
                };
                client.resolve_approval(request).await.map(|_| ())
            }
            Waiting::Question(question) => {
                let answer = choice(line, &question.options, question.multiple);
                let request = v1::AnswerQuestionRequest { question_id: question.question_id.clone(), answer };
                client.answer_question(request).await.map(|_| ())
            }
        };
        self.waiting.pop_front();
        self.show(activity);
        match outcome {
            // Somebody else was faster.
            Err(error) if error.reason == "ALREADY_RESOLVED" => Ok(()),
            other => other,
        }
    }
}

fn said(line: &str, may_always: bool) -> Said<'_> {
    let line = line.trim();
    match line.to_ascii_lowercase().as_str() {
        "" => Said::Unclear,
        "y" | "yes" => Said::Yes,
        "n" | "no" => Said::No(""),
        "a" | "always" if may_always => Said::Always,
        "t" if may_always => Said::InThread,
        "a" | "always" | "t" => Said::Unclear,
        _ => Said::No(line),
    }
}

/// Numbers stand for the options; anything else is an answer of its own.
fn choice(line: &str, options: &[String], multiple: bool) -> String {
    let pick = |text: &str| text.trim().parse::<usize>().ok()?.checked_sub(1).and_then(|index| options.get(index));
    let picked = if multiple {
        line.split(',').map(pick).collect::<Option<Vec<_>>>()
    } else {
        pick(line).map(|option| vec![option])
    };
    match picked {
        Some(picked) => picked.into_iter().map(String::as_str).collect::<Vec<_>>().join(", "),
        None => line.trim().to_owned(),
    }
}

/// Lines of the terminal, read by a thread of their own since a read can not be called off.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    let reader = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // Without the thread nobody answers, and the approval runs into its deadline as it does without a terminal.
    drop(thread::Builder::new().name("terminal".to_owned()).spawn(reader));
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_allows() {
        assert_eq!(said("y", true), Said::Yes);
        assert_eq!(said(" YES ", true), Said::Yes);
        assert_eq!(said("a", true), Said::Always);
        assert_eq!(said("a", false), Said::Unclear);
        assert_eq!((said("t", true), said("T", false)), (Said::InThread, Said::Unclear));
        assert_eq!(said("n", true), Said::No(""));
        assert_eq!(said("not in main", true), Said::No("not in main"));
        assert_eq!(said("", true), Said::Unclear);
    }

    #[test]
    fn numbers_stand_for_options() {
        let options = ["red".to_owned(), "blue".to_owned()];
        assert_eq!(choice("2", &options, false), "blue");
        assert_eq!(choice("1, 2", &options, true), "red, blue");
        assert_eq!(choice("3", &options, false), "3");
        assert_eq!(choice("0", &options, false), "0");
        assert_eq!(choice("green", &options, false), "green");
        assert_eq!(choice("5", &[], false), "5");
    }
}
