//! `view`: a file with line numbers, a picture, a folder, or a stored output.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use mcode_permissions::access::{Access, Category};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{blocking, parsed};
use crate::fs::text::{Encoding, Endings, Text, endings, kind_of, looks_binary};
use crate::fs::{MAX_FILE_BYTES, change, disk, listing, media, path};
use crate::output::{BLOB_PREFIX, MAX_RESULT_BYTES, counted};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// Lines given when no limit is asked for, and the most that can be asked for.
pub const MAX_LINES: usize = 2000;
/// Characters of one line that are given.
pub const MAX_LINE_CHARS: usize = 2000;
/// Bytes of one line that are read from a file too large to hold.
const MAX_LINE_BYTES: usize = MAX_LINE_CHARS * 4;
/// Bytes that decide what a file is.
const SNIFFED_BYTES: u64 = 8192;
/// A cancelled call is noticed every this many lines.
const CANCEL_STEP: usize = 4096;
/// What the numbers, marks and the closing note may take of the result.
const NOTE_BYTES: usize = 512;

/// Shows files.
#[derive(Debug, Clone, Copy, Default)]
pub struct ViewTool;

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

impl ViewTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self)
    }
}

impl Tool for ViewTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "view",
            description: format!(
                "Shows a file as numbered lines (number, tab, text), {MAX_LINES} lines unless limit is less; a PNG, JPEG, \
                 GIF, WebP or PDF as it is; a folder as a list. A path that starts with blob: is the full output of \
                 an earlier call."
            ),
            schema: json!({"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string", "description": "Relative to the working folder, absolute, or ~/…"},
                "offset": {"type": "integer", "minimum": 0, "description": "First line, from 1"},
                "limit": {"type": "integer", "minimum": 1, "description": "Number of lines"},
            }}),
            category: Category::Read,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let arguments: Arguments = parsed("view", arguments)?;
        let access = match arguments.path.strip_prefix(BLOB_PREFIX) {
            Some(_) => vec![Access::Internal],
            None => path::reading(context, &arguments.path)?,
        };
        Ok(CallPlan { access, preview: format!("view {}", arguments.path), parallel: true })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        blocking(move || {
            let arguments: Arguments = parsed("view", &arguments)?;
            let window = Window {
                first: arguments.offset.unwrap_or(1).max(1),
                limit: arguments.limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES),
            };
            match arguments.path.strip_prefix(BLOB_PREFIX) {
                Some(hash) => view_blob(&context, hash, window),
                None => view_path(&context, path::resolve_granted(&context, &arguments.path)?, window),
            }
        })
    }
}

/// The lines asked for: the first, from 1, and how many.
#[derive(Debug, Clone, Copy)]
struct Window {
    first: usize,
    limit: usize,
}

fn view_blob(context: &CallContext, hash: &str, window: Window) -> Result<ToolOutput, ToolFailure> {
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ToolFailure::BadArguments(format!(
            "the field 'path' is '{BLOB_PREFIX}…' without the 64 hex digits that name an output"
        )));
    }
    let shown = format!("{BLOB_PREFIX}{hash}");
    let content =
        context.blobs.get(&hash.to_ascii_lowercase()).map_err(|error| ToolFailure::Failed(error.to_string()))?;
    let text = match Text::decode(content) {
        Some(text) => text,
        None => return Err(ToolFailure::Failed(format!("{shown}: this is not text"))),
    };
    page(&text, &shown, window)
}

fn view_path(context: &CallContext, path: PathBuf, window: Window) -> Result<ToolOutput, ToolFailure> {
    let shown = path::shown(context, &path);
    if path.is_dir() {
        return listing::view(&path, &shown);
    }
    let (mut file, meta) = disk::open(&path, &shown)?;
    let mut first = Vec::new();
    file.by_ref().take(SNIFFED_BYTES).read_to_end(&mut first).map_err(|error| disk::refusal(&shown, &error))?;
    if let Some(media_type) = media::media_type(&first) {
        return media::view(context, &path, &shown, media_type);
    }
    if meta.len() > MAX_FILE_BYTES {
        let wide = matches!(first.as_slice(), [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]);
        if wide || looks_binary(&first) {
            return Err(binary(&shown, meta.len(), &first));
        }
        // The ledger stays as it is: a file of this size can not be edited anyway.
        let start = std::io::Cursor::new(first);
        return stream(context, BufReader::with_capacity(1 << 20, start.chain(file)), meta.len(), &shown, window);
    }
    let content = disk::read_whole(&path, &shown)?;
    let hash = change::hash(&content);
    let size = content.len() as u64;
    let Some(text) = Text::decode(content) else { return Err(binary(&shown, size, &first)) };
    let mut output = page(&text, &shown, window)?;
    output.files.push(context.ledger.note(&path, Some(hash)));
    Ok(output)
}

fn binary(shown: &str, size: u64, first: &[u8]) -> ToolFailure {
    let kind = kind_of(first).unwrap_or("unknown kind");
    ToolFailure::Failed(format!(
        "{shown}: this is a binary file ({kind}, {size} bytes), which view does not show; use a command such as file, \
         xxd or strings"
    ))
}

/// Numbered lines, with a bound on all of them.
#[derive(Debug, Default)]
struct Page {
    text: String,
    lines: usize,
    full: bool,
}

impl Page {
    /// Adds a line, unless the page would grow past its bound: then it is full. `whole` is the length of the line
    /// when `line` is only its start, with the unit.
    fn push(&mut self, number: usize, line: &str, whole: Option<(usize, &str)>) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (kept, whole) = match line.char_indices().nth(MAX_LINE_CHARS) {
            Some((end, _)) => {
                (line.get(..end).unwrap_or_default(), whole.or(Some((line.chars().count(), "characters"))))
            }
            None => (line, whole),
        };
        let mark = whole.map_or_else(String::new, |(length, unit)| {
            format!(" [line cut: {length} {unit}, the first {} characters shown]", kept.chars().count())
        });
        if self.text.len() + kept.len() + mark.len() + 16 > MAX_RESULT_BYTES - NOTE_BYTES && self.lines > 0 {
            self.full = true;
            return;
        }
        // A NUL far into a file is shown by its sign; some services refuse the character itself.
        self.text.push_str(&format!("{number:>6}\t{}{mark}\n", kept.replace('\0', "\u{2400}")));
        self.lines += 1;
    }
}

fn page(text: &Text, shown: &str, window: Window) -> Result<ToolOutput, ToolFailure> {
    let total = text.text.lines().count();
    if total == 0 {
        return Ok(ToolOutput::text("[empty file]", "empty file"));
    }
    if window.first > total {
        let lines = counted(total, "line", "lines");
        return Err(ToolFailure::Failed(format!("{shown}: there is no line {}; the file has {lines}", window.first)));
    }
    let mut page = Page::default();
    for (index, line) in text.text.split('\n').enumerate().take(total).skip(window.first - 1).take(window.limit) {
        page.push(index + 1, line, None);
        if page.full {
            break;
        }
    }
    let mut facts = vec![counted(total, "line", "lines")];
    match endings(&text.text) {
        Endings::Lf => {}
        Endings::Crlf => facts.push("CRLF line endings".into()),
        Endings::Mixed => facts.push("mixed line endings".into()),
    }
    if text.encoding != Encoding::Utf8 {
        facts.push(text.encoding.to_string());
    }
    if !text.text.ends_with('\n') {
        facts.push("no newline at the end".into());
    }
    let last = window.first + page.lines - 1;
    let facts = facts.join(", ");
    let note = match (window.first, last == total) {
        (1, true) => format!("[{facts}]"),
        (first, true) => format!("[lines {first}-{last} of {facts}]"),
        (first, false) => format!("[lines {first}-{last} of {facts}; go on with offset {}]", last + 1),
    };
    Ok(ToolOutput::text(page.text + &note, counted(page.lines, "line", "lines")))
}

/// Lines of a file that is too large to hold; what is before the window is skipped, what is after it not read.
fn stream(
    context: &CallContext,
    mut reader: impl BufRead,
    size: u64,
    shown: &str,
    window: Window,
) -> Result<ToolOutput, ToolFailure> {
    let refused = |error: std::io::Error| disk::refusal(shown, &error);
    for skipped in 0..window.first - 1 {
        if skipped % CANCEL_STEP == 0 && context.cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        if reader.skip_until(b'\n').map_err(refused)? == 0 {
            return Err(ToolFailure::Failed(format!(
                "{shown}: there is no line {}; the file has {}",
                window.first,
                counted(skipped, "line", "lines")
            )));
        }
    }
    let mut page = Page::default();
    let mut line = Vec::new();
    let mut ended = false;
    while page.lines < window.limit && !page.full {
        line.clear();
        let number = window.first + page.lines;
        let read = reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line).map_err(refused)?;
        if read == 0 {
            ended = true;
            break;
        }
        let whole = match line.pop_if(|byte| *byte == b'\n') {
            None if read == MAX_LINE_BYTES => Some((read + reader.skip_until(b'\n').map_err(refused)?, "bytes")),
            _ => None,
        };
        page.push(number, String::from_utf8_lossy(&line).trim_start_matches('\u{FEFF}'), whole);
    }
    let last = window.first + page.lines - 1;
    if page.lines == 0 {
        return Err(ToolFailure::Failed(format!("{shown}: there is no line {}; it ends before", window.first)));
    }
    let ended = ended || (!page.full && reader.fill_buf().map_err(refused)?.is_empty());
    let more = if ended { "the end".to_owned() } else { format!("more lines follow, go on with offset {}", last + 1) };
    let note = format!("[lines {}-{last}, {more}; the file has {size} bytes and is too large to edit]", window.first);
    Ok(ToolOutput::text(page.text + &note, counted(page.lines, "line", "lines")))
}
