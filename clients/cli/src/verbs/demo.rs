//! `mcode demo`: the real daemon and its real tools mend a failing test; only the model is scripted.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Args;
use mcode_client::{ClientError, ErrorKind};
use mcode_text::sanitize;
use serde_json::json;

use crate::args::Form;
use crate::context::Context;
use crate::failure::tell_message;
use crate::output::{json_line, json_pretty, stderr_line, stdout_line};
use crate::verbs::{Outcome, ask};

/// The model of the demo: plays a script, needs no key and no network.
const MODEL: &str = "demo/scripted";

const PROMPT: &str = "The test fails. Find the bug, mend it, and run the test.";

/// The program with the bug: "Helo".
const PROGRAM: &str = "#!/bin/sh\n\
    # Prints a greeting for each name.\n\
    greet() { printf 'Helo, %s!\\n' \"$1\"; }\n\
    for name in \"$@\"; do greet \"$name\"; done\n";

const TEST: &str = "#!/bin/sh\n\
    # The test of greet.sh.\n\
    want='Hello, Ada!'\n\
    got=$(sh ./greet.sh Ada)\n\
    if [ \"$got\" = \"$want\" ]; then echo \"ok: $got\"; else echo \"FAILED: want '$want', got '$got'\"; exit 1; fi\n";

/// Let a scripted model mend a failing test.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {}

pub(crate) async fn run(context: &Context, _: DemoArgs) -> Outcome {
    let folder = make_repository()?;
    let shown = folder.display().to_string();
    stderr_line(&format!("a scratch repository with a failing test: {shown}"));
    let before = test(&folder)?;
    stderr_line(&format!("$ sh test.sh\n{}", printed(&before)));
    if before.status.success() {
        return Err(fault("the test of the demo passes before anything was mended").into());
    }
    stderr_line(&format!("$ mcode ask --model {MODEL} '{PROMPT}'   (the model is scripted, all else is real)"));
    let view = ask::for_demo(context, &folder, MODEL, PROMPT).await?;
    let after = test(&folder)?;
    stderr_line(&format!("$ sh test.sh\n{}", printed(&after)));
    let passes = after.status.success();
    let run_code = view.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(70);
    let code = match (passes, run_code) {
        (true, code) => code,
        (false, 0) => 1,
        (false, code) => code,
    };
    if let Some(error) = &view.error {
        tell_message(&error.message, Some(&error.hint));
    }
    if !passes {
        tell_message(
            &format!("the test in {shown} still fails"),
            Some(&format!("see: mcode threads show {}", view.thread_id)),
        );
    }
    let value = json!({"model": MODEL, "scripted": true, "test_passes": passes, "repository": shown,
        "thread_id": view.thread_id, "run_id": view.run_id, "text": view.text, "exit_code": code});
    match context.form {
        Form::Text => stdout_line(&format!(
            "{}\n\nThe model was scripted ({MODEL}); the daemon, its tools, the files and the test were real.\n\
             test        {}\nrepository  {shown}\nthread      {}\n\
             The repository is yours to look at; nothing else needs it, remove it when you like.",
            sanitize(view.text.trim()),
            if passes { "passes" } else { "FAILS" },
            view.thread_id
        ))?,
        Form::Json => json_pretty(&value)?,
        Form::Jsonl => json_line(&value)?,
    }
    Ok(code)
}

/// The repository stays: the user wants to look at it.
fn make_repository() -> Result<PathBuf, ClientError> {
    let unwritable = |error: std::io::Error| {
        ClientError::new(ErrorKind::User, "NO_SCRATCH", format!("no scratch folder could be made: {error}"))
            .hint("set TMPDIR to a folder that can be written")
    };
    let folder = tempfile::Builder::new().prefix("mcode-demo-").tempdir().map_err(unwritable)?.keep();
    let folder = folder.canonicalize().map_err(unwritable)?;
    write(&folder.join("greet.sh"), PROGRAM).map_err(unwritable)?;
    write(&folder.join("test.sh"), TEST).map_err(unwritable)?;
    let identity = ["-c", "user.name=mcode demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false"];
    for words in
        [&["init", "-q"][..], &["add", "greet.sh", "test.sh"], &["commit", "-q", "-m", "A greeting and its test"]]
    {
        let words: Vec<&str> = identity.iter().chain(words).copied().collect();
        let output = command("git", &words, &folder)?;
        if !output.status.success() {
            return Err(fault(&format!("git {}: {}", words.join(" "), printed(&output))));
        }
    }
    Ok(folder)
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn test(folder: &Path) -> Result<Output, ClientError> {
    command("sh", &["test.sh"], folder)
}

#[allow(clippy::disallowed_methods, reason = "our own fixed commands in our own scratch folder, in the client")]
fn command(program: &str, words: &[&str], folder: &Path) -> Result<Output, ClientError> {
    // Hooks, templates and settings of the user's git have no part in this.
    Command::new(program)
        .args(words)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", null_device())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .env_remove("GIT_TEMPLATE_DIR")
        .output()
        .map_err(|error| {
            ClientError::new(ErrorKind::User, "PROGRAM_MISSING", format!("{program} can not be run: {error}"))
                .hint(format!("install {program}, or put its folder on PATH"))
        })
}

const fn null_device() -> &'static str {
    if cfg!(windows) { "NUL" } else { "/dev/null" }
}

fn printed(output: &Output) -> String {
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    sanitize(text.trim_end()).into_owned()
}

fn fault(message: &str) -> ClientError {
    ClientError::new(ErrorKind::Internal, "INTERNAL", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_fails_at_first_and_passes_once_mended() {
        let folder = make_repository().unwrap();
        assert_eq!(printed(&test(&folder).unwrap()), "FAILED: want 'Hello, Ada!', got 'Helo, Ada!'");
        std::fs::write(folder.join("greet.sh"), PROGRAM.replace("Helo", "Hello")).unwrap();
        let output = test(&folder).unwrap();
        assert!(output.status.success());
        assert_eq!(printed(&output), "ok: Hello, Ada!");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_files_are_those_that_the_script_of_the_model_mends() {
        assert!(
            PROGRAM.starts_with("#!/bin/sh\n# Prints")
                && PROGRAM.contains("greet() { printf 'Helo, %s!\\n' \"$1\"; }\n")
        );
        assert_eq!(PROGRAM.lines().count(), 4);
        assert_eq!(TEST.lines().count(), 5);
    }
}
