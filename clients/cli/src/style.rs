//! Colours and what else only terminals can show.

use std::io::{self, IsTerminal};

use crate::args::When;

/// How a stream may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether colours may be used.
    pub(crate) color: bool,
    /// Whether the cursor may be moved: a status line.
    pub(crate) live: bool,
}

impl Style {
    pub(crate) fn of_stderr(when: When) -> Self {
        Self::decide(when, io::stderr().is_terminal())
    }

    pub(crate) fn of_stdout(when: When) -> Self {
        Self::decide(when, io::stdout().is_terminal())
    }

    fn decide(when: When, terminal: bool) -> Self {
        let dumb = mcode_env::process::var("TERM").is_some_and(|term| term == "dumb");
        let plain = dumb || mcode_env::process::var("NO_COLOR").is_some();
        let color = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && !plain,
        };
        Self { color, live: terminal && !dumb }
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_streams_get_plain_text() {
        let plain = Style { color: false, live: false };
        assert_eq!(plain.red("x"), "x");
        assert_eq!(Style { color: true, live: true }.red("x"), "\x1b[31mx\x1b[0m");
        assert!(!Style::decide(When::Auto, false).color);
        assert!(Style::decide(When::Always, false).color);
        assert!(!Style::decide(When::Never, true).color);
    }
}
