//! Reading a patch: unified diffs as git writes them, and the `*** Begin Patch` grammar.

use crate::fs::text::{Endings, endings, to_lf};

/// The most files that one patch may name.
const MAX_FILES: usize = 500;

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file, as the patch names it.
    pub path: String,
    /// What is done.
    pub action: Action,
}

/// What is done to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A new file.
    Add {
        /// Its content.
        content: String,
        /// It may be run.
        executable: bool,
    },
    /// The file is removed; its content must be what the hunks remove, when there are any.
    Delete(Vec<Hunk>),
    /// The content changes, or the name, or both.
    Update {
        /// In the order of the file.
        hunks: Vec<Hunk>,
        /// The new name.
        move_to: Option<String>,
    },
}

/// A place of change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunk {
    /// Line of the old file where it begins, from 1; for a hunk without old lines, the line before it.
    pub at: Option<usize>,
    /// Lines that come before it in the file, outermost first (`@@ class A`).
    pub after: Vec<String>,
    /// Its lines.
    pub lines: Vec<Line>,
    /// It reaches the end of the file.
    pub ends_file: bool,
}

/// What a line of a hunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Stays.
    Keep,
    /// Goes.
    Remove,
    /// Comes.
    Add,
}

/// A line of a hunk, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: String,
    /// `\ No newline at end of file` follows.
    pub bare: bool,
}

/// The files of a patch, in its order.
///
/// # Errors
/// What is wrong, with the line of the patch.
pub fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let patch = if endings(patch) == Endings::Crlf { to_lf(patch) } else { patch.to_owned() };
    let mut lines: Vec<&str> = patch.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    let begin = lines.iter().position(|line| line.trim_end() == "*** Begin Patch");
    let mut reader = Reader { lines, next: 0 };
    let files = match begin {
        Some(begin) => {
            reader.next = begin + 1;
            reader.grammar()?
        }
        None => reader.unified()?,
    };
    if files.is_empty() {
        return Err(
            "the patch names no file; start with '*** Begin Patch' or with '--- a/file' and '+++ b/file'".into()
        );
    }
    if files.len() > MAX_FILES {
        return Err(format!("the patch names {} files, the limit is {MAX_FILES}", files.len()));
    }
    Ok(files)
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next).copied()
    }

    fn peek_at(&self, ahead: usize) -> &'a str {
        self.lines.get(self.next + ahead).copied().unwrap_or_default()
    }

    fn wrong(&self, what: &str) -> String {
        format!("line {} of the patch: {what}", self.next + 1)
    }

    fn grammar(&mut self) -> Result<Vec<FilePatch>, String> {
        let mut files = Vec::new();
        loop {
            let Some(line) = self.peek() else { return Err("the patch has no '*** End Patch'".into()) };
            let line = line.trim_end();
            if line == "*** End Patch" {
                return Ok(files);
            }
            let action = if let Some(path) = line.strip_prefix("*** Add File: ") {
                self.next += 1;
                FilePatch { path: path.trim().into(), action: self.added()? }
            } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
                self.next += 1;
                FilePatch { path: path.trim().into(), action: Action::Delete(Vec::new()) }
            } else if let Some(path) = line.strip_prefix("*** Update File: ") {
                self.next += 1;
                FilePatch { path: path.trim().into(), action: self.updated(path.trim())? }
            } else if line.is_empty() {
                self.next += 1;
                continue;
            } else {
                return Err(self.wrong(&format!(
                    "'{line}' is none of '*** Add File: ', '*** Update File: ', '*** Delete File: ', '*** End Patch'"
                )));
            };
            files.push(action);
        }
    }

    fn added(&mut self) -> Result<Action, String> {
        let mut content = String::new();
        while let Some(line) = self.peek().filter(|line| !line.starts_with("*** ")) {
            match line.strip_prefix('+') {
                Some(text) => {
                    content.push_str(text);
                    content.push('\n');
                }
                None if line.trim().is_empty() && self.peek_at(1).starts_with("*** ") => {}
                None => return Err(self.wrong("each line of a new file starts with '+'")),
            }
            self.next += 1;
        }
        Ok(Action::Add { content, executable: false })
    }

    fn updated(&mut self, path: &str) -> Result<Action, String> {
        let mut move_to = None;
        if let Some(target) = self.peek().and_then(|line| line.strip_prefix("*** Move to: ")) {
            move_to = Some(target.trim().to_owned());
            self.next += 1;
        }
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut hunk = Hunk::default();
        while let Some(line) = self.peek() {
            if line.trim_end() == "*** End of File" {
                hunk.ends_file = true;
            } else if line.starts_with("*** ") {
                break;
            } else if let Some(header) = line.strip_prefix("@@") {
                if !hunk.lines.is_empty() {
                    hunks.push(std::mem::take(&mut hunk));
                }
                match numbers(line) {
                    Some(at) => hunk.at = Some(at),
                    None if header.trim().is_empty() => {}
                    None => hunk.after.push(header.strip_prefix(' ').unwrap_or(header).trim_end().to_owned()),
                }
            } else {
                hunk.lines.push(self.hunk_line(line)?);
            }
            self.next += 1;
        }
        drop_blank_end(&mut hunk);
        if !hunk.lines.is_empty() {
            hunks.push(hunk);
        }
        if hunks.is_empty() && move_to.is_none() {
            return Err(self.wrong(&format!("the update of {path} has no changes")));
        }
        Ok(Action::Update { hunks, move_to })
    }

    fn hunk_line(&self, line: &str) -> Result<Line, String> {
        let (kind, text) = match (line.chars().next(), line.get(1..)) {
            // An empty line of context often loses its only character, the space.
            (None, _) => (Kind::Keep, ""),
            (Some(' '), Some(text)) => (Kind::Keep, text),
            (Some('-'), Some(text)) => (Kind::Remove, text),
            (Some('+'), Some(text)) => (Kind::Add, text),
            _ => return Err(self.wrong(&format!("'{line}' starts with none of ' ', '-', '+', '@@'"))),
        };
        Ok(Line { kind, text: text.to_owned(), bare: false })
    }

    fn unified(&mut self) -> Result<Vec<FilePatch>, String> {
        let mut files = Vec::new();
        let mut header = GitHeader::default();
        while let Some(line) = self.peek() {
            if let Some(names) = line.strip_prefix("diff --git ") {
                files.extend(header.finish());
                header = GitHeader { open: true, names: names.to_owned(), ..GitHeader::default() };
            } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
                return Err(self.wrong("binary patches can not be applied"));
            } else if line.starts_with("new mode ") {
                return Err(self.wrong("changes of the file mode can not be applied; use chmod"));
            } else if line.starts_with("--- ") && self.peek_at(1).starts_with("+++ ") {
                let moved = std::mem::take(&mut header);
                files.push(self.unified_file(&moved)?);
                continue;
            } else if line.starts_with("@@ ") {
                return Err(self.wrong("a hunk without '--- file' and '+++ file' before it"));
            } else {
                header.note(line);
            }
            self.next += 1;
        }
        files.extend(header.finish());
        Ok(files)
    }

    fn unified_file(&mut self, header: &GitHeader) -> Result<FilePatch, String> {
        let old = name(self.peek_at(0).get(4..).unwrap_or_default());
        let new = name(self.peek_at(1).get(4..).unwrap_or_default());
        self.next += 2;
        let mut hunks = Vec::new();
        while self.peek().is_some_and(|line| line.starts_with("@@")) {
            hunks.push(self.unified_hunk()?);
        }
        if hunks.is_empty() {
            return Err(self.wrong("the file has no hunk; one starts with '@@ -line,count +line,count @@'"));
        }
        match (old.as_str(), new.as_str()) {
            ("/dev/null", "/dev/null") => Err(self.wrong("both names are /dev/null")),
            ("/dev/null", new) => {
                let path = new.strip_prefix("b/").unwrap_or(new).to_owned();
                Ok(FilePatch { path, action: Action::Add { content: content(&hunks), executable: header.executable } })
            }
            (old, "/dev/null") => {
                let path = old.strip_prefix("a/").unwrap_or(old).to_owned();
                Ok(FilePatch { path, action: Action::Delete(hunks) })
            }
            (old, new) => {
                let (old, new) = match (old.strip_prefix("a/"), new.strip_prefix("b/")) {
                    (Some(old), Some(new)) => (old, new),
                    _ => (old, new),
                };
                let move_to = (old != new).then(|| new.to_owned());
                Ok(FilePatch { path: old.to_owned(), action: Action::Update { hunks, move_to } })
            }
        }
    }

    /// At the signature of a mailed patch (`-- `, then git's version) or the end of a code block, with nothing after it.
    fn at_closing(&self) -> bool {
        let rest = |from: usize| self.lines.iter().skip(self.next + from).all(|line| line.trim().is_empty());
        match self.peek() {
            Some("-- ") => self.peek_at(1).starts_with(|c: char| c.is_ascii_digit()) && rest(2),
            Some(line) => line.starts_with("```") && rest(1),
            None => false,
        }
    }

    fn unified_hunk(&mut self) -> Result<Hunk, String> {
        let head = self.peek().unwrap_or_default();
        let mut hunk = Hunk { at: numbers(head), ..Hunk::default() };
        self.next += 1;
        // The counts in the header are often wrong; the lines themselves say where the hunk ends.
        while let Some(line) = self.peek() {
            let next_file = line.starts_with("diff --git ")
                || (line.starts_with("--- ")
                    && self.peek_at(1).starts_with("+++ ")
                    && self.peek_at(2).starts_with("@@"));
            if line.starts_with("@@") || next_file {
                break;
            }
            if line.starts_with('\\') {
                if let Some(last) = hunk.lines.last_mut() {
                    last.bare = true;
                }
            } else if self.at_closing() {
                self.next = self.lines.len();
                break;
            } else {
                hunk.lines.push(self.hunk_line(line)?);
            }
            self.next += 1;
        }
        drop_blank_end(&mut hunk);
        if hunk.lines.is_empty() { Err(self.wrong("an empty hunk")) } else { Ok(hunk) }
    }
}

/// Empty lines at the end of a hunk stand between it and the next, as nothing marks them as context.
fn drop_blank_end(hunk: &mut Hunk) {
    while !hunk.ends_file
        && hunk.lines.last().is_some_and(|line| line.kind == Kind::Keep && line.text.is_empty() && !line.bare)
    {
        hunk.lines.pop();
    }
}

/// Headers of `git diff` before the hunks.
#[derive(Debug, Default)]
struct GitHeader {
    open: bool,
    names: String,
    from: Option<String>,
    to: Option<String>,
    new: bool,
    deleted: bool,
    executable: bool,
}

impl GitHeader {
    fn note(&mut self, line: &str) {
        if let Some(from) = line.strip_prefix("rename from ") {
            self.from = Some(name(from));
        } else if let Some(to) = line.strip_prefix("rename to ") {
            self.to = Some(name(to));
        } else if let Some(mode) = line.strip_prefix("new file mode ") {
            self.new = true;
            self.executable = mode.trim() == "100755";
        } else if line.starts_with("deleted file mode ") {
            self.deleted = true;
        }
    }

    /// What the headers alone say: a rename, or an empty file that comes or goes.
    fn finish(&mut self) -> Option<FilePatch> {
        if !self.open {
            return None;
        }
        if let (Some(from), Some(to)) = (self.from.take(), self.to.take()) {
            return Some(FilePatch { path: from, action: Action::Update { hunks: Vec::new(), move_to: Some(to) } });
        }
        // `a/x b/x`: both halves are the same name.
        let path = self.names.get(self.names.len() / 2 + 1..)?.strip_prefix("b/")?.to_owned();
        if self.new {
            let executable = self.executable;
            return Some(FilePatch { path, action: Action::Add { content: String::new(), executable } });
        }
        self.deleted.then_some(FilePatch { path, action: Action::Delete(Vec::new()) })
    }
}

/// The content of a new file.
fn content(hunks: &[Hunk]) -> String {
    let mut content = String::new();
    for line in hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| line.kind != Kind::Remove) {
        content.push_str(&line.text);
        if !line.bare {
            content.push('\n');
        }
    }
    content
}

/// The line at which `@@ -line,count +line,count @@` begins.
fn numbers(header: &str) -> Option<usize> {
    let rest = header.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    rest.split_once(" @@")?;
    old.split(',').next()?.parse().ok()
}

/// A file name of a header: without the time after a tab, and with git's quotes and escapes undone.
fn name(given: &str) -> String {
    let given = given.split('\t').next().unwrap_or(given).trim_end();
    let Some(inner) = given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return given.to_owned() };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(first @ b'0'..=b'3') => {
                let digits = [first, rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                bytes.push(digits.iter().fold(0u8, |sum, digit| (sum << 3) | (digit & 7)));
            }
            Some(other) => bytes.push(other),
            None => bytes.push(b'\\'),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
