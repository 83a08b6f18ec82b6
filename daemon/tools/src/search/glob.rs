//! `glob`: files by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use mcode_permissions::access::{Access, Category};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocking::{blocking, parsed};
use crate::fs::{disk, path};
use crate::output::{MAX_RESULT_BYTES, counted};
use crate::search::{Stop, walker};
use crate::tool::{CallContext, CallPlan, Tool, ToolFailure, ToolOutput, ToolSpec};

/// The most files that are given.
pub const MAX_RESULTS: usize = 1000;
/// The most files that are counted.
pub const MAX_COUNTED: usize = 100_000;
/// How long a search may take.
pub const TIME_MAX: Duration = Duration::from_secs(10);
/// What the closing note may take of the result.
const NOTE_BYTES: usize = 512;

/// Finds files by name.
#[derive(Debug, Clone, Copy)]
pub struct GlobTool {
    /// How long one search may take.
    pub time_max: Duration,
}

impl Default for GlobTool {
    fn default() -> Self {
        Self { time_max: TIME_MAX }
    }
}

#[derive(Debug, Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

impl GlobTool {
    /// The tool, ready for a set.
    #[must_use]
    pub fn shared() -> Arc<dyn Tool> {
        Arc::new(Self::default())
    }
}

impl Tool for GlobTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "glob",
            description:
                "Finds files by pattern (*, **, ?, [a-z], {a,b}), sorted by path, hidden ones too. * does not \
                          cross /, so use **/*.rs for all folders. Files that git ignores are given only when \
                          nothing else matches, marked (ignored)."
                    .into(),
            schema: json!({"type": "object", "required": ["pattern"], "properties": {
                "pattern": {"type": "string"},
                "path": {"type": "string", "description": "Folder to search, default the working folder"},
            }}),
            category: Category::Read,
        }
    }

    fn plan(&self, arguments: &Value, context: &CallContext) -> Result<CallPlan, ToolFailure> {
        let arguments: Arguments = parsed("glob", arguments)?;
        let target = Target::new(context, &arguments)?;
        let mut access = vec![Access::ReadPath(target.root)];
        if target.literal != access_path(&access) {
            access.push(Access::ReadPath(target.literal));
        }
        // The folder's other names; the folder itself is there already.
        access.extend(path::reading(context, arguments.path.as_deref().unwrap_or("."))?.into_iter().skip(1));
        Ok(CallPlan { access, preview: format!("glob {}", arguments.pattern), parallel: true })
    }

    fn run(&self, arguments: Value, context: CallContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let time_max = self.time_max;
        blocking(move || {
            let arguments: Arguments = parsed("glob", &arguments)?;
            search(&context, &arguments, time_max)
        })
    }
}

fn access_path(access: &[Access]) -> PathBuf {
    match access.first() {
        Some(Access::ReadPath(path)) => path.clone(),
        _ => PathBuf::new(),
    }
}

/// Where a pattern is looked for.
#[derive(Debug)]
struct Target {
    /// The folder that is walked, resolved: the one asked for and the literal folders that the pattern starts with.
    root: PathBuf,
    /// The same as the model would write it.
    shown: PathBuf,
    /// The rest of the pattern.
    pattern: String,
    /// The file that has the pattern as its name, resolved; it may not exist.
    literal: PathBuf,
    /// The same as the model would write it.
    literal_shown: PathBuf,
}

impl Target {
    fn new(context: &CallContext, arguments: &Arguments) -> Result<Self, ToolFailure> {
        let pattern = arguments.pattern.as_str();
        if pattern.trim().is_empty() {
            return Err(ToolFailure::BadArguments("glob: the field 'pattern' is empty".into()));
        }
        let base = arguments.path.as_deref().filter(|path| !path.trim().is_empty()).unwrap_or(".");
        let base_dir = path::resolve(context, base)?;
        let (folders, rest) = split_literal(pattern);
        let under = |inner: &str| -> Result<PathBuf, ToolFailure> {
            let whole = if inner.starts_with('~') { PathBuf::from(inner) } else { base_dir.join(inner) };
            path::resolve_granted(context, &whole.to_string_lossy())
        };
        let shown_base = if base == "." { PathBuf::new() } else { PathBuf::from(base.trim_start_matches("./")) };
        Ok(Self {
            root: if folders.is_empty() { path::resolve_granted(context, base)? } else { under(folders)? },
            shown: shown_base.join(folders.trim_start_matches("./")),
            pattern: rest.to_owned(),
            literal: under(pattern)?,
            literal_shown: shown_base.join(pattern.trim_start_matches("./")),
        })
    }
}

/// A pattern as the folders at its start that hold no sign of a pattern, and the rest. The rest is never empty.
fn split_literal(pattern: &str) -> (&str, &str) {
    let sign = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.trim_end_matches('/').len());
    match pattern.get(..sign).and_then(|start| start.rfind('/')) {
        Some(slash) => (pattern.get(..=slash).unwrap_or_default(), pattern.get(slash + 1..).unwrap_or_default()),
        None => ("", pattern),
    }
}

/// Files found: as shown, and whether they are ignored.
#[derive(Debug, Default)]
struct Found {
    files: BTreeMap<PathBuf, bool>,
    stopped: bool,
}

fn search(context: &CallContext, arguments: &Arguments, limit: Duration) -> Result<ToolOutput, ToolFailure> {
    let target = Target::new(context, arguments)?;
    let stop = Stop::after(limit, context.cancel.clone());
    let mut found = Found::default();
    if target.literal.is_file() {
        found.files.insert(target.literal_shown.clone(), false);
    }
    if target.root.is_dir() {
        look(&target, &stop, &mut found)?;
    } else if let Some(given) = &arguments.path {
        let dir = path::resolve(context, given)?;
        if !dir.is_dir() {
            let error = std::fs::read_dir(&dir).err().unwrap_or_else(|| std::io::ErrorKind::NotADirectory.into());
            return Err(disk::missing(&dir, given, &error));
        }
    }
    if stop.cancelled() {
        return Err(ToolFailure::Cancelled);
    }
    Ok(report(arguments, &found, limit))
}

fn look(target: &Target, stop: &Stop, found: &mut Found) -> Result<(), ToolFailure> {
    let matchers = matchers(&target.pattern)?;
    for respect_ignores in [true, false] {
        for matcher in &matchers {
            if found.files.is_empty() && !found.stopped {
                walk(target, matcher, respect_ignores, stop, found);
            }
        }
    }
    Ok(())
}

/// The pattern, and after it the same with braces, then also brackets, taken as themselves: `{rule}.md` and `[id].tsx`
/// are names of files too.
fn matchers(pattern: &str) -> Result<Vec<GlobMatcher>, ToolFailure> {
    let build = |pattern: &str| {
        GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build().map(|g| g.compile_matcher())
    };
    let first = build(pattern);
    let reason = first.as_ref().err().map(|error| error.kind().to_string());
    let mut matchers: Vec<GlobMatcher> = first.into_iter().collect();
    if pattern.contains(['{', '}']) {
        matchers.extend(build(&literal_braces(pattern)));
    }
    if pattern.contains(['[', ']']) {
        let all: String =
            pattern.chars().map(|c| if "[]{}".contains(c) { format!("[{c}]") } else { c.to_string() }).collect();
        matchers.extend(build(&all));
    }
    match reason {
        Some(reason) if matchers.is_empty() => Err(ToolFailure::BadArguments(format!(
            "glob: the field 'pattern' is no pattern: {reason}; put [ ] around a sign to take it as itself"
        ))),
        _ => Ok(matchers),
    }
}

/// The pattern with braces outside of brackets taken as themselves.
fn literal_braces(pattern: &str) -> String {
    let mut result = String::with_capacity(pattern.len() + 8);
    let mut in_class = false;
    for c in pattern.chars() {
        match c {
            '{' | '}' if !in_class => result.extend(['[', c, ']']),
            _ => {
                in_class = if in_class { c != ']' } else { c == '[' };
                result.push(c);
            }
        }
    }
    result
}

fn walk(target: &Target, matcher: &GlobMatcher, respect_ignores: bool, stop: &Stop, found: &mut Found) {
    let folders = target.pattern.ends_with('/');
    for entry in walker(&target.root, respect_ignores).build().flatten() {
        if stop.now() || found.files.len() >= MAX_COUNTED {
            found.stopped = true;
            return;
        }
        let Some(kind) = entry.file_type() else { continue };
        let Ok(inner) = entry.path().strip_prefix(&target.root) else { continue };
        let fits = if folders {
            kind.is_dir() && matcher.is_match(inner.join(""))
        } else {
            // A link counts when it leads to a file; what it leads to is not searched.
            matcher.is_match(inner) && (kind.is_file() || (kind.is_symlink() && entry.path().is_file()))
        };
        if fits && !inner.as_os_str().is_empty() {
            found.files.insert(target.shown.join(inner), !respect_ignores);
        }
    }
}

fn report(arguments: &Arguments, found: &Found, limit: Duration) -> ToolOutput {
    let total = found.files.len();
    let mut text = String::new();
    let mut given = 0;
    for (file, ignored) in found.files.iter().take(MAX_RESULTS) {
        let line = format!("{}{}\n", display(file), if *ignored { " (ignored)" } else { "" });
        if text.len() + line.len() > MAX_RESULT_BYTES - NOTE_BYTES {
            break;
        }
        text.push_str(&line);
        given += 1;
    }
    let mut notes = Vec::new();
    if total == 0 {
        notes.push(format!("no files match {}", arguments.pattern));
        if !arguments.pattern.contains('/') && !found.stopped {
            notes.push(format!("only the folder itself was searched; **/{} searches all below it", arguments.pattern));
        }
    }
    if given < total {
        notes.push(format!("{given} of {total} files shown; narrow the pattern for the others"));
    }
    if found.stopped {
        notes.push(if total >= MAX_COUNTED {
            format!("stopped early: more than {MAX_COUNTED} files match")
        } else {
            format!(
                "stopped early after {} s: the list is not complete; narrow the pattern or path",
                limit.as_secs_f32()
            )
        });
    }
    if !notes.is_empty() {
        text.push_str(&format!("[{}]", notes.join("; ")));
    }
    ToolOutput::text(text.trim_end(), counted(total, "file", "files"))
}

fn display(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_starts_at_its_literal_folders() {
        assert_eq!(split_literal("apps/**/tsconfig.json"), ("apps/", "**/tsconfig.json"));
        assert_eq!(split_literal("a/b/c.rs"), ("a/b/", "c.rs"));
        assert_eq!(split_literal("*.rs"), ("", "*.rs"));
        assert_eq!(split_literal("a/b{c/d}"), ("a/", "b{c/d}"));
        assert_eq!(split_literal("dir/"), ("", "dir/"));
        assert_eq!(split_literal("/etc/host*"), ("/etc/", "host*"));
    }

    #[test]
    fn braces_can_be_taken_as_themselves() {
        assert_eq!(literal_braces("a{b}[{]c"), "a[{]b[}][{]c");
        let matchers = matchers("{rule} *").unwrap();
        assert!(!matchers[0].is_match("{rule} x") && matchers[1].is_match("{rule} x"));
        assert!(super::matchers("a{b").unwrap()[0].is_match("a{b"));
        assert!(super::matchers("a[b").unwrap()[0].is_match("a[b"));
        assert!(super::matchers("[id]*").unwrap()[1].is_match("[id].tsx"));
        assert!(super::matchers("a\\").unwrap_err().to_string().contains("'pattern' is no pattern"));
    }
}
