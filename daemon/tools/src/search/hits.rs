//! What a search found in one file, bounded while it is found.

use std::io;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkError, SinkFinish, SinkMatch};

use crate::output::{ceil_boundary, floor_boundary};
use crate::search::Stop;

/// Characters (bytes, to be exact) of a line that are given around its first hit.
const LINE_BYTES: usize = 300;
/// Lines that are kept of one file.
pub(crate) const MAX_LINES_PER_FILE: usize = 2000;

/// A line of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hit {
    /// A line with a hit.
    Match(u64, String),
    /// A line near one.
    Near(u64, String),
    /// Lines between two groups are left out.
    Gap,
}

/// Collects the hits of one file.
#[derive(Debug)]
pub(crate) struct Hits<'a> {
    matcher: &'a RegexMatcher,
    stop: &'a Stop,
    keep: usize,
    /// What was found, in the order of the file.
    pub(crate) lines: Vec<Hit>,
    /// Lines with a hit.
    pub(crate) count: u64,
    /// The file turned out to be binary.
    pub(crate) binary: bool,
    /// The file was left before its end.
    pub(crate) stopped: bool,
}

impl<'a> Hits<'a> {
    /// For one file; at most `keep` lines with hits are kept, the others counted.
    pub(crate) fn new(matcher: &'a RegexMatcher, stop: &'a Stop, keep: usize) -> Self {
        Self { matcher, stop, keep, lines: Vec::new(), count: 0, binary: false, stopped: false }
    }

    fn near(&mut self, number: u64, line: &[u8]) {
        if self.lines.len() < self.keep {
            self.lines.push(Hit::Near(number, cut(line, 0)));
        }
    }
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        // A multi-line hit comes as all its lines; in the ones after the first the pattern alone finds nothing.
        for (number, line) in (found.line_number().unwrap_or(1)..).zip(found.lines()) {
            self.count += 1;
            if self.lines.len() < self.keep {
                let at = self.matcher.find(line).map_err(io::Error::error_message)?.map_or(0, |hit| hit.start());
                self.lines.push(Hit::Match(number, cut(line, at)));
            }
        }
        self.stopped = self.stop.now();
        Ok(!self.stopped)
    }

    fn context(&mut self, _searcher: &Searcher, near: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.near(near.line_number().unwrap_or(1), near.bytes());
        Ok(true)
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        if self.lines.len() < self.keep {
            self.lines.push(Hit::Gap);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }

    fn finish(&mut self, _searcher: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.binary |= end.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line without its end, cut around byte `at` when it is long.
fn cut(line: &[u8], at: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LINE_BYTES {
        return String::from_utf8_lossy(line).into_owned();
    }
    let from = at.saturating_sub(LINE_BYTES / 2).min(line.len() - LINE_BYTES);
    let window = line.get(from..from + LINE_BYTES).unwrap_or(line);
    let text = String::from_utf8_lossy(window);
    // A character that the cut went through is left out rather than shown broken.
    let text = text.trim_matches(char::REPLACEMENT_CHARACTER);
    let text = text.get(ceil_boundary(text, 0)..floor_boundary(text, text.len())).unwrap_or_default();
    let before = if from > 0 { format!("[… {from} bytes] ") } else { String::new() };
    let left = line.len() - from - LINE_BYTES;
    let after = if left > 0 { format!(" [… {left} bytes]") } else { String::new() };
    format!("{before}{text}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_around_its_hit() {
        let line = format!("{}needle{}\n", "é".repeat(5000), "é".repeat(5000));
        let text = cut(line.as_bytes(), 10_000);
        assert!(text.contains("needle") && text.len() < 360 && !text.contains('\u{FFFD}'), "{text}");
        assert!(text.starts_with("[… 9850 bytes] ") && text.ends_with(" bytes]"), "{text}");
        assert_eq!(cut(b"short\r\n", 0), "short");
    }
}
