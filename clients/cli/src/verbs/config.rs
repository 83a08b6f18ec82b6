//! `mcode config`: the user's configuration file, with its comments kept.

use clap::Subcommand;
use mcode_client::{ClientError, ErrorKind, v1};
use mcode_config::{ConfigEdit, ConfigFile, ConfigHandle, EditError, Origin};
use mcode_text::sanitize;
use serde_json::{Value, json};

use crate::args::Form;
use crate::context::Context;
use crate::failure::{Failure, tell_message};
use crate::output::{json_line, json_pretty, stdout_line};
use crate::verbs::Outcome;

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the value of a key
    Get {
        /// Such as model, or limits.max_cost_per_run
        key: String,
    },
    /// Set a key
    Set {
        /// Such as model, or limits.max_cost_per_run
        key: String,
        /// The value; lists as in TOML
        value: String,
    },
    /// Remove a key
    Unset {
        /// The key
        key: String,
    },
    /// Print all that is set
    List,
    /// Print the path of the file
    Path,
    /// Print the value of a key and the file and line it comes from
    Explain {
        /// The key; everything without one
        #[arg(default_value = "", hide_default_value = true)]
        key: String,
    },
}

pub(crate) async fn run(context: &Context, verb: ConfigVerb) -> Outcome {
    let path = context.dirs.config_file();
    let shown = path.display().to_string();
    match verb {
        ConfigVerb::Get { key } => {
            let value = ConfigFile::open(&path).and_then(|file| file.get(&key)).map_err(refused)?;
            let Some(value) = value else {
                return Err(ClientError::new(ErrorKind::User, "NOT_SET", format!("{key} is not set in {shown}"))
                    .hint(format!("set it with: mcode config set {key} VALUE"))
                    .into());
            };
            show(context.form, &json!({"key": key, "value": plain(&value)}), &plain_text(&value))?;
        }
        ConfigVerb::Set { key, value } => {
            // Let go of before the daemon is told.
            open_for_change(context).await?.set(&key, &value).map_err(refused)?;
            changed(context, &json!({"key": key, "file": shown}), &format!("{key} is set in {shown}")).await?;
        }
        ConfigVerb::Unset { key } => {
            let mut file = open_for_change(context).await?;
            let removed = file.unset(&key).map_err(refused)?;
            if !removed {
                // What is neither set nor a key is a slip.
                file.get(&key).map_err(refused)?;
            }
            drop(file);
            let text = if removed { format!("{key} is removed from {shown}") } else { format!("{key} was not set") };
            changed(context, &json!({"key": key, "file": shown, "removed": removed}), &text).await?;
        }
        ConfigVerb::List => {
            let values = ConfigFile::open(&path).map_err(refused)?.list();
            let entries: Vec<Value> =
                values.iter().map(|(key, value)| json!({"key": key, "value": plain(value)})).collect();
            let lines: Vec<String> = values.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            show_list(context.form, entries, &lines, &format!("nothing is set in {shown}"))?;
        }
        ConfigVerb::Path => show(context.form, &json!({"file": shown}), &shown)?,
        ConfigVerb::Explain { key } => explain(context, &key)?,
    }
    Ok(0)
}

fn explain(context: &Context, key: &str) -> Result<(), Failure> {
    let config = ConfigHandle::open(&context.dirs);
    for fault in config.errors().iter().chain(&config.warnings()) {
        tell_message(&fault.to_string(), None);
    }
    if !config.errors().is_empty() {
        return Err(Failure::Told(ErrorKind::Config.exit_code()));
    }
    let origins = config.explain(key);
    let entries: Vec<Value> = origins
        .iter()
        .map(|origin| json!({"key": origin.key, "value": plain(&origin.value), "file": origin.file, "line": origin.line}))
        .collect();
    let line =
        |origin: &Origin| format!("{} = {}  # {}:{}", origin.key, origin.value, origin.file.display(), origin.line);
    let lines: Vec<String> = origins.iter().map(line).collect();
    let none = match key {
        "" => "no file sets anything: all values are the defaults".to_owned(),
        key => format!("no file sets {key}: its default is in force"),
    };
    show_list(context.form, entries, &lines, &none)
}

/// Opens the file, if a daemon that is there says that a person asks: what a tool call has started changes nothing.
async fn open_for_change(context: &Context) -> Result<ConfigEdit, ClientError> {
    if let Ok(client) = context.connect_running().await
        && let Err(refusal) = client.reload_config(v1::ReloadConfigRequest {}).await
        && refusal.kind == ErrorKind::Permission
    {
        return Err(refusal);
    }
    ConfigEdit::open(&context.dirs.config_file()).map_err(refused)
}

/// Tells the user and a daemon that is there; one that starts later reads the file anyway.
async fn changed(context: &Context, value: &Value, text: &str) -> Result<(), Failure> {
    if let Ok(client) = context.connect_running().await
        && let Ok(response) = client.reload_config(v1::ReloadConfigRequest {}).await
    {
        for fault in response.errors {
            tell_message(&fault, None);
        }
    }
    show(context.form, value, text)
}

fn show(form: Form, value: &Value, text: &str) -> Result<(), Failure> {
    match form {
        Form::Text => stdout_line(&sanitize(text)),
        Form::Json => json_pretty(value),
        Form::Jsonl => json_line(value),
    }
}

fn show_list(form: Form, entries: Vec<Value>, lines: &[String], none: &str) -> Result<(), Failure> {
    match form {
        Form::Text if lines.is_empty() => {
            tell_message(none, None);
            Ok(())
        }
        Form::Text => stdout_line(&sanitize(&lines.join("\n"))),
        Form::Json => json_pretty(&json!({"values": entries, "next_page_token": ""})),
        Form::Jsonl => entries.iter().try_for_each(json_line),
    }
}

fn refused(error: EditError) -> ClientError {
    let message = mcode_text::chain(&error);
    match error {
        EditError::UnknownKey(_) | EditError::NotAKey(_) | EditError::Section(_) => {
            ClientError::new(ErrorKind::User, "UNKNOWN_KEY", message).hint("see what is set with: mcode config list")
        }
        EditError::Value { .. } => ClientError::usage(message).hint("give a value of that kind"),
        EditError::Config(_) => ClientError::new(ErrorKind::Config, "CONFIG_BROKEN", message)
            .hint("mend the file and line that the message names"),
        EditError::Held { .. } => ClientError::new(ErrorKind::Config, "CONFIG_HELD", message)
            .hint("try again; if it stays so, end the mcode that changes it"),
        EditError::Write { .. } => ClientError::new(ErrorKind::Config, "CONFIG_UNWRITABLE", message)
            .hint("make it writable, or set MCODE_HOME or XDG_CONFIG_HOME to a folder that is"),
    }
}

/// A TOML value as JSON, where the two are written alike; its text otherwise.
fn plain(value: &str) -> Value {
    let quoted = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match quoted {
        Some(text) => Value::String(text.to_owned()),
        None => serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned())),
    }
}

/// A TOML value as people and scripts want it: text without quotes.
fn plain_text(value: &str) -> String {
    match plain(value) {
        Value::String(text) => text,
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_printed_without_quotes() {
        for (toml, text) in
            [(r#""a/b""#, "a/b"), ("'a'", "a"), ("5.0", "5.0"), (r#"["a"]"#, r#"["a"]"#), ("true", "true")]
        {
            assert_eq!(plain_text(toml), text);
        }
        assert_eq!(plain(r#"["a", "b"]"#), json!(["a", "b"]));
        assert_eq!(plain("{ a = 1 }"), json!("{ a = 1 }"));
    }
}
