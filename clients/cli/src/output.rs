//! Writing to stdout and stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use mcode_text::sanitize;
use serde_json::Value;

use crate::failure::Failure;

/// One line on stdout, at once.
pub(crate) fn stdout_line(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    Ok(())
}

/// Text on stdout without a line break, at once.
pub(crate) fn stdout_text(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// A JSON value as one line on stdout.
pub(crate) fn json_line(value: &Value) -> Result<(), Failure> {
    stdout_line(&value.to_string())
}

/// A JSON object on stdout, laid out for people who look.
pub(crate) fn json_pretty(value: &Value) -> Result<(), Failure> {
    stdout_line(&format!("{value:#}"))
}

/// Text of others on stdout: made harmless where a terminal would obey it, unchanged where a program reads it.
pub(crate) fn foreign_text(text: &str) -> Result<(), Failure> {
    let text = if io::stdout().is_terminal() { sanitize(text) } else { Cow::Borrowed(text) };
    stdout_line(text.strip_suffix('\n').unwrap_or(&text))
}

/// One line on stderr. That it can not be written is nothing we could tell anybody.
pub(crate) fn stderr_line(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Text on stderr without a line break.
pub(crate) fn stderr_text(text: &str) {
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(text.as_bytes()));
    drop(stderr.flush());
}
