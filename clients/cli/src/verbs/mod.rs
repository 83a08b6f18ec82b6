//! The verbs, one file each.

pub(crate) mod approvals;
pub(crate) mod ask;
pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod login;
pub(crate) mod models;
pub(crate) mod packs;
pub(crate) mod permissions;
pub(crate) mod plans;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod runs;
pub(crate) mod storage;
pub(crate) mod threads;
pub(crate) mod trust;
pub(crate) mod usage;
pub(crate) mod watch;

use clap::Args;
use mcode_client::json::message_json;
use mcode_text::sanitize_line;
use serde_json::Value;

use crate::args::{Form, Verb};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{json_line, json_pretty, stdout_line};
use crate::table::table;

/// What a verb ends with: an exit status, or why it stopped.
pub(crate) type Outcome = Result<u8, Failure>;

/// Does what was asked for.
pub(crate) async fn run(verb: Verb, context: &Context) -> Outcome {
    match verb {
        // Boxed, since the futures of the verbs are large and only one of them is needed.
        Verb::Ask(args) => Box::pin(ask::run(context, *args)).await,
        Verb::Watch(args) => Box::pin(watch::run(context, args)).await,
        Verb::Threads(verb) => Box::pin(threads::run(context, verb)).await,
        Verb::Checkpoint(verb) => Box::pin(checkpoint::run(context, verb)).await,
        Verb::Plans(verb) => Box::pin(plans::run(context, verb)).await,
        Verb::Projects(verb) => Box::pin(projects::run(context, verb)).await,
        Verb::Runs(verb) => Box::pin(runs::run(context, verb)).await,
        Verb::Approvals(verb) => Box::pin(approvals::run(context, verb)).await,
        Verb::Models(verb) => Box::pin(models::run(context, verb)).await,
        Verb::Login(args) => Box::pin(login::run(context, args)).await,
        Verb::Logout(args) => Box::pin(login::logout(context, args)).await,
        Verb::Packs(verb) => Box::pin(packs::run(context, verb)).await,
        Verb::Providers(verb) => Box::pin(providers::run(context, verb)).await,
        Verb::Usage(args) => Box::pin(usage::run(context, args)).await,
        Verb::Permissions(verb) => Box::pin(permissions::run(context, verb)).await,
        Verb::Trust(verb) => Box::pin(trust::run(context, verb)).await,
        Verb::Config(verb) => Box::pin(config::run(context, verb)).await,
        Verb::Daemon(verb) => Box::pin(daemon::run(context, verb)).await,
        Verb::Doctor(args) => Box::pin(doctor::run(context, args)).await,
        Verb::Demo(args) => Box::pin(demo::run(context, args)).await,
        Verb::Completions { shell } => completions::run(shell),
    }
}

/// Which part of a list.
#[derive(Debug, Clone, Args)]
pub(crate) struct Page {
    /// How many to show, at most 500
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) limit: u32,
    /// Go on where an earlier list ended (its next_page_token)
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    pub(crate) page_token: String,
}

/// A response message in the form that was asked for. `plural` is the list in it, whose entries are the lines of
/// `jsonl`; a response without a list is one line.
pub(crate) fn show_message<M: mcode_client::Wire>(
    form: Form,
    name: &str,
    message: &M,
    plural: Option<&str>,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match form {
        Form::Text => {
            let text = text();
            if text.is_empty() { Ok(()) } else { stdout_line(&text) }
        }
        Form::Json => json_pretty(&message_json(name, message)?),
        Form::Jsonl => {
            let mut value = message_json(name, message)?;
            match plural.and_then(|plural| value.get_mut(plural)).map(Value::take) {
                Some(Value::Array(entries)) => entries.iter().try_for_each(json_line),
                _ => json_line(&value),
            }
        }
    }
}

/// A sentence in which others may have a word, made fit for a terminal.
pub(crate) fn sentence(text: &str) -> String {
    sanitize_line(text).into_owned()
}

/// Rows, or a sentence when there are none; and where the list goes on.
pub(crate) fn listing(heading: &[&str], rows: &[Vec<String>], none: &str, next_page_token: &str) -> String {
    if rows.is_empty() {
        return none.to_owned();
    }
    let mut text = table(heading, rows);
    if !next_page_token.is_empty() {
        text.push_str(&format!("\nmore with: --page-token {next_page_token}"));
    }
    text
}
