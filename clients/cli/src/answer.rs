//! Asking the user on the terminal: whether a tool call may run, and what the model wants to know.

use std::collections::VecDeque;

use mcode_client::json::value_json;
use mcode_client::{Client, ClientError, v1};
use mcode_text::{sanitize, sanitize_line, truncate_middle};

use crate::activity::{Activity, telling};
use crate::output::stderr_text;
use crate::style::Style;
use crate::terminal::{Terminal, Typed};

/// Most bytes of a preview on the terminal: above what the daemon sends, which says itself what it left out.
const PREVIEW_BYTES_MAX: usize = 20 * 1024;

/// Lines that make no sense before a call is refused.
const UNCLEAR_MAX: u32 = 3;

/// What the model is told when the terminal gives no answer to its question.
const NO_ANSWER: &str = "(The user gave no answer. Decide by yourself if a sensible choice is safe, or stop and say \
                         what you need to know.)";

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
    Help,
    Unclear,
}

/// What is sent to the daemon.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Decision(v1::Decision, v1::RuleScope, String),
    Answer(String),
}

/// The user at the terminal.
#[derive(Debug)]
pub(crate) struct Answers {
    style: Style,
    // Nothing is read before something is asked.
    terminal: Option<Terminal>,
    waiting: VecDeque<Waiting>,
    unclear: u32,
}

impl Answers {
    pub(crate) fn new(style: Style) -> Self {
        Self { style, terminal: None, waiting: VecDeque::new(), unclear: 0 }
    }

    /// Whether somebody is being asked.
    pub(crate) fn is_asking(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes note of what is asked and what is settled, here or elsewhere.
    pub(crate) fn event(&mut self, event: &v1::Event, activity: &mut Activity) {
        use v1::event::Body;
        let (settled, withdrawn) = match &event.body {
            Some(Body::ApprovalRequested(v1::ApprovalRequested { approval: Some(approval) })) => {
                return self.ask(Waiting::Approval(Box::new(approval.clone())), activity);
            }
            Some(Body::QuestionAsked(v1::QuestionAsked { question: Some(question) })) => {
                return self.ask(Waiting::Question(Box::new(question.clone())), activity);
            }
            Some(Body::ApprovalResolved(resolved)) => (&resolved.approval_id, resolved.outcome == "withdrawn"),
            Some(Body::QuestionAnswered(answered)) => (&answered.question_id, !answered.answered),
            _ => return,
        };
        let was_shown = self.waiting.front().is_some_and(|first| first.id() == settled);
        self.waiting.retain(|waiting| waiting.id() != settled);
        if was_shown {
            // The prompt stands on a line that nobody will end.
            activity.line("");
            // What is withdrawn goes with its run, whose end is told.
            if !withdrawn {
                activity.note("settled elsewhere");
            }
            self.next(activity);
        }
    }

    fn ask(&mut self, waiting: Waiting, activity: &mut Activity) {
        if self.waiting.iter().any(|other| other.id() == waiting.id()) {
            return;
        }
        self.waiting.push_back(waiting);
        if self.waiting.len() == 1 {
            self.next(activity);
        }
    }

    /// Shows what is to be answered now, if anything is.
    fn next(&mut self, activity: &mut Activity) {
        self.unclear = 0;
        let Some(first) = self.waiting.front() else { return };
        activity.release();
        activity.clear();
        match first {
            Waiting::Approval(approval) => self.show_approval(approval, activity),
            Waiting::Question(question) => self.show_question(question, activity),
        }
        self.prompt();
    }

    /// The last line of what is asked; only what is typed from now on answers it.
    fn prompt(&mut self) {
        let Some(first) = self.waiting.front() else { return };
        let prompt = match first {
            Waiting::Approval(approval) => approval_prompt(approval),
            Waiting::Question(question) => question_prompt(question).to_owned(),
        };
        self.terminal.get_or_insert_with(Terminal::open).forget();
        stderr_text(&prompt);
    }

    fn show_approval(&self, approval: &v1::Approval, activity: &mut Activity) {
        let about = approval.arguments.as_ref().map(value_json).map(|value| telling(&value)).unwrap_or_default();
        let preview = if approval.preview.is_empty() { &about } else { &approval.preview };
        let title = format!("May {} run?", sanitize(&approval.tool));
        activity.line(&self.style.bold(&title));
        activity.line(&sanitize(&truncate_middle(preview.trim_end(), PREVIEW_BYTES_MAX)));
        if !approval.why.is_empty() {
            activity.line(&self.style.dim(&sanitize(&approval.why)));
        }
    }

    fn show_question(&self, question: &v1::Question, activity: &mut Activity) {
        activity.line(&self.style.bold(&sanitize(&question.question)));
        for (number, option) in question.options.iter().enumerate() {
            activity.line(&format!("  {}: {}", number + 1, sanitize(option)));
        }
    }

    /// What the user typed. May be dropped while it waits.
    pub(crate) async fn typed(&mut self) -> Typed {
        self.terminal.get_or_insert_with(Terminal::open).next().await
    }

    /// Settles what was asked with what the user typed.
    pub(crate) async fn settle(
        &mut self,
        client: &Client,
        typed: &Typed,
        activity: &mut Activity,
    ) -> Result<(), ClientError> {
        let Some(first) = self.waiting.front().cloned() else { return Ok(()) };
        let Some(sent) = self.understand(&first, typed, activity) else {
            self.prompt();
            return Ok(());
        };
        let outcome = match sent {
            Sent::Decision(decision, scope, reason) => {
                let request = v1::ResolveApprovalRequest {
                    approval_id: first.id().to_owned(),
                    decision: decision.into(),
                    reason,
                    by: "mcode ask".to_owned(),
                    scope: scope.into(),
                    until: None,
                };
                client.resolve_approval(request).await.map(|_| ())
            }
            Sent::Answer(answer) => {
                let request = v1::AnswerQuestionRequest { question_id: first.id().to_owned(), answer };
                client.answer_question(request).await.map(|_| ())
            }
        };
        self.waiting.pop_front();
        self.next(activity);
        match outcome {
            // Somebody else was faster.
            Err(error) if error.reason == "ALREADY_RESOLVED" => Ok(()),
            other => other,
        }
    }

    /// What is sent for what was typed; `None` when it has to be asked again.
    fn understand(&mut self, asked: &Waiting, typed: &Typed, activity: &mut Activity) -> Option<Sent> {
        let deny =
            |reason: &str| Some(Sent::Decision(v1::Decision::Deny, v1::RuleScope::Unspecified, reason.to_owned()));
        let allow = |decision, scope| Some(Sent::Decision(decision, scope, String::new()));
        let (approval, line) = match (asked, typed) {
            (Waiting::Approval(_), Typed::End) => {
                activity.line("");
                activity.note("end of input: refused; to leave questions to somebody else, use: mcode ask --detach");
                return deny("no answer: the input of the terminal ended");
            }
            (Waiting::Question(_), Typed::End) => {
                activity.line("");
                activity.note("end of input: the model is told that there is no answer");
                return Some(Sent::Answer(NO_ANSWER.to_owned()));
            }
            (Waiting::Question(_), Typed::Line(line)) if line.trim().is_empty() => {
                self.unclear += 1;
                return (self.unclear >= UNCLEAR_MAX).then(|| Sent::Answer(NO_ANSWER.to_owned()));
            }
            (Waiting::Question(question), Typed::Line(line)) => {
                return Some(Sent::Answer(choice(line, &question.options, question.multiple)));
            }
            (Waiting::Approval(approval), Typed::Line(line)) => (approval, line),
        };
        match said(line, !approval.proposed_rule.is_empty()) {
            Said::Yes => return allow(v1::Decision::Allow, v1::RuleScope::Unspecified),
            Said::Always => return allow(v1::Decision::AllowAlways, v1::RuleScope::Project),
            Said::InThread => return allow(v1::Decision::AllowAlways, v1::RuleScope::Thread),
            Said::No(reason) => return deny(reason),
            Said::Help => {
                help(approval, activity);
                return None;
            }
            Said::Unclear => {}
        }
        self.unclear += 1;
        if self.unclear >= UNCLEAR_MAX {
            activity.note(&format!("not understood {UNCLEAR_MAX} times: refused"));
            return deny("no clear answer was given");
        }
        activity.note(&format!("not understood: '{}'; ? says what can be answered", sanitize_line(line.trim())));
        None
    }
}

fn approval_prompt(approval: &v1::Approval) -> String {
    let always = match approval.proposed_rule.as_str() {
        "" => String::new(),
        rule => format!(", a: yes and always in this project for {}", sanitize_line(rule)),
    };
    format!("y: yes, n: no{always}, ?: help > ")
}

fn question_prompt(question: &v1::Question) -> &'static str {
    match (question.options.is_empty(), question.multiple) {
        (true, _) => "your answer > ",
        (false, false) => "a number, or an answer of your own > ",
        (false, true) => "numbers with commas between them, or an answer of your own > ",
    }
}

/// What each answer does.
fn help(approval: &v1::Approval, activity: &mut Activity) {
    activity.line("  y         run it this once");
    activity.line("  n         refuse it; the model is told and goes on");
    activity.line("  n REASON  refuse it, and tell the model why");
    if !approval.proposed_rule.is_empty() {
        let rule = sanitize_line(&approval.proposed_rule);
        activity.line(&format!("  a         run it, and keep the rule {rule} in your configuration:"));
        activity.line("            what it matches is not asked about any more, in later runs too");
        activity.line("  t         the same, but only in this thread");
    }
    activity.line("  Ctrl+D    no answer from here: refuse it");
    activity.line("  Ctrl+C    cancel the whole run");
}

fn said(line: &str, may_always: bool) -> Said<'_> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (word.to_ascii_lowercase().as_str(), rest.trim()) {
        ("y" | "yes", "") => Said::Yes,
        ("a" | "always", "") if may_always => Said::Always,
        ("t" | "thread", "") if may_always => Said::InThread,
        ("n" | "no", reason) => Said::No(reason),
        ("?" | "h" | "help", "") => Said::Help,
        _ => Said::Unclear,
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
        assert_eq!(said(" No  not in main ", true), Said::No("not in main"));
        assert_eq!(said("?", true), Said::Help);
        for unclear in ["", "not in main", "yes please", "yn", "git status", "a now"] {
            assert_eq!(said(unclear, true), Said::Unclear, "{unclear}");
        }
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
