//! How a command ends that could not do its work: what failed, on what, and what to do next.

use std::ffi::OsString;
use std::io;

use mcode_client::{ClientError, ErrorKind};
use mcode_text::sanitize;
use serde_json::{Value, json};

use crate::args::{Form, When};
use crate::output;
use crate::style::Style;

/// Reason of a failure to write to stdout.
pub(crate) const STDOUT_UNUSABLE: &str = "STDOUT_UNUSABLE";

/// Why a verb stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// To be told to the user.
    Error(ClientError),
    /// Whoever read our stdout has gone: nobody is left to tell.
    Closed,
    /// Everything has been said.
    Told(u8),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Error(error) => error.exit_code(),
            Self::Closed => 0,
            Self::Told(code) => *code,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Error(error)
    }
}

/// From writing to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Error(
            ClientError::new(ErrorKind::User, STDOUT_UNUSABLE, format!("can not write to standard output: {error}"))
                .hint("see what it leads to, and whether that disk is full"),
        )
    }
}

/// Tells the user, in the form that was asked for.
pub(crate) fn report(failure: &Failure, form: Form) {
    let Failure::Error(error) = failure else { return };
    tell(error);
    if form != Form::Text && error.reason != STDOUT_UNUSABLE {
        // Nothing is left to do when stdout can not be written either.
        drop(output::json_line(&object(error)));
    }
}

/// An error as the one object of a list verb.
fn object(error: &ClientError) -> Value {
    json!({"error": error.to_json(), "exit_code": error.exit_code()})
}

/// Tells the user on stderr.
pub(crate) fn tell(error: &ClientError) {
    tell_message(&error.message, error.hint.as_deref());
}

/// Tells the user on stderr what failed and what to do next.
pub(crate) fn tell_message(message: &str, hint: Option<&str>) {
    let style = Style::of_stderr(When::Auto);
    output::stderr_line(&format!("{} {}", style.red("mcode:"), sanitize(message)));
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        output::stderr_line(&format!("{} {}", style.bold("hint:"), sanitize(hint)));
    }
}

/// What clap says, and the exit status of it. With a JSON form, stdout gets one object all the same.
pub(crate) fn usage(error: &clap::Error, words: &[OsString]) -> u8 {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    let text = error.render().to_string();
    let Some(text) = text.strip_prefix("error: ") else {
        // Help goes to stdout, or to stderr when it stands in for an error; a closed pipe is no reason to complain.
        drop(error.print());
        return code;
    };
    let hint = verb_hint(error);
    let style = Style::of_stderr(When::Auto);
    output::stderr_line(&format!("{} {}", style.red("mcode:"), sanitize(text.trim_end())));
    if let Some(hint) = &hint {
        output::stderr_line(&format!("{} {}", style.bold("hint:"), sanitize(hint)));
    }
    if wants_json(words) {
        let message = text.lines().next().unwrap_or_default();
        let hint = hint.unwrap_or_else(|| "see: mcode --help".to_owned());
        let error = ClientError::usage(message).hint(hint);
        let is_ask = words.get(1).is_some_and(|verb| verb == "ask");
        drop(output::json_line(&crate::verbs::ask::failed_result(is_ask, &error)));
    }
    code
}

/// What was probably meant by a verb that is none: a question, or a verb of the daemon.
fn verb_hint(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if ["status", "start", "stop", "restart", "logs"].contains(&word.as_str()) {
        return Some(format!("did you mean: mcode daemon {word}"));
    }
    let near = error.get(ContextKind::SuggestedSubcommand).is_some();
    let quoted = word.contains(char::is_whitespace);
    (quoted || !near).then(|| {
        let word = if quoted { format!("\"{word}\"") } else { "PROMPT".to_owned() };
        format!("to ask the agent something: mcode ask {word}")
    })
}

/// Whether the words ask for JSON, as far as that can be said of words that do not parse.
fn wants_json(words: &[OsString]) -> bool {
    let form = |word: &OsString| word == "json" || word == "jsonl";
    words.iter().enumerate().any(|(index, word)| {
        word == "--json"
            || word == "--output=json"
            || word == "--output=jsonl"
            || (word == "--output" && words.get(index + 1).is_some_and(form))
    })
}

/// No verb was given.
pub(crate) fn nothing_to_do() -> ClientError {
    ClientError::usage("no verb was given").hint("ask something with: mcode ask PROMPT, or see: mcode --help")
}

/// The runtime could not be made.
pub(crate) fn runtime(error: io::Error) -> Failure {
    ClientError::new(ErrorKind::Internal, "INTERNAL", format!("can not wait for events of the system: {error}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_in_words_that_do_not_parse() {
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&words("mcode ask --json --nonsense")));
        assert!(wants_json(&words("mcode threads --output json")));
        assert!(wants_json(&words("mcode threads --output=jsonl")));
        assert!(!wants_json(&words("mcode ask json")));
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 2);
    }

    #[test]
    fn a_verb_that_is_none_leads_to_the_right_one() {
        use clap::Parser;
        let hint = |words: &[&str]| verb_hint(&crate::args::Cli::try_parse_from(words).unwrap_err());
        assert_eq!(
            hint(&["mcode", "why is it red"]).as_deref(),
            Some("to ask the agent something: mcode ask \"why is it red\"")
        );
        assert_eq!(hint(&["mcode", "mend"]).as_deref(), Some("to ask the agent something: mcode ask PROMPT"));
        assert_eq!(hint(&["mcode", "logs"]).as_deref(), Some("did you mean: mcode daemon logs"));
        // A near miss has clap's own tip.
        assert_eq!(hint(&["mcode", "thraeds"]), None);
        assert_eq!(hint(&["mcode", "ask", "--nonsense"]), None);
    }
}
