//! Putting hunks into a text: lines must match exactly, at the stated line or elsewhere; line endings are the file's.

use crate::edit::patch_parse::{Hunk, Kind};
use crate::fs::text::{Endings, endings};
use crate::output::floor_boundary;

/// Bytes of a line that a message repeats.
const SHOWN_BYTES: usize = 120;
/// Line numbers that a message gives.
const MAX_NAMED_LINES: usize = 10;

#[derive(Debug, Clone, Copy)]
struct FileLine<'a> {
    text: &'a str,
    end: &'a str,
}

/// `text` with the hunks in it.
///
/// # Errors
/// The first hunk that does not fit, with the line that comes nearest.
pub fn apply(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let old: Vec<FileLine<'_>> = text.split_inclusive('\n').map(split_end).collect();
    let ends = endings(text);
    let mut new: Vec<FileLine<'_>> = Vec::with_capacity(old.len());
    let mut next = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let at = place(&old, hunk, next).map_err(|reason| format!("hunk {}: {reason}", index + 1))?;
        new.extend(old.iter().take(at).skip(next));
        next = at;
        for line in &hunk.lines {
            match (line.kind, old.get(next)) {
                (Kind::Keep, Some(kept)) => {
                    new.push(*kept);
                    next += 1;
                }
                (Kind::Remove, _) => next += 1,
                (Kind::Keep, None) => {}
                (Kind::Add, _) => {
                    let text = line.text.strip_suffix('\r').unwrap_or(&line.text);
                    let end = match ends {
                        _ if line.bare => "",
                        Endings::Crlf => "\r\n",
                        _ if text.len() < line.text.len() => "\r\n",
                        Endings::Lf => "\n",
                        Endings::Mixed => {
                            new.last().map_or("\n", |line| if line.end.is_empty() { "\n" } else { line.end })
                        }
                    };
                    new.push(FileLine { text, end });
                }
            }
        }
    }
    new.extend(old.iter().skip(next));
    // A file without a newline at its end stays so, unless the patch speaks of it.
    let spoken = hunks.iter().flat_map(|hunk| &hunk.lines).any(|line| line.bare);
    let bare_before = old.last().is_some_and(|line| line.end.is_empty());
    Ok(join(&new, if ends == Endings::Crlf { "\r\n" } else { "\n" }, bare_before && !spoken))
}

fn join(lines: &[FileLine<'_>], end: &str, bare: bool) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        text.push_str(line.text);
        let last = index + 1 == lines.len();
        match (last, line.end.is_empty()) {
            (true, _) if bare => {}
            // What was the last line has others after it now.
            (false, true) => text.push_str(end),
            _ => text.push_str(line.end),
        }
    }
    text
}

fn split_end(line: &str) -> FileLine<'_> {
    let text = line.strip_suffix('\n').unwrap_or(line);
    let text = if text.len() < line.len() { text.strip_suffix('\r').unwrap_or(text) } else { text };
    FileLine { text, end: line.get(text.len()..).unwrap_or_default() }
}

/// The index of the line where a hunk begins, not before `from`.
fn place(file: &[FileLine<'_>], hunk: &Hunk, from: usize) -> Result<usize, String> {
    let mut from = from;
    for (depth, hint) in hunk.after.iter().enumerate() {
        let start = if depth == 0 { from } else { from + 1 };
        let found =
            |fits: &dyn Fn(&str) -> bool| (start..file.len()).find(|i| file.get(*i).is_some_and(|l| fits(l.text)));
        from = found(&|line| line == hint)
            .or_else(|| found(&|line| line.trim() == hint.trim()))
            .or_else(|| found(&|line| line.contains(hint.trim())))
            .ok_or_else(|| format!("there is no line {} (after '@@') below line {start}", quoted(hint)))?;
    }
    let old: Vec<&str> = hunk
        .lines
        .iter()
        .filter(|line| line.kind != Kind::Add)
        .map(|line| line.text.strip_suffix('\r').unwrap_or(&line.text))
        .collect();
    if old.is_empty() {
        return match hunk.at {
            _ if !hunk.after.is_empty() => Ok(from + 1),
            Some(line) if line > file.len() => Err(format!("there is no line {line}; the file has {}", file.len())),
            Some(line) => Ok(line.max(from)),
            None => Ok(file.len()),
        };
    }
    let last = file.len().checked_sub(old.len());
    let fits = |at: &usize| file.iter().skip(*at).zip(&old).all(|(line, wanted)| line.text == *wanted);
    let mut found: Vec<usize> = last.map_or_else(Vec::new, |last| (from..=last).filter(fits).collect());
    if hunk.ends_file {
        found.retain(|at| at + old.len() == file.len());
    }
    match (found.as_slice(), hunk.at) {
        ([], _) => Err(nearest(file, &old, from)),
        ([only], _) => Ok(*only),
        ([first, ..], _) if !hunk.after.is_empty() => Ok(*first),
        (many, Some(line)) => nearest_to(many, line.saturating_sub(1)).ok_or_else(|| ambiguous(many)),
        (many, None) => Err(ambiguous(many)),
    }
}

/// The place nearest to the stated one; `None` when two are equally near.
fn nearest_to(places: &[usize], wanted: usize) -> Option<usize> {
    let best = places.iter().copied().min_by_key(|at| at.abs_diff(wanted))?;
    let rivals = places.iter().filter(|at| at.abs_diff(wanted) == best.abs_diff(wanted)).count();
    (rivals == 1).then_some(best)
}

fn ambiguous(places: &[usize]) -> String {
    let lines: Vec<String> = places.iter().take(MAX_NAMED_LINES).map(|at| (at + 1).to_string()).collect();
    let more = if places.len() > MAX_NAMED_LINES { ", …" } else { "" };
    format!("it fits at lines {}{more}; give more lines around it, or '@@ ' and a line above it", lines.join(", "))
}

fn nearest(file: &[FileLine<'_>], old: &[&str], from: usize) -> String {
    let same = |at: usize| file.iter().skip(at).zip(old).take_while(|(line, wanted)| line.text == **wanted).count();
    let best = (0..file.len()).map(|at| (same(at), at)).max_by_key(|(count, at)| (*count, usize::MAX - at));
    if let Some((count, at)) = best.filter(|(count, _)| *count > 0) {
        if count == old.len() && at < from {
            return format!("it fits at line {}, which is before the hunk above it; hunks go in file order", at + 1);
        }
        let line = file.get(at + count).map_or_else(|| "the end of the file".to_owned(), |line| quoted(line.text));
        let wanted = old.get(count).map_or_else(|| "the end of the file".to_owned(), |wanted| quoted(wanted));
        return format!(
            "it fits at line {} but not at line {}: the file has {line}, the patch {wanted}",
            at + 1,
            at + count + 1
        );
    }
    let first = old.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
    let near = file.iter().position(|line| !first.is_empty() && line.text.trim() == first.trim());
    match near.and_then(|index| Some((index, file.get(index)?))) {
        Some((index, line)) => format!(
            "line {} differs in whitespace: the file has {}, the patch {}",
            index + 1,
            quoted(line.text),
            quoted(first)
        ),
        None => {
            format!("its lines are not in the file: there is no line {}", quoted(old.first().copied().unwrap_or(first)))
        }
    }
}

/// A line in quotes with its tabs visible, cut.
fn quoted(line: &str) -> String {
    let cut = line.get(..floor_boundary(line, SHOWN_BYTES)).unwrap_or_default();
    format!("{cut:?}{}", if cut.len() < line.len() { "…" } else { "" })
}
