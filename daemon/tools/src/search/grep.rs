//! `grep`: files by content.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use ignore::WalkState;
use mcode_permissions::access::Category;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{blocking, parsed};
use crate::fs::{disk, path};
use crate::output::counted;
use crate::search::hits::{Hit, Hits, MAX_LINES_PER_FILE};
use crate::search::{Stop, walker};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// The most lines with hits that are given.
pub const MAX_MATCHES: usize = 500;
/// The most bytes of a result.
pub const MAX_BYTES: usize = 30 * 1024;
/// A search ends when it has found this many lines.
pub const MAX_COUNTED: u64 = 20_000;
/// How long a search may take.
pub const TIME_MAX: Duration = Duration::from_secs(15);
/// The most lines of context that can be asked for.
const MAX_CONTEXT: usize = 50;
/// Memory for one file: its longest line, or all of it with `multiline`.
const HEAP_BYTES: usize = 64 * 1024 * 1024;
/// The largest compiled pattern, in bytes.
const PATTERN_BYTES: usize = 10 * 1024 * 1024;
/// Threads of one search; the others are for the rest of the daemon.
const THREADS: usize = 2;

/// Finds text in files.
#[derive(Debug, Clone, Copy)]
pub struct GrepTool {
    /// How long one search may take.
    pub time_max: Duration,
}

impl Default for GrepTool {
    fn default() -> Self {
        Self { time_max: TIME_MAX }
    }
}

#[derive(Debug, Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    multiline: bool,
    #[serde(default)]
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Lines,
    Files,
    Count,
}

impl GrepTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self::default())
    }
}

impl Tool for GrepTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep",
            description:
                "Finds lines by regular expression (Rust syntax, no look-around) in a file or below a folder; \
                          binary files and those that git ignores are left out, unless path is the file itself."
                    .into(),
            schema: json!({"type": "object", "required": ["pattern"], "properties": {
                "pattern": {"type": "string"},
                "path": {"type": "string", "description": "File or folder, default the working folder"},
                "glob": {"type": "string", "description": "Only files like *.rs or src/**"},
                "context": {"type": "integer", "minimum": 0, "description": "Lines around each hit"},
                "ignore_case": {"type": "boolean"},
                "multiline": {"type": "boolean", "description": "Hits may span lines"},
                "mode": {"type": "string", "enum": ["lines", "files", "count"], "description": "Default lines"},
            }}),
            category: Category::Read,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let arguments: Arguments = parsed("grep", arguments)?;
        let access = path::reading(context, root_of(&arguments))?;
        let preview = format!("grep {:?} in {}", arguments.pattern, root_of(&arguments));
        Ok(CallPlan { access, preview, parallel: true })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let time_max = self.time_max;
        blocking(move || {
            let arguments: Arguments = parsed("grep", &arguments)?;
            search(&context, &arguments, time_max)
        })
    }
}

fn root_of(arguments: &Arguments) -> &str {
    arguments.path.as_deref().filter(|path| !path.trim().is_empty()).unwrap_or(".")
}

fn matcher(arguments: &Arguments) -> Result<RegexMatcher, ToolFailure> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(arguments.ignore_case)
        .dot_matches_new_line(arguments.multiline)
        .size_limit(PATTERN_BYTES);
    if !arguments.multiline {
        builder.crlf(true);
    }
    builder.build(&arguments.pattern).map_err(|error| {
        let newline = !arguments.multiline && arguments.pattern.contains("\\n");
        let mend = if newline {
            "set multiline to true for a hit over several lines"
        } else {
            "put \\ before ( ) [ ] { } . * + ? ^ $ | \\ to find them as they are"
        };
        ToolFailure::BadArguments(format!("grep: the field 'pattern' is no regular expression: {error}\n{mend}"))
    })
}

fn only(arguments: &Arguments) -> Result<Option<GlobMatcher>, ToolFailure> {
    let Some(glob) = arguments.glob.as_deref().filter(|glob| !glob.trim().is_empty()) else { return Ok(None) };
    let whole = if glob.contains('/') { glob.trim_start_matches("./").to_owned() } else { format!("**/{glob}") };
    match GlobBuilder::new(&whole).literal_separator(true).build() {
        Ok(glob) => Ok(Some(glob.compile_matcher())),
        Err(error) => Err(ToolFailure::BadArguments(format!("grep: the field 'glob' is no pattern: {}", error.kind()))),
    }
}

fn searcher(arguments: &Arguments) -> Searcher {
    let mut builder = SearcherBuilder::new();
    let context = if arguments.mode == Mode::Lines { arguments.context.min(MAX_CONTEXT) } else { 0 };
    builder
        .line_number(true)
        .multi_line(arguments.multiline)
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(HEAP_BYTES));
    if !arguments.multiline {
        builder.line_terminator(LineTerminator::crlf());
    }
    builder.build()
}

/// What was found in one file.
#[derive(Debug)]
struct FileHits {
    lines: Vec<Hit>,
    count: u64,
}

#[derive(Debug, Default)]
struct Found {
    files: BTreeMap<PathBuf, FileHits>,
    count: u64,
    searched: usize,
    skipped: usize,
    withheld: usize,
    stopped: bool,
}

fn search(context: &CallContext, arguments: &Arguments, limit: Duration) -> Result<ToolOutput, ToolFailure> {
    if arguments.pattern.is_empty() {
        return Err(ToolFailure::BadArguments("grep: the field 'pattern' is empty".into()));
    }
    let matcher = matcher(arguments)?;
    let only = only(arguments)?;
    let given = root_of(arguments);
    let root = path::resolve_granted(context, given)?;
    let meta = std::fs::metadata(&root).map_err(|error| disk::missing(&root, given, &error))?;
    let stop = Stop::after(limit, context.cancel.clone());
    let search = Search { context, arguments, matcher, only, stop, found: Mutex::new(Found::default()) };
    if meta.is_dir() {
        search.tree(&root, &shown_root(given));
    } else {
        disk::open(&root, given)?;
        let mut searcher = searcher(arguments);
        if let Err(reason) = search.file(&mut searcher, &root, PathBuf::from(given)) {
            return Err(ToolFailure::Failed(format!("{given}: {reason}")));
        }
    }
    if search.stop.cancelled() {
        return Err(ToolFailure::Cancelled);
    }
    let found = search.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(arguments, &found, limit))
}

fn shown_root(given: &str) -> PathBuf {
    if given == "." { PathBuf::new() } else { PathBuf::from(given.trim_start_matches("./")) }
}

struct Search<'a> {
    context: &'a CallContext,
    arguments: &'a Arguments,
    matcher: RegexMatcher,
    only: Option<GlobMatcher>,
    stop: Stop,
    found: Mutex<Found>,
}

impl Search<'_> {
    fn tree(&self, root: &Path, shown: &Path) {
        walker(root, true).threads(THREADS).build_parallel().run(|| {
            let mut searcher = searcher(self.arguments);
            Box::new(move |entry| {
                if self.stop.now() {
                    self.note(|found| found.stopped = true);
                    return WalkState::Quit;
                }
                let Ok(entry) = entry else { return WalkState::Continue };
                let inner = entry.path().strip_prefix(root).unwrap_or(entry.path());
                let wanted = entry.file_type().is_some_and(|kind| kind.is_file())
                    && self.only.as_ref().is_none_or(|only| only.is_match(inner));
                if wanted && !self.context.port.may_read(entry.path()) {
                    self.note(|found| found.withheld += 1);
                } else if wanted && self.file(&mut searcher, entry.path(), shown.join(inner)).is_err() {
                    self.note(|found| found.skipped += 1);
                }
                if self.note(|found| found.stopped) { WalkState::Quit } else { WalkState::Continue }
            })
        });
    }

    /// Searches one file; the error says why it could not be.
    fn file(&self, searcher: &mut Searcher, path: &Path, shown: PathBuf) -> Result<(), String> {
        let keep = if self.arguments.mode == Mode::Lines { MAX_LINES_PER_FILE } else { 0 };
        let mut hits = Hits::new(&self.matcher, &self.stop, keep);
        let (file, _) = disk::open(path, &shown.to_string_lossy()).map_err(|failure| failure.to_string())?;
        let reader = Watched { file, stop: &self.stop };
        let outcome = searcher.search_reader(&self.matcher, reader, &mut hits);
        let stopped = hits.stopped || (outcome.is_err() && self.stop.now());
        if hits.binary && !stopped {
            return Err("this is a binary file, which grep does not search".into());
        }
        self.note(|found| {
            found.searched += 1;
            found.count += hits.count;
            found.stopped |= stopped || found.count >= MAX_COUNTED;
            if hits.count > 0 {
                found.files.insert(shown, FileHits { lines: hits.lines, count: hits.count });
            }
        });
        match outcome {
            Err(error) if !stopped => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn note<T>(&self, change: impl FnOnce(&mut Found) -> T) -> T {
        change(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A file that ends with an error when the search has to end, however large it is.
struct Watched<'a> {
    file: std::fs::File,
    stop: &'a Stop,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.now() { Err(io::ErrorKind::TimedOut.into()) } else { self.file.read(buffer) }
    }
}

fn report(arguments: &Arguments, found: &Found, limit: Duration) -> ToolOutput {
    let mut page = Page::default();
    for (file, hits) in &found.files {
        let name = file.to_string_lossy();
        let whole = match arguments.mode {
            Mode::Files => page.push(&format!("{name}\n"), 1),
            Mode::Count => page.push(&format!("{name}: {}\n", hits.count), 1),
            Mode::Lines => lines(&mut page, &name, &hits.lines),
        };
        if !whole {
            break;
        }
    }
    let files = counted(found.files.len(), "file", "files");
    let count = usize::try_from(found.count).unwrap_or(usize::MAX);
    let matches = counted(count, "matching line", "matching lines");
    let shown = page.shown;
    let mut notes = vec![match arguments.mode {
        _ if count == 0 => format!("no match in {}", counted(found.searched, "file", "files")),
        Mode::Lines if shown < count => {
            format!("{shown} of {matches} in {files} shown; narrow the search for the others")
        }
        Mode::Lines => format!("{matches} in {files}"),
        _ if shown < found.files.len() => format!("{shown} of {files} shown; narrow the search for the others"),
        _ => format!("{matches} in {files}"),
    }];
    if found.skipped > 0 {
        notes.push(format!("{} not searched (binary, or not readable)", counted(found.skipped, "file", "files")));
    }
    if found.withheld > 0 {
        notes.push(format!("{} not searched (a permission is needed)", counted(found.withheld, "file", "files")));
    }
    if found.stopped {
        notes.push(if found.count >= MAX_COUNTED {
            format!("stopped early after {MAX_COUNTED} matching lines: narrow the search")
        } else {
            format!("stopped early after {} s: not all files were searched; narrow path or glob", limit.as_secs_f32())
        });
    }
    page.text.push_str(&format!("[{}]", notes.join("; ")));
    ToolOutput::text(page.text, if count == 0 { "no match".to_owned() } else { format!("{matches} in {files}") })
}

/// The lines of one file under its name; false when the page is full.
fn lines(page: &mut Page, name: &str, hits: &[Hit]) -> bool {
    let mut head = Some(format!("{name}\n"));
    for hit in hits {
        let (line, counts) = match hit {
            Hit::Match(number, text) => (format!("{number}: {text}\n"), 1),
            Hit::Near(number, text) => (format!("{number}- {text}\n"), 0),
            Hit::Gap => ("--\n".to_owned(), 0),
        };
        let line = head.take().unwrap_or_default() + &line;
        if !page.push(&line, counts) {
            return false;
        }
    }
    page.push("\n", 0)
}

/// A result within its bounds.
#[derive(Debug, Default)]
struct Page {
    text: String,
    shown: usize,
}

impl Page {
    /// Adds a line with `counts` hits; false, and nothing is added, when the page is full.
    fn push(&mut self, line: &str, counts: usize) -> bool {
        const NOTE_BYTES: usize = 512;
        if self.shown + counts > MAX_MATCHES || self.text.len() + line.len() > MAX_BYTES - NOTE_BYTES {
            return false;
        }
        self.text.push_str(line);
        self.shown += counts;
        true
    }
}
